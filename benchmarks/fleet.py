"""What a fleet's report costs: a host-year against its host's own report, at 50 and at 1,000 hosts, here and on Dask.

Prints each figure with the bound it has to hold and exits 1 if one does not. Takes about half an hour and 8 GB of disk
for 1,000 hosts of 8 cards: `python benchmarks/fleet.py --hosts 200` is quicker. A few laboratories are recorded for a
year, with a tick every five minutes, and rolled up and published by `gua rollup`; all other hosts are copies of these
with cards and machines of their own. So hosts differ, but no more than those few do.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.figures import ENVIRONMENT, Bounds, run_once
from benchmarks.rollups import SCRIPTS, roll_up
from gua_report.rollups.index import published_path
from gua_sample import store
from gua_sample.partition_names import DAY_MS
from gua_sample.simulate import Laboratory
from tests.untidy import untidy

DISTINCT, CARDS, YEAR, MONTH = 4, 8, 365, 30
INTERVAL_MS = 300_000
DAYS_AT_A_TIME = 40
FEW, SHORT_RUNS = 50, 3
END_MS = (time.time_ns() // 1_000_000 // DAY_MS) * DAY_MS  # so that no host is late
NOBODY = 65534  # a fleet's report is not for root
DASK_HOSTS, DASK_WORKERS = 50, 2


class FleetCost(NamedTuple):
    wall_seconds: float
    cpu_seconds: float
    peak_mib: float  # of all its processes together, pages that they share counted once


def record_host(data_dir: Path, seed: int) -> Path:
    """Record a year of one laboratory; returns the file that it publishes."""
    config = data_dir.with_suffix(".toml")
    laboratory, samples = Laboratory(seed, CARDS), store.prepare(str(data_dir))
    start_ms = END_MS - YEAR * DAY_MS
    for start, end in pairwise([*range(start_ms, END_MS, DAYS_AT_A_TIME * DAY_MS), END_MS]):
        store.append_history(samples, untidy(laboratory.history(start, end, INTERVAL_MS), seed))
        age = max(2, (END_MS - end) // DAY_MS + 2)
        config.write_text(f"[retention]\nraw_days = {age}\ncsv_days = 0\n[fleet]\npublish = true\n")
        roll_up(data_dir, str(config))
    return Path(published_path(str(data_dir)))


def add_host(folder: Path, number: int, source: Path) -> None:
    """A host of its own: a copy with other cards and another machine."""
    target = folder / f"gpu{number:04}" / "rollups.sqlite"
    target.parent.mkdir()
    shutil.copyfile(source, target)
    with closing(sqlite3.connect(target)) as connection, connection:
        connection.execute("UPDATE card SET uuid = uuid || ?", (f"-{number}",))
        connection.execute("UPDATE meta SET value = ? WHERE key = 'machine'", (f"{number:032x}",))


def fleet_command(folder: Path, days: int, *options: str) -> list[str]:
    start, end = (time.strftime("%Y-%m-%d", time.gmtime((END_MS - ago * DAY_MS) / 1000)) for ago in (days, 0))
    window = ["--from", start, "--to", end, "--tz", "UTC", "--config", os.devnull, "--json"]
    return [*_as_user(), str(SCRIPTS / "gua-report"), "--fleet", str(folder), *window, *options]


def own_command(folder: Path, host: str, days: int) -> list[str]:
    command = fleet_command(folder, days)
    at = command.index("--fleet")
    return [*command[:at], "--data-dir", str(folder / host), *command[at + 2 :]]


def _as_user() -> list[str]:
    if os.geteuid() != 0:
        return []
    return ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]


def run_fleet(command: list[str]) -> tuple[FleetCost, dict[str, Any]]:
    """What a fleet's report costs, with all its children, and the report."""
    with tempfile.TemporaryFile("w+") as output:
        began = time.perf_counter()
        process = subprocess.Popen(command, env=ENVIRONMENT, stdout=output, start_new_session=True)
        peak = Peak(process.pid)
        _, status, usage = os.wait4(process.pid, 0)
        wall_seconds = time.perf_counter() - began
        process.returncode = os.waitstatus_to_exitcode(status)
        output.seek(0)
        if process.returncode:
            sys.exit(f"{' '.join(command)} failed")
        return FleetCost(wall_seconds, usage.ru_utime + usage.ru_stime, peak.stop()), json.load(output)


