"""Two days that retention finds too old, two that it does not, and one that is not over; and gua rollup on them."""

from __future__ import annotations

import io
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest

from gua_report.main import main
from gua_sample import store
from gua_sample.partition_names import day_of
from gua_sample.records import Tick
from gua_sample.simulate import Laboratory
from tests.lab import DAY_MS, MINUTE_MS, Report, report_of
from tests.machine import GUA, query
from tests.rolling import OLD, RECENT, TABLES, TODAY_MS, assert_same

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
