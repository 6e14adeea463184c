"""What gua status costs: CPU over that of gua-sample, and how that grows with a history in which nothing ever changes.

Prints each figure with the bound it has to hold and exits 1 if one does not.
"""

from __future__ import annotations

import ctypes
import os
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.figures import ENVIRONMENT, Bounds
from benchmarks.sampler import INTERVAL_MS, SAMPLER
from gua_sample import store
from gua_sample.partition_names import DAY_MS
from gua_sample.processes import describe, read_boot
from gua_sample.records import Card, CardFacts, Cursor, Tick, Usage
from tests.driver import Scenario, build, environment

STATUS = [str(Path(sysconfig.get_path("scripts")) / "gua"), "status"]
RUNS = 40
CARDS, PROCESSES = 8, 12
DAYS = 30
PR_SET_CHILD_SUBREAPER = 36


def cpu_seconds(command: list[str], variables: dict[str, str]) -> float:
    """Of the command and all that it started: what it leaves behind becomes our child, and is of its group."""
    process = subprocess.Popen(command, env=variables, stdout=subprocess.DEVNULL, start_new_session=True)
    total = 0.0
    while True:
        try:
            pid, status, usage = os.wait4(-process.pid, 0)
        except ChildProcessError:
            return total
        total += usage.ru_utime + usage.ru_stime
        if pid == process.pid:
            process.returncode = os.waitstatus_to_exitcode(status)
            if process.returncode:
                sys.exit(f"{command[0]} failed")


def make_scenario(pids: list[int]) -> Scenario:
    """Memory is held on all cards, and nobody works."""
    scenario = Scenario()
    for number in range(CARDS):
        scenario.add_card(compute=[(pid, 4000 + number) for pid in pids[number::CARDS]])
    return scenario


def same_again(scenario: Scenario, pids: list[int], days: float) -> Iterator[Tick]:
    """The history of just that: the worst there is, as every tick has to be looked at."""
    boot = read_boot()
    people = {pid: describe(pid, boot) for pid in pids}
    cards = []
    for number, card in enumerate(scenario.cards):
        facts = CardFacts(card.settings["uuid"], number, None, "NVIDIA A100-SXM4-80GB", None, 81920, 500, 1, "ok", None)
        usages = [Usage(pid, "compute", 4000 + number, 0) for pid in pids[number::CARDS]]
        cards.append(Card(facts, 0.0, "rate", card.used_mib(), 62.0, 7_200_000, 33, usages))
    cursors = [Cursor(card.facts.uuid, card.facts.gpu_index, None, None, 0, 0, 0) for card in cards]
    now_ms = time.time_ns() // 1_000_000
    for ts_ms in range(now_ms - round(days * DAY_MS), now_ms, INTERVAL_MS):
        yield Tick(ts_ms, None, boot, "580.65.06", 5, None, cards, people, cursors)


def measure(folder: Path, days: float, runs: int) -> tuple[float, float]:
    """CPU seconds of gua-sample and of gua status, in turn, with a history of so many days."""
    folder.mkdir()
    sleepers = [subprocess.Popen(["sleep", "900"]) for _ in range(PROCESSES)]
    try:
        pids = [sleeper.pid for sleeper in sleepers]
        scenario = make_scenario(pids)
        path = scenario.write(folder / "scenario")
        variables = environment(build(folder), path, ENVIRONMENT)
        data_dir = str(folder / "data")
        store.append_history(store.prepare(data_dir), same_again(scenario, pids, days))
        commands = [[*SAMPLER, "--data-dir", str(folder / "other")], [*STATUS, "--data-dir", data_dir]]
        for command in commands:
            cpu_seconds(command, variables)  # bytecode, caches, the partition
        pairs = []
        for _ in range(runs):
            scenario.write(path)  # the driver has filled its buffers since
            pairs.append([cpu_seconds(command, variables) for command in commands])
    finally:
        for sleeper in sleepers:
            sleeper.kill()
            sleeper.wait()
    return statistics.median(pair[0] for pair in pairs), statistics.median(pair[1] for pair in pairs)


def main() -> int:
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    bounds = Bounds()
    with tempfile.TemporaryDirectory(prefix="gua-bench-") as name:
        sample, status = measure(Path(name, "hour"), 1 / 24, RUNS)
        bounds.show("CPU of gua status over gua-sample, an hour of history", status / sample, "x", 1.5)
        print(f"  (that is {status * 1000:.0f} ms and {sample * 1000:.0f} ms, medians of {RUNS} runs in turn)")
        sample, status = measure(Path(name, "month"), DAYS, RUNS // 4)
        bounds.show(f"the same, {DAYS} days of history, all cards held all the time", status / sample, "x", 1.5)
        print(f"  (that is {status * 1000:.0f} ms)")
    return int(bounds.failed)


if __name__ == "__main__":
    sys.exit(main())
