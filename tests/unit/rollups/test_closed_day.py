"""Reports from rollups are the reports from ticks, whatever the window."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gua_report.config import Retention
from gua_report.rollups.index import Stored
from gua_report.rollups.reader import Day
from gua_report.rollups.writer import RollupWriter
from gua_report.summary.usable_days import Archive
from gua_report.ticks.history import History
from gua_report.upkeep.nightly import Done, Upkeep
from gua_report.window import number_of
from gua_sample import store
from gua_sample.errors import NothingToReport, StoreError
from gua_sample.policy import DEFAULT
from gua_sample.simulate import Laboratory
from tests.damage import overwrite_table
from tests.histories import Moment, histories, many, part, span, ticks_of
from tests.lab import (
    CONFIG,
    DAY_MS,
    HOUR_MS,
    MINUTE_MS,
    MONDAY_MS,
    busy,
    gap_seconds,
    held,
    report_of,
    series,
    write,
    written,
)
from tests.rolling import KEEP_LAST_TWO, assert_same, days_left, expire, lab_days, roll_up_days, upkeep


@many
@given(
    histories(), part, part, part, st.sets(st.integers(0, 3)), st.booleans(), st.sampled_from(["UTC", "Asia/Kolkata"])
)
def test_a_report_from_rollups_is_the_report_from_ticks(
    moments: list[Moment], midnight: float, one: float, two: float, days: set[int], on_the_hour: bool, zone: str
) -> None:
    ticks = ticks_of(moments, midnight)
    first, last = span(ticks)
    start, end = sorted(first + round(place * (last - first)) for place in (one, two))
    if on_the_hour:
        start = start // HOUR_MS * HOUR_MS
        end = max(end // HOUR_MS * HOUR_MS, start + HOUR_MS)
    with written(ticks) as folder:
        try:
            from_ticks = report_of(folder, start, end + 1 - on_the_hour, zone)
        except NothingToReport:
            roll_up_days(folder, days)
            with pytest.raises(NothingToReport):
                report_of(folder, start, end + 1 - on_the_hour, zone)
            return
        roll_up_days(folder, days)
        from_rollups = report_of(folder, start, end + 1 - on_the_hour, zone)
    assert_same(from_ticks, from_rollups)


@pytest.mark.parametrize(
    "people", [{}, {"kim": "kira"}, {"kim": "x", "rosa": "x", "emil": "x", "ivo": "x", "ben": "x"}]
)
def test_the_laboratory_is_the_same_from_rollups(tmp_path: Path, people: dict[str, str]) -> None:
    start, end = lab_days(tmp_path)
    config = CONFIG._replace(people=people)
    windows = [(start + 7 * HOUR_MS + 123, end), (start + DAY_MS, end - DAY_MS), (end - 30 * HOUR_MS, end - 1)]
    from_ticks = [report_of(tmp_path, *window, config=config) for window in windows]
    assert len(roll_up_days(str(tmp_path))) == 4
    for window, expected in zip(windows, from_ticks, strict=True):
        found = report_of(tmp_path, *window, config=config)
        assert_same(expected, found)
        assert found.from_rollups_seconds > 0 or len(people) > 1
        assert found.notes == []


def test_a_report_takes_whole_hours_from_rollups_and_the_rest_from_ticks(tmp_path: Path) -> None:
    start, end = lab_days(tmp_path)
    roll_up_days(str(tmp_path))
    report = report_of(tmp_path, start + DAY_MS + 10 * MINUTE_MS, end - DAY_MS)
    assert report.from_ticks_seconds == pytest.approx(50 * 60)
    assert report.from_rollups_seconds == pytest.approx(23 * 3600)


@pytest.mark.parametrize("zone", ["Asia/Kolkata", "Asia/Kathmandu"])
def test_a_zone_off_the_full_hour_goes_back_to_the_ticks(tmp_path: Path, zone: str) -> None:
    start, end = lab_days(tmp_path)
    roll_up_days(str(tmp_path))
    assert report_of(tmp_path, start, end, zone).from_rollups_seconds == 0


def test_other_thresholds_go_back_to_the_ticks(tmp_path: Path) -> None:
    start, end = lab_days(tmp_path)
    strict = CONFIG._replace(policy=DEFAULT._replace(utilization_percent=50.0))
    expected = report_of(tmp_path, start, end, config=strict)
    roll_up_days(str(tmp_path))
    found = report_of(tmp_path, start, end, config=strict)
    assert found.from_rollups_seconds == 0
    assert_same(expected, found)


def test_a_day_that_got_another_tick_is_taken_from_ticks_until_it_is_rolled_up_again(tmp_path: Path) -> None:
    start, end = lab_days(tmp_path)
    days = upkeep(tmp_path, end + 5 * DAY_MS).rolled_up
    late = next(iter(Laboratory(1).history(start + DAY_MS + 1, start + DAY_MS + 2, 1000)))
    store.append(store.prepare(str(tmp_path)), late, pytest.fail)
    report = report_of(tmp_path, start, end)
    assert report.from_ticks_seconds == pytest.approx(2.5 * 86_400, abs=600)  # it, and the days beside it
    done = upkeep(tmp_path, end + 5 * DAY_MS)
    assert done.rolled_up == [days[1]]  # at noon: the days beside it take nothing from that
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


def test_days_whose_ticks_have_expired_are_still_reported(tmp_path: Path) -> None:
    start, end = lab_days(tmp_path)
    expected = report_of(tmp_path, start, end)
    days = roll_up_days(str(tmp_path))
    expire(tmp_path, *days[:2])
    found = report_of(tmp_path, start, end)
    assert_same(expected, found)
    assert found.notes == []


def test_a_cut_hour_whose_ticks_have_expired_is_taken_in_proportion_and_said(tmp_path: Path) -> None:
    start, end = lab_days(tmp_path)
    expected = report_of(tmp_path, start + 5 * HOUR_MS + 20 * MINUTE_MS, end)
    days = roll_up_days(str(tmp_path))
    expire(tmp_path, days[0])
    found = report_of(tmp_path, start + 5 * HOUR_MS + 20 * MINUTE_MS, end)
    assert found.headline["gpu_hours"].sum() == pytest.approx(expected.headline["gpu_hours"].sum(), abs=0.01)
    (note,) = found.notes
    assert "ticks have expired" in note


def test_days_of_other_thresholds_whose_ticks_have_expired_are_left_out_and_said(tmp_path: Path) -> None:
    start, end = lab_days(tmp_path)
    days = roll_up_days(str(tmp_path))
    strict = CONFIG._replace(policy=DEFAULT._replace(utilization_percent=50.0))
    expire(tmp_path, days[1])
    report = report_of(tmp_path, start, end, config=strict)
    assert report.from_rollups_seconds == 0
    assert report.notes == [f"left out: {days[1]}, rolled up under other thresholds, and the ticks have expired"]
    assert gap_seconds(report)["ticks expired"] == pytest.approx(86_400, abs=600)
    expire(tmp_path, days[0])
    report = report_of(tmp_path, start, end, config=strict)
    assert gap_seconds(report)["ticks expired"] == pytest.approx(1.5 * 86_400, abs=600)
    assert report.notes == [
        f"left out: {days[0]} to {days[1]} (2 days), rolled up under other thresholds, and the ticks have expired"
    ]
    with pytest.raises(NothingToReport, match="rolled up under other thresholds"):
        report_of(tmp_path, start, start + DAY_MS, config=strict)


def test_rollups_that_cannot_be_read_are_passed_over_with_a_note(tmp_path: Path) -> None:
    start, end = lab_days(tmp_path)
    expected = report_of(tmp_path, start, end)
    (tmp_path / "rollups.sqlite").write_text("garbage, more than sixteen bytes of it")
    found = report_of(tmp_path, start, end)
    assert_same(expected, found)
    (note,) = found.notes
    assert "rollups are not used" in note


def test_a_corrupt_file_of_rollups_is_set_aside_and_made_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, end = lab_days(tmp_path)
    (tmp_path / "rollups.sqlite").write_text("garbage, more than sixteen bytes of it")
    done = upkeep(tmp_path, end + 5 * DAY_MS)
    assert len(done.rolled_up) == 4
    assert "it is set aside as" in capsys.readouterr().out
    assert (tmp_path / "rollups.sqlite.corrupt-1").read_text().startswith("garbage")


def test_an_empty_file_of_rollups_is_said_and_made_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, end = lab_days(tmp_path)
    upkeep(tmp_path, end + 5 * DAY_MS)
    (tmp_path / "rollups.sqlite").write_bytes(b"")
    assert len(upkeep(tmp_path, end + 5 * DAY_MS).rolled_up) == 4
    assert "rollups.sqlite is empty: it is made again" in capsys.readouterr().out


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
    expected = report_of(tmp_path, start, end)
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
    expected = report_of(tmp_path, start, end)
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


def test_partitions_may_be_removed_while_a_report_looks_at_them(tmp_path: Path) -> None:
    _, end = lab_days(tmp_path)
    there = History(str(tmp_path)).paths
    assert len(upkeep(tmp_path, end + 2 * DAY_MS, KEEP_LAST_TWO).removed) == 2
    archive = Archive(str(tmp_path), there, DEFAULT)
    assert sorted(archive.expired) == ["2026-11-13", "2026-11-14"]
    assert archive.expired < archive.days
    assert archive.late == []


def test_a_report_begins_again_if_what_it_was_about_to_read_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by a run of gua rollup that marks the days right after the report has looked which of them are left."""
    start, end = lab_days(tmp_path)
    upkeep(tmp_path, end + 2 * DAY_MS)
    expected = report_of(tmp_path, start, end)
    runs: list[Done] = []

    class Delayed(Archive):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            self.days.clear()  # it would have to read all of them
            if not runs:
                runs.append(upkeep(tmp_path, end + 2 * DAY_MS, KEEP_LAST_TWO))
            else:
                Archive.__init__(self, *arguments)

    monkeypatch.setattr("gua_report.summary.build.Archive", Delayed)
    found = report_of(tmp_path, start, end)
    assert len(runs[0].removed) == 2
    assert found.warnings == []
    assert_same(expected, found)


