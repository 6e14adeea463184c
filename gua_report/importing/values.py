"""Validate a foreign file's values for a partition: plausible numbers and times, printable names."""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone
from functools import lru_cache

from gua_sample.processes import printable

EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
# Nobody sampled cards earlier: an older time comes from a clock that was never set.
EARLIEST_MS = 1_262_304_000_000  # 2010-01-01
MOST_MIB = 2**40
LARGEST_PID = 2**31 - 1
LONGEST_NAME = 200

# A time as Go and Python write it: any number of digits after the second, then an offset, "Z", or nothing for UTC.
MOMENT = re.compile(r"(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d:\d\d)(?:\.(\d+))?(Z|[+-]\d\d:\d\d)?", re.ASCII)


def whole(value: object, lowest: int, highest: int) -> int | None:
    """The number, truncated to an integer; None if it is no number or out of range."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not lowest <= value <= highest:
        return None
    return int(value)


@lru_cache(4096)
def name(value: object) -> str | None:
    """The value as a printable text of limited length; None if it is empty or no text."""
    if isinstance(value, bytes):
        value = value.decode("utf-8", "backslashreplace")
    return printable(value[:LONGEST_NAME]) or None if isinstance(value, str) else None


def shown(value: object) -> str:
    """Any value as a printable example."""
    return name(value if isinstance(value, str | bytes) else repr(value)) or "nothing"


def moment_ms(value: object) -> int | None:
    """An ISO time as epoch milliseconds; None if the value is no such time."""
    found = MOMENT.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        return None
    day, second, fraction, offset = found.groups()
    try:
        moment = datetime.fromisoformat(f"{day}T{second}{'+00:00' if offset in (None, 'Z') else offset}")
        return (moment - EPOCH) // timedelta(milliseconds=1) + int((fraction or "")[:3].ljust(3, "0"))
    except (ValueError, OverflowError):
        return None


def iso(ts_ms: int) -> str:
    """A time for display, in UTC."""
    try:
        return (EPOCH + timedelta(milliseconds=ts_ms)).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (OverflowError, ValueError):  # beyond the calendar
        return f"{ts_ms} ms since 1970"
