"""The end of a note, as people type it."""

from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from gua_report.people.until import parse_until
from gua_sample.errors import UsageError
from tests.lab import at

NOW = "2026-11-16T12:00"  # a Monday
BERLIN = "Europe/Berlin"


def until(text: str, now: str = NOW, zone: str = "UTC") -> str:
    found = parse_until(text, ZoneInfo(zone), at(now, zone))
    return datetime.fromtimestamp(found / 1000, ZoneInfo(zone)).strftime("%Y-%m-%dT%H:%M")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("friday", "2026-11-20T23:59"),
        ("Fri", "2026-11-20T23:59"),
        ("sunday", "2026-11-22T23:59"),
        ("monday", "2026-11-16T23:59"),  # today
        ("today", "2026-11-16T23:59"),
        ("tomorrow", "2026-11-17T23:59"),
        ("friday 18:00", "2026-11-20T18:00"),
        (" tue  08:30 ", "2026-11-17T08:30"),
        ("2026-11-20", "2026-11-20T23:59"),
        ("2026-11-20T18:00", "2026-11-20T18:00"),
        ("2026-11-20 18:00", "2026-11-20T18:00"),
        ("2026-11-20T18:00+02:00", "2026-11-20T16:00"),
        ("3d", "2026-11-19T12:00"),
        ("90m", "2026-11-16T13:30"),
        ("14d", "2026-11-30T12:00"),
    ],
)
def test_weekdays_dates_times_and_durations(text: str, expected: str) -> None:
    assert until(text) == expected


def test_the_clock_is_the_readers() -> None:
    assert until("friday 18:00", zone=BERLIN) == "2026-11-20T18:00"
    zone = ZoneInfo(BERLIN)
    assert parse_until("friday 18:00", zone, at(NOW)) == at("2026-11-20T17:00")
    # It is Tuesday there already.
    assert parse_until("today", ZoneInfo("Pacific/Auckland"), at("2026-11-16T12:00")) == at("2026-11-17T11:00") - 1


def test_a_day_ends_with_the_clock_also_where_it_has_25_hours() -> None:
    assert parse_until("sunday", ZoneInfo(BERLIN), at("2026-10-24T12:00")) == at("2026-10-25T23:00") - 1


@pytest.mark.parametrize("text", ["2026-11-16T11:59", "monday 11:00", "2026-11-15", "1999-01-01"])
def test_what_is_over_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="is over: give a time to come"):
        until(text)


@pytest.mark.parametrize("text", ["15d", "3w", "2026-12-01", "2999-01-01", "10000h"])
def test_more_than_14_days_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="14 days at most"):
        until(text)


@pytest.mark.parametrize(
    "text", ["", "someday", "fr", "friday noon", "friday 25:00", "2026-13-01", "2026-1-1", "-3d", "nan", "9" * 99 + "d"]
)
def test_nonsense_is_a_usage_error_of_one_line(text: str) -> None:
    with pytest.raises(UsageError, match=r"^[ -~]+$"):
        until(text)
