"""What is old enough goes, nothing else does, and no report changes."""

import json
from pathlib import Path

import pytest

from gua_sample import store
from gua_sample.partition_names import day_of
from tests.integration.rollup import five_days as five
from tests.lab import DAY_MS, HOUR_MS, MINUTE_MS, Report, report_of
from tests.machine import one_line
from tests.rolling import OLD, RECENT, TODAY_MS, partition


def test_ticks_go_and_reports_stay(untouched: Path, data_dir: Path, expected: Report, config: str) -> None:
    done = five.rollup(data_dir, "--config", config)
    assert (done.returncode, done.stderr) == (0, "")
    for day in OLD:
        assert f"removed {partition(data_dir, day)}\n" in done.stdout
    assert five.files(data_dir) == five.whole([*RECENT, five.TODAY], five.CLOSED)
    report = five.assert_report(data_dir, expected)
    assert report.notes == []
    window = five.START_MS + 5 * HOUR_MS, five.START_MS + 40 * HOUR_MS
    hours = report_of(data_dir, *window)
    assert hours.notes == []
    # Almost all of it: on some days of the calendar the laboratory's host is down for a while.
    assert 34 * 3600 < hours.from_rollups_seconds == pytest.approx(report_of(untouched, *window).from_ticks_seconds)
    before = five.tree(data_dir)
    again = five.here("rollup", data_dir, "--config", config)
    assert (again.returncode, again.stderr) == (0, "")
    assert "removed" not in again.stdout
    assert five.tree(data_dir) == before
    rebuilt = five.here("rollup", data_dir, "--config", config, "--rebuild")
    assert (rebuilt.returncode, rebuilt.stderr) == (0, "")
    five.assert_report(data_dir, expected)


def test_the_last_tick_that_comes_in_time_counts(rolled_up: Path, config: str) -> None:
    five.add_late_tick(rolled_up, five.START_MS + 30 * MINUTE_MS)
    expected = report_of(rolled_up, five.START_MS, five.END_MS)
    done = five.here("rollup", rolled_up, "--config", config, "--json")
    assert json.loads(done.stdout)["rolled_up"] == OLD[:1]  # the one beside it takes nothing from that tick
    assert five.files(rolled_up) == five.whole([*RECENT, five.TODAY], five.CLOSED)
    five.assert_report(rolled_up, expected)


@pytest.mark.parametrize("arguments", [[], ["--rebuild"]])
def test_ticks_that_come_back_replace_no_day(
    rolled_up: Path, expected: Report, config: str, arguments: list[str]
) -> None:
    assert five.here("rollup", rolled_up, "--config", config).returncode == 0
    before = five.stored(rolled_up, OLD[1])
    store.append_history(str(rolled_up / "samples"), five.ticks(five.START_MS + DAY_MS + 7 * HOUR_MS, 2 * HOUR_MS))
    five.assert_report(rolled_up, expected)
    for words in (arguments, [*arguments, "--config", config]):
        done = five.here("rollup", rolled_up, *words)
        assert done.returncode == 0
        assert one_line(done.stderr)
        assert str(partition(rolled_up, OLD[1])) in done.stderr
        assert five.stored(rolled_up, OLD[1]) == before
        assert partition(rolled_up, OLD[1]).exists()
        five.assert_report(rolled_up, expected)


def test_csv_files_go_and_are_not_made_again(rolled_up: Path, tmp_path: Path) -> None:
    path = five.write_config(tmp_path / "gua.toml", csv_days=five.KEPT_DAYS)
    for removed in (2, 0):
        done = five.here("rollup", rolled_up, "--config", path)
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.count("removed") == removed
        assert five.files(rolled_up) == five.whole([*five.CLOSED, five.TODAY], RECENT)
    none = five.write_config(tmp_path / "none.toml", csv_days=0)
    for removed in (2, 0):
        assert five.here("rollup", rolled_up, "--config", none).stdout.count("removed") == removed
        assert five.files(rolled_up) == five.whole([*five.CLOSED, five.TODAY], [])


def test_rollups_go_once_their_ticks_are_gone(rolled_up: Path, tmp_path: Path, config: str) -> None:
    short = five.write_config(tmp_path / "short.toml", rollup_days=five.KEPT_DAYS)
    done = five.here("rollup", rolled_up, "--config", short)
    assert (done.returncode, done.stderr) == (0, "")
    assert five.stored_days(rolled_up) == five.CLOSED  # or they would be made again tomorrow
    assert five.here("rollup", rolled_up, "--config", config).returncode == 0
    done = five.here("rollup", rolled_up, "--config", short)
    assert (done.returncode, done.stderr) == (0, "")
    for day in OLD:
        assert day in done.stdout
    assert five.stored_days(rolled_up) == RECENT
    assert five.here("rollup", rolled_up, "--config", short).stdout.count("removed") == 0


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
    for day in five.CLOSED:
        (rolled_up / "csv" / f"{day}.csv").unlink()  # so that they are written again
    everything = dict.fromkeys(("raw_days", "csv_days", "rollup_days"), 1)
    assert five.here("rollup", rolled_up).returncode == 0
    done = five.here("rollup", rolled_up, "--config", five.write_config(tmp_path / "gua.toml", **everything))
    assert (done.returncode, done.stderr) == (0, "")
    assert five.files(rolled_up) == sorted([*names, "rollups.sqlite", f"samples/{five.TODAY}.sqlite"])
    assert {(rolled_up / name).read_text() for name in names} == {"somebody's own"}


@pytest.mark.parametrize("count", [1, 2])
def test_days_to_come_are_neither_rolled_up_nor_removed(data_dir: Path, tmp_path: Path, count: int) -> None:
    next_year_ms = TODAY_MS + 365 * DAY_MS
    store.append_history(str(data_dir / "samples"), five.ticks(next_year_ms, count * DAY_MS))
    expected = report_of(data_dir, five.START_MS, five.END_MS)
    to_come = [day_of(next_year_ms + number * DAY_MS) for number in range(count)]
    path = five.write_config(tmp_path / "gua.toml", raw_days=five.KEPT_DAYS, csv_days=five.KEPT_DAYS, rollup_days=10)
    for arguments in ([], ["--rebuild"]):
        done = five.here("rollup", data_dir, "--config", path, "--json", *arguments)
        assert (done.returncode, done.stderr) == (0, "")
        assert json.loads(done.stdout)["open"] == [five.TODAY, *to_come]
        assert five.files(data_dir) == five.whole([*RECENT, five.TODAY, *to_come], RECENT)
        assert five.stored_days(data_dir) == five.CLOSED
        five.assert_report(data_dir, expected)
