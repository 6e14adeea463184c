"""Plain values for machines: Python's own types, None for unknown, rounded to the precision of measurement."""

from __future__ import annotations

from datetime import datetime
from typing import Any, TypeAlias

import pandas as pd

from gua_report.render.words import clean, is_missing
from gua_report.summary.build import Report
from gua_report.window import Window
from gua_sample.policy import STATES

Value: TypeAlias = "str | int | float | bool | None"

# Decimal digits by the end of a column's name; the first match counts.
DIGITS = {"share": 6, "hours": 4, "gpus": 4, "kwh": 4, "cost": 4, "seconds": 3, "mib": 1}
WHOLE = ("index", "mig_index", "gpu_index", "pid", "weekday", "hour")


def value(column: str, item: Any) -> Value:
    if is_missing(item):
        return None
    if column in WHOLE:
        return int(item)
    if column == "ongoing":
        return bool(item)
    for ending, digits in DIGITS.items():
        if column.endswith(ending):
            return round(float(item), digits) + 0.0  # not -0.0
    return clean(item)


def iso(ts_ms: int, window: Window) -> str:
    """The time in the reader's zone, with its offset."""
    local = datetime.fromtimestamp(ts_ms / 1000, window.zone)
    return local.isoformat(timespec="milliseconds" if ts_ms % 1000 else "seconds")


def records(frame: pd.DataFrame, columns: list[str]) -> list[dict[str, Value]]:
    return [{name: value(name, row[name]) for name in columns} for row in frame.to_dict("records")]


def by_state(frame: pd.DataFrame, columns: list[str]) -> dict[str, dict[str, Value]]:
    return {state: {name: value(name, frame[name][state]) for name in columns} for state in STATES}


def changes(report: Report) -> dict[str, Value] | None:
    """The change of each state's share since the window before; None without one."""
    before = report.before
    if before is None:
        return None
    return {state: value("share", report.headline["share"][state] - before["share"][state]) for state in STATES}


def currency(report: Report) -> str | None:
    """The currency; None without a price, as there is no cost then."""
    config = report.config
    priced = config.price_per_gpu_hour is not None or config.price_per_kwh is not None
    return clean(config.currency) if priced else None


def episodes(report: Report) -> list[dict[str, Value]]:
    frame = report.episodes
    rows = records(frame, ["gpu_uuid", "gpu_index", "mig_index", "identity", "pid", "command"])
    ends = records(frame, ["seconds", "peak_memory_mib", "ongoing"])
    times = zip(frame["start_ms"].tolist(), frame["end_ms"].tolist(), strict=True)
    return [
        {**row, "start": iso(start, report.window), "end": iso(end, report.window), **rest}
        for row, (start, end), rest in zip(rows, times, ends, strict=True)
    ]


def gaps(report: Report) -> list[dict[str, Value]]:
    return [
        {"from": iso(start, report.window), "to": iso(end, report.window), "kind": clean(kind)}
        for start, end, kind in report.gaps[["start_ms", "end_ms", "kind"]].itertuples(index=False)
    ]


GPU = ["uuid", "index", "mig_index", "name", "gpu_hours"]
CAPACITY = ["gpu_hours", "equivalent_gpus", "energy_kwh", "cost"]
HEATMAP = ["weekday", "hour", "active_share"]
EPISODE = ["gpu_uuid", "gpu_index", "mig_index", "identity", "pid", "command", "start", "end", "seconds"]
EPISODE += ["peak_memory_mib", "ongoing"]
