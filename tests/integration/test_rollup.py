"""gua rollup beside everybody else, cut short, out of space, on damaged files: no report changes, no tick is lost."""

from __future__ import annotations

import errno
import io
import json
import os
import pty
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from bisect import bisect_left
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from typing import Any

import pytest

from gua_report.main import main
from gua_sample import store
from gua_sample.partition_names import day_of
from gua_sample.records import Tick
from gua_sample.simulate import Laboratory
from tests.disks import fill, mounted
from tests.lab import DAY_MS, HOUR_MS, MINUTE_MS, Report, report_of
from tests.machine import GUA, SCRIPTS, one_line, query
from tests.rolling import OLD, RECENT, TABLES, TODAY_MS, assert_same, partition
from tests.users import SOMEBODY, needs_mounts, needs_root

CLOSED = [*OLD, *RECENT]
TODAY = day_of(TODAY_MS)
KEPT_DAYS = 6
LOCK = ".rollup.lock"  # stays, empty
START_MS, END_MS = TODAY_MS - 9 * DAY_MS, TODAY_MS - 3 * DAY_MS

Done = subprocess.CompletedProcess[str]


def ticks(start_ms: int, length_ms: int) -> Iterator[Tick]:
    return Laboratory(1, 3).history(start_ms, start_ms + length_ms, 20 * MINUTE_MS)


def add_late_tick(data_dir: Path, ts_ms: int) -> None:
    (late,) = ticks(ts_ms, 1)
    store.append(str(data_dir / "samples"), late, pytest.fail)


