"""A seeded world in which laboratories will recognise themselves. Equal arguments give equal worlds.

GPU 0   training with pauses, and its owner's monitor beside it
GPU 1   bursty inference, of two people in turn
GPU 2   notebooks of two people, at times both at once
GPU 3   an idler beside a worker who trains
GPU 4   short jobs, many of them between two ticks
GPU 5   starved training; the driver loses this GPU for some hours
GPU 6   medium jobs beside a notebook that mostly idles
GPU 7   a service and a desktop, and now and then a model that was loaded and forgotten
GPU 8   and 9: training on two cards, of which the second one waits for the first
GPU 10  two MIG instances: training, and a notebook with long cells (a meter of MIG sees a tenth of a second)

Besides, the sampler has two outages and the host is rebooted once.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np

from benchmarks.worlds import loads
from benchmarks.worlds.loads import Rng
from benchmarks.worlds.world import HZ, Card, Load, Process, Span, World, check

MINUTE, HOUR, FOREVER = 60.0, 3600.0, 1e9
IDLER = "idler"
GPUS, INSTANCES, LOST_GPU = 10, (3, 2), 5
INSTANCE_MIB_PER_SLICE = 10_000
FIRST_PID = 4_000
SHORTEST_SECONDS = 7200


class Habit(NamedTuple):
    """How somebody uses a card: again and again, for some time, with some time in between."""

    users: tuple[str, ...]  # one of them at a time
    workload: str
    memory_mib: int
    lasts: Span  # seconds; short ones as often as long ones
    between: Span
    load: Callable[[Rng, int], Load]
    is_graphics: bool = False


def make(seed: int, seconds: int, pauses: Span = (2, 20)) -> World:
    """The world of this seed; trainings pause for `pauses` seconds."""
    if seconds < SHORTEST_SECONDS:
        raise ValueError(f"outages and a reboot need a world of {SHORTEST_SECONDS} seconds or more, not {seconds}")
    rng = np.random.default_rng(seed)
    cards = [Card(gpu) for gpu in range(GPUS)]
    cards += [Card(GPUS, slices, INSTANCE_MIB_PER_SLICE * slices) for slices in INSTANCES]
    world = World(seconds, cards, [])
    _trouble(rng, world)
    for card, habits in enumerate(_habits(pauses)):
        for habit in habits:
            for period in _periods(world, cards[card].gpu):
                _plan(rng, world, card, habit, period)
    for period in _periods(world, GPUS - 1):
        _plan_pairs(rng, world, (GPUS - 2, GPUS - 1), pauses, period)
    check(world)
    return world


def _trouble(rng: Rng, world: World) -> None:
    """Outages of the sampler, a reboot and a lost GPU, each in a part of the world of its own."""

    def span(begin: float, end: float, shortest: float, longest: float) -> Span:
        length = rng.uniform(shortest, longest)
        start = rng.uniform(begin * world.seconds, end * world.seconds - length)
        return start, start + length

    for begin in (0.1, 0.8):
        world.outages.append(span(begin, begin + 0.1, 4 * MINUTE, max(5 * MINUTE, 0.012 * world.seconds)))
    world.losses.append((LOST_GPU, *span(0.3, 0.45, 0.02 * world.seconds, 0.04 * world.seconds)))
    world.reboots.append(span(0.5, 0.6, 4 * MINUTE, 8 * MINUTE))


def _periods(world: World, gpu: int) -> list[Span]:
    """The times in which processes can live on that GPU."""
    away = [*world.reboots, *((begin, end) for lost, begin, end in world.losses if lost == gpu)]
    edges = [0.0, *(edge for span in sorted(away) for edge in span), float(world.seconds)]
    return list(zip(edges[::2], edges[1::2], strict=True))


def _habits(pauses: Span) -> list[list[Habit]]:
    """Of each card, in order."""
    train = partial(loads.training, pauses=pauses)
    work_on = partial(loads.training, pauses=pauses, works=(30, 300))
    return [
        [
            Habit(("ada",), "training", 30_000, (20 * MINUTE, 10 * HOUR), (MINUTE, 2 * HOUR), train),
            Habit(("ada",), "training", 400, (HOUR, 6 * HOUR), (HOUR, 12 * HOUR), _nothing),
        ],
        [Habit(("bob", "bea"), "inference", 18_000, (20 * MINUTE, 8 * HOUR), (MINUTE, 2 * HOUR), _requests)],
        [
            Habit(("cyd",), "notebooks", 8_000, (20 * MINUTE, 30 * HOUR), (10, 6 * HOUR), _notebook),
            Habit(("col",), "notebooks", 7_000, (20 * MINUTE, 30 * HOUR), (10, 6 * HOUR), _notebook),
        ],
        [
            Habit(("dan",), IDLER, 9_000, (HOUR, 60 * HOUR), (10 * MINUTE, 3 * HOUR), _idler),
            Habit(("eva",), "worker", 25_000, (30 * MINUTE, 12 * HOUR), (10 * MINUTE, 4 * HOUR), work_on),
        ],
        [Habit(("fay", "fin"), "short jobs", 12_000, (5, 60), (5, 300), _short)],
        [Habit(("gil",), "starved training", 40_000, (20 * MINUTE, 9 * HOUR), (MINUTE, 2 * HOUR), loads.starved)],
        [
            Habit(("hal",), "medium jobs", 22_000, (2 * MINUTE, 20 * MINUTE), (20, 20 * MINUTE), _medium),
            Habit(("ivy",), "notebook beside jobs", 6_000, (30 * MINUTE, 20 * HOUR), (HOUR, 8 * HOUR), _experiments),
        ],
        [
            Habit(("jon",), "service", 16_000, (5 * HOUR, 60 * HOUR), (MINUTE, 2 * HOUR), _answers),
            Habit(("kim",), "forgotten", 20_000, (HOUR, 20 * HOUR), (2 * HOUR, 40 * HOUR), _forgotten),
            Habit(("desk",), "desktop", 45, (FOREVER, FOREVER), (20, 40), _windows, is_graphics=True),
        ],
        [],  # see _plan_pairs
        [],
        [Habit(("nora",), "training in MIG", 20_000, (HOUR, 10 * HOUR), (10 * MINUTE, 5 * HOUR), _long_work)],
        [Habit(("omar",), "notebook in MIG", 9_000, (HOUR, 30 * HOUR), (10 * MINUTE, 5 * HOUR), _experiments)],
    ]


def _nothing(rng: Rng, samples: int) -> Load:
    return np.zeros(samples, np.uint8)


def _notebook(rng: Rng, samples: int) -> Load:
    return loads.cells(rng, samples, (MINUTE, HOUR), (5, 300))


def _idler(rng: Rng, samples: int) -> Load:
    return loads.cells(rng, samples, (30 * MINUTE, 6 * HOUR), (5, 120))


def _short(rng: Rng, samples: int) -> Load:
    # Of at least a tenth of half a minute: less would be called idle, though it does nothing but work.
    return loads.steady(rng, samples, rng.uniform(65, 97))


def _long_work(rng: Rng, samples: int) -> Load:
    return loads.steady(rng, samples, 80)


def _requests(rng: Rng, samples: int) -> Load:
    return loads.bursts(rng, samples, (0.3, 3), float(rng.choice([4, 20, 120, 900])))


def _medium(rng: Rng, samples: int) -> Load:
    return loads.training(rng, samples, (1, 10), (60, 600))


def _experiments(rng: Rng, samples: int) -> Load:
    return loads.cells(rng, samples, (5 * MINUTE, 2 * HOUR), (30, 600))


def _answers(rng: Rng, samples: int) -> Load:
    return loads.bursts(rng, samples, (5, 60), 1500)


def _forgotten(rng: Rng, samples: int) -> Load:
    """Two minutes of work, and nothing after it."""
    load = np.zeros(samples, np.uint8)
    load[20 * HZ : 140 * HZ] = 70
    return load


def _windows(rng: Rng, samples: int) -> Load:
    return loads.bursts(rng, samples, (0.2, 1), 60, (1, 4))


def _stays(rng: Rng, lasts: Span, between: Span, period: Span) -> list[tuple[int, int]]:
    """First sample and number of samples of each stay in a period."""
    stays = []
    begin, end = (round(edge * HZ) for edge in period)
    # Not at once: a process begins when the host, or its GPU, is back.
    at = begin + HZ + round(rng.uniform(0, min(loads.uniform_log(rng, *between), HOUR)) * HZ)
    while at < end - 3 * HZ:
        samples = min(max(3 * HZ, round(loads.uniform_log(rng, *lasts) * HZ)), end - HZ - at)
        stays.append((at, samples))
        at += samples + max(1, round(loads.uniform_log(rng, *between) * HZ))
    return stays


def _plan(rng: Rng, world: World, card: int, habit: Habit, period: Span) -> None:
    for first, samples in _stays(rng, habit.lasts, habit.between, period):
        pid = FIRST_PID + len(world.processes)
        load = habit.load(rng, samples)
        user = habit.users[int(rng.integers(len(habit.users)))]
        one = Process(card, pid, user, habit.workload, first, load, habit.memory_mib, habit.is_graphics)
        world.processes.append(one)


def _plan_pairs(rng: Rng, world: World, cards: tuple[int, int], pauses: Span, period: Span) -> None:
    """A process of one pid on two cards; the second card is busy for a part of the first one's time."""
    for first, samples in _stays(rng, (20 * MINUTE, 12 * HOUR), (5 * MINUTE, 4 * HOUR), period):
        pid = FIRST_PID + len(world.processes)
        load = loads.training(rng, samples, pauses)
        waits = np.where(loads.starved(rng, samples, (0.35, 0.6)) > 0, load, 0).astype(np.uint8)
        for card, percent in zip(cards, (load, waits), strict=True):
            world.processes.append(Process(card, pid, "lea", "training on two cards", first, percent, 60_000))
