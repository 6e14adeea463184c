"""What gua rollup does each night: it rolls up what is closed and due, once, and removes what is old."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from gua_report.config import Retention
from gua_report.rollups.index import Stored
from gua_report.rollups.reader import Day
from gua_report.rollups.writer import RollupWriter
from gua_report.ticks.history import History
from gua_report.upkeep.nightly import Done
from gua_report.window import number_of
from gua_sample import store
from gua_sample.errors import NothingToReport, StoreError
from gua_sample.simulate import Laboratory
from tests.damage import overwrite_table
from tests.lab import CONFIG, DAY_MS, HOUR_MS, MINUTE_MS, MONDAY_MS, gap_seconds, held, report_of, series, write
from tests.rolling import KEEP_LAST_TWO, assert_same, days_left, lab_days, report_of_lab, rolled_up_days, upkeep


def test_a_day_that_got_another_tick_is_taken_from_ticks_until_it_is_rolled_up_again(tmp_path: Path) -> None:
    start, end = rolled_up_days(tmp_path)
    late = next(iter(Laboratory(1).history(start + DAY_MS + 1, start + DAY_MS + 2, 1000)))
    store.append(store.prepare(str(tmp_path)), late, pytest.fail)
    report = report_of(tmp_path, start, end)
    assert report.from_ticks_seconds == pytest.approx(2.5 * 86_400, abs=600)  # it, and the days beside it
    done = upkeep(tmp_path, end + 5 * DAY_MS)
    assert done.rolled_up == [days_left(tmp_path)[1]]  # at noon: the days beside it take nothing from that
    assert done.unchanged == 3


@pytest.mark.parametrize(("seconds", "again"), [(60, ["16", "17"]), (12 * 3600, ["17"]), (86_399, ["17", "18"])])
def test_a_late_tick_next_to_midnight_makes_the_day_beside_it_anew_too(
    tmp_path: Path, seconds: int, again: list[str]
) -> None:
    write(tmp_path, series(MONDAY_MS + 100_000, 3 * 288, held(), every_ms=5 * MINUTE_MS))
    end = MONDAY_MS + 3 * DAY_MS
    upkeep(tmp_path, end + DAY_MS)
    (late,) = series(MONDAY_MS + DAY_MS + seconds * 1000, 1, held())
    store.append(store.prepare(str(tmp_path)), late, pytest.fail)
    expected = report_of(tmp_path, MONDAY_MS + HOUR_MS, end)
    assert upkeep(tmp_path, end + DAY_MS).rolled_up == [f"2026-11-{day}" for day in again]
    found = report_of(tmp_path, MONDAY_MS + HOUR_MS, end)
    assert found.from_ticks_seconds == 0
    assert_same(expected, found)


def test_a_second_time_there_is_nothing_to_do_and_a_rebuild_gives_the_same(tmp_path: Path) -> None:
    start, end = lab_days(tmp_path)
    assert len(upkeep(tmp_path, end + 5 * DAY_MS).rolled_up) == 4
    first = report_of(tmp_path, start, end)
    assert upkeep(tmp_path, end + 5 * DAY_MS) == Done([], 4, [], [], [], [], [], [], [])
    assert len(upkeep(tmp_path, end + 5 * DAY_MS, rebuild=True).rolled_up) == 4
    assert_same(first, report_of(tmp_path, start, end))


def test_a_day_is_open_until_it_is_over(tmp_path: Path) -> None:
    _, end = lab_days(tmp_path)
    done = upkeep(tmp_path, end)
    assert (len(done.rolled_up), len(done.open)) == (3, 1)


@pytest.mark.parametrize(("interval_s", "told"), [(30, True), (30, False), (300, True), (300, False)])
def test_a_day_is_closed_once_no_tick_can_be_joined_to_its_last_one(
    tmp_path: Path, interval_s: int, told: bool
) -> None:
    """2.5 intervals and a minute for the writing of it; whether or not ticks came after midnight."""
    every_ms = interval_s * 1000
    last_ms = MONDAY_MS + DAY_MS - 5000
    interval_ms = every_ms if told else None
    write(tmp_path, series(last_ms - 50 * every_ms, 51, held(), every_ms=every_ms, interval_ms=interval_ms))
    reach_ms = last_ms + 3 + every_ms * 5 // 2  # the tick's own 3 ms with the driver
    assert upkeep(tmp_path, reach_ms + MINUTE_MS).open == ["2026-11-16"]
    assert upkeep(tmp_path, reach_ms + MINUTE_MS + 1).rolled_up == ["2026-11-16"]


def test_a_dry_run_says_what_it_would_do_and_writes_nothing(tmp_path: Path) -> None:
    _, end = lab_days(tmp_path)
    assert len(upkeep(tmp_path, end, dry_run=True).rolled_up) == 3
    assert not (tmp_path / "rollups.sqlite").exists()


def test_a_kill_at_any_day_leaves_whole_days_and_the_next_run_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start, end = lab_days(tmp_path)
    expected = report_of_lab()
    write = RollupWriter.write
    calls: list[str] = []

    def killed(self: RollupWriter, day: str, made: Day, stored: Stored, *edges: Any) -> None:
        calls.append(day)
        if len(calls) == 2:
            self._connection.execute("BEGIN")
            self._insert("day", [(number_of(day), day, *stored.origin.policy, 1, 1, 0, 0, 0)])  # half-way
            raise KeyboardInterrupt
        write(self, day, made, stored, *edges)

    monkeypatch.setattr(RollupWriter, "write", killed)
    with pytest.raises(KeyboardInterrupt):
        upkeep(tmp_path, end + 5 * DAY_MS)
    monkeypatch.setattr(RollupWriter, "write", write)
    assert_same(expected, report_of(tmp_path, start, end))
    done = upkeep(tmp_path, end + 5 * DAY_MS)
    assert (len(done.rolled_up), done.unchanged) == (3, 1)
    assert_same(expected, report_of(tmp_path, start, end))


def test_ticks_that_come_when_their_day_has_expired_change_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    start, end = lab_days(tmp_path)
    expected = report_of_lab()
    removed = upkeep(tmp_path, end + 2 * DAY_MS, KEEP_LAST_TWO).removed
    assert [Path(path).stem for path in removed] == ["2026-11-13", "2026-11-14"]
    late = next(iter(Laboratory(1).history(start + HOUR_MS, start + HOUR_MS + 1, 1000)))
    store.append(store.prepare(str(tmp_path)), late, pytest.fail)
    assert days_left(tmp_path)[0] == "2026-11-13"
    for _ in range(2):
        found = report_of(tmp_path, start, end)
        assert_same(expected, found)
        assert found.notes == ["ticks of 2026-11-13 came when those of the day had expired: they are not counted"]
        done = upkeep(tmp_path, end + 2 * DAY_MS, KEEP_LAST_TWO, rebuild=True)
        assert "2026-11-13" not in done.rolled_up
        assert done.removed == []
        assert "came when those of its day had been removed: move it away" in capsys.readouterr().out


def test_a_removal_that_was_cut_short_is_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    start, end = lab_days(tmp_path)
    expected = report_of_lab()
    with monkeypatch.context() as patch:
        patch.setattr("gua_report.upkeep.expiry.remove", lambda paths: None)
        upkeep(tmp_path, end + 2 * DAY_MS, KEEP_LAST_TWO)
    assert len(days_left(tmp_path)) == 4
    found = report_of(tmp_path, start, end)
    assert_same(expected, found)
    assert found.notes == []
    assert len(upkeep(tmp_path, end + 2 * DAY_MS, KEEP_LAST_TWO).removed) == 2
    assert len(days_left(tmp_path)) == 2


def test_what_expires_takes_its_names_along(tmp_path: Path) -> None:
    _, end = lab_days(tmp_path)
    upkeep(tmp_path, end + 2 * DAY_MS, CONFIG._replace(retention=Retention(raw_days=1)))
    rollups = tmp_path / "rollups.sqlite"
    assert b"kim" in rollups.read_bytes()
    upkeep(tmp_path, end + 30 * DAY_MS, CONFIG._replace(retention=Retention(raw_days=1, rollup_days=2)))
    upkeep(tmp_path, end + 30 * DAY_MS, CONFIG._replace(retention=Retention(raw_days=1, rollup_days=2)))
    assert b"kim" not in rollups.read_bytes()
    with pytest.raises(NothingToReport):
        report_of(tmp_path, end - DAY_MS, end)


def test_a_day_that_can_not_be_mapped_costs_that_day_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """For a reason that nobody has thought of."""
    _, end = lab_days(tmp_path)
    read = History.timeline

    def stumble(self: History, days: list[str]) -> pd.DataFrame:
        if days == ["2026-11-14"]:
            raise ZeroDivisionError("nobody has thought of it")
        return read(self, days)

    monkeypatch.setattr(History, "timeline", stumble)
    done = upkeep(tmp_path, end + 2 * DAY_MS)
    assert (done.failed, len(done.rolled_up)) == (["2026-11-14"], 3)
    assert (
        "2026-11-14.sqlite can't be rolled up (ZeroDivisionError: nobody has thought of it)" in capsys.readouterr().out
    )
    monkeypatch.undo()
    assert "2026-11-14" in upkeep(tmp_path, end + 2 * DAY_MS).rolled_up


def test_no_csv_files_where_none_are_wanted(tmp_path: Path) -> None:
    _, end = rolled_up_days(tmp_path)
    assert len(list((tmp_path / "csv").iterdir())) == 4
    none = CONFIG._replace(retention=Retention(csv_days=0))
    assert len(upkeep(tmp_path, end + 2 * DAY_MS, none).removed) == 4
    assert upkeep(tmp_path, end + 2 * DAY_MS, none).csv == []
    assert list((tmp_path / "csv").iterdir()) == []


def test_samples_that_can_not_be_read_cost_their_day_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Though the last tick of the day before reaches into it, and its own times can be read."""
    write(tmp_path, series(MONDAY_MS + 10_000, 3 * 1440, held(), every_ms=MINUTE_MS, interval_ms=MINUTE_MS))
    overwrite_table(tmp_path / "samples/2026-11-17.sqlite", "card_sample")
    start, end = MONDAY_MS + 10_000, MONDAY_MS + 3 * DAY_MS
    for _ in range(2):
        report = report_of(tmp_path, start, end)
        assert gap_seconds(report)["partition not readable"] == pytest.approx(86_400, abs=61)
        assert report.headline["gpu_hours"].sum() == pytest.approx(48, abs=0.1)
        done = upkeep(tmp_path, end + 2 * DAY_MS, CONFIG._replace(retention=Retention(raw_days=1)), dry_run=True)
        assert not any("2026-11-17" in path for path in done.removed)
        done = upkeep(tmp_path, end + 2 * DAY_MS)
        assert done.failed == ["2026-11-17"]
    assert "2026-11-17" in capsys.readouterr().out


