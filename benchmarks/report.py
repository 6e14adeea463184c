"""What a report costs: 30 days from ticks against gpu-usage-audit 1.8.0 on the same data, and an hour over the imports.

Prints each figure with the bound it has to hold and exits 1 if one does not. Takes some minutes, most of them the
peer's. Without a Python 3.12 or newer for the peer, that part is left out, and says so.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks import peer
from benchmarks.sampler import ENVIRONMENT, Cost, run_once
from gua_sample import store
from gua_sample.simulate import Laboratory

REPORT = str(Path(sysconfig.get_path("scripts")) / "gua-report")
IMPORTS = [sys.executable, "-c", "import pandas, tabulate"]
DAY_MS = 86_400_000
END_MS = 1_794_409_200_000  # 2026-11-11 15:00 UTC, a Wednesday afternoon
DAYS = 30
CARDS = 12
SEED = 1  # its people run 1.2 processes per card
RUNS = 3
SHORT_RUNS = 15


class Bounds:
    """Prints figures beside what they have to hold."""

    def __init__(self) -> None:
        self.failed = False

    def show(self, what: str, value: float, unit: str, bound: float, least: bool = False) -> None:
        holds = value >= bound if least else value <= bound
        self.failed |= not holds
        word = "at least" if least else "at most"
        print(f"{what:<58} {value:7.2f} {unit:<6} {word} {bound:g}{'' if holds else '   MISSED'}", flush=True)


def our_report(data_dir: Path, start_ms: int, end_ms: int) -> list[str]:
    start, end = (time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(ms / 1000)) for ms in (start_ms, end_ms))
    return [REPORT, "--data-dir", str(data_dir), "--from", start, "--to", end, "--tz", "UTC"]


def timed(command: list[str]) -> tuple[float, Cost]:
    began = time.perf_counter()
    cost = run_once(command, ENVIRONMENT)
    return time.perf_counter() - began, cost


def compare_with_peer(folder: Path, data_dir: Path, bounds: Bounds) -> None:
    ours = our_report(data_dir, END_MS - DAYS * DAY_MS, END_MS)
    timed(ours)  # caches, bytecode
    if peer.find_python() is None:
        print("no Python 3.12 or newer here: gpu-usage-audit can't be run, so there is nothing to compare with")
        costs = [timed(ours) for _ in range(RUNS)]
    else:
        command = peer.install(folder / "peer")
        database = folder / "peer.db"
        peer.export(command, data_dir, database)
        start_ms = END_MS - DAYS * DAY_MS
        pairs = [(timed(ours), peer.run(command, database, start_ms)[0]) for _ in range(RUNS)]
        costs = [mine for mine, _ in pairs]
        our_seconds = statistics.median(seconds for seconds, _ in costs)
        peer_seconds = statistics.median(seconds for _, seconds in pairs)
        print(f"  ({DAYS} days, {CARDS} cards: {our_seconds:.2f} s against {peer_seconds:.2f} s, medians of {RUNS})")
        bounds.show(
            "times faster than gpu-usage-audit 1.8.0, from ticks", peer_seconds / our_seconds, "x", 8, least=True
        )
        printed = subprocess.run([*ours, "--json"], capture_output=True, text=True, check=True).stdout
        shares = {state: value["share"] for state, value in json.loads(printed)["headline"]["states"].items()}
        theirs = peer.exact_headline(command, database, start_ms)
        # It has no unknown: a card that is lost is not in its sum.
        known = 1 - shares.pop("unknown")
        worst = max(abs(100 * shares[state] / known - theirs[state]) for state in shares)
        bounds.show("largest difference to its headline shares", worst, "points", 0.1)
    bounds.show("peak memory of that report", max(cost.peak_mib for _, cost in costs), "MiB", 600)


def compare_with_imports(data_dir: Path, bounds: Bounds) -> None:
    ours = our_report(data_dir, END_MS - 3_600_000, END_MS)
    for command in (IMPORTS, ours):
        timed(command)
    pairs = [(timed(IMPORTS)[0], timed(ours)[0]) for _ in range(SHORT_RUNS)]
    floor, mine = (statistics.median(times) for times in zip(*pairs, strict=True))
    print(f"  (one hour and the hour before: {mine:.2f} s, medians of {SHORT_RUNS} in turn with the imports)")
    bounds.show("1 h window over importing pandas and tabulate", mine / floor, "x", 1.5)


def main() -> int:
    bounds = Bounds()
    with tempfile.TemporaryDirectory(prefix="gua-bench-") as name:
        data_dir = Path(name) / "data"
        history = Laboratory(SEED, CARDS).history(END_MS - DAYS * DAY_MS, END_MS, 30_000)
        store.append_history(store.prepare(str(data_dir)), history)
        compare_with_imports(data_dir, bounds)
        compare_with_peer(Path(name), data_dir, bounds)
    return int(bounds.failed)


if __name__ == "__main__":
    sys.exit(main())
