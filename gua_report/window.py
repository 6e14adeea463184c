"""Times: the window of a report, its zone, days, and times as people and other programs write them."""

from __future__ import annotations

import os
import re
import time
from contextlib import suppress
from datetime import MAXYEAR, MINYEAR, date, datetime, timedelta, timezone, tzinfo
from itertools import pairwise
from typing import NamedTuple
from zoneinfo import ZoneInfo

from gua_sample.errors import UsageError
from gua_sample.partition_names import DAY_MS
from gua_sample.processes import read_file
from gua_sample.settings import duration_ms

HOUR_MS = 3_600_000
DEFAULT_SINCE = "7d"
LEAST_COVERAGE = 0.95  # the share of a time from which on it counts as observed
WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
UNTIL = "--until"
ISO_DATE = len("2026-11-20")
LEAST_LETTERS = 3  # of a weekday
# A date, or a time as people, Go and Python write it, with any number of digits after the second.
MOMENT = re.compile(r"(\d{4}-\d\d-\d\d)(?:[T ](\d\d:\d\d(?::\d\d)?)(?:\.(\d+))?(Z|[+-]\d\d:\d\d)?)?", re.ASCII)


def is_day(text: str) -> bool:
    """Whether the text is an existing day from 1970 to 2999: a file may be called 2026-13-01.sqlite."""
    try:
        return date.fromisoformat(text).isoformat() == text and "1970" <= text < "3"
    except ValueError:
        return False


def number_of(day: str) -> int:
    return date.fromisoformat(day).toordinal() - date(1970, 1, 1).toordinal()


def midnight_ms(day: str) -> int:
    return number_of(day) * DAY_MS


def split_days(start_ms: int, end_ms: int) -> list[tuple[int, int]]:
    """The parts of a time that lie in each UTC day."""
    midnights = range(start_ms // DAY_MS * DAY_MS + DAY_MS, end_ms, DAY_MS)
    return list(pairwise([start_ms, *midnights, end_ms]))


class Window(NamedTuple):
    """A half-open time window: includes `start_ms`, excludes `end_ms`."""

    start_ms: int
    end_ms: int
    zone: tzinfo

    @property
    def length_ms(self) -> int:
        return self.end_ms - self.start_ms

    def before(self) -> Window:
        return self._replace(start_ms=self.start_ms - self.length_ms, end_ms=self.start_ms)

    def until(self, now_ms: int) -> Window:
        return self._replace(end_ms=min(self.end_ms, now_ms)) if self.start_ms < now_ms else self


def parse_window(
    since: str | None, start: str | None, end: str | None, zone_name: str | None, now_ms: int | None = None
) -> Window:
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
    if name is None:
        return _local_zone()
    try:
        return ZoneInfo(name)
    except (OSError, ValueError, KeyError) as error:  # KeyError: ZoneInfoNotFoundError
        raise UsageError(f"unknown time zone {name!r}: expected a name such as Europe/Berlin or UTC") from error


def parse_time(text: str, zone: tzinfo, option: str) -> int:
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


def iso_ms(text: object, zone: tzinfo) -> int | None:
    found = MOMENT.fullmatch(text) if isinstance(text, str) else None
    if found is None:
        return None
    day, clock, fraction, offset = found.groups()
    # Python 3.10 accepts only three digits or six.
    milliseconds = f".{fraction[:3]:0<3}" if fraction and len(clock) == len("08:30:00") else ""
    try:
        return parse_time(f"{day}T{clock or '00:00'}{milliseconds}{offset or ''}", zone, "a file")
    except UsageError:
        return None


def parse_until(text: str, zone: tzinfo, now_ms: int, longest_days: int) -> int:
    """The end of a note that is written now, as people type it: a weekday is the next, and a day counts to its end."""
    day, _, clock = text.strip().lower().partition(" ")
    today = datetime.fromtimestamp(now_ms / 1000, zone).date()
    named = _find_day(day, today)
    if named is not None:
        until_ms = parse_time(f"{named}T{clock.strip()}", zone, UNTIL) if clock else _end_ms(named, zone)
    elif day[4:5] == "-":
        until_ms = parse_time(text.strip(), zone, UNTIL)
        until_ms = _end_ms(date.fromisoformat(day), zone) if len(text.strip()) == ISO_DATE else until_ms
    else:
        try:
            until_ms = now_ms + duration_ms(text)
        except UsageError as error:
            raise UsageError(
                f"bad end {text!r} for {UNTIL}: expected a weekday, a date or time, or how long, such as friday,"
                " 'friday 18:00', 2026-11-20T18:00 or 3d"
            ) from error
    if until_ms <= now_ms:
        raise UsageError(f"{UNTIL} {text} is over: give a time to come")
    if until_ms > now_ms + longest_days * DAY_MS:
        raise UsageError(f"{UNTIL} {text} is too far away: a note lasts {longest_days} days at most, then renew it")
    return until_ms


def _find_day(name: str, today: date) -> date | None:
    if name in ("today", "tomorrow"):
        return today + timedelta(days=name == "tomorrow")
    numbers = [n for n, weekday in enumerate(WEEKDAYS) if len(name) >= LEAST_LETTERS and weekday.startswith(name)]
    return today + timedelta(days=(numbers[0] - today.weekday()) % 7) if numbers else None


def _end_ms(day: date, zone: tzinfo) -> int:
    following = datetime.combine(day + timedelta(days=1), datetime.min.time(), zone)
    return round(following.timestamp() * 1000) - 1


def show(ts_ms: int, zone: tzinfo, pattern: str = "%Y-%m-%d %H:%M") -> str:
    return datetime.fromtimestamp(ts_ms / 1000, zone).strftime(pattern)


def zone_name(zone: tzinfo, ts_ms: int) -> str:
    return getattr(zone, "key", None) or datetime.fromtimestamp(ts_ms / 1000, zone).tzname() or "UTC"


def _local_zone() -> tzinfo:
    name = os.environ.get("TZ", "").lstrip(":")
    named_by_debian = (read_file("/etc/timezone") or b"").decode("ascii", "replace").strip()
    linked = os.path.realpath("/etc/localtime").partition("/zoneinfo/")[2]
    for candidate in filter(None, [name] if name else [linked, named_by_debian]):
        with suppress(OSError, ValueError, KeyError):
            return ZoneInfo("UTC" if candidate == "Etc/UTC" else candidate)  # as Debian calls it
    offset = -(time.altzone if time.localtime().tm_isdst > 0 else time.timezone)
    return timezone(timedelta(seconds=offset)) if offset else timezone.utc