def test_a_day_that_was_restored_is_weighed_with_its_neighbours(tmp_path: Path) -> None:
    write(tmp_path, series(MONDAY_MS, 4 * 1440, held(), every_ms=MINUTE_MS, interval_ms=MINUTE_MS))
    end = MONDAY_MS + 4 * DAY_MS
    expected = report_of(tmp_path, MONDAY_MS, end)
    away = (tmp_path / "samples/2026-11-18.sqlite").rename(tmp_path / "away")
    assert len(upkeep(tmp_path, end + 2 * DAY_MS).rolled_up) == 3
    away.rename(tmp_path / "samples/2026-11-18.sqlite")
    assert_same(expected, report_of(tmp_path, MONDAY_MS, end))
    assert upkeep(tmp_path, end + 2 * DAY_MS).rolled_up == ["2026-11-17", "2026-11-18", "2026-11-19"]
    assert_same(expected, report_of(tmp_path, MONDAY_MS, end))


def test_a_full_disk_loses_its_old_csv_files_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, end = rolled_up_days(tmp_path)

    def full(self: RollupWriter, days: list[str], **values: object) -> None:
        raise StoreError("no space left")

    monkeypatch.setattr(RollupWriter, "mark", full)
    config = CONFIG._replace(retention=Retention(raw_days=1, csv_days=1))
    with pytest.raises(StoreError):
        upkeep(tmp_path, end + 2 * DAY_MS, config)
    assert list((tmp_path / "csv").iterdir()) == []
    assert len(days_left(tmp_path)) == 4