def test_a_removal_that_was_cut_short_is_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    start, end = lab_days(tmp_path)
    expected = report_of(tmp_path, start, end)
    with monkeypatch.context() as patch:
        patch.setattr("gua_report.upkeep.nightly.remove", lambda paths: None)
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


def test_days_without_ticks_survive_a_damaged_file_where_they_can_be_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    start, end = lab_days(tmp_path)
    expected = report_of(tmp_path, start, end)
    upkeep(tmp_path, end + 2 * DAY_MS, KEEP_LAST_TWO)
    rollups = tmp_path / "rollups.sqlite"
    overwrite_table(rollups, "sqlite_autoindex_day_1")  # which no report reads
    before = rollups.read_bytes()
    done = upkeep(tmp_path, end + 2 * DAY_MS, KEEP_LAST_TWO)
    said = capsys.readouterr().out
    assert "it is set aside as" in said
    assert "of 2 days the ticks are gone: they were taken over from it" in said
    assert (done.rolled_up, done.unchanged) == (["2026-11-16"], 1)
    assert (tmp_path / "rollups.sqlite.corrupt-1").read_bytes() == before
    assert_same(expected, report_of(tmp_path, start, end))


@pytest.mark.parametrize("table", ["day", "card", "word", "card_hour", "episode", "span"])
def test_a_report_does_without_rollups_that_are_damaged(
    tmp_path: Path, table: str, capsys: pytest.CaptureFixture[str]
) -> None:
    start, end = lab_days(tmp_path)
    expected = report_of(tmp_path, start, end)
    upkeep(tmp_path, end + 2 * DAY_MS)
    overwrite_table(tmp_path / "rollups.sqlite", table)
    found = report_of(tmp_path, start, end)
    assert_same(expected, found)
    (note,) = found.notes
    assert note.startswith("rollups are not used: ")
    assert len(upkeep(tmp_path, end + 2 * DAY_MS).rolled_up) == 4
    assert "it is set aside as" in capsys.readouterr().out
    assert report_of(tmp_path, start, end).notes == []


