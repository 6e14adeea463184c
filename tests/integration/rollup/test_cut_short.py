"""gua rollup killed or out of space: days are whole or not there, and the next run completes them."""

import shutil
import signal
import sqlite3
from bisect import bisect_left
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.disks import fill, mounted
from tests.integration.rollup import five_days as five
from tests.integration.rollup.runs import Runs
from tests.lab import Report, report_of
from tests.machine import one_line
from tests.rolling import OLD, RECENT, partition
from tests.users import needs_mounts

# -- cut short


@pytest.mark.real
def test_killed_at_any_moment_nothing_is_lost_and_the_next_run_completes_it(
    untouched: Path, finished: Path, driver: Path, tmp_path: Path, config: str
) -> None:
    """At one of so many changes to a file, and at each of the last ones, when ticks are removed."""
    short = five.copy(untouched, tmp_path / "short")
    for day in (OLD[0], RECENT[0]):
        partition(short, day).unlink()
    expected = report_of(short, five.START_MS, five.END_MS)
    days = [OLD[1], RECENT[1]]
    csvs = {day: (finished / "csv" / f"{day}.csv").read_bytes() for day in days}

    def kill(runs: Runs, moment: int) -> tuple[Path, bool]:
        data_dir = tmp_path / "data"
        shutil.rmtree(data_dir, ignore_errors=True)
        five.copy(short, data_dir)
        (status,) = runs.run(data_dir, kill_at=moment)
        assert status in (0, -signal.SIGKILL), runs.errors()
        return data_dir, status != 0

    with Runs(driver, tmp_path, "--compact", "--config", config) as runs:
        count = bisect_left(range(1, 512), True, key=lambda moment: not kill(runs, moment)[1])
        assert 100 < count < 511
        data_dir, _ = kill(runs, count + 1)
        five.assert_report(data_dir, expected)
        sums = [five.stored(data_dir, day) for day in days]
        for moment in [*range(1, count - 4, 37), *range(count - 4, count + 1)]:
            data_dir, was_killed = kill(runs, moment)
            assert was_killed
            five.assert_report(data_dir, expected)
            for path in (data_dir / "csv").glob("*.csv"):
                assert path.read_bytes() == csvs[path.stem]
            done = five.here("rollup", data_dir, "--compact", "--config", config)
            assert (done.returncode, five.but_for_empty(done.stderr)) == (0, ""), moment
            assert five.files(data_dir) == five.whole([RECENT[1], five.TODAY], days), moment
            assert {path.stem: path.read_bytes() for path in (data_dir / "csv").glob("*.csv")} == csvs
            assert [five.stored(data_dir, day) for day in days] == sums
        assert runs.errors() == ""


def test_a_day_that_was_stored_and_not_verified_is_made_anew(rolled_up: Path, expected: Report, config: str) -> None:
    """As a kill between the two leaves it. Until it was read back, its ticks stay."""
    with closing(sqlite3.connect(rolled_up / "rollups.sqlite", isolation_level=None)) as connection:
        connection.execute("UPDATE day SET is_verified = 0")
        connection.execute("UPDATE card_hour SET weight_ms = weight_ms + 1")
    done = five.here("rollup", rolled_up, "--config", config)
    assert (done.returncode, done.stderr) == (0, "")
    five.assert_report(rolled_up, expected)
    assert five.files(rolled_up) == five.whole([*RECENT, five.TODAY], five.CLOSED)


# -- out of space


@pytest.fixture
def small_disk(untouched: Path, tmp_path: Path) -> Iterator[Path]:
    with mounted(tmp_path / "disk", "size=1m") as folder:
        yield five.copy(untouched, folder)


@needs_mounts
@pytest.mark.parametrize("leave_kib", [0, 48, 100, 200])
def test_without_space_there_are_whole_days_one_line_and_later_the_rest(
    small_disk: Path, finished: Path, expected: Report, config: str, leave_kib: int
) -> None:
    fill(small_disk, leave_kib * 1024)
    done = five.here("rollup", small_disk, "--config", config)
    assert done.returncode == 1
    assert one_line(done.stderr)
    assert "no space left" in done.stderr.lower()
    assert str(small_disk) in done.stderr
    found = [path for path in five.files(small_disk) if path not in ("ballast", "rollups.sqlite")]
    csvs = [path for path in found if path.startswith("csv/")]
    there = {path for path in found if path not in csvs}
    stays = [day for day in OLD if f"csv/{day}.csv" not in csvs] + [*RECENT, five.TODAY]
    assert {f"samples/{day}.sqlite" for day in stays} <= there
    if "rollups.sqlite" not in done.stderr:  # what is old enough and done makes room, if that can be noted
        assert len(there) == len(stays)
    for path in csvs:
        assert (small_disk / path).read_bytes() == (finished / path).read_bytes()
    five.assert_report(small_disk, expected)
    (small_disk / "ballast").unlink()
    done = five.here("rollup", small_disk, "--config", config)
    assert (done.returncode, five.but_for_empty(done.stderr)) == (0, "")
    assert five.files(small_disk) == five.whole([*RECENT, five.TODAY], five.CLOSED)
    five.assert_report(small_disk, expected)


@needs_mounts
def test_what_is_old_enough_makes_space_for_what_is_new(small_disk: Path, tmp_path: Path, expected: Report) -> None:
    """A disk that ran full is when retention is wanted most."""
    assert five.here("rollup", small_disk).returncode == 0
    five.add_late_tick(small_disk, five.END_MS - 1)
    (small_disk / "csv" / f"{RECENT[1]}.csv").unlink()
    fill(small_disk, 16 * 1024)
    path = five.write_config(tmp_path / "gua.toml", raw_days=five.KEPT_DAYS, csv_days=five.KEPT_DAYS)
    runs = [five.here("rollup", small_disk, "--config", path) for _ in range(2)]
    assert runs[-1].returncode == 0, [done.stderr for done in runs]
    (small_disk / "ballast").unlink()
    assert five.files(small_disk) == five.whole([*RECENT, five.TODAY], RECENT)
