"""What is stored of a day is what its ticks and the ticks beside it said when they were all there."""

from __future__ import annotations

import os
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from gua_report.rollups.writer import RollupWriter
from gua_sample import store
from gua_sample.partition_names import DAY_MS, day_of
from gua_sample.simulate import Laboratory
from tests.machine import query
from tests.rolling import (
    TODAY_MS,
    WEEK,
    Killed,
    days_left,
    edges_left,
    partition,
    report,
    roll_up,
    run,
    stored,
    touch,
    write_week,
)

KEEP_THREE = {"raw_days": 3}


@pytest.fixture(scope="module")
def week(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A week that was rolled up. Not to be changed."""
    folder = tmp_path_factory.mktemp("week")
    write_week(folder)
    assert roll_up(folder)["rolled_up"] == WEEK
    return folder


@pytest.fixture
def data_dir(week: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(week, tmp_path / "data"))


def add_tick(data_dir: Path, ts_ms: int) -> None:
    (late,) = Laboratory(1, 3).history(ts_ms, ts_ms + 1, 1000)
    store.append(str(data_dir / "samples"), late, pytest.fail)


@pytest.mark.parametrize("day", WEEK)
def test_a_day_that_was_touched_is_the_same_though_those_beside_it_expire(data_dir: Path, day: str) -> None:
    before, sums = report(data_dir), stored(data_dir)
    touch(data_dir, day)
    done = roll_up(data_dir, **KEEP_THREE)
    assert (done["rolled_up"], done["inexact"]) == ([day], [])
    after = report(data_dir)
    assert after["capacity"] == before["capacity"]  # the kWh
    assert after["episodes"] == before["episodes"]
    assert after == before
    assert stored(data_dir) == sums
    assert days_left(data_dir) == [*WEEK[4:], day_of(TODAY_MS)]


@pytest.mark.parametrize("arguments", [[], ["--rebuild"]])
def test_a_day_beside_one_that_has_expired_is_made_anew_as_it_was(data_dir: Path, arguments: list[str]) -> None:
    before, sums = report(data_dir), stored(data_dir)
    roll_up(data_dir, **KEEP_THREE)
    assert edges_left(data_dir) == [WEEK[3]]
    touch(data_dir, WEEK[4])
    done = roll_up(data_dir, *arguments, **KEEP_THREE)
    assert (done["rolled_up"], done["inexact"]) == (WEEK[4:] if arguments else [WEEK[4]], [])
    assert (report(data_dir), stored(data_dir)) == (before, sums)


def test_the_ticks_left_of_an_expired_day_go_with_the_ticks_beside_it(data_dir: Path) -> None:
    for kept in (3, 2, 1):
        roll_up(data_dir, raw_days=kept)
        assert edges_left(data_dir) == [WEEK[-kept - 1]]
        ticks = query(data_dir / "edges" / f"{WEEK[-kept - 1]}.sqlite", "SELECT ts_ms FROM ticks ORDER BY ts_ms")
        assert len(ticks) == 80


def test_other_thresholds_beside_an_expired_day_are_those_of_all_its_ticks(data_dir: Path, week: Path) -> None:
    roll_up(data_dir, **KEEP_THREE)
    strict = "[policy]\nutilization_percent = 60.0\n"
    sums = {}
    for folder in (data_dir, Path(shutil.copytree(week, data_dir.parent / "all"))):
        (folder / "gua.toml").write_text(strict)
        assert run("rollup", folder, "--config", str(folder / "gua.toml"))[0] == 0
        sums[folder] = stored(folder, WEEK[4:])
    one, other = sums.values()
    assert one == other


def test_a_kill_between_marking_and_removing_does_not_end_the_next_run(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With sums that are old enough to go as well."""
    before = report(data_dir, WEEK[5])
    with monkeypatch.context() as patch:
        mark = RollupWriter.mark

        def mark_and_die(self: RollupWriter, days: Any, **values: Any) -> None:
            mark(self, days, **values)
            if "is_expired" in values:
                raise Killed

        patch.setattr(RollupWriter, "mark", mark_and_die)
        with pytest.raises(Killed):
            roll_up(data_dir, **KEEP_THREE)
    assert days_left(data_dir)[0] == WEEK[0]  # nothing was removed yet
    done = roll_up(data_dir, raw_days=3, rollup_days=5)
    assert done["removed"][:4] == [str(partition(data_dir, day)) for day in WEEK[:4]]
    roll_up(data_dir, raw_days=3, rollup_days=5)
    assert sorted(stored(data_dir)) == WEEK[2:]
    assert report(data_dir, WEEK[5]) == before


def test_sums_stay_as_long_as_the_ticks_beside_them_need_their_edge(data_dir: Path) -> None:
    """Else ticks that come late would be taken for all of that day."""
    roll_up(data_dir, raw_days=3, rollup_days=1)
    roll_up(data_dir, raw_days=3, rollup_days=1)
    assert sorted(stored(data_dir)) == WEEK[3:]


@pytest.mark.parametrize("length", [1, 2])
def test_a_tick_that_comes_next_to_an_expired_day_is_said_to_make_that_inexact(data_dir: Path, length: int) -> None:
    roll_up(data_dir, **KEEP_THREE)
    first = WEEK[4]
    before = stored(data_dir, WEEK[:4])
    add_tick(data_dir, TODAY_MS - 3 * DAY_MS + 1000)
    for _ in range(length):
        done = roll_up(data_dir, **KEEP_THREE)
        assert done["inexact"] == [WEEK[3]]
    assert stored(data_dir, WEEK[:4]) == before
    said = run("report", data_dir, "--tz", "UTC", "--from", WEEK[0], "--to", first)[1]
    assert f"not exact at midnight, as ticks beside them are gone or came late: {WEEK[3]}" in " ".join(said.split())
    assert f"not exact at midnight: {WEEK[3]}" in run("rollup", data_dir)[1]
    assert "not exact" not in run("report", data_dir, "--tz", "UTC", "--from", WEEK[5])[1]


def test_a_day_made_without_what_lay_beside_it_is_said_to_be_inexact_until_that_is_back(data_dir: Path) -> None:
    """As with folders of which an older gua removed days without leaving their edges."""
    sums = stored(data_dir)
    roll_up(data_dir, **KEEP_THREE)
    edge = data_dir / "edges" / f"{WEEK[3]}.sqlite"
    edge.rename(data_dir / "away")
    assert roll_up(data_dir, "--rebuild", **KEEP_THREE)["inexact"] == []  # what is stored is better
    assert stored(data_dir) == sums
    touch(data_dir, WEEK[4])
    assert roll_up(data_dir, **KEEP_THREE)["inexact"] == [WEEK[4]]
    assert stored(data_dir) != sums
    (data_dir / "away").rename(edge)
    done = roll_up(data_dir, **KEEP_THREE)
    assert (done["rolled_up"], done["inexact"]) == ([WEEK[4]], [])
    assert stored(data_dir) == sums


def test_a_folder_without_the_table_of_edges_is_as_good_as_it_was(data_dir: Path) -> None:
    with closing(sqlite3.connect(data_dir / "rollups.sqlite", isolation_level=None)) as connection:
        connection.execute("DROP TABLE edge")
    before, sums = report(data_dir), stored(data_dir)
    done = roll_up(data_dir, **KEEP_THREE)
    assert (done["rolled_up"], done["inexact"]) == ([], [])
    assert (report(data_dir), stored(data_dir)) == (before, sums)


def test_a_neighbour_that_is_busy_is_waited_for(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is made without it meanwhile keeps its ticks, and is made again."""
    monkeypatch.setattr("gua_report.ticks.open_partition.BUSY_SECONDS", 0.1)
    sums = stored(data_dir)
    touch(data_dir, WEEK[0])
    with closing(sqlite3.connect(partition(data_dir, WEEK[1]), isolation_level=None)) as writer:
        writer.execute("PRAGMA locking_mode = EXCLUSIVE")
        writer.execute("BEGIN EXCLUSIVE")
        (data_dir / "gua.toml").write_text("[retention]\nraw_days = 3\n")
        _, _, errors = run("rollup", data_dir, "--config", str(data_dir / "gua.toml"))
        assert "held by another process" in errors
    assert partition(data_dir, WEEK[0]).exists()
    done = roll_up(data_dir, **KEEP_THREE)
    assert done["inexact"] == []
    assert stored(data_dir) == sums
    assert days_left(data_dir) == [*WEEK[4:], day_of(TODAY_MS)]


def test_csv_files_that_a_killed_run_left_half_written_go_at_once(data_dir: Path) -> None:
    folder = data_dir / "csv"
    left = [folder / f".{WEEK[0]}.csv.0123abcd.unfinished", folder / f".{WEEK[5]}.csv.ffffffff.unfinished"]
    others = [folder / f".{WEEK[0]}.csv.swp", folder / ".notes.csv.0123abcd"]
    for path in [*left, *others]:
        path.write_text("half")
    roll_up(data_dir)
    assert not any(path.exists() for path in left)
    assert all(path.exists() for path in others)


def test_a_host_that_was_off_for_weeks_loses_nothing_when_it_is_rolled_up_at_once(tmp_path: Path) -> None:
    start_ms = TODAY_MS - 30 * DAY_MS + 100_000
    ticks = Laboratory(1, 3).history(start_ms, start_ms + 2 * DAY_MS + DAY_MS // 2, 300_000)
    store.append_history(store.prepare(str(tmp_path)), ticks)
    add_tick(tmp_path, TODAY_MS)
    first = day_of(start_ms)
    before = report(tmp_path, first)
    done = roll_up(tmp_path, **KEEP_THREE)
    assert (len(done["rolled_up"]), done["inexact"], days_left(tmp_path)) == (3, [], [day_of(TODAY_MS)])
    assert report(tmp_path, first) == before


def test_days_that_are_copied_back_without_their_times_stay_as_they_were(data_dir: Path) -> None:
    sums = stored(data_dir)
    for day in WEEK:
        touch(data_dir, day)
    os.sync()
    done = roll_up(data_dir, "--compact", **KEEP_THREE)
    assert (done["rolled_up"], done["inexact"]) == (WEEK, [])
    assert stored(data_dir) == sums


def test_a_kill_before_the_new_size_of_a_compacted_day_is_noted_costs_no_edge(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the day before it expired, such a day was once made anew without the ticks before its start."""
    sums = stored(data_dir)
    assert roll_up(data_dir, **KEEP_THREE)["removed"]
    first = days_left(data_dir)[0]
    size = partition(data_dir, first).stat().st_size

    mark = RollupWriter.mark

    def mark_or_die(writer: RollupWriter, days: list[str], **values: Any) -> None:
        if "partition_bytes" in values:
            raise Killed
        mark(writer, days, **values)

    with monkeypatch.context() as killing:
        killing.setattr(RollupWriter, "mark", mark_or_die)
        with pytest.raises(Killed):
            roll_up(data_dir, "--compact", **KEEP_THREE)
    assert partition(data_dir, first).stat().st_size < size
    done = roll_up(data_dir, **KEEP_THREE)
    assert (done["rolled_up"], done["inexact"]) == ([first], [])
    assert stored(data_dir) == sums