@pytest.mark.parametrize("expired", [False, True])
def test_a_stored_day_that_can_not_be_read_costs_that_day_alone(tmp_path: Path, expired: bool) -> None:
    start, end = lab_days(tmp_path)
    expected = report_of(tmp_path, start, end)
    upkeep(tmp_path, end + 2 * DAY_MS, KEEP_LAST_TWO if expired else CONFIG)
    with closing(sqlite3.connect(tmp_path / "rollups.sqlite", isolation_level=None)) as connection:
        number = number_of("2026-11-14")
        connection.execute("UPDATE card_hour SET card_id = card_id + 999 WHERE day_id = ?", (number,))  # no such cards
    found = report_of(tmp_path, start, end)
    assert found.notes[0].startswith("rollups of 2026-11-14 are not used: ")
    if expired:
        assert "left out: 2026-11-14, in rollups that can't be read, and the ticks have expired" in found.notes
        assert gap_seconds(found)["ticks expired"] == pytest.approx(86_400, abs=600)
    else:
        assert_same(expected, found)
        assert found.from_rollups_seconds > 1.9 * 86_400


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


def test_days_that_only_damaged_rollups_knew_are_a_gap_with_a_reason(tmp_path: Path) -> None:
    start, end = lab_days(tmp_path)
    upkeep(tmp_path, end + 2 * DAY_MS, KEEP_LAST_TWO)
    overwrite_table(tmp_path / "rollups.sqlite", "card_hour")
    report = report_of(tmp_path, start, end)
    assert "rollups are not used" in report.notes[0]
    assert (
        report.notes[1] == "left out: 2026-11-13 to 2026-11-14 (2 days), in rollups that can't be read, and the"
        " ticks have expired"
    )
    assert gap_seconds(report)["ticks expired"] == pytest.approx(1.5 * 86_400, abs=600)