@pytest.fixture(scope="module")
def untouched(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A history that was never rolled up. Not to be changed."""
    folder = tmp_path_factory.mktemp("history")
    samples = store.prepare(str(folder))
    for days in (9, 5):
        store.append_history(samples, ticks(TODAY_MS - days * DAY_MS, 2 * DAY_MS))
    store.append_history(samples, ticks(TODAY_MS, 1))
    return folder


@pytest.fixture(scope="module")
def expected(untouched: Path) -> Report:
    """What a report says, and must say for ever."""
    report = report_of(untouched, START_MS, END_MS)
    assert report.from_rollups_seconds == 0
    return report


@pytest.fixture(scope="module")
def finished(untouched: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same, rolled up. Not to be changed."""
    folder = copy(untouched, tmp_path_factory.mktemp("finished") / "data")
    done = rollup(folder)
    assert (done.returncode, done.stderr) == (0, "")
    return folder


@pytest.fixture
def data_dir(untouched: Path, tmp_path: Path) -> Path:
    return copy(untouched, tmp_path / "data")


@pytest.fixture
def rolled_up(finished: Path, tmp_path: Path) -> Path:
    return copy(finished, tmp_path / "data")


@pytest.fixture
def config(tmp_path: Path) -> str:
    """Ticks go, all else stays."""
    return write_config(tmp_path / "gua.toml", raw_days=KEPT_DAYS)


def write_config(path: Path, **retention: object) -> str:
    lines = [
        f"{name} = {str(value).lower() if isinstance(value, bool) else value}" for name, value in retention.items()
    ]
    path.write_text("\n".join(["[retention]", *lines, ""]))
    return str(path)


def copy(source: Path, target: Path) -> Path:
    """With the times of the files, by which a day is known to be the same."""
    shutil.copytree(source, target, dirs_exist_ok=True)
    return target


def command(data_dir: Path, *arguments: str) -> list[str]:
    return [GUA, "rollup", "--data-dir", str(data_dir), *arguments]


def rollup(data_dir: Path, *arguments: str) -> Done:
    """The real command."""
    return subprocess.run(command(data_dir, *arguments), capture_output=True, text=True, check=False)


def here(verb: str, data_dir: Path, *arguments: str) -> Done:
    """The same in this process, which has pandas already."""
    words = [verb, "--data-dir", str(data_dir), *arguments]
    with redirect_stdout(io.StringIO()) as output, redirect_stderr(io.StringIO()) as errors:
        status = main(words)
    return subprocess.CompletedProcess(words, status, output.getvalue(), errors.getvalue())


def files(folder: Path) -> list[str]:
    found = (str(path.relative_to(folder)) for path in folder.rglob("*") if not path.is_dir())
    return sorted(path for path in found if path != LOCK)


def tree(folder: Path) -> dict[str, tuple[int, int, bytes | None]]:
    """All of it: modes, times and contents."""
    return {
        str(path.relative_to(folder)): (
            path.stat().st_mode,
            path.stat().st_mtime_ns,
            None if path.is_dir() else path.read_bytes(),
        )
        for path in [folder, *folder.rglob("*")]
        if path.name != LOCK
    }


def but_for_empty(stderr: str) -> str:
    """A run that is cut short as it begins rollups.sqlite leaves no more than its name, and the next one says so."""
    return re.sub(r"^gua rollup: warning: .*/rollups\.sqlite is empty: it is made again .*\n", "", stderr)


def whole(raw: list[str], csv: list[str]) -> list[str]:
    """The files of a data folder in which all is well."""
    return sorted([*(f"csv/{day}.csv" for day in csv), "rollups.sqlite", *(f"samples/{day}.sqlite" for day in raw)])


def stored(data_dir: Path, day: str) -> dict[str, list[dict[str, Any]]]:
    """All that rollups.sqlite holds of a day, but for what became of its ticks."""
    path = data_dir / "rollups.sqlite"
    (row,) = query(path, f"SELECT id FROM day WHERE day = '{day}'")
    return {table: query(path, f"SELECT * FROM {table} WHERE day_id = {row['id']}") for table in TABLES}


def stored_days(data_dir: Path) -> list[str]:
    return [row["day"] for row in query(data_dir / "rollups.sqlite", "SELECT day FROM day ORDER BY id")]


def assert_report(data_dir: Path, expected: Report, warnings: int = 0) -> Report:
    report = report_of(data_dir, START_MS, END_MS)
    assert_same(expected, report)
    assert len(report.warnings) == warnings
    return report


# -- the command


def test_closed_days_are_rolled_up_once_and_said(data_dir: Path, expected: Report) -> None:
    done = rollup(data_dir)
    assert (done.returncode, done.stderr) == (0, "")
    assert f"rolled up 4 days ({CLOSED[0]} to {CLOSED[-1]}), 1 day not closed yet, 4 CSV files" in done.stdout
    assert files(data_dir) == whole([*CLOSED, TODAY], CLOSED)
    assert assert_report(data_dir, expected).from_ticks_seconds == 0
    before = tree(data_dir)
    done = rollup(data_dir)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "rolled up 0 days, 4 days done before, 1 day not closed yet\n"
    assert tree(data_dir) == before


def test_what_was_done_is_told_as_json(data_dir: Path) -> None:
    first, second = (json.loads(here("rollup", data_dir, "--json").stdout) for _ in range(2))
    assert (first["rolled_up"], first["unchanged"], first["open"]) == (CLOSED, 0, [TODAY])
    assert first["csv"] == [str(data_dir / "csv" / f"{day}.csv") for day in CLOSED]
    assert (second["rolled_up"], second["unchanged"], second["open"], second["csv"]) == ([], 4, [TODAY], [])
    for found in (first, second):
        assert (found["failed"], found["removed"], found["kept"]) == ([], [], [])


def test_a_rebuild_makes_all_days_anew_and_the_same(rolled_up: Path, expected: Report) -> None:
    before = {day: stored(rolled_up, day) for day in CLOSED}
    changed_ns = (rolled_up / "rollups.sqlite").stat().st_mtime_ns
    done = rollup(rolled_up, "--rebuild")
    assert (done.returncode, done.stderr) == (0, "")
    assert "rolled up 4 days" in done.stdout
    assert (rolled_up / "rollups.sqlite").stat().st_mtime_ns > changed_ns
    assert {day: stored(rolled_up, day) for day in CLOSED} == before
    assert_report(rolled_up, expected)


def test_the_report_takes_closed_days_from_rollups(untouched: Path, finished: Path) -> None:
    names = ["report", "--json", "--tz", "UTC", "--from", OLD[0], "--to", day_of(END_MS)]
    documents = []
    for folder in (untouched, finished):
        done = subprocess.run([GUA, *names, "--data-dir", str(folder)], capture_output=True, text=True, check=True)
        assert done.stderr == ""
        documents.append(json.loads(done.stdout))
    from_ticks, from_rollups = (document.pop("sources") for document in documents)
    assert from_ticks["from_rollups_seconds"] == from_rollups["from_ticks_seconds"] == 0
    assert from_rollups["from_rollups_seconds"] == from_ticks["from_ticks_seconds"] > 3 * 86_400
    assert documents[0]["headline"] == documents[1]["headline"]
    assert documents[0]["identities"] == documents[1]["identities"]
    assert documents[0]["episodes"] == documents[1]["episodes"]


def test_an_empty_folder_has_nothing_to_do(tmp_path: Path) -> None:
    done = here("rollup", tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "rolled up 0 days\n"
    assert files(tmp_path) == []


def test_help_has_examples_fits_a_narrow_terminal_and_needs_no_pandas() -> None:
    words = [sys.executable, "-X", "importtime", GUA, "rollup", "--help"]
    done = subprocess.run(words, env=os.environ | {"COLUMNS": "80"}, capture_output=True, text=True, check=True)
    assert "examples" in done.stdout
    assert max(len(line) for line in done.stdout.splitlines()) <= 80
    assert "pandas" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--rebuilt"], "--rebuilt"),
        (["--reb"], "--reb"),
        (["now"], "now"),
        (["--data-dir", ""], "--data-dir is empty"),
        (["--config", "/nowhere.toml"], "/nowhere.toml"),
    ],
)
def test_mistakes_exit_2_in_one_line_and_write_nothing(data_dir: Path, arguments: list[str], named: str) -> None:
    before = tree(data_dir)
    done = here("rollup", data_dir, *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert one_line(done.stderr)
    assert done.stderr.startswith("gua rollup: error: ")
    assert named in done.stderr
    assert tree(data_dir) == before


@pytest.mark.parametrize(
    ("name", "value"),
    [("raw_days", 0), ("raw_days", -1), ("csv_days", '"90"'), ("rollup_days", 1.5), ("raw_days", True), ("days", 90)],
)
def test_bad_values_of_retention_are_named_and_remove_nothing(
    rolled_up: Path, tmp_path: Path, name: str, value: object
) -> None:
    before = tree(rolled_up)
    done = here("rollup", rolled_up, "--config", write_config(tmp_path / "gua.toml", **{name: value}))
    assert (done.returncode, done.stdout) == (2, "")
    assert one_line(done.stderr)
    assert f"'{name}'" in done.stderr
    assert str(tmp_path / "gua.toml") in done.stderr
    assert tree(rolled_up) == before


@pytest.mark.parametrize("days", [400_000, 10**7, 10**30])
def test_however_long_history_is_to_be_kept_it_is(rolled_up: Path, tmp_path: Path, days: int) -> None:
    """Before the year 1000 dates are shorter, before the year 1 there are none."""
    before = tree(rolled_up)
    path = write_config(tmp_path / "gua.toml", raw_days=days, csv_days=days, rollup_days=days)
    done = here("rollup", rolled_up, "--config", path)
    assert "removed" not in done.stdout
    assert "this is a bug" not in done.stderr
    assert tree(rolled_up) == before


def held_by_a_reader(data_dir: Path) -> closing[sqlite3.Connection]:
    """A notebook with an open cursor."""
    reader = sqlite3.connect(f"file:{data_dir}/rollups.sqlite?mode=ro", uri=True, isolation_level=None)
    reader.execute("BEGIN")
    reader.execute("SELECT * FROM card_hour").fetchone()
    return closing(reader)


def test_a_person_at_a_terminal_sees_progress_and_a_reader_is_waited_for(rolled_up: Path) -> None:
    terminal, end = pty.openpty()
    with held_by_a_reader(rolled_up):
        process = subprocess.Popen(command(rolled_up, "--rebuild"), stdout=subprocess.PIPE, stderr=end)
        os.close(end)
        journal = rolled_up / "rollups.sqlite-journal"
        deadline = time.monotonic() + 20
        while not journal.exists():
            assert time.monotonic() < deadline, "it never came so far"
            time.sleep(0.05)
        time.sleep(0.6)
    shown = b""
    with suppress(OSError):  # what the other end's closing looks like
        while data := os.read(terminal, 1000):
            shown += data
    os.close(terminal)
    output, _ = process.communicate()
    assert process.returncode == 0
    assert b"rolled up 4 days" in output
    assert b" %\x1b[K" in shown
    assert shown.endswith(b"\r\x1b[K")  # and nothing of it stays
    assert b"\n" not in shown


def test_a_reader_that_never_leaves_is_named_in_one_line(
    rolled_up: Path, expected: Report, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_late_tick(rolled_up, START_MS + 1)
    connect: Any = sqlite3.connect

    def impatient(*arguments: Any, timeout: float, **keywords: Any) -> sqlite3.Connection:
        """It would be half a minute."""
        connection: sqlite3.Connection = connect(*arguments, timeout=min(timeout, 0.3), **keywords)
        return connection

    with held_by_a_reader(rolled_up):
        monkeypatch.setattr(sqlite3, "connect", impatient)
        done = here("rollup", rolled_up)
        monkeypatch.setattr(sqlite3, "connect", connect)
        assert done.returncode == 1
        assert one_line(done.stderr)
        assert f"{rolled_up}/rollups.sqlite is held by another process" in done.stderr
    report = report_of(rolled_up, START_MS, END_MS)
    assert report.headline["gpu_hours"].sum() == pytest.approx(expected.headline["gpu_hours"].sum())
    done = here("rollup", rolled_up)
    assert (done.returncode, done.stderr) == (0, "")
    assert "rolled up 1 day " in done.stdout


def test_a_dry_run_says_what_would_be_done_and_touches_nothing(data_dir: Path, tmp_path: Path) -> None:
    path = write_config(tmp_path / "gua.toml", raw_days=KEPT_DAYS, csv_days=KEPT_DAYS, rollup_days=KEPT_DAYS)
    before = tree(data_dir)
    would = rollup(data_dir, "--config", path, "--dry-run", "--json")
    assert (would.returncode, would.stderr) == (0, "")
    text = here("rollup", data_dir, "--config", path, "--dry-run").stdout
    assert "would" in text
    assert tree(data_dir) == before
    said, done = json.loads(would.stdout), json.loads(here("rollup", data_dir, "--config", path, "--json").stdout)
    for name in ("rolled_up", "unchanged", "open", "failed", "csv", "removed", "kept"):
        assert said[name] == done[name], name
    assert [str(partition(data_dir, day)) for day in OLD] == done["removed"]
    assert all(path in text for path in done["removed"])


def test_a_dry_run_on_what_is_rolled_up_touches_nothing(rolled_up: Path, tmp_path: Path) -> None:
    path = write_config(tmp_path / "gua.toml", raw_days=KEPT_DAYS, csv_days=KEPT_DAYS)
    before = tree(rolled_up)
    for arguments in ([], ["--rebuild"]):
        done = here("rollup", rolled_up, "--config", path, "--dry-run", *arguments)
        assert (done.returncode, done.stderr) == (0, "")
        for day in OLD:
            assert str(partition(rolled_up, day)) in done.stdout
            assert str(rolled_up / "csv" / f"{day}.csv") in done.stdout
        assert tree(rolled_up) == before


# -- cut short


RUNS = """
import os, sys
from gua_report.main import main
from gua_report.upkeep import nightly  # with all it needs

def start(data_dir, moment):
    child = os.fork()
    if child == 0:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        os.environ["GUA_TEST_KILL_AT"] = moment
        os._exit(main(["rollup", "--data-dir", data_dir, *sys.argv[1:]]))
    return child

for line in sys.stdin:
    data_dir, count, moment = line.split()
    children = [start(data_dir, moment) for _ in range(int(count))]
    statuses = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    print(*statuses, flush=True)
"""


class Runs:
    """Runs of gua rollup, some at a time, each a process of its own, but all with pandas from the first one."""

    def __init__(self, driver: Path, folder: Path, *arguments: str) -> None:
        variables = {"LD_PRELOAD": str(driver / "kill_at.so"), "GUA_TEST_KILL_DIR": str(folder)}
        self._errors = folder / "stderr"
        with self._errors.open("w") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-c", RUNS, *arguments],
                env=os.environ | variables,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )

    def __enter__(self) -> Runs:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()

    def run(self, data_dir: Path, count: int = 1, kill_at: int = 0) -> list[int]:
        """How they ended."""
        assert self._process.stdin
        assert self._process.stdout
        print(data_dir, count, kill_at, file=self._process.stdin, flush=True)
        return [int(status) for status in self._process.stdout.readline().split()]

    def errors(self) -> str:
        return self._errors.read_text()


@pytest.mark.real
def test_killed_at_any_moment_nothing_is_lost_and_the_next_run_completes_it(
    untouched: Path, finished: Path, driver: Path, tmp_path: Path, config: str
) -> None:
    """At one of so many changes to a file, and at each of the last ones, when ticks are removed."""
    short = copy(untouched, tmp_path / "short")
    for day in (OLD[0], RECENT[0]):
        partition(short, day).unlink()
    expected = report_of(short, START_MS, END_MS)
    days = [OLD[1], RECENT[1]]
    csvs = {day: (finished / "csv" / f"{day}.csv").read_bytes() for day in days}

    def kill(runs: Runs, moment: int) -> tuple[Path, bool]:
        data_dir = tmp_path / "data"
        shutil.rmtree(data_dir, ignore_errors=True)
        copy(short, data_dir)
        (status,) = runs.run(data_dir, kill_at=moment)
        assert status in (0, -signal.SIGKILL), runs.errors()
        return data_dir, status != 0

    with Runs(driver, tmp_path, "--compact", "--config", config) as runs:
        count = bisect_left(range(1, 512), True, key=lambda moment: not kill(runs, moment)[1])
        assert 100 < count < 511
        data_dir, _ = kill(runs, count + 1)
        assert_report(data_dir, expected)
        sums = [stored(data_dir, day) for day in days]
        for moment in [*range(1, count - 4, 37), *range(count - 4, count + 1)]:
            data_dir, was_killed = kill(runs, moment)
            assert was_killed
            assert_report(data_dir, expected)
            for path in (data_dir / "csv").glob("*.csv"):
                assert path.read_bytes() == csvs[path.stem]
            done = here("rollup", data_dir, "--compact", "--config", config)
            assert (done.returncode, but_for_empty(done.stderr)) == (0, ""), moment
            assert files(data_dir) == whole([RECENT[1], TODAY], days), moment
            assert {path.stem: path.read_bytes() for path in (data_dir / "csv").glob("*.csv")} == csvs
            assert [stored(data_dir, day) for day in days] == sums
        assert runs.errors() == ""


def test_a_day_that_was_stored_and_not_looked_at_again_is_made_anew(
    rolled_up: Path, expected: Report, config: str
) -> None:
    """As a kill between the two leaves it. Until it was read back, its ticks stay."""
    with closing(sqlite3.connect(rolled_up / "rollups.sqlite", isolation_level=None)) as connection:
        connection.execute("UPDATE day SET is_verified = 0")
        connection.execute("UPDATE card_hour SET weight_ms = weight_ms + 1")
    done = here("rollup", rolled_up, "--config", config)
    assert (done.returncode, done.stderr) == (0, "")
    assert_report(rolled_up, expected)
    assert files(rolled_up) == whole([*RECENT, TODAY], CLOSED)


# -- out of space


@pytest.fixture
def small_disk(untouched: Path, tmp_path: Path) -> Iterator[Path]:
    with mounted(tmp_path / "disk", "size=1m") as folder:
        yield copy(untouched, folder)


@needs_mounts
@pytest.mark.parametrize("leave_kib", [0, 48, 100, 200])
def test_without_space_there_are_whole_days_one_line_and_later_the_rest(
    small_disk: Path, finished: Path, expected: Report, config: str, leave_kib: int
) -> None:
    fill(small_disk, leave_kib * 1024)
    done = here("rollup", small_disk, "--config", config)
    assert done.returncode == 1
    assert one_line(done.stderr)
    assert "no space left" in done.stderr.lower()
    assert str(small_disk) in done.stderr
    found = [path for path in files(small_disk) if path not in ("ballast", "rollups.sqlite")]
    assert [path for path in found if path.startswith("samples/")] == [
        f"samples/{day}.sqlite" for day in [*CLOSED, TODAY]
    ]
    for path in found[: found.index(f"samples/{OLD[0]}.sqlite")]:
        assert (small_disk / path).read_bytes() == (finished / path).read_bytes()
    assert_report(small_disk, expected)
    (small_disk / "ballast").unlink()
    done = here("rollup", small_disk, "--config", config)
    assert (done.returncode, but_for_empty(done.stderr)) == (0, "")
    assert files(small_disk) == whole([*RECENT, TODAY], CLOSED)
    assert_report(small_disk, expected)


@needs_mounts
def test_what_is_old_enough_makes_space_for_what_is_new(small_disk: Path, tmp_path: Path, expected: Report) -> None:
    """A disk that ran full is when retention is wanted most."""
    assert here("rollup", small_disk).returncode == 0
    add_late_tick(small_disk, END_MS - 1)
    (small_disk / "csv" / f"{RECENT[1]}.csv").unlink()
    fill(small_disk, 16 * 1024)
    path = write_config(tmp_path / "gua.toml", raw_days=KEPT_DAYS, csv_days=KEPT_DAYS)
    runs = [here("rollup", small_disk, "--config", path) for _ in range(2)]
    assert runs[-1].returncode == 0, [done.stderr for done in runs]
    (small_disk / "ballast").unlink()
    assert files(small_disk) == whole([*RECENT, TODAY], RECENT)


# -- beside others


def test_sampler_rollups_and_reports_do_not_hinder_each_other(rolled_up: Path) -> None:
    stop = threading.Event()
    sample = [str(SCRIPTS / "gua-sample"), "--simulate", "1", "--data-dir", str(rolled_up)]
    report = [str(SCRIPTS / "gua-report"), "--since", "10d", "--json", "--data-dir", str(rolled_up)]

    def run(words: list[str]) -> Done:
        return subprocess.run(words, capture_output=True, text=True, check=False)

    def until_stopped(words: list[str]) -> list[Done]:
        found = [run(words)]
        while not stop.is_set():
            found.append(run(words))
        return found

    with ThreadPoolExecutor(4) as pool:
        others = [pool.submit(until_stopped, words) for words in (sample, report)]
        done = list(pool.map(run, [command(rolled_up, "--rebuild")] * 3))
        stop.set()
        samples, reports = (future.result() for future in others)
    samples.append(run(sample))  # takes in what had to wait
    for one in [*samples, *done, *reports]:
        assert (one.returncode, one.stderr) == (0, ""), one.args
    assert len(samples) > 5
    for one in reports:
        assert json.loads(one.stdout)["headline"]["states"]["active"]["gpu_hours"] > 0
    today = query(partition(rolled_up, TODAY), "SELECT ts_ms FROM ticks")
    assert len({row["ts_ms"] for row in today}) == len(today) == 1 + len(samples)
    assert not [name for name in files(rolled_up) if name.endswith(".pending")]


def test_some_at_once_do_it_once_and_none_fails(
    untouched: Path, expected: Report, driver: Path, tmp_path: Path
) -> None:
    path = write_config(tmp_path / "gua.toml", raw_days=KEPT_DAYS, csv_days=KEPT_DAYS)
    with Runs(driver, tmp_path, "--config", path) as runs:
        for number in range(2):
            data_dir = copy(untouched, tmp_path / f"data-{number}")
            statuses = runs.run(data_dir, count=3)
            assert runs.errors() == ""
            assert statuses == [0] * 3
            assert files(data_dir) == whole([*RECENT, TODAY], RECENT)
            assert_report(data_dir, expected)


# -- what is old enough goes


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
    done = here("rollup", data_dir, "--config", config)
    assert (done.returncode, done.stderr) == (0, "")
    assert "removed" not in done.stdout
    assert tree(data_dir) == before
    done = here("rollup", data_dir, "--config", config, "--rebuild")
    assert (done.returncode, done.stderr) == (0, "")
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


def test_a_tick_that_comes_while_its_day_is_compacted_counts(
    rolled_up: Path, config: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who waits to write to the partition gets in at the very moment when it is packed, and before that is noted."""
    utime, writers = os.utime, []

    def add_and_set_times(path: Any, *arguments: Any, **keywords: Any) -> None:
        if str(path) == str(partition(rolled_up, OLD[0])):
            writers.append(threading.Thread(target=add_late_tick, args=(rolled_up, START_MS + 30 * MINUTE_MS)))
            writers[0].start()
            writers[0].join(0.3)
            assert writers[0].is_alive()  # it waits
        utime(path, *arguments, **keywords)

    monkeypatch.setattr(os, "utime", add_and_set_times)
    assert here("rollup", rolled_up, "--compact").returncode == 0
    monkeypatch.undo()
    writers[0].join()
    assert len(query(partition(rolled_up, OLD[0]), "SELECT * FROM ticks")) == 73
    done = here("rollup", rolled_up, "--config", config, "--json")
    assert json.loads(done.stdout)["rolled_up"] == OLD[:1]  # the one beside it takes nothing from that tick


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


# -- damaged files


def overwrite(path: Path) -> None:
    path.write_text("garbage, more than sixteen bytes of it")


def overwrite_pages(path: Path) -> None:
    """The header and the list of days are fine; what is stored of them is not."""
    content = bytearray(path.read_bytes())
    tables = query(path, "SELECT rootpage FROM sqlite_master WHERE name IN ('card_hour', 'identity_hour', 'episode')")
    for table in tables:
        start = (table["rootpage"] - 1) * 4096
        content[start : start + 4096] = b"\xde\xad" * 2048
    path.write_bytes(bytes(content))


def overwrite_middle(path: Path) -> None:
    content = bytearray(path.read_bytes())
    middle = len(content) // 2 // 4096 * 4096
    content[middle : middle + 8192] = b"\xff" * 8192
    path.write_bytes(bytes(content))


def truncate(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2 // 4096 * 4096)


def truncate_to_a_page(path: Path) -> None:
    os.truncate(path, 4096)


def overwrite_a_name(path: Path) -> None:
    """In the schema, with a byte that is not UTF-8."""
    content = path.read_bytes()
    name = b"viewcard_hours"  # as its row has it: type, name
    assert content.count(name) == 1
    path.write_bytes(content.replace(name, b"viewcard\xffhours"))


DAMAGES = [overwrite_a_name, overwrite, overwrite_pages, overwrite_middle, truncate, truncate_to_a_page]


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_rollups_cost_a_report_time_and_are_set_aside_and_made_again(
    rolled_up: Path, expected: Report, damage: Callable[[Path], None]
) -> None:
    path = rolled_up / "rollups.sqlite"
    damage(path)
    before = tree(rolled_up)
    shown = here("report", rolled_up, "--from", OLD[0], "--to", day_of(END_MS))
    assert shown.returncode == 0
    assert "rollups" in shown.stdout
    (note,) = assert_report(rolled_up, expected).notes
    assert "rollups" in note
    dry = here("rollup", rolled_up, "--dry-run")
    assert dry.returncode == 0
    assert one_line(dry.stderr)
    assert tree(rolled_up) == before

    done = here("rollup", rolled_up)
    assert done.returncode == 0
    assert one_line(done.stderr)
    assert done.stderr.startswith("gua rollup: warning: ")
    assert f"{path}.corrupt-1" in done.stderr
    assert "rolled up 4 days" in done.stdout
    assert (rolled_up / "rollups.sqlite.corrupt-1").read_bytes() == before["rollups.sqlite"][2]
    assert query(path, "PRAGMA integrity_check") == [{"integrity_check": "ok"}]
    report = assert_report(rolled_up, expected)
    assert (report.notes, report.from_ticks_seconds) == ([], 0)
    assert here("rollup", rolled_up).stderr == ""
    assert files(rolled_up) == sorted([*whole([*CLOSED, TODAY], CLOSED), "rollups.sqlite.corrupt-1"])


def test_damaged_rollups_are_set_aside_where_a_file_can_not_have_two_names(
    rolled_up: Path, expected: Report, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on FAT and on some network file systems."""

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    path = rolled_up / "rollups.sqlite"
    overwrite(path)
    content = path.read_bytes()
    monkeypatch.setattr(os, "link", refuse)
    done = here("rollup", rolled_up)
    assert done.returncode == 0
    assert one_line(done.stderr)
    assert f"{path}.corrupt-1" in done.stderr
    assert (rolled_up / "rollups.sqlite.corrupt-1").read_bytes() == content
    assert files(rolled_up) == sorted([*whole([*CLOSED, TODAY], CLOSED), "rollups.sqlite.corrupt-1"])
    assert assert_report(rolled_up, expected).from_ticks_seconds == 0


def test_rollups_that_were_only_just_begun_are_begun_again(rolled_up: Path, expected: Report) -> None:
    """As a kill right after its first opening leaves the file."""
    os.truncate(rolled_up / "rollups.sqlite", 0)
    assert_report(rolled_up, expected)
    done = here("rollup", rolled_up)
    assert (done.returncode, but_for_empty(done.stderr)) == (0, "")
    assert one_line(done.stderr)
    assert "rolled up 4 days" in done.stdout
    assert assert_report(rolled_up, expected).from_ticks_seconds == 0


@pytest.mark.parametrize("damage", [overwrite_pages, truncate, overwrite_middle])
def test_days_of_which_only_damaged_rollups_are_left_are_taken_over_or_said_to_be_lost(
    rolled_up: Path, config: str, damage: Callable[[Path], None]
) -> None:
    assert here("rollup", rolled_up, "--config", config).returncode == 0
    path = rolled_up / "rollups.sqlite"
    damage(path)
    shown = here("report", rolled_up, "--from", OLD[0], "--to", day_of(END_MS))
    assert shown.returncode == 0  # of the days that have ticks
    assert "rollups" in shown.stdout
    done = here("rollup", rolled_up, "--config", config)
    assert "this is a bug" not in done.stderr
    assert f"{path}.corrupt-1" in done.stderr
    kept = set(stored_days(rolled_up))
    assert set(RECENT) <= kept
    if not set(OLD) <= kept:
        assert "ticks are gone" in done.stderr
    assert (rolled_up / "rollups.sqlite.corrupt-1").exists()


def make_foreign(path: Path) -> None:
    path.unlink()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE somebody_elses (x)")


def make_newer(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA user_version = 999")


@pytest.mark.parametrize(("change", "remedy"), [(make_foreign, "move it away"), (make_newer, "upgrade gua")])
def test_rollups_of_something_else_or_of_a_newer_gua_are_left_alone(
    rolled_up: Path, expected: Report, config: str, change: Callable[[Path], None], remedy: str
) -> None:
    change(rolled_up / "rollups.sqlite")
    before = tree(rolled_up)
    (note,) = assert_report(rolled_up, expected).notes
    assert "rollups" in note
    for arguments in ([], ["--dry-run"], ["--config", config], ["--rebuild"]):
        done = here("rollup", rolled_up, *arguments)
        assert (done.returncode, done.stdout) == (1, "")
        assert one_line(done.stderr)
        assert f"{rolled_up}/rollups.sqlite" in done.stderr
        assert remedy in done.stderr
    assert tree(rolled_up) == before


@pytest.mark.parametrize("damage", [overwrite, overwrite_middle, make_newer])
@pytest.mark.parametrize("was_rolled_up", [True, False])
def test_a_partition_that_can_not_be_read_is_named_kept_and_costs_no_other_day(
    untouched: Path,
    finished: Path,
    tmp_path: Path,
    config: str,
    damage: Callable[[Path], None],
    was_rolled_up: bool,
) -> None:
    data_dir = copy(finished if was_rolled_up else untouched, tmp_path / "data")
    damage(partition(data_dir, OLD[1]))
    before = partition(data_dir, OLD[1]).read_bytes()
    done = here("rollup", data_dir, "--config", config)
    assert done.returncode == 1
    assert one_line(done.stderr)
    assert str(partition(data_dir, OLD[1])) in done.stderr
    assert f"kept {OLD[1]}" in done.stdout
    assert partition(data_dir, OLD[1]).read_bytes() == before
    assert not partition(data_dir, OLD[0]).exists()
    assert set(stored_days(data_dir)) >= {OLD[0], *RECENT}
    assert [path.stem for path in sorted((data_dir / "csv").glob("*.csv"))] == [
        day for day in CLOSED if was_rolled_up or day != OLD[1]
    ]


def test_a_partition_that_can_not_be_compacted_is_named_kept_and_costs_no_other_day(rolled_up: Path) -> None:
    """Nothing but reading it tells that it is damaged: it is as long and as old as it was."""
    path = partition(rolled_up, OLD[1])
    changed = path.stat()
    overwrite_middle(path)
    os.utime(path, ns=(changed.st_atime_ns, changed.st_mtime_ns))
    before = path.read_bytes()
    done = here("rollup", rolled_up, "--compact", "--json")
    assert one_line(done.stderr)
    assert done.stderr.startswith(f"gua rollup: warning: not compacted: {path} is not usable")
    assert (done.returncode, json.loads(done.stdout)["compacted"]) == (0, [OLD[0], *RECENT])
    assert path.read_bytes() == before


def test_a_partition_that_was_only_just_begun_is_no_failure(data_dir: Path, config: str) -> None:
    """As the kill of a day's only run leaves it. There is nothing in it, and nothing that anybody could mend."""
    partition(data_dir, day_of(TODAY_MS - 30 * DAY_MS)).touch()
    done = here("rollup", data_dir, "--config", config)
    assert (done.returncode, done.stderr) == (0, "")
    assert stored_days(data_dir) == CLOSED


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


# -- other users


AS_SOMEBODY = """
import os, sys
from gua_report.main import main
arguments = sys.argv[1:]
main([*arguments, "--dry-run"])  # other users can't import what lies in root's home
os.setgroups([]), os.setgid({user}), os.setuid({user})
sys.exit(main(arguments))
"""


def as_somebody(data_dir: Path, *arguments: str) -> Done:
    words = ["rollup", "--data-dir", str(data_dir), *arguments]
    code = [sys.executable, "-c", AS_SOMEBODY.format(user=SOMEBODY)]
    return subprocess.run([*code, *words], capture_output=True, text=True, check=False)


@needs_root
@pytest.mark.parametrize("exists", [True, False])
def test_without_write_permission_it_says_what_to_do(
    untouched: Path, finished: Path, open_folder: Path, exists: bool
) -> None:
    data_dir = copy(finished if exists else untouched, open_folder / "data")
    data_dir.chmod(0o755)
    before = tree(data_dir)
    done = as_somebody(data_dir, "--rebuild")
    assert done.returncode == 1
    assert one_line(done.stderr)
    assert str(data_dir) in done.stderr
    assert "check its owner" in done.stderr
    dry = as_somebody(data_dir, "--rebuild", "--dry-run")
    assert (dry.returncode, dry.stderr) == (0, "")
    assert tree(data_dir) == before


@contextmanager
def owned_by_somebody(folder: Path) -> Iterator[None]:
    for path in [folder, *folder.rglob("*")]:
        os.chown(path, SOMEBODY, SOMEBODY)
    yield
    owners = {(path.stat().st_uid, path.stat().st_gid) for path in [folder, *folder.rglob("*")]}
    assert owners == {(SOMEBODY, SOMEBODY)}


@needs_root
def test_root_by_hand_leaves_the_files_to_the_owner_of_the_folder(
    untouched: Path, open_folder: Path, expected: Report
) -> None:
    data_dir = copy(untouched, open_folder / "data")
    data_dir.chmod(0o755)
    config = write_config(open_folder / "gua.toml", raw_days=KEPT_DAYS)
    os.chmod(config, 0o600)
    with owned_by_somebody(data_dir):
        for arguments in ([], ["--config", config]):
            done = rollup(data_dir, *arguments)
            assert (done.returncode, done.stderr) == (0, "")
    assert files(data_dir) == whole([*RECENT, TODAY], CLOSED)
    assert_report(data_dir, expected)


@needs_root
def test_root_on_a_folder_of_its_own_stays_root(data_dir: Path) -> None:
    assert here("rollup", data_dir).returncode == 0
    assert {path.stat().st_uid for path in data_dir.rglob("*")} == {0}
