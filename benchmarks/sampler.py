"""What a tick costs: CPU and memory of gua-sample over the bare imports, and bytes on disk.

Prints each figure with the bound it has to hold and exits 1 if one does not.
"""

from __future__ import annotations

import os
import random
import statistics
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.figures import ENVIRONMENT, Bounds, Cost, ratio, run_once
from gua_sample import store
from gua_sample.records import Boot, Card, CardFacts, Cursor, Process, Tick, Usage
from gua_sample.simulate import Laboratory
from tests.driver import Scenario, build, environment

SAMPLER = [str(Path(sysconfig.get_path("scripts")) / "gua-sample")]
FLOOR = [sys.executable, "-c", "import pynvml, sqlite3"]
RUNS = 100
DAY_MS = 86_400_000
START_MS = 1_794_268_800_000  # Tuesday 2026-11-10: a whole day without a reboot of the laboratory
INTERVAL_MS = 30_000
MEMORY = "/dev/shm"  # noqa: S108 - only a place for temporary folders


def compare(variables: dict[str, str], data_dir: str, renew: Callable[[], object]) -> list[list[Cost]]:
    """Floor, sampler, that with metrics, and that with the file for logins, in turn: the machine's moods hit all."""
    sampler = [*SAMPLER, "--data-dir", data_dir]
    with_metrics = [*sampler, "--textfile", f"{data_dir}/gua.prom"]
    commands = [FLOOR, sampler, with_metrics, [*with_metrics, "--held-file", f"{data_dir}/held"]]
    costs: list[list[Cost]] = [[] for _ in commands]
    for number in range(RUNS + 1):
        for command, cost in zip(commands, costs, strict=True):
            renew()  # the driver has filled its buffers since
            done = run_once(command, variables)
            if number:  # the first time there are no bytecode, caches, partition
                cost.append(done)
    return costs


def measure_tick(folder: Path) -> tuple[float, float, float, float, float]:
    """CPU ratio, sampler's CPU milliseconds and peak MiB at 8 cards and 12 processes; the ratio of CPU with metrics,
    and the milliseconds that the file for logins adds to that."""
    sleepers = [subprocess.Popen(["sleep", "600"]) for _ in range(12)]
    try:
        scenario = Scenario()
        for number in range(8):
            pids = [sleeper.pid for sleeper in sleepers[number::8]]
            scenario.add_card(
                utilization_percent=50 + number,
                compute=[(pid, 4000 + number) for pid in pids],
                process_utilization=[(pid, None, 25) for pid in pids],
            )
        path = scenario.write(folder / "scenario")
        variables = environment(build(folder), path, ENVIRONMENT)
        floor, *others = compare(variables, str(folder / "data"), lambda: scenario.write(path))
    finally:
        for sleeper in sleepers:
            sleeper.kill()
            sleeper.wait()
    least, cpu, more, most = ([cost.cpu_seconds for cost in costs] for costs in (floor, *others))
    peak_mib = max(cost.peak_mib for cost in others[0])
    added_ms = 1000 * statistics.median(one - other for one, other in zip(most, more, strict=True))
    return ratio(cpu, least), statistics.median(cpu) * 1000, peak_mib, ratio(more, cpu), added_ms


def restless_day(cards: int = 10, processes: int = 12) -> Iterator[Tick]:
    """Every value of every card and process is another at every tick."""
    numbers = random.Random(0)
    boot = Boot("7f8e3c1a-0000-4000-8000-000000000000", START_MS - DAY_MS)
    facts = [
        CardFacts(f"GPU-{n:08x}-0000-4000-8000-000000000000", n, None, "NVIDIA A100", None, 81920, 518, 1, "ok", None)
        for n in range(cards)
    ]
    people = {
        10_000 + n: Process(10_000 + n, START_MS, 1000 + n, 1000 + n, f"user{n}", f"user{n}", "python", f"/user/{n}")
        for n in range(processes)
    }
    energy = [numbers.randrange(10**9, 10**10) for _ in facts]
    for ts_ms in range(START_MS, START_MS + DAY_MS, INTERVAL_MS):
        row = []
        for n, fact in enumerate(facts):
            energy[n] += numbers.randrange(2000, 12_000)
            usages = [
                Usage(pid, "compute", numbers.randrange(500, 80_000), numbers.randrange(101))
                for pid in list(people)[n::cards]
            ]
            percent = numbers.randrange(10_001) / 100
            memory_mib, watts = numbers.randrange(500, 81_000), numbers.randrange(50_000, 500_000) / 1000
            row.append(Card(fact, percent, "samples", memory_mib, watts, energy[n], numbers.randrange(30, 90), usages))
        cursors = [Cursor(fact.uuid, fact.gpu_index, None, None, ts_ms * 1000, ts_ms * 1000, ts_ms) for fact in facts]
        yield Tick(ts_ms, None, boot, "580.65.06", numbers.randrange(4, 40), None, row, people, cursors)


def measure_bytes(folder: Path, history: Callable[[], Iterator[Tick]]) -> float:
    """Bytes on disk for each card-tick of a day, written a tick at a time as the sampler does."""
    samples = store.prepare(str(folder))
    card_ticks = 0
    for tick in history():
        card_ticks += len(tick.cards)
        store.append_history(samples, [tick])
    return sum(path.stat().st_size for path in Path(samples).iterdir()) / card_ticks


def main() -> int:
    bounds = Bounds()
    with tempfile.TemporaryDirectory(prefix="gua-bench-") as name:
        folder = Path(name)
        (folder / "driver").mkdir()
        tick_ratio, cpu_ms, peak_mib, metrics_ratio, held_ms = measure_tick(folder / "driver")
        bounds.show("CPU of a tick, 8 cards, 12 processes, over the imports", tick_ratio, "x", 1.3)
        print(f"  (that is {cpu_ms:.0f} ms, median of {RUNS} runs; ratios are medians of those of each turn)")
        bounds.show("peak memory of that tick", peak_mib, "MiB", 40)
        bounds.show("CPU of that tick with --textfile, over the same without", metrics_ratio, "x", 1.25)
        bounds.show("CPU that --held-file adds to that with --textfile", held_ms, "ms", 1)
        # On a memory file system where there is one: what is measured is size, not this disk.
        memory = MEMORY if os.access(MEMORY, os.W_OK) else name
        for what, history in (
            ("every value changes, 1.2 processes per card", restless_day),
            ("the simulated laboratory", lambda: Laboratory(0, 12).history(START_MS, START_MS + DAY_MS, INTERVAL_MS)),
        ):
            with tempfile.TemporaryDirectory(prefix="gua-bench-", dir=memory) as data_dir:
                bounds.show(f"bytes per card-tick: {what}", measure_bytes(Path(data_dir), history), "bytes", 60)
    return int(bounds.failed)


if __name__ == "__main__":
    sys.exit(main())
