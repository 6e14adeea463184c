"""Cells of a window are those of the clock on the reader's wall."""

from datetime import datetime
from itertools import pairwise
from zoneinfo import ZoneInfo

from hypothesis import given
from hypothesis import strategies as st

from gua_report.summary.intervals import MINUTE_MS, MONTH_MS, WEEK_MS, cell_of, find_edges
from gua_report.window import HOUR_MS
from gua_sample.partition_names import DAY_MS
from tests.lab import at, window

CELLS = (MINUTE_MS, 15 * MINUTE_MS, HOUR_MS, DAY_MS, WEEK_MS, MONTH_MS)
ZONES = ("UTC", "Europe/Berlin", "Asia/Kathmandu", "Australia/Lord_Howe", "America/Havana")


def edges(start: str, end: str, cell_ms: int, zone: str) -> list[str]:
    found = find_edges(window(at(start, zone), at(end, zone), zone), cell_ms)
    return [f"{datetime.fromtimestamp(ms / 1000, ZoneInfo(zone)):%d %H:%M}" for ms in found.tolist()]


def test_days_begin_at_midnight_when_clocks_are_set() -> None:
    # Clocks go back on the 25th, which has 25 hours.
    days = edges("2026-10-24T12:00", "2026-10-27", DAY_MS, "Europe/Berlin")
    assert days == ["24 12:00", "25 00:00", "26 00:00", "27 00:00"]


def test_weeks_begin_on_monday_and_months_on_the_first() -> None:
    assert edges("2026-11-04", "2026-11-18", WEEK_MS, "UTC") == ["04 00:00", "09 00:00", "16 00:00", "18 00:00"]
    assert edges("2026-01-31", "2026-03-02", MONTH_MS, "UTC") == ["31 00:00", "01 00:00", "01 00:00", "02 00:00"]


def test_a_clock_that_is_set_back_by_half_an_hour_cuts_an_hour_short() -> None:
    hours = edges("2026-04-05T01:00", "2026-04-05T03:00", HOUR_MS, "Australia/Lord_Howe")
    assert hours == ["05 01:00", "05 01:30", "05 02:00", "05 03:00"]


@given(st.integers(0, 40_000), st.integers(1, 90 * 24 * 60), st.sampled_from(CELLS[2:]), st.sampled_from(ZONES))
def test_cells_follow_each_other_from_the_start_to_the_end(start: int, length: int, cell_ms: int, zone: str) -> None:
    start_ms = at("2026-01-01") + start * 7 * MINUTE_MS
    asked = window(start_ms, start_ms + length * MINUTE_MS, zone)
    found = find_edges(asked, cell_ms)
    assert (found[0], found[-1]) == (asked.start_ms, asked.end_ms)
    assert all(one < other for one, other in pairwise(found.tolist()))
    assert max(other - one for one, other in pairwise(found.tolist())) <= max(cell_ms, DAY_MS) * 1.05 + HOUR_MS
    # Each of them is in its own cell, and so is what comes a moment before the next.
    assert cell_of(found, found[:-1]).tolist() == list(range(len(found) - 1))
    assert cell_of(found, found[1:] - 1).tolist() == list(range(len(found) - 1))
