"""Spelling of values, each kind in one place: for people, and below that for machines. An unknown value is never 0."""

from collections.abc import Mapping
from datetime import datetime, timezone, tzinfo
from typing import Any, TypeAlias

import pandas as pd

from gua_report.console import spelling
from gua_report.console.spelling import MONTHS, WEEKDAYS
from gua_report.ticks.classify import NO_PID
from gua_report.window import Window
from gua_sample.console import plural
from gua_sample.partition_names import DAY_MS
from gua_sample.processes import printable

count = plural
MISSING = "—"
NOT_KNOWN = "?"
Value: TypeAlias = "str | int | float | bool | None"
# Decimal digits by the end of a column's name; the first match counts.
DIGITS = {"share": 6, "hours": 4, "gpus": 4, "kwh": 4, "cost": 4, "seconds": 3, "mib": 1}
BOOLEAN = ("ongoing", "meant_now", "start_is_exact", "since_is_exact", "over_limit", "left_out")
WHOLE = ("index", "mig_index", "gpu_index", "pid", "people", "weekday", "hour", "cards", "hosts", "gaps")


def clean(text: Any) -> str:
    """The text, unable to steer a terminal or to break a line. Every text that a user may have chosen passes here."""
    return NOT_KNOWN if is_missing(text) else printable(str(text))


def is_missing(value: Any) -> bool:
    return value is None or bool(pd.isna(value))


def percent(share: Any, decimals: int = 1, unit: str = "%") -> str:
    """A share as a percentage, which is rounded neither to 0 nor to 100."""
    if is_missing(share):
        return MISSING
    rounded, least = f"{share * 100:.{decimals}f}", 10**-decimals
    if share > 0 and float(rounded) == 0:
        return f"<{least:g}{unit}"
    return f">{100 - least:g}{unit}" if share < 1 and float(rounded) == 100 else rounded + unit


def points(change: Any) -> str:
    if is_missing(change):
        return MISSING
    rounded = f"{change * 100:+.1f}"
    return "0.0" if rounded in ("+0.0", "-0.0") else rounded


def amount(value: Any) -> str:
    if is_missing(value):
        return MISSING
    return "<0.1" if 0 < value < 0.05 else f"{value:,.1f}"


def short(value: float) -> str:
    """An amount in a few characters, for pictures."""
    return f"{value:.0f}" if value >= 9.95 else amount(value).removesuffix(".0")


def gib(mib: Any) -> str:
    return amount(mib / 1024 if not is_missing(mib) else None)


def number(value: float) -> str:
    """A threshold or a price, as the administrator wrote it."""
    return f"{value:.10g}"


def moment(ts_ms: Any, zone: tzinfo) -> str:
    """A short time for tables: 13 Nov 11:34. The header names the zone."""
    local = datetime.fromtimestamp(ts_ms / 1000, zone)
    return f"{local:%d} {MONTHS[local.month - 1]} {local:%H:%M}"


def spell_span(start_ms: int, end_ms: int, window: Window) -> str:
    """From when to when: Mon 9 Nov 08:00 to 14:00, or Mon 9 Nov for a whole day."""
    start, end = (datetime.fromtimestamp(ms / 1000, window.zone) for ms in (start_ms, end_ms))
    day = f"{WEEKDAYS[start.weekday()]} {start.day} {MONTHS[start.month - 1]}"
    if f"{start:%H:%M}{end:%H:%M}" == "00:0000:00":
        days = round((end_ms - start_ms) / DAY_MS)
        return day if days == 1 else f"{day}, {days} days"
    other = "" if start.date() == end.date() else f"{end.day} {MONTHS[end.month - 1]} "
    return f"{day} {start:%H:%M} to {other}{end:%H:%M}"


def gpu(index: Any, mig_index: Any) -> str:
    """The card's number as in the driver's tools: 0, or 0:2 for the MIG instance 2 of card 0."""
    if is_missing(index):
        return NOT_KNOWN
    return spelling.gpu(int(index), None if is_missing(mig_index) else int(mig_index))


def card(row: Mapping[Any, Any]) -> str:
    """The card of a row with its index: GPU 0:2, or gpu07 GPU 0:2 in the report of a fleet."""
    host = f"{clean(row['host'])} " if "host" in row else ""
    return f"{host}GPU {gpu(row['index'], row.get('mig_index'))}"


def value(column: str, item: Any) -> Value:
    if is_missing(item) or (column == "pid" and item == NO_PID):
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
    local = datetime.fromtimestamp(ts_ms / 1000, zone)
    return local.isoformat(timespec="milliseconds" if ts_ms % 1000 else "seconds")


def records(frame: pd.DataFrame, columns: list[str], zone: tzinfo = timezone.utc) -> list[dict[str, Value]]:
    """The rows. A column that is not in the frame, such as `start`, is a text of the time in `start_ms`."""
    found: list[list[Value]] = []
    for name in columns if len(frame) else ():
        if name in frame:
            found.append([value(name, item) for item in frame[name].tolist()])
        else:
            times = frame[f"{name}_ms"]
            spelled = {ms: iso(int(ms), zone) for ms in times.dropna().unique()}
            found.append([spelled.get(ms) for ms in times])
    return [dict(zip(columns, row, strict=True)) for row in zip(*found, strict=True)]


def by_state(frame: pd.DataFrame, columns: list[str]) -> dict[Value, dict[str, Value]]:
    return {row.pop("state"): row for row in records(frame, ["state", *columns])}
