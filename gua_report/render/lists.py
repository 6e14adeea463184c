"""The sections that list periods of time: cards held right now, idle-held episodes, gaps."""

from __future__ import annotations

from typing import Any

import pandas as pd

from gua_report.render.blocks import Block, Cell, Column, Section, Table
from gua_report.render.words import clean, count, duration, gib, gpu, is_missing, moment, number, percent
from gua_report.summary.build import Report

GOES_ON = ">"


def held_now(report: Report, top: int, stale_ms: int) -> Section:
    """The part of the headline that tells who holds which card right now, and since when."""
    ongoing = report.episodes[report.episodes["ongoing"].astype(bool)]
    newest, end = report.newest_ms, report.window.end_ms
    title, if_none = "Held right now, without work", "Nobody holds a card idle."
    if newest < end - stale_ms:
        title, if_none = "Held without work at the last tick", "Nobody held a card idle."
    elif newest > end + stale_ms:
        # Episodes that began after the window are not in the report.
        title, if_none = "Held without work in this window, and still", "Nothing that this report knows of."
    at = moment(newest, report.window.zone)
    caption = f"Idle-held at the newest tick, {at}; GiB: the most the process held."
    return Section("headline", title, caption, _episode_table(report, ongoing, top, if_none))


def episodes(report: Report, top: int) -> Section:
    held = number(report.policy.process_memory_mib)
    caption = f"One process, over {held} MiB without work, not cut at the window; {GOES_ON} ongoing."
    blocks = _episode_table(report, report.episodes, top, "Nobody held a card idle.", marked=True)
    return Section("episodes", "§6 Idle-held episodes", caption, blocks)


def _episode_table(report: Report, frame: pd.DataFrame, top: int, if_none: str, marked: bool = False) -> list[Block]:
    if frame.empty:
        return [if_none]
    columns = [Column("")] if marked else []
    columns += [Column("gpu"), Column("who", least=8), Column("since"), Column("for", True), Column("GiB", True)]
    columns += [Column("pid", True, may_go=True), Column("command", least=8)]
    rows: list[list[Cell]] = []
    for row in frame.head(top).to_dict("records"):
        marker: list[Cell] = [GOES_ON if row["ongoing"] else ""] if marked else []
        rows.append([*marker, *_episode(row, report)])
    blocks: list[Block] = [Table(columns, rows)] if rows else []
    if len(frame) > top:
        blocks.append(f"and {len(frame) - top:,} more")
    return blocks


def _episode(row: dict[Any, Any], report: Report) -> list[Cell]:
    return [
        gpu(row["gpu_index"], row["mig_index"]),
        clean(row["identity"]),
        moment(row["start_ms"], report.window.zone),
        duration(row["seconds"]),
        gib(row["peak_memory_mib"]),
        clean(row["pid"]),
        clean(row["command"]),
    ]


def coverage(report: Report, top: int) -> Section:
    observed, length = report.observed_seconds, report.window.length_ms / 1000
    ticks, rollups = report.from_ticks_seconds, report.from_rollups_seconds
    sources = f"{duration(ticks)} from ticks" + (f", {duration(rollups)} from rollups" if rollups else "")
    known = report.energy_known_share
    energy = "not known" if is_missing(known) else f"known for {percent(known)} of the card time"
    blocks: list[Block] = [
        f"Observed: {percent(report.coverage_share)}, {duration(observed)} of {duration(length)} ({sources}).",
        f"Energy: {energy}.",
    ]
    if len(report.driver_versions) > 1:
        blocks.append(f"Drivers: {', '.join(clean(version) for version in report.driver_versions)}.")
    blocks += _gaps(report, top) if len(report.gaps) else ["No gaps."]
    blocks += [f"Warning: {clean(warning)}" for warning in report.warnings]
    blocks += [f"Note: {clean(note)}" for note in report.notes]
    caption = "Observed time over window time; what no tick covers is a gap, never idle."
    return Section("coverage", "§7 Coverage and data quality", caption, blocks)


def _gaps(report: Report, top: int) -> list[Block]:
    gaps = report.gaps.assign(seconds=(report.gaps["end_ms"] - report.gaps["start_ms"]) / 1000)
    totals: list[list[Cell]] = [
        [clean(kind), f"{len(some):,}", duration(some["seconds"].sum()), duration(some["seconds"].max())]
        for kind, some in gaps.groupby("kind", sort=True)
    ]
    columns = [Column("gaps by kind", least=12), Column("gaps", True), Column("total", True), Column("longest", True)]
    blocks: list[Block] = [Table(columns, totals)]
    longest = gaps.sort_values(["seconds", "start_ms"], ascending=[False, True]).head(top).sort_values("start_ms")
    zone = report.window.zone
    rows: list[list[Cell]] = [
        [moment(start, zone), moment(end, zone), duration(seconds), clean(kind)]
        for start, end, seconds, kind in longest[["start_ms", "end_ms", "seconds", "kind"]].itertuples(index=False)
    ]
    if rows:
        blocks.append(Table([Column("from"), Column("to"), Column("length", True), Column("kind", least=12)], rows))
    if len(gaps) > top:
        blocks.append(f"and {count(len(gaps) - top, 'shorter gap')}")
    return blocks
