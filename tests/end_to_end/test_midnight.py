"""Three machines cross midnight, each by its own timer, and all that they saw is in the fleet's report.

A timer starts the sampler a moment late, and clocks of hosts differ. So no tick is exactly on midnight, and the last
one of a day stands for the first moments of the next day too. Guests share the host's clock, which a test can't set: a
drop-in moves that of the units.
"""

import shutil
import time
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from gua_sample.partition_names import DAY_MS, day_of
from gua_sample.policy import STATES
from tests.driver import Scenario
from tests.end_to_end import laboratory
from tests.end_to_end.guest import Guest

pytestmark = pytest.mark.timeout(240)

TIMER_MS = 30_000  # the timer as `make install` leaves it
SET_UP_MS = 10_000  # starting three of them takes less
ROLLUP = "gua-rollup.service"
ROUNDED = 0.0001  # hours have four decimals in JSON


class Lab(NamedTuple):
    clock_ms: int  # what its clock says, after midnight, as the timer goes off
    people: list[str]  # each holds a card without work
    at_work: int  # cards
    free: int


LABS = {"lab1": Lab(300, ["ana"], 1, 1), "lab2": Lab(1100, ["ana", "ben"], 0, 0), "lab3": Lab(2700, ["ben"], 2, 1)}


@pytest.fixture
def guests(bare: Path, installed: Path, tmp_path: Path) -> Iterator[dict[str, Guest]]:
    """Three machines with cards, of which nothing is recorded yet."""
    with ExitStack() as stack:
        guests = {name: stack.enter_context(Guest(tmp_path / name, layers=[bare, installed])) for name in LABS}
        for name, guest in guests.items():
            equip(guest, name)
            guest.write("/etc/gua/gua.toml", "[fleet]\npublish = true\n")
            laboratory.let_it_last(guest, laboratory.UNIT)
        yield guests


def equip(guest: Guest, name: str) -> None:
    lab = LABS[name]
    cards: list[dict[str, Any]] = [{"utilization_percent": 87}] * lab.at_work + [{}] * lab.free
    for person in lab.people:
        guest.run("useradd", person)
        started = guest.run("sh", "-c", "sleep 900 >/dev/null 2>&1 & echo $!", user=person)
        cards.append({"compute": [(int(started.stdout), 8192)]})
    scenario = Scenario()
    for index, settings in enumerate(cards):
        scenario.add_card(uuid=f"GPU-0000000{index}-0000-4000-8000-00000000{name}", **settings)
    laboratory.set_scenario(guest, scenario)


def move_clock(guest: Guest, unit: str, by_ms: int) -> None:
    preload = "LD_PRELOAD=/usr/local/lib/shift_clock.so"
    laboratory.drop_in(guest, unit, "Service", f"Environment={preload} GUA_TEST_CLOCK_OFFSET_MS={by_ms}")


def cross(guests: dict[str, Guest], midnight_ms: int) -> None:
    """Start the timers, so that each goes off once or twice before midnight, and wait until each has done so after it.
    The first run also records what came before: 26 hours, a tick in each minute."""
    enough_ms = time.time_ns() // 1_000_000 + SET_UP_MS + TIMER_MS
    crossing_ms = enough_ms + -enough_ms % TIMER_MS
    for name, guest in guests.items():
        by_ms = midnight_ms + LABS[name].clock_ms - crossing_ms
        move_clock(guest, laboratory.UNIT, by_ms)
        move_clock(guest, ROLLUP, by_ms + 20 * 60_000)  # its own timer waits that long after midnight
        laboratory.release_timer(guest)
    time.sleep(max(0.0, crossing_ms / 1000 - time.time()))
    for name, guest in guests.items():
        guest.wait_until(partial(has_run, guest, midnight_ms), 60, f"a tick after midnight on {name}")


def has_run(guest: Guest, midnight_ms: int) -> bool:
    """Whether a run of that day is over."""
    is_begun = guest.path(f"{laboratory.SAMPLES}/{day_of(midnight_ms)}.sqlite").exists()
    return is_begun and guest.run("systemctl", "is-active", laboratory.UNIT, check=False).stdout == "inactive\n"


def check_ticks(guest: Guest, midnight_ms: int) -> int:
    """The timer ran on both sides of midnight, never exactly then, and had no trouble. Returns the time of the first
    tick of all."""
    ticks = laboratory.rows(guest, "ticks")
    by_timer = [tick["ts_ms"] - midnight_ms for tick in ticks if tick["interval_ms"] is None]
    assert any(-TIMER_MS < ms < 0 for ms in by_timer), by_timer
    assert any(0 < ms < TIMER_MS for ms in by_timer), by_timer
    assert 0 not in by_timer
    assert laboratory.our_lines(guest) == []
    return int(ticks[0]["ts_ms"])


def collect(guests: dict[str, Guest], collector: Guest) -> None:
    """Copy what each machine has published to one of them. The ways over a network have tests of their own."""
    for name, guest in guests.items():
        folder = collector.path(f"/srv/gua/{name}")
        folder.mkdir(parents=True)
        shutil.copy2(guest.path("/var/lib/gua/publish/rollups.sqlite"), folder)


def hours(document: dict[str, Any]) -> dict[str, float]:
    """The hours of each state, and the idle-held ones of each person."""
    states = {state: found["gpu_hours"] for state, found in document["headline"]["states"].items()}
    return states | {one["identity"]: one["idle_held_gpu_hours"] for one in document["identities"]}


def test_hosts_that_tick_a_moment_after_midnight_are_in_the_fleets_report(guests: dict[str, Guest]) -> None:
    midnight_ms = time.time_ns() // 1_000_000 // DAY_MS * DAY_MS - DAY_MS  # no clock may be ahead of the real one
    cross(guests, midnight_ms)
    window = ["--from", day_of(midnight_ms - 2 * DAY_MS), "--to", day_of(midnight_ms), "--tz", "UTC"]
    seconds, own = {}, []
    for name, guest in guests.items():
        seconds[name] = (midnight_ms - check_ticks(guest, midnight_ms)) / 1000
        document = laboratory.report(guest, *window)
        assert document["sources"]["from_rollups_seconds"] == 0  # made from ticks, unlike the fleet's
        own.append(hours(document))
        guest.run("systemctl", "start", ROLLUP)

    collector = guests["lab1"]
    collect(guests, collector)
    fleet = laboratory.report(collector, "--fleet", "/srv/gua", *window, user="somebody")
    assert (fleet["not_used"], fleet["fleet"]["complete"]) == ([], True)
    assert {one["host"]: one["observed_seconds"] for one in fleet["hosts"]} == pytest.approx(seconds, abs=0.001)
    assert fleet["headline"]["ongoing"] == sum(len(lab.people) for lab in LABS.values())
    sums = {name: sum(one.get(name, 0.0) for one in own) for one in own for name in one}
    assert sums.keys() == {*STATES, "ana", "ben"}
    assert hours(fleet) == pytest.approx(sums, abs=len(own) * ROUNDED)
    cards = {name: len(lab.people) + lab.at_work + lab.free for name, lab in LABS.items()}
    all_hours = sum(cards[name] * seconds[name] / 3600 for name in LABS)
    assert sum(sums[state] for state in STATES) == pytest.approx(all_hours, abs=len(own) * len(STATES) * ROUNDED)
