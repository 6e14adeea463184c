"""Makes an untidy history for compare_versions.py, with the code of one checkout.

python make_world.py CHECKOUT FOLDER NUMBER SEED: prints, as JSON, what has to be known of it.
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, sys.argv[1])

from gua_sample import store
from gua_sample.records import Tick
from gua_sample.simulate import Laboratory
from tests.driver import Scenario
from tests.histories import INSTANCES, KINDS, Moment
from tests.lab import DAY_MS, SECOND_MS
from tests.untidy import untidy

# Mondays on which the simulated laboratory reboots, after a change to or from daylight saving time in Europe or the US.
MONDAYS_MS = (1_901_232_000_000, 1_919_376_000_000, 1_919_980_800_000)
ZONES = ("UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata", "Asia/Kathmandu", "Pacific/Auckland")
DAYS_BY_INTERVAL = {30: 2, 60: 4, 120: 6, 300: 9}  # seconds: the longest history
FLEET = 4  # worlds that are hosts of one fleet
PEOPLE = ("ada", "anna", "ben", "emil", "eva", "finn", "hana", "ivo", "jan", "kim", "liam", "mei", "omar", "rosa")


def make_world(folder: Path, number: int, seed: int) -> dict[str, Any]:
    """Write the history of a world, its settings, and what its driver says; returns what has to be known of it."""
    chance = random.Random(f"world {seed} {number}")
    seconds = chance.choice((30, 60, 60, 120, 300))
    start_of_fleet = MONDAYS_MS[number // FLEET % len(MONDAYS_MS)]
    end_ms = start_of_fleet + chance.randrange(DAY_MS // 2, 5 * DAY_MS // 2)
    start_ms = end_ms - chance.randrange(DAY_MS, DAYS_BY_INTERVAL[seconds] * DAY_MS)
    cards = chance.randint(1, 8)
    if number % FLEET == FLEET - 1:
        history = odd_ticks(chance, start_ms, end_ms, seconds * SECOND_MS)
    else:
        history = Laboratory(chance.randrange(1000), cards).history(start_ms, end_ms, seconds * SECOND_MS)
    gaps = list(draw_gaps(chance, start_ms, end_ms, seconds))
    ticks = [tick for tick in untidy(history, chance.randrange(1000)) if not any(a <= tick.ts_ms < b for a, b in gaps)]
    for _ in range(chance.randrange(3)):
        place = chance.randrange(len(ticks))
        for other in range(place, min(len(ticks), place + chance.randrange(1, 30))):
            ticks[other] = ticks[other]._replace(error="timeout", cards=[], processes={}, cursors=[])
    store.append_history(store.prepare(f"{folder}/data"), ticks)
    write_scenario(folder / "scenario")
    begin = time.strftime("%Y-%m-%dT%H:%MZ", time.gmtime(start_ms / 1000 + 9999))
    rows = [f"{chance.randrange(cards)},{chance.choice(PEOPLE)},{begin},,thesis", "3,ben,2030-03-31,2030-11-05,"]
    rows += ["x,ada,2030-03-31,,odd"] if chance.random() < 0.3 else []
    (folder / "reservations.csv").write_text("\n".join(["gpu,user,from,to,note", *rows, ""]))
    retention = chance.choice(("", "", "[retention]\nraw_days = 1\n", "[retention]\nraw_days = 2\ncsv_days = 1\n"))
    (folder / "retention.toml").write_text(retention)
    now_ms = end_ms + chance.choice((1, 1, 30, 90, 3000)) * chance.randrange(60) * SECOND_MS
    return {
        "number": number,
        "start_ms": ticks[0].ts_ms,
        "end_ms": ticks[-1].ts_ms,
        "now_ms": now_ms,
        "zone": chance.choice(ZONES),
        "people": sorted({one.user for tick in ticks for one in tick.processes.values() if one.user}),
        "cards": max(cards, 4),
        "seconds": seconds,
        "ticks": len(ticks),
    }


def draw_gaps(chance: random.Random, start_ms: int, end_ms: int, seconds: int) -> Iterator[tuple[int, int]]:
    """Times without ticks: of seconds to hours anywhere, and some in which a midnight lies, or that end at one."""
    for _ in range(chance.randrange(4)):
        begin_ms = chance.randrange(start_ms, end_ms)
        yield begin_ms, begin_ms + chance.choice((1, 5, 60, 600)) * chance.randrange(1, 60) * SECOND_MS
    for _ in range(chance.randrange(3)):
        midnight_ms = chance.randrange(start_ms, end_ms) // DAY_MS * DAY_MS
        before, after = (chance.choice((0, 1, 3, 40)) * chance.randrange(3 * seconds) * SECOND_MS for _ in range(2))
        yield midnight_ms - before, midnight_ms + after


def write_scenario(path: Path) -> None:
    """What the stand-in driver says: cards that are free, held, at work, in MIG slices, and not known."""
    mine = [(os.getppid(), 8000)]  # of the process that compares
    scenario = Scenario()
    scenario.add_card()
    scenario.add_card(compute=mine)
    scenario.add_card(compute=[(1, 20_000)], utilization_percent=90)
    scenario.add_card().add_mig(compute=mine)
    scenario.add_card(utilization_percent=None, samples=None)
    scenario.write(path)


def odd_ticks(chance: random.Random, start_ms: int, end_ms: int, interval_ms: int) -> Iterator[Tick]:
    """Ticks of machines on which everything happens that the tests' histories know."""
    boot, ts_ms = 0, start_ms
    while ts_ms < end_ms:
        kinds = chance.randrange(len(KINDS)), chance.randrange(len(KINDS))
        instances = chance.choice((None, None, chance.randrange(len(INSTANCES))))
        ran = chance.choice((0, 0, 0, 0, 0, interval_ms // 2000, interval_ms // 700))
        boot += chance.random() < 0.03
        error = "unknown" if chance.random() < 0.03 else None
        moment = Moment(0, interval_ms // SECOND_MS, boot, error, ran, kinds, chance.randint(1, 4), instances)
        for _ in range(chance.choice((1, 3, 20, 100))):
            yield moment.tick(ts_ms)
            ts_ms += interval_ms


if __name__ == "__main__":
    print(json.dumps(make_world(Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))))
