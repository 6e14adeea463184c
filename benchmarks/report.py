"""What a report costs: 30 days from ticks and from rollups against gpu-usage-audit 1.8.0 on the same data, an hour
over the imports, and what rollups cost.

Prints each figure with the bound it has to hold and exits 1 if one does not. Takes about twelve minutes, most of them
to record a year and for the peer. Without a Python 3.12 or newer for the peer, that part is left out, and says so.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks import peer, rollups
from benchmarks.figures import Bounds, Cost, median, ratio, run_once
from benchmarks.rollups import CARDS, DAYS, END_MS, report_command
from gua_report.people.containers import write_containers
from gua_sample.containers import FILE_NAME as CONTAINERS_NAME
from gua_sample.containers import LABEL, Container, Known
from gua_sample.partition_names import DAY_MS, samples_dir
from gua_sample.simulate import Laboratory

IMPORTS = [sys.executable, "-c", "import pandas, tabulate"]
START_MS = END_MS - DAYS * DAY_MS
TICKS, ROLLUPS = "ticks", "rollups"  # data folders, by what a report takes of them
RUNS = 3
RUNS_FROM_ROLLUPS = 3  # in each of those
SHORT_RUNS = 15
NAMED, NAME_TURNS = 200, 15  # containers that are known


def compare_with_peer(folder: Path, bounds: Bounds) -> None:
    ticks, stored = month(folder / TICKS), month(folder / ROLLUPS)
    for ours in (ticks, stored):
        run_once(ours)  # caches, bytecode
    if peer.find_python() is None:
        print("no Python 3.12 or newer here: gpu-usage-audit can't be run, so there is nothing to compare with")
        costs = [run_once(ticks) for _ in range(RUNS)]
    else:
        command = peer.install(folder / "peer")
        database = folder / "peer.db"
        peer.export(command, folder / TICKS, database)
        costs, stored_costs, peer_times = [], [], []
        for _ in range(RUNS):  # in turn, so that whatever else the machine does hits all
            costs.append(run_once(ticks))
            stored_costs += [run_once(stored) for _ in range(RUNS_FROM_ROLLUPS)]
            peer_times.append(peer.run(command, database, START_MS)[0])
        peer_seconds = statistics.median(peer_times)
        for what, found, bound in ((TICKS, costs, 8), (ROLLUPS, stored_costs, 20)):
            seconds, cpu_seconds, _ = median(found)
            print(
                f"  ({DAYS} days, {CARDS} cards: {seconds:.2f} s against {peer_seconds:.2f} s; CPU {cpu_seconds:.2f} s)"
            )
            faster = peer_seconds / seconds
            bounds.show(f"times faster than gpu-usage-audit 1.8.0, from {what}", faster, "x", bound, least=True)
        shares = {state: value["share"] for state, value in read(ticks)["headline"]["states"].items()}
        theirs = peer.exact_headline(command, database, START_MS)
        # It has no unknown: a card that is lost is not in its sum. And it judges intervals by the tick before alone.
        known = 1 - shares.pop("unknown")
        worst = max(abs(100 * shares[state] / known - theirs[state]) for state in shares)
        bounds.show("largest difference to its headline shares", worst, "points", 1)
    bounds.show("peak memory of the report from ticks", max(cost.peak_mib for cost in costs), "MiB", 600)


def compare_sources(folder: Path, bounds: Bounds) -> None:
    """What is timed as from rollups is so, except for the last day and the hour in which the window starts."""
    from_ticks, from_rollups = read(month(folder / TICKS)), read(month(folder / ROLLUPS))
    headlines = (document["headline"]["states"] for document in (from_ticks, from_rollups))
    numbers = ([value for state in headline.values() for value in state.values()] for headline in headlines)
    worst = max(abs(one - other) for one, other in zip(*numbers, strict=True))
    bounds.show("headlines from ticks and from rollups differ by", worst * 1e6, "e-6", 1)
    observed = from_rollups["coverage"]["observed_seconds"]
    # The other one has to have none.
    share = (from_rollups["sources"]["from_rollups_seconds"] - from_ticks["sources"]["from_rollups_seconds"]) / observed
    bounds.show("of the time from rollups is", 100 * share, "%", 95, least=True)


def compare_with_imports(folder: Path, bounds: Bounds) -> None:
    ours = report_command(folder / TICKS, END_MS - 3_600_000)
    for command in (IMPORTS, ours):
        run_once(command)
    pairs = [(run_once(IMPORTS), run_once(ours)) for _ in range(SHORT_RUNS)]
    floor, mine = (median(pair[n] for pair in pairs).wall_seconds for n in (0, 1))
    print(f"  (one hour and the hour before: {mine:.2f} s, medians of {SHORT_RUNS} in turn with the imports)")
    bounds.show("1 h window over importing pandas and tabulate", mine / floor, "x", 1.5)


def measure_names(data_dir: Path, bounds: Bounds) -> None:
    """What it costs to know the names of containers: with and without the file, in turn."""
    command, file = month(data_dir), data_dir / CONTAINERS_NAME
    known = dict(Laboratory(rollups.SEED, CARDS).containers(START_MS, END_MS).containers)
    own = len(known)
    for number in range(NAMED - own):
        one = Container("podman", f"job-{number}", "image", f"user{number}", LABEL, END_MS)
        known[f"{number:012x}"] = one
    turns: list[tuple[Cost, Cost]] = []
    for _ in range(NAME_TURNS + 1):
        plain = run_once(command)
        write_containers(str(data_dir), Known(known))
        turns.append((plain, run_once(command)))
        file.unlink()
    plain_seconds, named_seconds = ([cost.cpu_seconds for cost in costs] for costs in zip(*turns[1:], strict=True))
    seconds, without = statistics.median(named_seconds), statistics.median(plain_seconds)
    print(
        f"  ({DAYS} days from rollups, {own} of {NAMED} containers seen: CPU {seconds:.2f} s, without {without:.2f} s)"
    )
    bounds.show("CPU with names of containers over without", ratio(named_seconds, plain_seconds), "x", 1.1)


def month(data_dir: Path) -> list[str]:
    return report_command(data_dir, START_MS)


def read(command: list[str]) -> dict[str, Any]:
    printed = subprocess.run([*command, "--json"], capture_output=True, text=True, check=True).stdout
    document: dict[str, Any] = json.loads(printed)
    return document


def share_ticks(data_dir: Path, other: Path) -> None:
    """Two data folders of the same ticks, so that one can be without rollups."""
    samples = Path(samples_dir(str(data_dir)))
    samples.mkdir(parents=True)
    other.mkdir()
    Path(samples_dir(str(other))).symlink_to(samples)


def main() -> int:
    bounds = Bounds()
    with tempfile.TemporaryDirectory(prefix="gua-bench-") as name:
        folder = Path(name)
        stored = folder / ROLLUPS
        share_ticks(folder / TICKS, stored)
        rollups.record_and_roll_up(stored)
        rollups.measure_day(stored, bounds)
        rollups.measure_bytes(stored, bounds)
        rollups.record_last_tick(stored)
        compare_with_imports(folder, bounds)
        compare_sources(folder, bounds)
        measure_names(stored, bounds)
        compare_with_peer(folder, bounds)
        rollups.measure_year(folder / "year", bounds)
    return int(bounds.failed)


if __name__ == "__main__":
    sys.exit(main())
