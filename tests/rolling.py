"""Days of a laboratory, rolled up in this process by the real command or parts of it."""

import atexit
import io
import json
import os
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Sequence
from contextlib import closing, redirect_stderr, redirect_stdout
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from gua_report.config import Config, Retention
from gua_report.main import main
from gua_report.rollups.index import Stored, origin_of, path_of
from gua_report.rollups.writer import RollupWriter, roll_up_day
from gua_report.ticks.history import History
from gua_report.upkeep.nightly import Done, Upkeep
from gua_sample import store
from gua_sample.partition_names import day_of
from gua_sample.policy import DEFAULT
from gua_sample.simulate import Laboratory
from tests.lab import CONFIG, DAY_MS, HOUR_MS, MINUTE_MS, NOON_MS, Report, report_of
from tests.machine import query
from tests.untidy import untidy

TODAY_MS = time.time_ns() // 1_000_000 // DAY_MS * DAY_MS
WEEK = [day_of(TODAY_MS - days * DAY_MS) for days in range(7, 0, -1)]
# Two days that are too old for `raw_days = 6` and two that are not, with a margin, as midnight may pass meanwhile.
OLD = [day_of(TODAY_MS - days * DAY_MS) for days in (9, 8)]
RECENT = [day_of(TODAY_MS - days * DAY_MS) for days in (5, 4)]
LAB_END_MS = NOON_MS
KEEP_LAST_TWO = CONFIG._replace(retention=Retention(raw_days=3))
FRAMES = (
    *("headline", "before", "capacity", "unpartitioned", "reclaim", "reclaim_curve", "gpus", "identities", "groups"),
    *("limits", "identity_days", "heatmap", "timeline", "timeline_holders", "trend", "episodes", "gaps"),
)
FIGURES = ("driver_versions", "newest_ms", "window", "meant_gpu_hours")
TABLES = ("card_day", "card_hour", "identity_hour", "hold", "episode", "span")


class Killed(BaseException):
    """Simulates a kill at the point where it is raised: nothing catches it."""


def write_week(folder: Path) -> None:
    """Write the week before today and the first ticks of today: one every five minutes, none on a midnight.

    Each file has unused pages, as one that was filled tick by tick.
    """
    start_ms = TODAY_MS - 7 * DAY_MS + 100_000
    ticks = Laboratory(1, 3).history(start_ms, TODAY_MS + 700_000, 300_000)
    store.append_history(store.prepare(str(folder)), ticks)
    for day in WEEK:
        with closing(sqlite3.connect(partition(folder, day), isolation_level=None)) as connection:
            connection.executescript("CREATE TABLE gone AS SELECT zeroblob(30000); DROP TABLE gone")


def run(verb: str, data_dir: Path, *arguments: str) -> tuple[int, str, str]:
    """Exit status, output and errors of a gua command."""
    with redirect_stdout(io.StringIO()) as output, redirect_stderr(io.StringIO()) as errors:
        status = main([verb, "--data-dir", str(data_dir), *arguments])
    return status, output.getvalue(), errors.getvalue()


def roll_up(data_dir: Path, *arguments: str, **retention: int) -> dict[str, Any]:
    """The JSON output of gua rollup, which must succeed without a complaint."""
    config = data_dir / "gua.toml"
    config.write_text("\n".join(["[retention]", *(f"{name} = {days}" for name, days in retention.items()), ""]))
    status, output, errors = run("rollup", data_dir, "--config", str(config), "--json", *arguments)
    assert (status, errors) == (0, "")
    found: dict[str, Any] = json.loads(output)
    return found


def report(data_dir: Path, first: str = WEEK[0], last: str = day_of(TODAY_MS)) -> dict[str, Any]:
    """The JSON report of these days, without its sources."""
    status, output, errors = run("report", data_dir, "--json", "--tz", "UTC", "--from", first, "--to", last)
    assert (status, errors) == (0, "")
    found: dict[str, Any] = json.loads(output)
    del found["sources"]
    return found


def stored(data_dir: Path, days: Sequence[str] | None = None) -> dict[str, dict[str, list[str]]]:
    """Everything stored of each day except the fate of its ticks, in no particular order."""
    path = data_dir / "rollups.sqlite"
    known = {row["day"]: row["id"] for row in query(path, "SELECT id, day FROM day")}
    words = {row["id"]: row["text"] for row in query(path, "SELECT * FROM word")}
    cards = {row["id"]: [*row.values()][1:] for row in query(path, "SELECT * FROM card")}

    def spell(row: dict[str, Any]) -> str:
        texts = ("command", "identity", "boot_id", "driver_version", "kind")
        plain = {name: words.get(value) if name in texts else value for name, value in row.items()}
        return repr(plain | {"card_id": cards.get(row.get("card_id", 0)), "position": None})

    return {
        day: {
            table: sorted(map(spell, query(path, f"SELECT * FROM {table} WHERE day_id = {number}"))) for table in TABLES
        }
        for day, number in known.items()
        if days is None or day in days
    }


def change(path: Path | str, *statements: str) -> None:
    """Change a database by hand, each statement by itself."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for statement in statements:
            connection.execute(statement)


def partition(data_dir: Path, day: str) -> Path:
    return data_dir / "samples" / f"{day}.sqlite"


def touch(data_dir: Path, day: str) -> None:
    """Change the partition's modification time, like an rsync without -t."""
    os.utime(partition(data_dir, day))