@pytest.mark.parametrize("zone", ["Asia/Kolkata", "Asia/Kathmandu"])
def test_a_zone_off_the_full_hour_has_expired_days_too(tmp_path: Path, zone: str) -> None:
    start, end = lab_days(tmp_path)
    expected = report_of(tmp_path, start, end, zone)
    upkeep(tmp_path, end + 2 * DAY_MS, KEEP_LAST_TWO)
    found = report_of(tmp_path, start, end, zone)
    pd.testing.assert_frame_equal(expected.headline, found.headline, atol=1e-4)
    pd.testing.assert_frame_equal(expected.gaps, found.gaps)
    assert found.notes == ["ticks have expired: by hour of day, older days are as UTC's full hours cut them"]


def test_one_person_with_two_identities_on_a_day_that_expired_is_said(tmp_path: Path) -> None:
    start, end = lab_days(tmp_path)
    people = dict.fromkeys(report_of(tmp_path, start, end).identities["identity"], "x")
    upkeep(tmp_path, end + 2 * DAY_MS, KEEP_LAST_TWO)
    report = report_of(tmp_path, start, end, config=CONFIG._replace(people=people))
    assert report.notes == ["ticks have expired: where one person had two identities at a time, both count"]


def test_compacted_days_are_the_same_and_not_rolled_up_again(tmp_path: Path) -> None:
    start, end = lab_days(tmp_path)
    expected = report_of(tmp_path, start, end)
    sizes = [path.stat().st_size for path in sorted((tmp_path / "samples").iterdir())]
    upkeep(tmp_path, end + 2 * DAY_MS)
    done = Upkeep(str(tmp_path), CONFIG, end + 2 * DAY_MS, False, print).run(False, True, None)
    assert len(done.compacted) == 4
    assert sum(path.stat().st_size for path in (tmp_path / "samples").iterdir()) < sum(sizes)
    again = Upkeep(str(tmp_path), CONFIG, end + 2 * DAY_MS, False, print).run(False, True, None)
    assert again == Done([], 4, [], [], [], [], [], [], [])
    assert report_of(tmp_path, start, end).from_ticks_seconds == 0
    assert_same(expected, report_of(tmp_path, start, end))
    (tmp_path / "rollups.sqlite").unlink()
    assert_same(expected, report_of(tmp_path, start, end))


