"""What the user typed, as a stretch of time."""

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gua_report.window import Window, parse_time, parse_until, parse_window, parse_zone, show, zone_name
from gua_sample.errors import GuaError, UsageError
from tests.lab import DAY_MS, HOUR_MS, MINUTE_MS, MONDAY_MS, at

NOW_MS = MONDAY_MS + 8 * HOUR_MS
BERLIN = "Europe/Berlin"
WEEK_MS = 7 * DAY_MS


def parse(
    since: str | None = None, start: str | None = None, end: str | None = None, zone: str | None = "UTC"
) -> tuple[int, int]:
    window = parse_window(since, start, end, zone, NOW_MS)
    return window.start_ms, window.end_ms


@pytest.mark.parametrize(
    ("since", "length_ms"),
    [(None, 7 * DAY_MS), ("1.5h", 90 * MINUTE_MS), ("250ms", 250)],
)
def test_since_is_a_duration_before_the_end(since: str | None, length_ms: int) -> None:
    assert parse(since) == (NOW_MS - length_ms, NOW_MS)
    assert parse(since, end="2026-11-15") == (MONDAY_MS - DAY_MS - length_ms, MONDAY_MS - DAY_MS)


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
    assert show(MONDAY_MS, ZoneInfo("America/New_York")) == "2026-11-15 19:00"
    with pytest.raises(UsageError, match=r"'2026-02-30'.*--since"):
        parse("2026-02-30")
    start_ms, end_ms = parse(start="2026-10-25", end="2026-10-26", zone="Europe/Berlin")
    assert end_ms - start_ms == 25 * HOUR_MS  # the clock is set back


def test_the_window_before_is_as_long_and_ends_where_this_one_starts() -> None:
    window = parse_window("3h", None, None, "UTC", NOW_MS)
    assert window.before() == Window(NOW_MS - 6 * HOUR_MS, NOW_MS - 3 * HOUR_MS, window.zone)


DURATIONS = ("7", "d", "7x", "-1d", "0d", "nan", "1e3s", "", "7 d", "7D", "yesterday", "2026-11", "\u0661d")
TIMES = ("2026-13-01", "2026-11-16T25:00", "16.11.2026", "", "7d", "2026-11-16T08:30+99:00")
ZONES = ("Europe/Berln", "", "Europe", "../etc/passwd", "/etc/passwd", "zone.tab", "+05:30", "a\0b", "x" * 5000)
BAD = [({"since": text}, text, "7d") for text in DURATIONS] + [({"zone": text}, text, BERLIN) for text in ZONES]
BAD += [({"start": text}, text, "for --from: expected a date or time such as 2026-11-16 ") for text in TIMES]
BAD += [({"end": text}, text, "for --to: expected a date or time such as 2026-11-16 ") for text in TIMES]


@pytest.mark.parametrize(("given", "text", "expected"), BAD)
def test_what_is_wrong_is_named_with_what_was_expected(given: dict[str, str], text: str, expected: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse(**given)
    assert repr(text) in str(caught.value)
    assert expected in str(caught.value)


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


def test_without_a_zone_it_is_that_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("Asia/Kolkata", ":Europe/Berlin", "Etc/UTC"):
        monkeypatch.setenv("TZ", name)
        assert zone_name(parse_zone(None), MONDAY_MS) == name.lstrip(":").removeprefix("Etc/")
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


NOW = "2026-11-16T12:00"  # a Monday


def until(text: str, now: str = NOW, zone: str = "UTC") -> str:
    found = parse_until(text, ZoneInfo(zone), at(now, zone), 14)
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
    assert parse_until("friday 18:00", zone, at(NOW), 14) == at("2026-11-20T17:00")
    # It is Tuesday there already.
    assert parse_until("today", ZoneInfo("Pacific/Auckland"), at("2026-11-16T12:00"), 14) == at("2026-11-17T11:00") - 1


def test_a_day_ends_with_the_clock_also_where_it_has_25_hours() -> None:
    assert parse_until("sunday", ZoneInfo(BERLIN), at("2026-10-24T12:00"), 14) == at("2026-10-25T23:00") - 1


OVER = ("2026-11-16T11:59", "monday 11:00", "2026-11-15", "1999-01-01")
TOO_FAR = ("15d", "3w", "2026-12-01", "2999-01-01", "10000h")
NONSENSE = ("", "someday", "fr", "friday noon", "friday 25:00", "2026-13-01", "2026-1-1", "-3d", "nan", "9" * 99 + "d")
WRONG = [*((text, "is over: give a time to come") for text in OVER), *((text, "14 days at most") for text in TOO_FAR)]


@pytest.mark.parametrize(("text", "said"), [*WRONG, *((text, "") for text in NONSENSE)])
def test_what_is_over_too_far_away_or_nonsense_is_a_usage_error_of_one_line(text: str, said: str) -> None:
    with pytest.raises(UsageError, match=rf"^[ -~]*{said}[ -~]*$"):
        until(text)
