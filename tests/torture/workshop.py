"""Folders to torture: histories made by the real commands, and checks of the folders afterwards."""

import json
import math
import os
import shutil
import sqlite3
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from functools import cache, cached_property
from pathlib import Path
from typing import Any, NamedTuple

from tests.torture.commands import Problem as Problem
from tests.torture.commands import Ran, Running

DAY_MS = 86_400_000
HOUR_MS = 3_600_000
START_MS = 1_793_923_200_000  # 2026-11-06 00:00 UTC, a Friday; a reboot on the Monday
DAYS = 6
END_MS = START_MS + DAYS * DAY_MS
LATER_MS = END_MS + DAY_MS + HOUR_MS  # all days are closed
CARDS = 3
TOLERANCE = 1e-3  # in hours and kWh, as whole milliseconds and joules are stored
# Expired at LATER_MS: the ticks of four days, the CSV files of three, the sums of the first.
RETENTION = "[retention]\nraw_days = 3\ncsv_days = 4\nrollup_days = 6\n"
FIGURES = ("gpus", "identities", "heatmap")


class Step(NamedTuple):
    """The event at the nth change to a file: a kill, or an error number (0: half a write)."""

    at: int
    fault: int | None = None
    goes_on: bool = False

    def variables(self) -> dict[str, str]:
        if self.fault is None:
            return {"GUA_TEST_KILL_AT": str(self.at)}
        stays = {"GUA_TEST_FAULT_ON": "1"} if self.goes_on else {}
        return {"GUA_TEST_FAULT_AT": str(self.at), "GUA_TEST_FAULT": str(self.fault), **stays}


def day_name(ms: int) -> str:
    return time.strftime("%Y-%m-%d", time.gmtime(ms / 1000))


DAY_NAMES = [day_name(START_MS + number * DAY_MS) for number in range(DAYS)]


class Stage:
    """The folder of a case: data, a temporary folder, a home, and files that nobody may touch."""

    def __init__(self, folder: Path, scenario: Path, base: Path | None = None) -> None:
        self.folder = folder
        shutil.rmtree(folder, ignore_errors=True)
        self.data, self.temporary, self.canary = folder / "data", folder / "tmp", folder / "canary"
        for made in (self.temporary, self.canary, folder / "home"):
            made.mkdir(parents=True)
        for name in ("victim", "partition.sqlite", "folder/inner"):
            (self.canary / name).parent.mkdir(exist_ok=True)
            (self.canary / name).write_text(f"this is {name}\n")
        if base is not None:
            shutil.copytree(base, self.data)
        self.config = folder / "gua.toml"
        self.config.write_text(RETENTION)
        self._variables = {
            "GUA_STAND_IN_SCENARIO": str(scenario),
            "GUA_TEST_KILL_DIR": str(self.data),
            "GUA_TEST_HURRY": "100",
            "HOME": str(folder / "home"),
            "TMPDIR": str(self.temporary),
        }

    def start(
        self,
        words: list[str],
        clock_ms: int,
        step: Step | None = None,
        variables: Mapping[str, str] | None = None,
        user: int | None = None,
    ) -> Running:
        """Start a command on the data folder, with the clock stopped at that time."""
        given = {**self._variables, "GUA_TEST_CLOCK_MS": str(clock_ms), **(step.variables() if step else {})}
        verb, *rest = words
        return Running(self.folder, [verb, "--data-dir", str(self.data), *rest], {**given, **(variables or {})}, user)

    def run(self, words: list[str], clock_ms: int, step: Step | None = None, user: int | None = None) -> Ran:
        return self.start(words, clock_ms, step, user=user).wait()

    def partition(self, day: str) -> Path:
        return self.data / "samples" / f"{day}.sqlite"

    def partitions(self) -> list[Path]:
        return sorted((self.data / "samples").glob("????-??-??.sqlite"))


def report_words(start_ms: int, end_ms: int) -> list[str]:
    times = [time.strftime("%Y-%m-%dT%H:%MZ", time.gmtime(ms / 1000)) for ms in (start_ms, end_ms)]
    return ["report", "--json", "--tz", "UTC", "--from", times[0], "--to", times[1]]


def figures(text: str) -> dict[str, Any]:
    """The figures of a report that must not depend on its sources."""
    document = json.loads(text)
    start, end = document["requested_window"]["from"], document["requested_window"]["to"]
    found = {name: document[name] for name in FIGURES}
    found["states"] = document["capacity"]["states"]
    found["observed"] = document["coverage"]["observed_seconds"]
    # Other episodes depend on how much is left of the neighbouring days.
    found["episodes"] = [one for one in document["episodes"] if start < one["start"] and one["end"] < end]
    return found


def differ(wanted: Any, found: Any, where: str = "") -> list[str]:
    """The places where two documents differ by more than rounding."""
    if isinstance(wanted, dict) and isinstance(found, dict) and wanted.keys() == found.keys():
        return [text for key in wanted for text in differ(wanted[key], found[key], f"{where}.{key}")]
    if isinstance(wanted, list) and isinstance(found, list) and len(wanted) == len(found):
        pairs = enumerate(zip(wanted, found, strict=True))
        return [text for number, pair in pairs for text in differ(*pair, f"{where}[{number}]")]
    if isinstance(wanted, int | float) and isinstance(found, int | float):
        is_near = math.isclose(wanted, found, rel_tol=1e-6, abs_tol=TOLERANCE)
        return [] if is_near else [f"{where} is {found}, should be {wanted}"]
    return [] if wanted == found else [f"{where} is {str(found)[:200]}, should be {str(wanted)[:200]}"]


