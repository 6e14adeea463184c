"""Plain values for machines: Python's own types, None for unknown, rounded to the precision of measurement."""

from __future__ import annotations

from datetime import datetime, tzinfo
from typing import Any, TypeAlias

import pandas as pd

from gua_report.render.words import clean, is_missing

Value: TypeAlias = "str | int | float | bool | None"

# Decimal digits by the end of a column's name; the first match counts.
DIGITS = {"share": 6, "hours": 4, "gpus": 4, "kwh": 4, "cost": 4, "seconds": 3, "mib": 1}
BOOLEAN = ("ongoing", "meant_now", "over_limit", "left_out")
WHOLE = ("index", "mig_index", "gpu_index", "pid", "people", "weekday", "hour", "cards", "hosts", "gaps")


def value(column: str, item: Any) -> Value:
    if is_missing(item):
        return None
    if column in WHOLE:
        return int(item)
    if column in BOOLEAN:
        return bool(item)
    for ending, digits in DIGITS.items():
        if column.endswith(ending):
            return round(float(item), digits) + 0.0  # not -0.0
    return clean(item)


def iso(ts_ms: int, zone: tzinfo) -> str:
    """The time in the reader's zone, with its offset."""
    local = datetime.fromtimestamp(ts_ms / 1000, zone)
    return local.isoformat(timespec="milliseconds" if ts_ms % 1000 else "seconds")


def records(frame: pd.DataFrame, columns: list[str]) -> list[dict[str, Value]]:
    return [{name: value(name, row[name]) for name in columns} for row in frame.to_dict("records")]


def by_state(frame: pd.DataFrame, columns: list[str]) -> dict[Value, dict[str, Value]]:
    """The values of these columns by the state in column `state`."""
    return {row.pop("state"): row for row in records(frame, ["state", *columns])}