def test_a_partition_that_is_in_use_is_compacted_another_time(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gua_report.upkeep.compaction.BUSY_SECONDS", 0.1)
    _, end = lab_days(tmp_path)
    with closing(sqlite3.connect(tmp_path / "samples/2026-11-14.sqlite", isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM tick").fetchone()
        done = Upkeep(str(tmp_path), CONFIG, end + 2 * DAY_MS, False, print).run(False, True, None)
    assert done.compacted == ["2026-11-13", "2026-11-15", "2026-11-16"]
    assert "not compacted: " in capsys.readouterr().out
    done = Upkeep(str(tmp_path), CONFIG, end + 2 * DAY_MS, False, print).run(False, True, None)
    assert done.compacted == ["2026-11-14"]


def test_no_csv_files_where_none_are_wanted(tmp_path: Path) -> None:
    _, end = lab_days(tmp_path)
    assert len(upkeep(tmp_path, end + 2 * DAY_MS).csv) == 4
    none = CONFIG._replace(retention=Retention(csv_days=0))
    assert len(upkeep(tmp_path, end + 2 * DAY_MS, none).removed) == 4
    assert upkeep(tmp_path, end + 2 * DAY_MS, none).csv == []
    assert list((tmp_path / "csv").iterdir()) == []


@pytest.mark.parametrize("minutes", [(30, 90), (30, 105), (15, 45), (0, 61), (59, 181)])
def test_hours_that_a_window_cuts_count_by_their_share_once_ticks_have_expired(
    tmp_path: Path, minutes: tuple[int, int]
) -> None:
    """On a card that is busy from one hour on, a share of either hour is right to the minute."""
    idle = series(MONDAY_MS, 60, held(), every_ms=MINUTE_MS, interval_ms=MINUTE_MS)
    busy_ = series(MONDAY_MS + HOUR_MS, 300, busy(), every_ms=MINUTE_MS, interval_ms=MINUTE_MS)
    write(tmp_path, idle + busy_)
    start, end = (MONDAY_MS + minute * MINUTE_MS for minute in minutes)
    expected = report_of(tmp_path, start, end)
    expire(tmp_path, *roll_up_days(str(tmp_path)))
    found = report_of(tmp_path, start, end)
    pd.testing.assert_frame_equal(expected.headline, found.headline, atol=1e-6)
    assert len(found.notes) == 1


def test_the_first_hour_of_a_history_is_not_taken_for_one_that_is_cut(tmp_path: Path) -> None:
    write(tmp_path, series(MONDAY_MS + 40 * MINUTE_MS, 80, busy(), every_ms=MINUTE_MS, interval_ms=MINUTE_MS))
    expected = report_of(tmp_path, MONDAY_MS, MONDAY_MS + 2 * HOUR_MS)
    expire(tmp_path, *roll_up_days(str(tmp_path)))
    found = report_of(tmp_path, MONDAY_MS, MONDAY_MS + 2 * HOUR_MS)
    pd.testing.assert_frame_equal(expected.headline, found.headline, atol=1e-6)
    pd.testing.assert_frame_equal(expected.capacity, found.capacity, atol=1e-6)
    assert found.notes == []


def test_who_is_held_at_the_end_of_an_expired_history_is_told_by_its_last_tick(tmp_path: Path) -> None:
    start, end = lab_days(tmp_path)
    expected = report_of(tmp_path, start, end)
    expire(tmp_path, *roll_up_days(str(tmp_path)))
    found = report_of(tmp_path, start, end)
    assert found.episodes["ongoing"].sum() == expected.episodes["ongoing"].sum()
    assert 0 <= found.newest_ms - expected.newest_ms < 5 * MINUTE_MS


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


@pytest.mark.parametrize("again", [False, True])
def test_episodes_go_on_from_a_day_whose_ticks_have_expired(tmp_path: Path, again: bool) -> None:
    start, end = lab_days(tmp_path)
    expected = report_of(tmp_path, start, end)
    upkeep(tmp_path, end + 2 * DAY_MS, KEEP_LAST_TWO)
    os.utime(tmp_path / "samples/2026-11-15.sqlite")  # as a copy without times does
    if again:
        assert "2026-11-15" in upkeep(tmp_path, end + 2 * DAY_MS, KEEP_LAST_TWO).rolled_up
    found = report_of(tmp_path, start, end)
    assert len(found.episodes) == len(expected.episodes)
    assert found.episodes["seconds"].sum() == pytest.approx(expected.episodes["seconds"].sum(), rel=0.001)


def test_a_full_disk_loses_its_old_csv_files_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, end = lab_days(tmp_path)
    upkeep(tmp_path, end + 2 * DAY_MS)

    def full(self: RollupWriter, days: list[str]) -> None:
        raise StoreError("no space left")

    monkeypatch.setattr(RollupWriter, "mark_expired", full)
    config = CONFIG._replace(retention=Retention(raw_days=1, csv_days=1))
    with pytest.raises(StoreError):
        upkeep(tmp_path, end + 2 * DAY_MS, config)
    assert list((tmp_path / "csv").iterdir()) == []
    assert len(days_left(tmp_path)) == 4
