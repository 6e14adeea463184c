"""Two days that retention finds too old, two that it does not, and one that is not over; and gua rollup on them."""

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gua_sample import store
from gua_sample.partition_names import day_of
from gua_sample.records import Tick
from gua_sample.simulate import Laboratory
from tests import verbs
from tests.lab import DAY_MS, MINUTE_MS, Report, report_of
from tests.machine import GUA, query
from tests.rolling import OLD, RECENT, TABLES, TODAY_MS, assert_same, run

CLOSED = [*OLD, *RECENT]
TODAY = day_of(TODAY_MS)
KEPT_DAYS = 6
LOCK = ".rollup.lock"  # stays, empty
START_MS, END_MS = TODAY_MS - 9 * DAY_MS, TODAY_MS - 3 * DAY_MS

Done = subprocess.CompletedProcess[str]


def ticks(start_ms: int, length_ms: int) -> Iterator[Tick]:
    """Ticks of a laboratory, one every 20 minutes, on the second: reports are compared before and after ticks expire.

    The last tick before days without any would else reach into a day that has no partition, and so no sums.
    """
    return Laboratory(1, 3).history(start_ms, start_ms + length_ms, 20 * MINUTE_MS, latest_ms=0)


def add_late_tick(data_dir: Path, ts_ms: int) -> None:
    """Add a tick to a day that has others."""
    (late,) = ticks(ts_ms, 1)
    store.append(str(data_dir / "samples"), late, pytest.fail)


def write_config(path: Path, **retention: object) -> str:
    """Write a configuration with this retention; returns its path."""
    lines = [
        f"{name} = {str(value).lower() if isinstance(value, bool) else value}" for name, value in retention.items()
    ]
    path.write_text("\n".join(["[retention]", *lines, ""]))
    return str(path)


def copy(source: Path, target: Path) -> Path:
    """Copy a folder with the times of its files, by which a day is known to be the same."""
    shutil.copytree(source, target, dirs_exist_ok=True)
    return target


def command(data_dir: Path, *arguments: str) -> list[str]:
    """The words that run gua rollup in a process of its own."""
    return [GUA, "rollup", "--data-dir", str(data_dir), *arguments]


def rollup(data_dir: Path, *arguments: str) -> verbs.Done:
    """Run gua rollup in a process of its own."""
    return verbs.run("rollup", "--data-dir", data_dir, *arguments)


def here(verb: str, data_dir: Path, *arguments: str) -> Done:
    """Run a command in this process, which has pandas already."""
    return subprocess.CompletedProcess([verb, *arguments], *run(verb, data_dir, *arguments))


def files(folder: Path) -> list[str]:
    """The files in a folder, as paths below it, without the lock."""
    found = (str(path.relative_to(folder)) for path in folder.rglob("*") if not path.is_dir())
    return sorted(path for path in found if path != LOCK)


def tree(folder: Path) -> dict[str, tuple[int, int, bytes | None]]:
    """Modes, times and contents of all that is in a folder."""
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
    """What a run said, but for that rollups.sqlite is empty, as a run that is cut short at once leaves it."""
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
    """The days of which rollups.sqlite has sums."""
    return [row["day"] for row in query(data_dir / "rollups.sqlite", "SELECT day FROM day ORDER BY id")]


def assert_report(data_dir: Path, expected: Report, warnings: int = 0) -> Report:
    """Expect a report of these days to say what it said before; returns it."""
    report = report_of(data_dir, START_MS, END_MS)
    assert_same(expected, report)
    assert len(report.warnings) == warnings
    return report
