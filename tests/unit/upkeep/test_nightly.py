"""What gua rollup does each night: it rolls up what is closed and due, once, and removes what is old."""

import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pandas as pd
import pytest

from gua_report.config import Retention
from gua_report.rollups.reader import Day
from gua_report.rollups.writer import roll_up_day
from gua_report.ticks.history import History
from gua_report.upkeep import nightly
from gua_report.upkeep.nightly import Done, Upkeep
from gua_sample import store
from gua_sample.errors import NothingToReport
from gua_sample.policy import Policy
from gua_sample.simulate import Laboratory
from tests.damage import overwrite_table
from tests.lab import CONFIG, DAY_MS, HOUR_MS, MINUTE_MS, MONDAY_MS, held, report_of, series, write
from tests.rolling import KEEP_LAST_TWO, assert_same, days_left, lab_days, partition, report_of_lab, stored, upkeep


def test_a_day_is_closed_five_minutes_after_its_end(tmp_path: Path) -> None:
    write(tmp_path, series(MONDAY_MS, 1440, held(), every_ms=MINUTE_MS))
    closed_ms = MONDAY_MS + DAY_MS + 5 * MINUTE_MS
    assert upkeep(tmp_path, closed_ms - 1).open == ["2026-11-16"]
    assert upkeep(tmp_path, closed_ms).rolled_up == ["2026-11-16"]


def test_a_run_holds_the_ticks_of_one_day_at_a_time(tmp_path: Path) -> None:
    _, end = lab_days(tmp_path)
    run, held_days = Upkeep(str(tmp_path), CONFIG, end + 2 * DAY_MS, False, print), []
    run.run(True, False, lambda *_: held_days.append(len(run.history._ticks)))
    assert held_days == [0] * 4


def test_ticks_of_an_expired_day_change_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
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


def test_what_is_left_of_a_day_does_not_replace_its_sums_unless_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    start, end = lab_days(tmp_path)
    upkeep(tmp_path, end + 2 * DAY_MS)
    before, day = stored(tmp_path), "2026-11-14"
    partition(tmp_path, day).write_bytes(b"no partition" * 1000)
    late = next(iter(Laboratory(1).history(start + DAY_MS, start + DAY_MS + 1, 1000)))
    assert not store.append(store.prepare(str(tmp_path)), late, print).kept
    capsys.readouterr()
    for dry_run in (True, False):
        done = upkeep(tmp_path, end + 2 * DAY_MS, KEEP_LAST_TWO, dry_run=dry_run)
        assert (done.rolled_up, done.failed, done.csv, done.kept) == ([], [day], [], [day])
        (line,) = [line for line in capsys.readouterr().out.splitlines() if day in line]
        assert f"{day}.sqlite has 0." in line
        assert f"card-hours in the rollup of {day}, which stays: " in line
    assert stored(tmp_path)[day] == before[day]
    assert day in upkeep(tmp_path, end + 2 * DAY_MS, rebuild=True).rolled_up
    assert stored(tmp_path)[day] != before[day]


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


def test_a_sum_that_can_not_be_stored_costs_that_day_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, end = lab_days(tmp_path)
    make = roll_up_day

    def swell(history: History, day: str, policy: Policy) -> Day | None:
        made = make(history, day, policy)
        if made and day == "2026-11-14":
            made.rollup.cards["energy_joules"] = 1e300
        return made

    monkeypatch.setattr(nightly, "roll_up_day", swell)
    done = upkeep(tmp_path, end + 2 * DAY_MS)
    assert (done.failed, len(done.rolled_up)) == (["2026-11-14"], 3)
    assert "2026-11-14.sqlite can't be rolled up (OverflowError" in capsys.readouterr().out


