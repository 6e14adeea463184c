"""Spelling of values, each kind in one place. An unknown value is never spelled as 0."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, tzinfo
from typing import Any

import pandas as pd

from gua_report.console import spelling
from gua_report.console.spelling import MONTHS as MONTHS
from gua_report.console.spelling import WEEKDAYS as WEEKDAYS
from gua_sample.console import plural
from gua_sample.processes import printable

count = plural
MISSING = "—"
NOT_KNOWN = "?"


def clean(text: Any) -> str:
    """The text, unable to steer a terminal or to break a line. Every text that a user may have chosen passes here."""
    return NOT_KNOWN if is_missing(text) else printable(str(text))


def is_missing(value: Any) -> bool:
    return value is None or bool(pd.isna(value))


def percent(share: Any) -> str:
    """A share as a percentage with one decimal, which is rounded neither to 0 nor to 100%."""
    if is_missing(share):
        return MISSING
    rounded = f"{share:.1%}"
    if rounded == "0.0%" and share > 0:
        return "<0.1%"
    if rounded == "100.0%" and share < 1:
        return ">99.9%"
    return rounded


def points(change: Any) -> str:
    """A difference of two shares, in percentage points."""
    if is_missing(change):
        return MISSING
    rounded = f"{change * 100:+.1f}"
    return "0.0" if rounded in ("+0.0", "-0.0") else rounded


def amount(value: Any) -> str:
    """GPU-hours, kWh or money, with one decimal."""
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


def gpu(index: Any, mig_index: Any) -> str:
    """The card's number as in the driver's tools: 0, or 0:2 for the MIG instance 2 of card 0."""
    if is_missing(index):
        return NOT_KNOWN
    return spelling.gpu(int(index), None if is_missing(mig_index) else int(mig_index))


def card(row: Mapping[Any, Any]) -> str:
    """The card of a row with its index: GPU 0:2, or gpu07 GPU 0:2 in the report of a fleet."""
    host = f"{clean(row['host'])} " if "host" in row else ""
    return f"{host}GPU {gpu(row['index'], row.get('mig_index'))}"
