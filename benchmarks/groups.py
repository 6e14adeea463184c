"""What groups cost a report: 30 days of 12 cards and 400 people from rollups, with 20 groups over the same without.

Prints the figure with the bound it has to hold and exits 1 if it does not.
"""

from __future__ import annotations

import random
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.figures import Bounds, ratio, run_once
from benchmarks.rollups import report_command
from gua_sample.records import Tick
from tests.lab import DAY_MS, MINUTE_MS, MONDAY_MS, Gpu, Job, tick, write
from tests.rolling import roll_up_days

CARDS, PEOPLE, GROUPS, MEMBERS, DAYS = 12, 400, 20, 30, 30
EVERY_MS = 5 * MINUTE_MS
START_MS = MONDAY_MS - DAYS * DAY_MS
RUNS = 15


def history() -> Iterator[Tick]:
    """Every hour half of the cards change hands; half of the time, the first of those on a card works."""
    numbers = random.Random(0)
    energy = [0] * CARDS
    holders = [[card] for card in range(CARDS)]
    for ts_ms in range(START_MS, MONDAY_MS, EVERY_MS):
        gpus = []
        for card in range(CARDS):
            if ts_ms % (60 * MINUTE_MS) == 0 and numbers.random() < 0.5:
                holders[card] = numbers.sample(range(PEOPLE), numbers.choice((1, 1, 2)))
            works = numbers.random() < 0.5
            energy[card] += 90_000 if works else 18_000
            jobs = [
                Job(1000 + who, f"user{who}", sm_percent=80 if works and not place else 0)
                for place, who in enumerate(holders[card])
            ]
            gpus.append(Gpu(card, 90.0 if works else 0.0, tuple(jobs), energy=energy[card]))
        yield tick(ts_ms, *gpus, interval_ms=EVERY_MS)


def write_config(path: Path) -> None:
    numbers = random.Random(1)
    lists = ([f"user{who}" for who in numbers.sample(range(PEOPLE), MEMBERS)] for _ in range(GROUPS))
    path.write_text("\n".join(["[groups]", *(f"group{place} = {names}" for place, names in enumerate(lists)), ""]))


def main() -> int:
    bounds = Bounds()
    with tempfile.TemporaryDirectory(prefix="gua-bench-") as name:
        folder = Path(name)
        write(folder / "data", list(history()))
        roll_up_days(str(folder / "data"))
        write_config(folder / "gua.toml")
        command = report_command(folder / "data", START_MS, MONDAY_MS)
        configs = [[*command, "--config", path] for path in ("/dev/null", str(folder / "gua.toml"))]
        for one in configs:
            run_once(one)  # caches, bytecode
        without, with_groups = zip(*([run_once(one).cpu_seconds for one in configs] for _ in range(RUNS)), strict=True)
        slower = ratio(with_groups, without)
        bounds.show(f"CPU of a report with {GROUPS} groups over the same without", slower, "x", 1.1)
    return int(bounds.failed)


if __name__ == "__main__":
    sys.exit(main())
