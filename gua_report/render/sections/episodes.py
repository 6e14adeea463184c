"""§6: the times in which one process held a card without work."""

from __future__ import annotations

import pandas as pd

from gua_report.console.spelling import duration
from gua_report.render import Options
from gua_report.render.blocks import Block, Column, Section, Table, figure, label
from gua_report.render.values import iso
from gua_report.render.words import clean, gib, gpu, moment, number
from gua_report.summary.build import Report

COLUMNS = ["gpu_uuid", "gpu_index", "mig_index", "identity", "pid", "command", "start", "end", "seconds"]
COLUMNS += ["peak_memory_mib", "ongoing"]
GOES_ON = Column("", lambda row: ">" if row["ongoing"] else "")


def frame(report: Report) -> pd.DataFrame:
    found, zone = report.episodes, report.window.zone
    start, end = ([iso(ts_ms, zone) for ts_ms in found[name].tolist()] for name in ("start_ms", "end_ms"))
    return found.assign(start=start, end=end)


def show(report: Report, options: Options) -> list[Section]:
    held = number(report.policy.process_memory_mib)
    caption = f"One process, over {held} MiB without work, not cut at the window; > ongoing."
    blocks = table_of_episodes(report, report.episodes, options.top, GOES_ON) or ["Nobody held a card idle."]
    return [Section("episodes", "§6 Idle-held episodes", caption, blocks)]


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
