"""What rollups cost: a day's to make, a card-day's on disk, and a year's to report, against those of 30 days.

All of it is rolled up by `gua rollup` from the ticks of a simulated laboratory, at 30 s. The year is recorded ten days
at a time and its ticks are removed by [retention], so that it needs little disk, but five minutes. Only the year before
it, which its report is compared with, is a copy of its rows. By hand: python benchmarks/rollups.py
"""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import statistics
import sys
import sysconfig
import tempfile
import time
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.figures import Bounds, Cost, median, ratio, run_once
from gua_report.rollups.schema import FILE_NAME
from gua_report.rollups.writer import RollupWriter
from gua_report.upkeep.outputs import csv_path
from gua_sample import store
from gua_sample.partition_names import DAY_MS, day_of, partition_path, samples_dir
from gua_sample.simulate import Laboratory
from tests.untidy import untidy

SCRIPTS = Path(sysconfig.get_path("scripts"))
END_MS = 1_794_410_400_000  # 2026-11-11 15:20 UTC, a Wednesday afternoon: windows start and end inside an hour
DAYS = 30
YEAR = 365
CARDS = 12
SEED = 1  # its people run 1.2 processes per card
INTERVAL_MS = 30_000
DAYS_AT_A_TIME = 10
DUE_DAY = day_of(END_MS - DAY_MS)  # a whole day
RUNS = 5
TURNS = 15


def record(data_dir: Path, start_ms: int, end_ms: int) -> None:
    ticks = untidy(Laboratory(SEED, CARDS).history(start_ms, end_ms, INTERVAL_MS), SEED)
    store.append_history(store.prepare(str(data_dir)), ticks)


def report_command(data_dir: Path, start_ms: int, end_ms: int = END_MS) -> list[str]:
    start, end = (time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(ms / 1000)) for ms in (start_ms, end_ms))
    report = [str(SCRIPTS / "gua-report"), "--data-dir", str(data_dir), "--config", os.devnull]
    return [*report, "--from", start, "--to", end, "--tz", "UTC"]


def roll_up(data_dir: Path, config: str = os.devnull) -> tuple[Cost, dict[str, Any]]:
    """What `gua rollup` costs, and what it says that it has done."""
    command = [str(SCRIPTS / "gua"), "rollup", "--data-dir", str(data_dir), "--config", config, "--json"]
    with tempfile.TemporaryFile("w+") as output:
        cost = run_once(command, output=output)
        output.seek(0)
        return cost, json.load(output)


def record_and_roll_up(data_dir: Path) -> None:
    """All but the last tick: with that, the last day is one that is not rolled up, whatever the clock says."""
    record(data_dir, END_MS - DAYS * DAY_MS, END_MS - INTERVAL_MS)
    cost, done = roll_up(data_dir)
    print(f"  (gua rollup of {len(done['rolled_up'])} days at once: {cost.wall_seconds:.1f} s, with CSV files)")


def record_last_tick(data_dir: Path) -> None:
    record(data_dir, END_MS - INTERVAL_MS, END_MS)


def measure_day(data_dir: Path, bounds: Bounds) -> None:
    """What the timer does each night: the last whole day is due. Expects that nothing is."""
    with tempfile.TemporaryDirectory(prefix="gua-bench-") as name:
        night = Path(name) / "night"
        shutil.copytree(data_dir, night)  # with times, or all would be due
        Path(partition_path(samples_dir(str(night)), day_of(END_MS))).unlink()
        with RollupWriter(str(night / FILE_NAME)) as writer:
            writer.delete([day_of(END_MS)])
        _measure_day(night, bounds)


def _measure_day(data_dir: Path, bounds: Bounds) -> None:
    csv = Path(csv_path(str(data_dir), DUE_DAY))
    nothing, only_csv, whole = [], [], []
    for _ in range(RUNS):
        nothing.append(_cpu_of(data_dir, [], []))
        csv.unlink()
        only_csv.append(_cpu_of(data_dir, [], [str(csv)]))
        csv.unlink()
        with RollupWriter(str(data_dir / FILE_NAME)) as writer:
            writer.delete([DUE_DAY])
        whole.append(_cpu_of(data_dir, [DUE_DAY], [str(csv)]))
    least, with_csv, all_of_it = map(statistics.median, (nothing, only_csv, whole))
    bounds.show(f"CPU of gua rollup, one day of {CARDS} cards due", all_of_it, "s", 2)
    print(f"  (the CSV file {with_csv - least:.2f} s of it; {least:.2f} s with nothing due; medians of {RUNS})")