def read(path: Path, sql: str) -> list[tuple[Any, ...]]:
    """Rows of a file. A hot journal is rolled back, as by any writer."""
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(sql).fetchall()


def find_damage(path: Path) -> list[Problem]:
    try:
        found = read(path, "PRAGMA integrity_check(1)")[0][0]
    except sqlite3.Error as error:
        found = str(error)
    return [] if found == "ok" else [Problem("corrupt", f"{path.name}: {found}")]


def content(path: Path) -> dict[str, list[tuple[Any, ...]]]:
    """All rows of a partition's views."""
    return {
        view: read(path, f"SELECT * FROM {view} ORDER BY 1, 3, 4, 5")
        for view in ("ticks", "card_ticks", "process_ticks")
    }


def compare_contents(stage: Stage, expected: Mapping[str, Any], days: list[str]) -> list[Problem]:
    """Check that these partitions hold exactly the expected ticks."""
    problems: list[Problem] = []
    for day in days:
        path = stage.partition(day)
        if not path.exists():
            problems.append(Problem("lost", f"there is no {path.name}"))
            continue
        if damage := find_damage(path):
            problems += damage
            continue
        for view, rows in content(path).items():
            missing, more = Counter(expected[day][view]), Counter(rows)
            if missing - more:
                problems.append(Problem("lost", f"{view} of {day}: {next(iter(missing - more))}"))
            if more - missing:
                problems.append(Problem("doubled", f"{view} of {day}: {next(iter(more - missing))}"))
    return problems


@contextmanager
def hold(path: Path) -> Iterator[None]:
    """Lock a partition like a notebook with an open cursor; in a child, as SQLite's locks belong to a process."""
    begun, begin = os.pipe()
    child = os.fork()
    if child == 0:
        cursor = sqlite3.connect(path, isolation_level=None).execute("SELECT * FROM card_ticks")
        cursor.fetchone()
        os.write(begin, b".")
        while True:
            time.sleep(60)
    os.read(begun, 1)
    try:
        yield
    finally:
        os.kill(child, 9)
        os.waitpid(child, 0)
        os.close(begun)
        os.close(begin)


class Workshop:
    """Histories and their figures, which all cases share. Made once, before workers are forked."""

    def __init__(self, folder: Path, scenario: Path) -> None:
        self.folder, self.scenario = folder, scenario
        self.ticks, self.rolled_up = folder / "ticks", folder / "rolled_up"
        stage = self.stage("making")
        for hour in range(0, DAYS * 24, 2):
            _expect(stage.run(["sample", "--simulate", "7", "--interval", "2h"], START_MS + hour * HOUR_MS))
        shutil.copytree(stage.data, self.ticks)
        self.contents = {day: content(stage.partition(day)) for day in DAY_NAMES}
        _expect(stage.run(["rollup"], LATER_MS))
        shutil.copytree(stage.data, self.rolled_up)

    @cached_property
    def full(self) -> Path:
        """A folder with everything that may be there, including a waiting tick and the idle times of processes."""
        stage = self.stage("full", self.rolled_up)
        with hold(stage.partition(DAY_NAMES[-1])):
            _expect(stage.run(["sample", "--textfile", str(stage.data / "gua.prom")], END_MS - HOUR_MS))
        return stage.data

    @cache  # noqa: B019 - there is one workshop
    def figures(self, start_ms: int, end_ms: int) -> dict[str, Any]:
        """The figures of a report from ticks alone, with none missing."""
        return figures(_expect(self.stage("known", self.ticks).run(report_words(start_ms, end_ms), END_MS)).out)

    def stage(self, name: str, base: Path | None = None) -> Stage:
        return Stage(self.folder / f"{name}-{os.getpid()}", self.scenario, base)

    def compare(
        self, stage: Stage, start_ms: int, end_ms: int, clock_ms: int, user: int | None = None
    ) -> list[Problem]:
        """Check that a report has the same figures as one from all ticks alone."""
        ran = stage.run(report_words(start_ms, end_ms), clock_ms, user=user)
        if problems := ran.problems():
            return problems
        if ran.status != 0:
            return [Problem("lost", f"no report: {ran.err.strip()}")]
        differences = differ(self.figures(start_ms, end_ms), figures(ran.out))
        return [Problem("wrong sums", f"{day_name(start_ms)} on: {differences[0]}")] if differences else []

    def compare_day(self, stage: Stage, day: str, clock_ms: int, user: int | None = None) -> list[Problem]:
        start_ms = START_MS + DAY_NAMES.index(day) * DAY_MS
        return self.compare(stage, start_ms, start_ms + DAY_MS, clock_ms, user)

    def compare_since(self, stage: Stage, day: str, clock_ms: int) -> list[Problem]:
        """Compare all days from that one on in one report. Their weekdays differ, so none can stand in for another."""
        return self.compare(stage, START_MS + DAY_NAMES.index(day) * DAY_MS, END_MS, clock_ms)


def _expect(ran: Ran) -> Ran:
    if ran.status != 0 or ran.err:
        raise RuntimeError(f"gua {' '.join(ran.words)} ended with {ran.status}: {ran.err}")
    return ran