def run_some(command: list[str]) -> FleetCost:
    """The median of some runs, and their highest peak: children are at their largest together now and then."""
    costs = [run_fleet(command)[0] for _ in range(SHORT_RUNS)]
    wall, cpu, peaks = zip(*costs, strict=True)
    return FleetCost(statistics.median(wall), statistics.median(cpu), max(peaks))


class Peak:
    """Looks again and again how much memory a process and all its descendants have together.

    A look during which one of them began or ended does not count: it may have seen a page twice.
    """

    def __init__(self, pid: int) -> None:
        self._pid, self._peak, self._over = pid, 0, threading.Event()
        self._thread = threading.Thread(target=self._look)
        self._thread.start()

    def _look(self) -> None:
        while not self._over.wait(0.1):
            processes = list(_descendants(self._pid))
            memory = [_memory_kib(process) for process in processes]
            if all(memory) and list(_descendants(self._pid)) == processes:
                self._peak = max(self._peak, sum(memory))

    def stop(self) -> float:
        self._over.set()
        self._thread.join()
        return self._peak / 1024


def _descendants(pid: int) -> Iterator[int]:
    yield pid
    with suppress(OSError):
        for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
            yield from _descendants(int(child))


def _memory_kib(pid: int) -> int:
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1])
    return 0


@contextmanager
def dask_cluster(folder: Path) -> Iterator[Path]:
    """A scheduler and workers on this machine alone, for as long as this takes."""
    file = folder / "scheduler.json"
    scheduler = ["dask_scheduler", "--host", "127.0.0.1", "--port", "0", "--scheduler-file", str(file)]
    worker = ["dask_worker", "--scheduler-file", str(file), "--nworkers", str(DASK_WORKERS), "--nthreads", "1"]
    started = []
    try:
        for module, *arguments in (scheduler, [*worker, "--local-directory", str(folder)]):
            command = [sys.executable, "-m", f"distributed.cli.{module}", *arguments, "--no-dashboard"]
            quiet = subprocess.DEVNULL
            started.append(
                subprocess.Popen(command, env=ENVIRONMENT, stdout=quiet, stderr=quiet, start_new_session=True)
            )
            while not file.exists():
                time.sleep(0.1)
        file.chmod(0o644)
        time.sleep(5)
        yield file
    finally:
        for process in reversed(started):
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def compare_figures(report: dict[str, Any], own: list[dict[str, Any]], bounds: Bounds) -> None:
    """The fleet's figures against the sums of its hosts' own reports."""
    pairs: list[tuple[float, float]] = []
    for state in report["headline"]["states"]:
        pairs.append((_hours(report, state), sum(_hours(one, state) for one in own)))
    for place, _ in enumerate(report["capacity"]["reclaim_curve"]):
        freed = [one["capacity"]["reclaim_curve"][place]["freed_gpu_hours"] for one in (report, *own)]
        pairs.append((freed[0], sum(freed[1:])))
    cards = {card["uuid"]: card for one in own for card in one["gpus"]}
    for card in report["gpus"]:
        for state, value in card["states"].items():
            pairs.append((value["gpu_hours"], cards[card["uuid"]]["states"][state]["gpu_hours"]))
    for place, cell in enumerate(report["trend"]):
        for name, value in cell.items():
            if name.endswith("_gpu_hours"):
                pairs.append((value, sum(one["trend"][place][name] for one in own)))
    worst = max(abs(one - other) for one, other in pairs)
    # JSON has four digits of an hour: so many hosts are rounded before they are added.
    bounds.show(f"largest of {len(pairs):,} differences to hosts' reports", worst * 3600, "s", 0.2 * len(own))


