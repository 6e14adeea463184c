"""A newest tick that failed: what the last one that saw cards said, as long as that can be true, and then nothing."""

import json
from functools import partial
from pathlib import Path

import pytest

from gua_report.render import Options, renderer
from gua_report.summary.now import NewestFailed
from gua_sample.records import Tick
from tests.lab import MINUTE_MS, MONDAY_MS, Job, Report, busy, free, held, lost, minutes, report_minutes, write
from tests.rolling import expire, roll_up_days

told = partial(minutes, interval_ms=MINUTE_MS)
failed = partial(minutes, interval_ms=MINUTE_MS, error="driver_not_loaded")


def at(minute: int) -> int:
    return MONDAY_MS + minute * MINUTE_MS


@pytest.fixture(params=["ticks", "rollups"])
def source(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


def reported(folder: Path, source: str, ticks: list[Tick], start: int, end: int) -> Report:
    write(folder, ticks)
    if source == "rollups":
        roll_up_days(str(folder))
    report = report_minutes(folder, start, end)
    assert bool(report.from_rollups_seconds) == (source == "rollups")
    return report


@pytest.mark.parametrize("count", [1, 2])
def test_a_failed_tick_or_two_change_nothing_of_what_is_held(tmp_path: Path, source: str, count: int) -> None:
    ticks = told(0, 100, held(), held(Job(200, "bob"), index=1)) + told(100, 120, held(), busy(index=1))
    report = reported(tmp_path, source, ticks + failed(120, 120 + count), 0, 120 + count)
    assert report.newest_ms == at(119 + count)
    assert report.newest_failed == NewestFailed("driver_not_loaded", at(120), at(119), True)
    assert report.knows_now
    assert report.episodes["identity"].tolist() == ["alice", "bob"]
    assert report.episodes["ongoing"].tolist() == [True, False]


def test_later_it_is_not_known_who_holds_what(tmp_path: Path, source: str) -> None:
    report = reported(tmp_path, source, told(0, 120, held()) + failed(120, 123), 0, 123)
    assert report.newest_failed == NewestFailed("driver_not_loaded", at(120), at(119), False)
    assert not report.knows_now
    assert report.episodes["ongoing"].tolist() == [None]


def test_after_a_reboot_it_is_not_known_either(tmp_path: Path, source: str) -> None:
    report = reported(tmp_path, source, told(0, 120, held()) + failed(120, 121, boot="boot-2"), 0, 121)
    assert not report.knows_now


def test_a_tick_that_sees_cards_again_makes_it_known(tmp_path: Path, source: str) -> None:
    report = reported(tmp_path, source, told(0, 120, held()) + failed(120, 130) + told(130, 131, free()), 0, 131)
    assert report.newest_failed is None
    assert report.episodes["ongoing"].tolist() == [False]


def test_the_interval_is_that_of_the_ticks_if_none_was_told(tmp_path: Path) -> None:
    write(tmp_path, minutes(0, 120, held()) + minutes(120, 122, error="unknown"))
    assert report_minutes(tmp_path, 0, 122).knows_now
    write(tmp_path, minutes(122, 123, error="unknown"))
    assert not report_minutes(tmp_path, 0, 123).knows_now


def test_the_failure_is_followed_over_midnight(tmp_path: Path, source: str) -> None:
    report = reported(tmp_path, source, told(-60, -2, held()) + failed(-2, 30), -60, 30)
    assert report.newest_failed == NewestFailed("driver_not_loaded", at(-2), at(-3), False)


def test_a_window_of_the_past_knows_no_more_of_the_present(tmp_path: Path) -> None:
    write(tmp_path, told(0, 120, held()) + failed(120, 200))
    report = report_minutes(tmp_path, 0, 60)
    assert not report.knows_now
    assert report.episodes["ongoing"].tolist() == [None]


@pytest.mark.parametrize(("count", "is_known"), [(1, True), (2, False), (30, False)])
def test_an_expired_history_that_ends_with_a_failure_is_as_careful(tmp_path: Path, count: int, is_known: bool) -> None:
    write(tmp_path, told(0, 120, held()) + failed(120, 120 + count))
    expire(tmp_path, *roll_up_days(str(tmp_path)))
    report = report_minutes(tmp_path, 0, 120 + count)
    assert report.newest_failed is not None
    assert report.newest_failed.error == "driver error"  # its name has expired
    assert report.newest_failed.since_ms == at(120)
    assert report.knows_now == is_known
    assert report.episodes["ongoing"].tolist() == [True if is_known else None]


def test_cards_of_which_the_newest_tick_does_not_tell_are_known_to_be_unknown(tmp_path: Path, source: str) -> None:
    cards = told(0, 119, lost(), held(index=1)) + told(119, 120, free(), lost(1), busy(index=2))
    report = reported(tmp_path, source, cards + failed(120, 121), 0, 121)
    assert report.unknown_now == ["GPU-1"]
    assert reported(tmp_path / "well", source, told(0, 120, lost()) + told(120, 121, free()), 0, 121).unknown_now == []


def test_what_is_not_known_of_a_card_is_said_and_nobody_is_not(tmp_path: Path) -> None:
    write(tmp_path, told(0, 60, free(), lost(1)))
    report = report_minutes(tmp_path, 0, 60)
    text = renderer("text")(report, Options())
    assert "Nobody is known to hold a card idle." in text
    assert "Not known of GPU 1: the driver did not tell" in text
    assert "Nobody holds" not in text
    assert json.loads(renderer("json")(report, Options()))["headline"]["unknown_gpus"] == ["GPU-1"]