def test_a_csv_file_that_can_not_be_written_keeps_no_other_day_waiting(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, end = lab_days(tmp_path)
    (tmp_path / "csv" / "2026-11-14.csv").mkdir(parents=True)
    os.utime(tmp_path / "csv" / "2026-11-14.csv", (0, 0))  # older than the ticks
    done = upkeep(tmp_path, end + 2 * DAY_MS)
    assert (len(done.rolled_up), len(done.csv), done.csv_failed) == (4, 3, ("2026-11-14",))
    assert "no CSV file of 2026-11-14: " in capsys.readouterr().out


def test_a_dry_run_compacts_and_removes_what_it_would_have_made_first(tmp_path: Path) -> None:
    _, end = lab_days(tmp_path)
    config = CONFIG._replace(retention=Retention(raw_days=1))

    def run(now_ms: int, dry_run: bool) -> Done:
        return Upkeep(str(tmp_path), config, now_ms, dry_run, pytest.fail).run(False, True, None)

    would, done = (run(end + DAY_MS, dry_run) for dry_run in (True, False))
    assert would == done
    assert would.compacted
    assert would.removed
    (tmp_path / "csv" / "2026-11-16.csv").unlink()
    would, done = (run(end + 3 * DAY_MS, dry_run) for dry_run in (True, False))
    assert (would.csv, would.removed, would.kept) == (done.csv, done.removed, done.kept)
    assert would.csv


def test_a_partition_that_is_not_even_opened_is_not_readable(tmp_path: Path) -> None:
    _, end = lab_days(tmp_path)
    path = partition(tmp_path, "2026-11-14")
    path.rename(tmp_path / "elsewhere.sqlite")
    path.symlink_to(tmp_path / "elsewhere.sqlite")
    done = upkeep(tmp_path, end + 2 * DAY_MS)
    assert (done.failed, len(done.rolled_up)) == (["2026-11-14"], 3)


def test_compacted_days_are_the_same_and_not_rolled_up_again(tmp_path: Path) -> None:
    start, end = lab_days(tmp_path)
    expected = report_of(tmp_path, start, end)
    sizes = [path.stat().st_size for path in sorted((tmp_path / "samples").iterdir())]
    upkeep(tmp_path, end + 2 * DAY_MS)
    done = Upkeep(str(tmp_path), CONFIG, end + 2 * DAY_MS, False, print).run(False, True, None)
    assert len(done.compacted) == 4
    assert sum(path.stat().st_size for path in (tmp_path / "samples").iterdir()) < sum(sizes)
    again = Upkeep(str(tmp_path), CONFIG, end + 2 * DAY_MS, False, print).run(False, True, None)
    assert again == Done([], 4, [], [], [], [], [], [])
    assert report_of(tmp_path, start, end).from_ticks_seconds < 3600, "of the hour in which the history begins"
    assert_same(expected, report_of(tmp_path, start, end))
    (tmp_path / "rollups.sqlite").unlink()
    assert_same(expected, report_of(tmp_path, start, end))


def test_a_partition_that_is_in_use_is_compacted_another_time(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gua_report.upkeep.nightly.BUSY_SECONDS", 0.1)
    _, end = lab_days(tmp_path)
    with closing(sqlite3.connect(tmp_path / "samples/2026-11-14.sqlite", isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM tick").fetchone()
        done = Upkeep(str(tmp_path), CONFIG, end + 2 * DAY_MS, False, print).run(False, True, None)
    assert done.compacted == ["2026-11-13", "2026-11-15", "2026-11-16"]
    assert "not compacted: " in capsys.readouterr().out
    done = Upkeep(str(tmp_path), CONFIG, end + 2 * DAY_MS, False, print).run(False, True, None)
    assert done.compacted == ["2026-11-14"]


def test_sums_of_a_day_whose_ticks_can_not_be_read_survive_a_damaged_file(tmp_path: Path) -> None:
    start, end = lab_days(tmp_path)
    upkeep(tmp_path, end + 2 * DAY_MS)
    before, expected = stored(tmp_path), report_of(tmp_path, start, end)
    overwrite_table(tmp_path / "rollups.sqlite", "sqlite_autoindex_day_1")
    path = partition(tmp_path, "2026-11-14")
    times = path.stat()
    overwrite_table(path, "card_sample")
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    for _ in range(2):
        assert upkeep(tmp_path, end + 2 * DAY_MS).failed_check == ("2026-11-14",)
        assert stored(tmp_path) == before
        assert_same(expected, report_of(tmp_path, start, end))