def _hours(report: dict[str, Any], state: str) -> float:
    hours: float = report["headline"]["states"][state]["gpu_hours"]
    return hours


def measure(folder: Path, hosts: int, bounds: Bounds) -> None:
    few = ("--hosts", f"gpu000[0-{DISTINCT - 1}]")
    names = [f"gpu{number:04}" for number in range(DISTINCT)]
    own_reports = [run_fleet(own_command(folder, name, YEAR))[1] for name in names]
    compare_figures(run_fleet(fleet_command(folder, YEAR, *few))[1], own_reports, bounds)
    for days, what in ((YEAR, "year"), (MONTH, "month")):
        own = statistics.median(
            run_once(own_command(folder, name, days)).cpu_seconds for _ in range(SHORT_RUNS) for name in names
        )
        small = run_some(fleet_command(folder, days, "--hosts", "gpu00[0-4]?"))
        large = run_fleet(fleet_command(folder, days))[0]
        each, each_small = large.cpu_seconds / hosts, small.cpu_seconds / FEW
        print(
            f"  (a {what}: own report {own:.2f} s of CPU; in the fleet {each:.3f} s, of {FEW} hosts {each_small:.3f} s)"
        )
        seconds = f"{large.wall_seconds:.0f} s for {hosts:,} hosts, {small.wall_seconds:.0f} s for {FEW}"
        print(f"  ({seconds}; {large.peak_mib:.0f} and {small.peak_mib:.0f} MiB)", flush=True)
        if what == "year":
            bounds.show("CPU of a host-year over that of its own report", each / own, "x", 0.6)
        bounds.show(f"CPU per host, {hosts} hosts over {FEW}, a {what}", each / each_small, "x", 1.1)
        bounds.show(f"memory, {hosts} hosts over {FEW}, a {what}", large.peak_mib / small.peak_mib, "x", 1.1)
        bounds.show(f"memory of {hosts} hosts, a {what}", large.peak_mib, "MiB", 500)


def measure_dask(folder: Path, bounds: Bounds) -> None:
    some = ("--hosts", "gpu00[0-4]?")
    with tempfile.TemporaryDirectory(prefix="gua-bench-") as name:
        Path(name).chmod(0o755)
        with dask_cluster(Path(name)) as file:
            times = []
            for _ in range(SHORT_RUNS):
                here = run_once(fleet_command(folder, YEAR, *some))
                there = run_once(fleet_command(folder, YEAR, *some, "--scheduler", str(file)))
                times.append((there.wall_seconds, here.wall_seconds))
    ratio = statistics.median(there / here for there, here in times)
    shown = ", ".join(f"{there:.1f} s against {here:.1f} s" for there, here in times)
    print(f"  ({DASK_HOSTS} host-years on {DASK_WORKERS} workers: {shown})")
    bounds.show(f"Dask with {DASK_WORKERS} workers over children of this machine", ratio, "x", 1.5)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", type=int, default=1000)
    parser.add_argument("--keep", metavar="DIR", type=Path, help="make the fleet there, or use the one that is there")
    options = parser.parse_args()
    bounds = Bounds()
    with tempfile.TemporaryDirectory(prefix="gua-bench-") as name:
        folder = options.keep or Path(name) / "fleet"
        Path(name).chmod(0o755)
        if not folder.exists():
            began = time.perf_counter()
            sources = [record_host(Path(name) / f"lab{seed}", seed) for seed in range(1, DISTINCT + 1)]
            folder.mkdir()
            for number in range(options.hosts):
                add_host(folder, number, sources[number % DISTINCT])
            size = sources[0].stat().st_size / 1e6
            print(f"  (a host-year takes {size:.1f} MB; all made in {time.perf_counter() - began:.0f} s)", flush=True)
        measure(folder, len(list(folder.iterdir())), bounds)
        measure_dask(folder, bounds)
    sys.exit(bounds.failed)


if __name__ == "__main__":
    main()
