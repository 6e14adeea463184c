"""gua export as a person types it, and the rows that it should give."""

import json
import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.machine import GUA, query
from tests.verbs import Done, run

DAYS = ["2026-11-16", "2026-11-17", "2026-11-18"]
ORDER_OF_SUMS = {
    "card_hours": "hour_ms, gpu_index, mig_index, state",
    "identity_hours": "hour_ms, gpu_index, mig_index, identity, state",
    "episode_days": "start_ms, gpu_index, pid",
    "spans": "start_ms",
}
ALL = ("--from", "2026-11-16", "--to", "2026-11-19", "--tz", "UTC")


def export(data_dir: Path, *arguments: str, **variables: str) -> Done | subprocess.CompletedProcess[str]:
    """Run gua export. With pyarrow or other variables, it takes a new Python."""
    words = ["export", "--data-dir", str(data_dir), *arguments]
    if variables or "parquet" in " ".join(arguments):
        return subprocess.run([GUA, *words], env=os.environ | variables, capture_output=True, text=True, check=False)
    return run(*words)


def exported(data_dir: Path, *arguments: str) -> str:
    """What gua export prints; it must end well and have nothing to complain about."""
    done = export(data_dir, *arguments)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def view(data_dir: Path, name: str, where: str = "1") -> list[dict[str, Any]]:
    """The rows of a view over all partitions, or of rollups.sqlite, in the order in which they are exported."""
    if name in ORDER_OF_SUMS:
        return _view_of_sums(data_dir, name, where)
    order = {"ticks": "ts_ms", "card_ticks": "ts_ms, gpu_index, mig_index", "process_ticks": "ts_ms, gpu_index, pid"}
    rows: list[dict[str, Any]] = []
    for path in sorted((data_dir / "samples").glob("*.sqlite")):
        rows += query(path, f"SELECT * FROM {name} WHERE {where} ORDER BY {order[name]}")
    return rows


def _view_of_sums(data_dir: Path, name: str, where: str) -> list[dict[str, Any]]:
    sql = f"SELECT * FROM {name} WHERE {where} ORDER BY {ORDER_OF_SUMS[name]}"
    return without(query(data_dir / "rollups.sqlite", sql), "day")


def without(rows: list[dict[str, Any]], *columns: str) -> list[dict[str, Any]]:
    """The rows without some of their columns."""
    return [{key: value for key, value in row.items() if key not in columns} for row in rows]


def assert_leftovers_go(path: Path, write_again: Callable[[], object]) -> None:
    """Expect what killed runs left to be hidden, and to go once it is certain that nobody is at work on it."""
    assert {name.startswith(f".{path.name}.") for name in os.listdir(path.parent) if name != path.name} == {True}
    before = os.listdir(path.parent)
    write_again()
    assert os.listdir(path.parent) == before
    for name in before:
        os.utime(path.parent / name, (0, time.time() - 2 * 3600))
    write_again()
    assert os.listdir(path.parent) == [path.name]


def files_in(folder: Path) -> list[str]:
    """The files in a folder, as paths below it."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def lines(text: str) -> list[dict[str, Any]]:
    """The rows of JSON lines."""
    return [json.loads(line) for line in text.splitlines()]