def _cpu_of(data_dir: Path, rolled_up: list[str], csv: list[str]) -> float:
    cost, done = roll_up(data_dir)
    if (done["rolled_up"], done["csv"]) != (rolled_up, csv):
        sys.exit(f"gua rollup was to do {rolled_up} and {csv}, and did {done}")
    return cost.cpu_seconds


def measure_bytes(data_dir: Path, bounds: Bounds) -> None:
    """Without room in pages that is still to be filled. Commands of episodes stay: all words lie in one table."""
    with tempfile.TemporaryDirectory(prefix="gua-bench-") as name:
        copy = Path(name) / FILE_NAME
        with closing(sqlite3.connect(data_dir / FILE_NAME)) as connection:
            connection.execute("VACUUM INTO ?", (str(copy),))
        size = copy.stat().st_size
        with closing(sqlite3.connect(copy, isolation_level=None)) as connection:
            episodes = connection.execute("DELETE FROM episode").rowcount
            connection.execute("VACUUM")
        rest = copy.stat().st_size
    bounds.show("bytes of rollups per card-day, without episodes", rest / (CARDS * DAYS), "bytes", 2000)
    print(f"  (and {(size - rest) / episodes:.0f} per episode, of which a card-day has {episodes / CARDS / DAYS:.1f})")


def measure_year(folder: Path, bounds: Bounds) -> None:
    began = time.perf_counter()
    record_year(folder)
    print(f"  ({YEAR} days recorded and rolled up in {time.perf_counter() - began:.0f} s)", flush=True)
    _compare_with_month("a first year", folder)
    # A report also looks at the window before: a month has one in the year, so the year gets one, or it would do less.
    repeat_year(folder)
    bounds.show(f"{YEAR} days over {DAYS} days, from rollups", _compare_with_month("a second year", folder), "x", 2)


def _compare_with_month(what: str, data_dir: Path) -> float:
    commands = [report_command(data_dir, END_MS - days * DAY_MS) for days in (DAYS, YEAR)]
    for command in commands:
        run_once(command)  # caches, bytecode
    pairs = [(run_once(commands[0]), run_once(commands[1])) for _ in range(TURNS)]
    month, year = median(pair[0] for pair in pairs), median(pair[1] for pair in pairs)
    times = ratio((pair[1].wall_seconds for pair in pairs), (pair[0].wall_seconds for pair in pairs))
    seconds = month.wall_seconds
    print(f"  ({what}: {year.wall_seconds:.2f} s against {seconds:.2f} s for its last {DAYS} days, {times:.2f} x)")
    print(f"  (CPU: {year.cpu_seconds:.2f} s against {month.cpu_seconds:.2f} s; medians of {TURNS} turns)", flush=True)
    return times


def record_year(data_dir: Path) -> None:
    """From real ticks, day by day as a sampler's are; each day is rolled up when the one after it has begun."""
    config = data_dir.with_suffix(".toml")
    last_ms = END_MS - INTERVAL_MS
    for start_ms, end_ms in pairwise([*range(END_MS - YEAR * DAY_MS, last_ms, DAYS_AT_A_TIME * DAY_MS), last_ms]):
        record(data_dir, start_ms, end_ms)
        # The day that has begun and the one before it stay: they are to be seen by what comes next.
        age = time.time_ns() // 1_000_000 // DAY_MS - end_ms // DAY_MS
        config.write_text(f"[retention]\nraw_days = {max(1, age + 1)}\ncsv_days = 0\n")
        roll_up(data_dir, str(config))
    record_last_tick(data_dir)


def repeat_year(data_dir: Path) -> None:
    """Store all its rows once more, as those of the year before."""
    with closing(sqlite3.connect(data_dir / FILE_NAME)) as connection, connection:
        tables = [row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        earlier = {"id": f"id - {YEAR + 1}", "day": f"date(day, '-{YEAR + 1} days')", "day_id": f"day_id - {YEAR + 1}"}
        for table in tables:
            names = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
            if table == "day" or "day_id" in names:
                values = ", ".join(earlier.get(name, name) for name in names)
                connection.execute(f"INSERT INTO {table} SELECT {values} FROM {table}")  # noqa: S608 - all of it is ours


def main() -> int:
    bounds = Bounds()
    with tempfile.TemporaryDirectory(prefix="gua-bench-") as name:
        data_dir = Path(name) / "data"
        record_and_roll_up(data_dir)
        measure_day(data_dir, bounds)
        measure_bytes(data_dir, bounds)
        measure_year(Path(name) / "year", bounds)
    return int(bounds.failed)


if __name__ == "__main__":
    sys.exit(main())
