"""§6: the times in which one process held a card without work."""

from __future__ import annotations

import pandas as pd

from gua_report.console.spelling import duration
from gua_report.render import Options
from gua_report.render.blocks import Block, Column, Section, Table, figure, label
from gua_report.render.values import iso
from gua_report.render.words import clean, gib, gpu, is_missing, moment, number
from gua_report.summary.build import Report

COLUMNS = ["gpu_uuid", "gpu_index", "mig_index", "identity", "pid", "command", "start", "end", "seconds"]
COLUMNS += ["peak_memory_mib", "ongoing"]
GOES_ON = Column("", lambda row: "?" if is_missing(row["ongoing"]) else ">" if row["ongoing"] else "")


def frame(report: Report) -> pd.DataFrame:
    found, zone = report.episodes, report.window.zone
    start, end = ([iso(ts_ms, zone) for ts_ms in found[name].tolist()] for name in ("start_ms", "end_ms"))
    return found.assign(start=start, end=end)


def show(report: Report, options: Options) -> list[Section]:
    held = number(report.policy.process_memory_mib)
    mark = "> ongoing" if report.knows_now else "? not known whether ongoing"
    caption = f"One process, over {held} MiB without work, not cut at the window; {mark}."
    blocks = table_of_episodes(report, report.episodes, options.top, GOES_ON)
    blocks = blocks or ["Nobody was seen holding a card idle."]
    return [Section("episodes", "§6 Idle-held episodes", caption, blocks)]


def unknown_now(report: Report) -> str | None:
    """Why it is not known who holds what right now; None if it is known."""
    failed = report.newest_failed
    if failed is None or failed.is_near:
        return None
    since = moment(failed.since_ms, report.window.zone)
    return f"driver error since {since} ({clean(failed.error)})"


def table_of_episodes(report: Report, found: pd.DataFrame, top: int, *first: Column) -> list[Block]:
    """The longest of these episodes, with the columns in `first` before the usual ones; empty if there are none."""
    zone = report.window.zone
    columns = [
        *first,
        Column("gpu", lambda row: gpu(row["gpu_index"], row["mig_index"])),
        label("who", "identity"),
        Column("since", lambda row: moment(row["start_ms"], zone)),
        figure("for", "seconds", duration),
        figure("GiB", "peak_memory_mib", gib),
    ]
    if found["pid"].notna().any():  # not if names were taken out
        columns += [
            Column("pid", lambda row: clean(row["pid"]), right=True, may_go=True),
            label("command", "command"),
        ]
    blocks: list[Block] = [Table(columns, found.head(top).to_dict("records"))] if len(found) else []
    return blocks + ([f"and {len(found) - top:,} more"] if len(found) > top else [])
