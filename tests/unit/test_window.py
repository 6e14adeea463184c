"""What the user typed, as a stretch of time."""

from __future__ import annotations

from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gua_report.window import Window, parse_time, parse_window, parse_zone, show, zone_name
from gua_sample.errors import GuaError, UsageError
from tests.lab import DAY_MS, HOUR_MS, MINUTE_MS, MONDAY_MS, at

NOW_MS = MONDAY_MS + 8 * HOUR_MS


def parse(
    since: str | None = None, start: str | None = None, end: str | None = None, zone: str | None = "UTC"
) -> tuple[int, int]:
    window = parse_window(since, start, end, zone, NOW_MS)
    return window.start_ms, window.end_ms


def test_without_options_it_is_the_last_seven_days() -> None:
    assert parse() == (NOW_MS - 7 * DAY_MS, NOW_MS)


@pytest.mark.parametrize(
    ("since", "length_ms"),
    [("30s", 30_000), ("1.5h", 90 * MINUTE_MS), ("2d", 2 * DAY_MS), ("1w", 7 * DAY_MS), ("250ms", 250)],
)
def test_since_is_a_duration_before_now(since: str, length_ms: int) -> None:
    assert parse(since) == (NOW_MS - length_ms, NOW_MS)


def test_since_a_duration_counts_back_from_the_end_that_was_given() -> None:
    assert parse("1h", end="2026-11-15") == (MONDAY_MS - DAY_MS - HOUR_MS, MONDAY_MS - DAY_MS)


@pytest.mark.parametrize(
    ("text", "ts_ms"),
    [
        ("2026-11-16", MONDAY_MS),
        ("2026-11-16T06:30", MONDAY_MS + 390 * MINUTE_MS),
        ("2026-11-16 06:30", MONDAY_MS + 390 * MINUTE_MS),
        ("2026-11-16T06:30:00Z", MONDAY_MS + 390 * MINUTE_MS),
        ("2026-11-16T06:30:00.250", MONDAY_MS + 390 * MINUTE_MS + 250),
        ("2026-11-16T06:30:00+05:30", MONDAY_MS + 60 * MINUTE_MS),
    ],
)
def test_since_and_from_take_a_time(text: str, ts_ms: int) -> None:
    assert parse(text) == (ts_ms, NOW_MS)
    assert parse(start=text) == (ts_ms, NOW_MS)


def test_times_are_in_the_readers_zone_unless_they_name_their_own() -> None:
    assert parse(start="2026-11-16", zone="Europe/Berlin")[0] == MONDAY_MS - HOUR_MS
    assert parse(start="2026-11-16T00:00Z", zone="Europe/Berlin")[0] == MONDAY_MS


def test_a_local_day_is_25_hours_long_when_the_clock_is_set_back() -> None:
    start_ms, end_ms = parse(start="2026-10-25", end="2026-10-26", zone="Europe/Berlin")
    assert end_ms - start_ms == 25 * HOUR_MS


def test_from_and_to_give_the_window() -> None:
    assert parse(start="2026-11-14", end="2026-11-15") == (MONDAY_MS - 2 * DAY_MS, MONDAY_MS - DAY_MS)


def test_the_window_before_is_as_long_and_ends_where_this_one_starts() -> None:
    window = parse_window("3h", None, None, "UTC", NOW_MS)
    assert window.before() == Window(NOW_MS - 6 * HOUR_MS, NOW_MS - 3 * HOUR_MS, window.zone)


