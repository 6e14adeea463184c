"""The time window of a report, and the time zone it is shown in."""

from __future__ import annotations

import time
from datetime import MAXYEAR, MINYEAR, date, datetime, timedelta, timezone, tzinfo
from typing import NamedTuple
from zoneinfo import ZoneInfo

from gua_sample.errors import UsageError
from gua_sample.partition_names import DAY_MS
from gua_sample.settings import duration_ms

HOUR_MS = 3_600_000
DEFAULT_SINCE = "7d"
LEAST_COVERAGE = 0.95  # the share of a time from which on it counts as observed


def is_day(text: str) -> bool:
    """Whether the text is an existing day from 1970 to 2999: a file may be called 2026-13-01.sqlite."""
    try:
        return date.fromisoformat(text).isoformat() == text and "1970" <= text < "3"
    except ValueError:
        return False


def number_of(day: str) -> int:
    """The number of days since 1970-01-01."""
    return date.fromisoformat(day).toordinal() - date(1970, 1, 1).toordinal()


def midnight_ms(day: str) -> int:
    """The start of a UTC day, in milliseconds since 1970."""
    return number_of(day) * DAY_MS


class Window(NamedTuple):
    """A half-open time window: includes `start_ms`, excludes `end_ms`."""

    start_ms: int
    end_ms: int
    zone: tzinfo

    @property
    def length_ms(self) -> int:
        return self.end_ms - self.start_ms

    def before(self) -> Window:
        """The window of the same length that ends where this one starts."""
        return self._replace(start_ms=self.start_ms - self.length_ms, end_ms=self.start_ms)


def parse_window(
    since: str | None, start: str | None, end: str | None, zone_name: str | None, now_ms: int | None = None
) -> Window:
    """The window that the user typed: --since (a duration, or a time), --from and --to (times), --tz."""
    zone = parse_zone(zone_name)
    now_ms = time.time_ns() // 1_000_000 if now_ms is None else now_ms
    if since is not None and start is not None:
        raise UsageError("--since and --from both say where the window starts: give one of them")
    end_ms = now_ms if end is None else parse_time(end, zone, "--to")
    if start is not None:
        start_ms = parse_time(start, zone, "--from")
    elif since is not None and len(since) >= 10 and since[4] == "-":  # a time
        start_ms = parse_time(since, zone, "--since")
    else:
        start_ms = end_ms - duration_ms(DEFAULT_SINCE if since is None else since)
    if start_ms >= end_ms:
        raise UsageError(f"the window is empty: it would start {show(start_ms, zone)} and end {show(end_ms, zone)}")
    return Window(start_ms, end_ms, zone)


def parse_zone(name: str | None) -> tzinfo:
    """The named zone, or this machine's own, with its daylight-saving rules if they are known."""
    if name is None:
        return _local_zone()
    try:
        return ZoneInfo(name)
    except (OSError, ValueError, KeyError) as error:  # KeyError: ZoneInfoNotFoundError
        raise UsageError(f"unknown time zone {name!r}: expected a name such as Europe/Berlin or UTC") from error


def parse_time(text: str, zone: tzinfo, option: str) -> int:
    """The milliseconds since 1970 of an ISO date or time, in `zone` unless it names its own."""
    try:
        # Python 3.10 does not parse the Z.
        moment = datetime.fromisoformat(text.replace("Z", "+00:00") if text.endswith("Z") else text)
        ts_ms = round((moment if moment.tzinfo else moment.replace(tzinfo=zone)).timestamp() * 1000)
        if not MINYEAR + 1 < moment.year < MAXYEAR - 1:
            show(ts_ms, zone)  # raises if the zone's offset leaves the calendar
            show(ts_ms, timezone.utc)
    except (ValueError, OverflowError) as error:
        raise UsageError(
            f"bad time {text!r} for {option}: expected a date or time such as 2026-11-16 or 2026-11-16T08:30"
        ) from error
    return ts_ms


def show(ts_ms: int, zone: tzinfo, pattern: str = "%Y-%m-%d %H:%M") -> str:
    return datetime.fromtimestamp(ts_ms / 1000, zone).strftime(pattern)


def zone_name(zone: tzinfo, ts_ms: int) -> str:
    """The zone's name, else its abbreviation at that time."""
    return getattr(zone, "key", None) or datetime.fromtimestamp(ts_ms / 1000, zone).tzname() or "UTC"


def _local_zone() -> tzinfo:
    import os

    name = os.environ.get("TZ", "").lstrip(":")
    candidates = [name] if name else [os.path.realpath("/etc/localtime").partition("/zoneinfo/")[2], _debian_zone()]
    for candidate in candidates:
        try:
            if candidate:
                return ZoneInfo(candidate)
        except (OSError, ValueError, KeyError):
            continue
    offset = -(time.altzone if time.localtime().tm_isdst > 0 else time.timezone)
    return timezone(timedelta(seconds=offset)) if offset else timezone.utc


def _debian_zone() -> str:
    try:
        with open("/etc/timezone", encoding="ascii", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return ""