def days_left(data_dir: Path) -> list[str]:
    return [path.stem for path in sorted((data_dir / "samples").glob("*.sqlite"))]


def roll_up_days(folder: str, days: set[int] | None = None) -> list[str]:
    """Roll up the days of the history at these positions, or all; returns the stored ones."""
    history = History(folder)
    done = []
    with RollupWriter(path_of(folder)) as writer:
        for position, day in enumerate(history.days):
            if days is None or position in days:
                made = roll_up_day(history, day, DEFAULT)
                if made is not None:
                    writer.write(day, made, Stored(origin_of(history.paths[day], DEFAULT)))
                    done.append(day)
    return done


def upkeep(folder: Path, now_ms: int, config: Config = CONFIG, rebuild: bool = False, dry_run: bool = False) -> Done:
    """Run the same upkeep as gua rollup, at a time of the test's choosing."""
    return Upkeep(str(folder), config, now_ms, dry_run, print).run(rebuild, False, None)


def _comparable(report: Report, name: str) -> Any:
    """The frame; a timeline by the hour, since finer cells are there only as long as ticks are."""
    frame = getattr(report, name)
    if frame is None or not name.startswith("timeline") or report.timeline_cell_seconds >= HOUR_MS / 1000:
        return frame
    start = (frame["start_ms"] // HOUR_MS * HOUR_MS).clip(lower=report.window.start_ms)
    end = (start // HOUR_MS * HOUR_MS + HOUR_MS).clip(upper=report.window.end_ms)
    key = [column for column in frame if not str(column).endswith("_seconds")]
    return frame.assign(start_ms=start, end_ms=end).groupby(key, dropna=False, sort=False).sum().reset_index()


def _alike(frame: pd.DataFrame) -> pd.DataFrame:
    """The frame with None for every missing text: where all of a column are missing, it may also be NaN."""
    texts = {name: column for name, column in frame.items() if column.dtype == object}
    return frame.assign(**{str(name): column.where(column.notna(), None) for name, column in texts.items()})


def assert_same(one: Report, other: Report) -> None:
    """Compare all figures of two reports, whatever their sources."""
    for name in FIGURES:
        assert (
            getattr(one, name) == pytest.approx(getattr(other, name), abs=1e-6)
            if name in FIGURES[:2] + FIGURES[3:]
            else getattr(one, name) == getattr(other, name)
        ), name
    for name in FRAMES:
        left, right = (_comparable(report, name) for report in (one, other))
        assert (left is None) == (right is None), name
        if left is not None:
            order = {"identities": "identity", "gpus": "uuid"}.get(name)
            if order:
                left, right = (frame.sort_values(order, ignore_index=True) for frame in (left, right))
            if name == "episodes" and len(left):
                keys = ["gpu_uuid", "pid", "start_ms"]
                left, right = (frame.sort_values(keys, ignore_index=True) for frame in (left, right))
            left, right = (_alike(frame) for frame in (left, right))
            pd.testing.assert_frame_equal(left, right, check_dtype=False, atol=1e-4, rtol=1e-6, obj=name)


def lab_days(folder: Path, days: int = 3, seed: int = 1) -> tuple[int, int]:
    """Write days of the simulated laboratory, a tick every five minutes; returns their start and end."""
    start = LAB_END_MS - days * DAY_MS
    shutil.copytree(_laboratory(start, seed), folder, dirs_exist_ok=True)
    return start, LAB_END_MS


def rolled_up_days(folder: Path, config: Config = CONFIG) -> tuple[int, int]:
    """Write three days of the laboratory, as `gua rollup` has left them two days later; returns their start and end."""
    shutil.copytree(_rolled_up(config.retention), folder, dirs_exist_ok=True)
    return LAB_END_MS - 3 * DAY_MS, LAB_END_MS


@cache
def report_of_lab(zone: str = "UTC") -> Report:
    """A report of three days of the laboratory, from ticks. Not to be changed."""
    start = LAB_END_MS - 3 * DAY_MS
    return report_of(_laboratory(start, 1), start, LAB_END_MS, zone)


@cache
def _laboratory(start: int, seed: int) -> Path:
    """A history from that time on, to be copied."""
    folder = _kept_folder()
    ticks = untidy(Laboratory(seed).history(start, LAB_END_MS, 5 * MINUTE_MS), seed)
    store.append_history(store.prepare(str(folder)), ticks)
    return folder


@cache
def _rolled_up(retention: Retention) -> Path:
    """Three days of the laboratory after a night's upkeep, to be copied with the times of its files."""
    folder = _kept_folder()
    lab_days(folder)
    assert len(upkeep(folder, LAB_END_MS + 2 * DAY_MS, CONFIG._replace(retention=retention)).rolled_up) == 4
    return folder


def _kept_folder() -> Path:
    """A folder for all tests that this process runs."""
    folder = Path(tempfile.mkdtemp(prefix="gua-lab-"))
    atexit.register(shutil.rmtree, folder)
    return folder


def expire(folder: Path, *days: str) -> None:
    """Remove the partitions of these days."""
    for day in days:
        (folder / "samples" / f"{day}.sqlite").unlink()
