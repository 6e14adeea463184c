"""The end of a note, as people type it."""

from __future__ import annotations

from datetime import date, datetime, timedelta, tzinfo

from gua_report.window import parse_time
from gua_sample.errors import UsageError
from gua_sample.notes import LONGEST_DAYS, LONGEST_MS
from gua_sample.settings import duration_ms

OPTION = "--until"
WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
ISO_DATE = len("2026-11-20")
LEAST_LETTERS = 3  # of a weekday


def parse_until(text: str, zone: tzinfo, now_ms: int) -> int:
    """The end of a note that is written now. Raises UsageError if it is over, or too far away.

    A weekday is the next one, today included. A day without a time of day counts to its end.
    """
    day, _, clock = text.strip().lower().partition(" ")
    today = datetime.fromtimestamp(now_ms / 1000, zone).date()
    named = _find_day(day, today)
    if named is not None:
        until_ms = parse_time(f"{named}T{clock.strip()}", zone, OPTION) if clock else _end_ms(named, zone)
    elif day[4:5] == "-":
        until_ms = parse_time(text.strip(), zone, OPTION)
        until_ms = _end_ms(date.fromisoformat(day), zone) if len(text.strip()) == ISO_DATE else until_ms
    else:
        until_ms = now_ms + _duration_ms(text)
    if until_ms <= now_ms:
        raise UsageError(f"{OPTION} {text} is over: give a time to come")
    if until_ms > now_ms + LONGEST_MS:
        raise UsageError(f"{OPTION} {text} is too far away: a note lasts {LONGEST_DAYS} days at most, then renew it")
    return until_ms


def _find_day(name: str, today: date) -> date | None:
    if name in ("today", "tomorrow"):
        return today + timedelta(days=name == "tomorrow")
    numbers = [n for n, weekday in enumerate(WEEKDAYS) if len(name) >= LEAST_LETTERS and weekday.startswith(name)]
    return today + timedelta(days=(numbers[0] - today.weekday()) % 7) if numbers else None


def _end_ms(day: date, zone: tzinfo) -> int:
    """The last millisecond of a day, so that it is shown as one of that day."""
    following = datetime.combine(day + timedelta(days=1), datetime.min.time(), zone)
    return round(following.timestamp() * 1000) - 1


def _duration_ms(text: str) -> int:
    try:
        return duration_ms(text)
    except UsageError as error:
        raise UsageError(
            f"bad end {text!r} for {OPTION}: expected a weekday, a date or time, or how long, such as friday,"
            " 'friday 18:00', 2026-11-20T18:00 or 3d"
        ) from error
