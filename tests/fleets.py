"""A small fleet: hosts that differ, rolled up by the real code, collected as their published files would be."""

import atexit
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import Any

from gua_report.config import Config
from gua_report.fleet.asked import AskedFleet
from gua_report.fleet.build import build_fleet_report
from gua_report.fleet.executors import Executor, Outcome, map_in_children
from gua_report.fleet.host_files import HostFile
from gua_report.rollups.index import CREATE_META, META
from gua_report.summary.report import Report
from gua_sample import __version__
from gua_sample.records import Tick
from gua_sample.simulate import Laboratory
from tests.lab import CONFIG, DAY_MS, HOUR_MS, MINUTE_MS, MONDAY_MS, Job, busy, held, hour, sliced, window, write
from tests.rolling import roll_up_days
from tests.untidy import untidy

START_MS, END_MS = MONDAY_MS, MONDAY_MS + 2 * DAY_MS
NOW_MS = END_MS + 8 * HOUR_MS
PUBLISHED_MS = END_MS + 30 * MINUTE_MS
HOSTS = ("lab1", "lab2", "small")  # simulated laboratories, and one with two days of few ticks and a MIG card


def make_fleet(folder: Path, *hosts: str) -> Path:
    """A fleet folder with these of HOSTS, by default all."""
    for host in hosts or HOSTS:
        add_host(folder, host)
    return folder


def add_host(folder: Path, host: str, source: str | None = None, file: str = "rollups.sqlite", **meta: Any) -> Path:
    """Collect the file of one of HOSTS (`source`, else the host itself) under a name; `meta` replaces its values."""
    path = folder / host / file
    path.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(_published(source or host), path)
    if meta:
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.executemany(f"UPDATE {META} SET value = ? WHERE key = ?", [(v, k) for k, v in meta.items()])
    _set_time(path)
    return path


def record_host(folder: Path, host: str, ticks: list[Tick]) -> Path:
    """Collect the plain file of a host with these ticks."""
    with tempfile.TemporaryDirectory(prefix="gua-fleet-") as data_dir:
        write(data_dir, ticks)
        roll_up_days(data_dir)
        path = folder / host / "rollups.sqlite"
        path.parent.mkdir(parents=True)
        shutil.copyfile(Path(data_dir) / "rollups.sqlite", path)
    _set_time(path)
    return path


def _set_time(path: Path) -> None:
    os.utime(path, (PUBLISHED_MS / 1000, PUBLISHED_MS / 1000))


def change(path: Path, *statements: str) -> None:
    """Change a collected file by hand."""
    with closing(sqlite3.connect(path)) as connection, connection:
        for statement in statements:
            connection.execute(statement)
    _set_time(path)


def fleet_report(
    folder: Path,
    config: Config = CONFIG,
    executor: Executor = map_in_children,
    start_ms: int = START_MS,
    end_ms: int = END_MS,
    now_ms: int = NOW_MS,
    **asked: Any,
) -> Report:
    """The report of the fleet's two days."""
    request = AskedFleet(str(folder), window(start_ms, end_ms), config, now_ms=now_ms, **asked)
    return build_fleet_report(request, executor)


class EachFile:
    """Work on each file for itself, which gives what is found by host."""

    def find(self, file: HostFile) -> Any:
        raise NotImplementedError

    def read(self, number: int, file: HostFile) -> Any:
        return file.host, self.find(file)

    def combine(self, read: list[Any]) -> list[Any]:
        return read

    def restore(self, files: Sequence[HostFile], sent: Any) -> Any:
        return sent


def by_host(outcomes: Iterable[Outcome]) -> tuple[dict[str, Any], dict[str, str]]:
    """What was found, and why nothing was, each by host. No host is in two outcomes."""
    values: list[Any] = []
    problems: list[tuple[str, str]] = []
    for outcome in outcomes:
        values += outcome.value or []
        problems += [(outcome.files[at].host, why) for at, why in outcome.problems.items()]
    hosts = [host for host, _ in values + problems]
    assert len(set(hosts)) == len(hosts)
    return dict(values), dict(problems)


def is_complete(report: Report) -> bool:
    assert report.fleet is not None
    return report.fleet.is_complete


def problems(report: Report) -> Mapping[str, list[str]]:
    """The kinds of problems by host."""
    assert report.fleet is not None
    found: dict[str, list[str]] = {}
    for host, kind in zip(report.fleet.problems["host"], report.fleet.problems["kind"], strict=True):
        found.setdefault(host, []).append(kind)
    return found


@cache
def _published(host: str) -> Path:
    """The published file of a host, to be copied."""
    folder = Path(tempfile.mkdtemp(prefix="gua-fleet-"))
    atexit.register(shutil.rmtree, folder)
    if host == "small":
        ada, other = Job(1, "ada"), Job(2, None, uid=4711)
        write(folder, [*hour(sliced(0, 0, 3, 0.0, (ada,)), sliced(0, 1, 2), held(other, index=1), start_ms=START_MS)])
        write(folder, [*hour(sliced(0, 0, 3, 95.0, (ada,)), sliced(0, 1, 2), start_ms=START_MS + HOUR_MS)])
        write(folder, hour(busy(ada, index=1, energy=5000), start_ms=START_MS + DAY_MS))
    else:
        seed = HOSTS.index(host) + 1
        ticks = Laboratory(seed, 2).history(START_MS + 10_000, END_MS - 10_000, 5 * MINUTE_MS)  # within two days
        write(folder, list(untidy(ticks, seed)))
    roll_up_days(str(folder))
    published = folder / "published.sqlite"
    values = {
        "host": host,
        "machine": f"{HOSTS.index(host) + 1:032x}",
        "gua_version": __version__,
        "published_ms": PUBLISHED_MS,
        "newest_tick_ms": PUBLISHED_MS,
    }
    with closing(sqlite3.connect(folder / "rollups.sqlite")) as connection:
        connection.execute("VACUUM INTO ?", (str(published),))
    with closing(sqlite3.connect(published)) as connection, connection:
        connection.execute(CREATE_META)
        connection.executemany(f"INSERT INTO {META} VALUES (?, ?)", list(values.items()))
    return published
