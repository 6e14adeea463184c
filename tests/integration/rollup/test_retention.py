"""What is old enough goes, nothing else does, and no report changes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gua_sample import store
from gua_sample.partition_names import day_of
from tests.integration.rollup.five_days import (
    CLOSED,
    END_MS,
    KEPT_DAYS,
    START_MS,
    TODAY,
    add_late_tick,
    assert_report,
    copy,
    files,
    here,
    rollup,
    stored,
    stored_days,
    ticks,
    tree,
    whole,
    write_config,
)
from tests.lab import DAY_MS, HOUR_MS, MINUTE_MS, Report, report_of
from tests.machine import one_line
from tests.rolling import OLD, RECENT, TODAY_MS, assert_same, partition


def test_ticks_go_and_reports_stay(untouched: Path, data_dir: Path, expected: Report, config: str) -> None:
    done = rollup(data_dir, "--config", config)
    assert (done.returncode, done.stderr) == (0, "")
    for day in OLD:
        assert f"removed {partition(data_dir, day)}\n" in done.stdout
    assert files(data_dir) == whole([*RECENT, TODAY], CLOSED)
    report = assert_report(data_dir, expected)
    assert report.notes == []
    window = START_MS + 5 * HOUR_MS, START_MS + 40 * HOUR_MS
    hours = report_of(data_dir, *window)
    assert hours.notes == []
    # Almost all of it: on some days of the calendar the laboratory's host is down for a while.
    assert 34 * 3600 < hours.from_rollups_seconds == pytest.approx(report_of(untouched, *window).from_ticks_seconds)
    before = tree(data_dir)
    again = here("rollup", data_dir, "--config", config)
    assert (again.returncode, again.stderr) == (0, "")
    assert "removed" not in again.stdout
    assert tree(data_dir) == before
    rebuilt = here("rollup", data_dir, "--config", config, "--rebuild")
    assert (rebuilt.returncode, rebuilt.stderr) == (0, "")
    assert_report(data_dir, expected)


def test_hours_of_an_expired_day_are_as_they_were(untouched: Path, finished: Path, tmp_path: Path, config: str) -> None:
    data_dir = copy(finished, tmp_path / "data")
    assert here("rollup", data_dir, "--config", config).returncode == 0
    for start, end in ((3, 20), (20, 29), (47, 110)):
        window = START_MS + start * HOUR_MS, START_MS + end * HOUR_MS
        assert_same(report_of(untouched, *window), report_of(data_dir, *window))


def test_the_last_tick_that_comes_in_time_counts(rolled_up: Path, config: str) -> None:
    add_late_tick(rolled_up, START_MS + 30 * MINUTE_MS)
    expected = report_of(rolled_up, START_MS, END_MS)
    done = here("rollup", rolled_up, "--config", config, "--json")
    assert json.loads(done.stdout)["rolled_up"] == OLD[:1]  # the one beside it takes nothing from that tick
    assert files(rolled_up) == whole([*RECENT, TODAY], CLOSED)
    assert_report(rolled_up, expected)


@pytest.mark.parametrize("arguments", [[], ["--rebuild"]])
def test_ticks_that_come_back_do_not_take_the_place_of_a_whole_day(
    rolled_up: Path, expected: Report, config: str, arguments: list[str]
) -> None:
    assert here("rollup", rolled_up, "--config", config).returncode == 0
    before = stored(rolled_up, OLD[1])
    store.append_history(str(rolled_up / "samples"), ticks(START_MS + DAY_MS + 7 * HOUR_MS, 2 * HOUR_MS))
    assert_report(rolled_up, expected)
    for words in (arguments, [*arguments, "--config", config]):
        done = here("rollup", rolled_up, *words)
        assert done.returncode == 0
        assert one_line(done.stderr)
        assert str(partition(rolled_up, OLD[1])) in done.stderr
        assert stored(rolled_up, OLD[1]) == before
        assert partition(rolled_up, OLD[1]).exists()
        assert_report(rolled_up, expected)


def test_csv_files_go_and_are_not_made_again(rolled_up: Path, tmp_path: Path) -> None:
    path = write_config(tmp_path / "gua.toml", csv_days=KEPT_DAYS)
    for removed in (2, 0):
        done = here("rollup", rolled_up, "--config", path)
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.count("removed") == removed
        assert files(rolled_up) == whole([*CLOSED, TODAY], RECENT)
    none = write_config(tmp_path / "none.toml", csv_days=0)
    for removed in (2, 0):
        assert here("rollup", rolled_up, "--config", none).stdout.count("removed") == removed
        assert files(rolled_up) == whole([*CLOSED, TODAY], [])


def test_rollups_go_once_their_ticks_are_gone(rolled_up: Path, tmp_path: Path, config: str) -> None:
    short = write_config(tmp_path / "short.toml", rollup_days=KEPT_DAYS)
    done = here("rollup", rolled_up, "--config", short)
    assert (done.returncode, done.stderr) == (0, "")
    assert stored_days(rolled_up) == CLOSED  # or they would be made again tomorrow
    assert here("rollup", rolled_up, "--config", config).returncode == 0
    done = here("rollup", rolled_up, "--config", short)
    assert (done.returncode, done.stderr) == (0, "")
    for day in OLD:
        assert day in done.stdout
    assert stored_days(rolled_up) == RECENT
    assert here("rollup", rolled_up, "--config", short).stdout.count("removed") == 0


def test_files_of_others_are_never_touched(rolled_up: Path, tmp_path: Path) -> None:
    names = [
        "samples/notes.txt",
        "samples/2020-13-45.sqlite",
        f"samples/{OLD[0]}.sqlite.corrupt-1",
        f"samples/{OLD[0]}.sqlite.backup",
        f"samples/copy-of-{OLD[0]}.sqlite",
        "samples/old/2020-01-01.sqlite",
        "csv/notes.csv",
        "csv/2020-13-45.csv",
        f"csv/{OLD[0]}.csv.gz",
        f"csv/.{OLD[0]}.csv.swp",  # somebody has it open in vim
        f"csv/.{RECENT[0]}.csv.swp",
        "csv/old/2020-01-01.csv",
    ]
    for name in names:
        (rolled_up / name).parent.mkdir(exist_ok=True)
        (rolled_up / name).write_text("somebody's own")
    for day in CLOSED:
        (rolled_up / "csv" / f"{day}.csv").unlink()  # so that they are written again
    everything = dict.fromkeys(("raw_days", "csv_days", "rollup_days"), 1)
    assert here("rollup", rolled_up).returncode == 0
    done = here("rollup", rolled_up, "--config", write_config(tmp_path / "gua.toml", **everything))
    assert (done.returncode, done.stderr) == (0, "")
    assert files(rolled_up) == sorted([*names, "rollups.sqlite", f"samples/{TODAY}.sqlite"])
    assert {(rolled_up / name).read_text() for name in names} == {"somebody's own"}


@pytest.mark.parametrize("count", [1, 2])
def test_days_to_come_are_neither_rolled_up_nor_removed(data_dir: Path, tmp_path: Path, count: int) -> None:
    next_year_ms = TODAY_MS + 365 * DAY_MS
    store.append_history(str(data_dir / "samples"), ticks(next_year_ms, count * DAY_MS))
    expected = report_of(data_dir, START_MS, END_MS)
    to_come = [day_of(next_year_ms + number * DAY_MS) for number in range(count)]
    path = write_config(tmp_path / "gua.toml", raw_days=KEPT_DAYS, csv_days=KEPT_DAYS, rollup_days=10)
    for arguments in ([], ["--rebuild"]):
        done = here("rollup", data_dir, "--config", path, "--json", *arguments)
        assert (done.returncode, done.stderr) == (0, "")
        assert json.loads(done.stdout)["open"] == [TODAY, *to_come]
        assert files(data_dir) == whole([*RECENT, TODAY, *to_come], RECENT)
        assert stored_days(data_dir) == CLOSED
        assert_report(data_dir, expected)
