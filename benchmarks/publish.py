"""What publishing adds to a night's gua rollup, on a host with a year of 8 cards, and what rsync sends of it.

Prints the figures with the bounds they have to hold and exits 1 if they do not. By hand: python benchmarks/publish.py
"""

from __future__ import annotations

import re
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from contextlib import closing
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.figures import ENVIRONMENT, Bounds, ratio
from benchmarks.rollups import DUE_DAY, END_MS, INTERVAL_MS, roll_up
from gua_report.rollups.index import published_path
from gua_report.rollups.schema import FILE_NAME
from gua_report.rollups.writer import RollupWriter
from gua_report.upkeep.outputs import csv_path
from gua_sample import store
from gua_sample.partition_names import DAY_MS
from gua_sample.simulate import Laboratory
from tests.untidy import untidy

CARDS, SEED = 8, 1
DAYS, YEAR = 14, 365
TURNS = 15


def record(data_dir: Path) -> None:
    """Two weeks of ticks that are rolled up, and their rows again and again for the time before, back to a year."""
    start_ms = END_MS // DAY_MS * DAY_MS - (DAYS - 1) * DAY_MS
    history = untidy(Laboratory(SEED, CARDS).history(start_ms, END_MS, INTERVAL_MS), SEED)
    store.append_history(store.prepare(str(data_dir)), history)
    roll_up(data_dir)
    with closing(sqlite3.connect(data_dir / FILE_NAME)) as connection, connection:
        tables = [row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        (last,) = connection.execute("SELECT max(id) FROM day").fetchone()
        for table in tables:
            names = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
            key = "id" if table == "day" else "day_id"
            for back in range(DAYS, YEAR, DAYS) if key in names and table not in ("card", "word") else ():
                earlier = {key: f"{key} - {back}", "day": f"date(day, '-{back} days')", "is_expired": "1"}
                values = ", ".join(earlier.get(name, name) for name in names)
                rows = f"SELECT {values} FROM {table} WHERE {key} > {last - DAYS} AND {key} - {back} > {last - YEAR}"  # noqa: S608 - all of it is ours
                connection.execute(f"INSERT INTO {table} {rows}")


def night(data_dir: Path, config: str) -> float:
    """The CPU seconds of a run that has the last whole day to do."""
    Path(csv_path(str(data_dir), DUE_DAY)).unlink()
    with RollupWriter(str(data_dir / FILE_NAME)) as writer:
        writer.delete([DUE_DAY])
    cost, done = roll_up(data_dir, config)
    if done["rolled_up"] != [DUE_DAY]:
        sys.exit(f"gua rollup was to do {DUE_DAY}, and did {done}")
    return cost.cpu_seconds


def measure_time(data_dir: Path, config: Path, bounds: Bounds) -> None:
    silent = config.with_name("silent.toml")
    silent.write_text("")
    for path in (silent, config):
        night(data_dir, str(path))  # caches, bytecode
    pairs = [(night(data_dir, str(silent)), night(data_dir, str(config))) for _ in range(TURNS)]
    without, published = zip(*pairs, strict=True)
    bounds.show("CPU of gua rollup that publishes, over the same without", ratio(published, without), "x", 1.1)


def measure_transfer(data_dir: Path, config: Path, bounds: Bounds) -> None:
    """What rsync sends of the copy a day later, in its own way and with --inplace."""
    path, names = Path(published_path(str(data_dir))), ("renamed", "inplace")
    with RollupWriter(str(data_dir / FILE_NAME)) as writer:
        writer.delete([DUE_DAY])
    shutil.move(str(data_dir / "samples" / f"{DUE_DAY}.sqlite"), config.with_name("due"))
    roll_up(data_dir, str(config))
    for name in names:
        shutil.copy(path, config.with_name(name))
    shutil.move(str(config.with_name("due")), data_dir / "samples" / f"{DUE_DAY}.sqlite")
    night(data_dir, str(config))
    megabytes = path.stat().st_size / 1e6
    sent = [send(path, config.with_name(name), *(["--inplace"] if name == "inplace" else [])) for name in names]
    print(f"  (a day more of {megabytes:.1f} MB, {YEAR} days of {CARDS} cards: rsync sends {sent[0]:.2f} MB,")
    print(f"  with --inplace {sent[1]:.2f} MB)")
    bounds.show("MB that rsync sends of a night's copy", sent[0], "MB", 0.5)


def send(source: Path, target: Path, *options: str) -> float:
    """The megabytes that rsync would send over a network to bring the target up to date."""
    command = ["rsync", "--no-whole-file", "--ignore-times", "--stats", *options, str(source), str(target)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env={"LC_ALL": "C", **ENVIRONMENT})
    if target.read_bytes() != source.read_bytes():
        sys.exit("rsync did not make a copy")
    found = re.search(r"Literal data: ([\d,]+)", done.stdout)
    assert found
    return int(found[1].replace(",", "")) / 1e6


def main() -> int:
    bounds = Bounds()
    with tempfile.TemporaryDirectory(prefix="gua-bench-") as name:
        data_dir, config = Path(name) / "data", Path(name) / "gua.toml"
        config.write_text("[fleet]\npublish = true\n")
        record(data_dir)
        measure_time(data_dir, config, bounds)
        if shutil.which("rsync"):
            measure_transfer(data_dir, config, bounds)
    return int(bounds.failed)


if __name__ == "__main__":
    sys.exit(main())