@pytest.mark.parametrize(
    "text",
    ["7", "d", "7x", "-1d", "0d", "nan", "1e3s", "", "7 d", "7D", "yesterday", "2026-11", "999999999w", "\u0661d"],
)
def test_a_bad_duration_is_named(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse(text)
    assert repr(text) in str(caught.value)
    assert "7d" in str(caught.value)


@pytest.mark.parametrize("text", ["2026-13-01", "2026-11-16T25:00", "16.11.2026", "", "7d", "2026-11-16T08:30+99:00"])
@pytest.mark.parametrize("option", ["--from", "--to"])
def test_a_bad_time_is_named_with_its_option(text: str, option: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse(start=text) if option == "--from" else parse(end=text)
    assert repr(text) in str(caught.value)
    assert option in str(caught.value)
    assert "2026-11-16" in str(caught.value)


def test_a_bad_time_for_since_is_named() -> None:
    with pytest.raises(UsageError, match=r"'2026-02-30'.*--since"):
        parse("2026-02-30")


@pytest.mark.parametrize(
    "name", ["Europe/Berln", "", "Europe", "../etc/passwd", "/etc/passwd", "zone.tab", "+05:30", "a\0b", "x" * 5000]
)
def test_a_bad_zone_is_named(name: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse(zone=name)
    assert repr(name) in str(caught.value)
    assert "Europe/Berlin" in str(caught.value)


@pytest.mark.parametrize(
    ("start", "end"),
    [("2026-11-16", "2026-11-16"), ("2026-11-16", "2026-11-15"), ("2026-11-17", None), ("9999-12-31T23:59:59", None)],
)
def test_an_empty_window_is_refused_and_shown(start: str, end: str | None) -> None:
    with pytest.raises(UsageError, match="the window is empty") as caught:
        parse(start=start, end=end)
    assert start[:10] in str(caught.value)


@pytest.mark.parametrize("zone", ["Europe/Berlin", "America/New_York", "Asia/Kolkata"])
@pytest.mark.parametrize("text", ["0001-01-01", "9999-12-31T23:59"])
def test_the_ends_of_time_are_refused_or_taken_but_do_not_crash(text: str, zone: str) -> None:
    for start, end in [(text, None), ("2026-11-15", text), (text, text)]:
        try:
            window = parse_window(None, start, end, zone, NOW_MS)
        except GuaError:
            continue
        show(window.start_ms, window.zone)
        show(window.end_ms, window.zone)


def test_since_and_from_together_are_refused() -> None:
    with pytest.raises(UsageError, match="--since and --from"):
        parse("7d", start="2026-11-16")


def test_times_are_shown_in_the_readers_zone() -> None:
    assert show(MONDAY_MS, ZoneInfo("Asia/Kolkata")) == "2026-11-16 05:30"
    assert show(MONDAY_MS, ZoneInfo("America/New_York")) == "2026-11-15 19:00"


def test_a_zone_is_called_by_its_name() -> None:
    assert zone_name(parse_zone("Europe/Berlin"), MONDAY_MS) == "Europe/Berlin"
    assert zone_name(parse_zone("UTC"), MONDAY_MS) == "UTC"


def test_without_a_zone_it_is_that_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Kolkata")
    assert zone_name(parse_zone(None), MONDAY_MS) == "Asia/Kolkata"
    monkeypatch.setenv("TZ", ":Europe/Berlin")
    assert zone_name(parse_zone(None), MONDAY_MS) == "Europe/Berlin"


def test_a_zone_in_the_environment_that_is_none_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Mars/Olympus")
    assert zone_name(parse_zone(None), MONDAY_MS)


@given(st.datetimes(), st.sampled_from(["UTC", "Europe/Berlin", "Asia/Kolkata", "America/St_Johns"]))
def test_a_time_that_was_written_out_is_read_back(moment: object, name: str) -> None:
    text = str(moment)
    ts_ms = parse_time(text, ZoneInfo(name), "--from")
    assert abs(ts_ms - at(text, name)) <= 1


@given(st.text(max_size=30), st.text(max_size=30), st.text(max_size=30))
def test_whatever_is_typed_gives_a_window_or_a_usage_error(since: str, end: str, zone: str) -> None:
    for arguments in [(since, None, None, "UTC"), (None, since, end, "UTC"), (None, None, end, zone)]:
        try:
            window = parse_window(*arguments, now_ms=NOW_MS)
        except UsageError:
            continue
        assert window.length_ms > 0
