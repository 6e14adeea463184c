"""A world: what really happened on a host's cards, sample by sample, and its file.

A world's file is what `numpy.savez_compressed` writes, plain arrays by name, so that anybody can make one. `HZ` samples
a second are kept, and times in samples count from the world's begin (a Monday, 00:00 UTC):

    seconds              one integer: how long the world lasts
    card_gpu             a card's GPU, from 0: each number once, or for each of its MIG instances
    card_slices          compute slices of a MIG instance, of the 7 that its GPU has; 0: the card is the whole GPU
    card_memory_mib      the memory of the card, of which the driver keeps 500 MiB

    process_card         a position in the arrays of cards; a process on two cards is two rows of the same pid
    process_pid          1 to 4194304
    process_user         a text
    process_workload     a text; the workload `idler` is held to a bound of its own
    process_first        its first sample
    process_samples      how many samples it lives
    process_memory_mib   more than 100 MiB hold the card
    process_is_graphics  it is on the driver's list of graphics processes, not of compute processes
    load                 uint8, 0 to 100: percent of each process in each of its samples, one process after the other

    outages              rows of (from, to) in seconds: the sampler does not run
    reboots              rows of (from, to) in seconds: the host is down; no process may live in or across them
    losses               rows of (GPU, from, to) in seconds: the driver has lost the GPU; no process may be on it then

A card's load is the sum of its processes', at most 100. Nothing else is needed: who holds what and who works follows.
"""

from __future__ import annotations

import zlib
from collections import defaultdict
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any
from zipfile import BadZipFile, is_zipfile

import numpy as np
import numpy.typing as npt

from gua_sample.processes import printable

HZ = 6
SLICES = 7  # of a GPU with MIG
RESERVED_MIB = 500
LARGEST_PID = 4_194_304
LONGEST_SECONDS = 60 * 86_400
MOST_CARDS = 64

Load = npt.NDArray[np.uint8]
Span = tuple[float, float]


@dataclass(frozen=True)
class Card:
    gpu: int
    slices: int = 0
    memory_mib: int = 81_920

    @property
    def share(self) -> float:
        """Of a whole GPU."""
        return self.slices / SLICES if self.slices else 1.0


@dataclass(frozen=True, eq=False)
class Process:
    card: int
    pid: int
    user: str
    workload: str
    first: int
    load: Load
    memory_mib: int
    is_graphics: bool = False

    @property
    def end(self) -> int:
        return self.first + len(self.load)


@dataclass
class World:
    seconds: int
    cards: list[Card]
    processes: list[Process]
    outages: list[Span] = field(default_factory=list)
    reboots: list[Span] = field(default_factory=list)
    losses: list[tuple[int, float, float]] = field(default_factory=list)

    def on_card(self, card: int) -> list[Process]:
        """The card's processes in the order of their beginnings."""
        return sorted((one for one in self.processes if one.card == card), key=lambda one: one.first)

    def card_load(self, card: int) -> Load:
        """The load of a card in each sample."""
        total = np.zeros(self.seconds * HZ, np.uint16)
        for one in self.on_card(card):
            total[one.first : one.end] += one.load
        return np.minimum(total, 100).astype(np.uint8)

    def is_lost(self, gpu: int, second: float) -> bool:
        return any(lost == gpu and begin <= second < end for lost, begin, end in self.losses)


def save(world: World, path: Path) -> None:
    """Write the world's file."""
    processes = world.processes
    np.savez_compressed(
        path,
        seconds=np.array(world.seconds),
        card_gpu=np.array([card.gpu for card in world.cards]),
        card_slices=np.array([card.slices for card in world.cards]),
        card_memory_mib=np.array([card.memory_mib for card in world.cards]),
        process_card=np.array([one.card for one in processes]),
        process_pid=np.array([one.pid for one in processes]),
        process_user=np.array([one.user for one in processes]),
        process_workload=np.array([one.workload for one in processes]),
        process_first=np.array([one.first for one in processes]),
        process_samples=np.array([len(one.load) for one in processes]),
        process_memory_mib=np.array([one.memory_mib for one in processes]),
        process_is_graphics=np.array([one.is_graphics for one in processes]),
        load=np.concatenate([one.load for one in processes]),
        outages=np.array(world.outages, float).reshape(-1, 2),
        reboots=np.array(world.reboots, float).reshape(-1, 2),
        losses=np.array(world.losses, float).reshape(-1, 3),
    )


def load(path: Path) -> World:
    """Read a world's file. Raises ValueError if it describes none, OSError if it can't be read."""
    try:
        if not is_zipfile(path):
            raise ValueError("not what numpy.savez writes")
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as file:
            arrays: dict[str, Any] = dict(file)
        world = _from_arrays(arrays)
    except (LookupError, TypeError, ValueError, OverflowError, BadZipFile, zlib.error) as error:
        reason = f"{type(error).__name__}: {error}"
        raise ValueError(f"{path} is no world ({reason}): see benchmarks/worlds/world.py") from None
    check(world)
    return world


def _from_arrays(arrays: dict[str, Any]) -> World:
    def column(name: str) -> list[Any]:
        values: list[Any] = arrays[name].tolist()
        return values

    ends = np.cumsum(arrays["process_samples"]).tolist()
    percents = arrays["load"]
    if percents.min(initial=0) < 0 or percents.max(initial=0) > 100:
        raise ValueError("a load is not from 0 to 100")
    loads = np.split(percents.astype(np.uint8), ends[:-1]) if ends else []
    of_cards = map(column, ("card_gpu", "card_slices", "card_memory_mib"))
    cards = [Card(*map(int, values)) for values in zip(*of_cards, strict=True)]
    names = ("card", "pid", "user", "workload", "first", "memory_mib", "is_graphics")
    rows = zip(*(column(f"process_{name}") for name in names), loads, strict=True)
    processes = [
        Process(
            int(card), int(pid), printable(user), printable(workload), int(first), load_, int(memory), bool(graphics)
        )
        for card, pid, user, workload, first, memory, graphics, load_ in rows
    ]
    outages, reboots = ([(begin, end) for begin, end in column(name)] for name in ("outages", "reboots"))
    losses = [(int(gpu), begin, end) for gpu, begin, end in column("losses")]
    return World(int(arrays["seconds"]), cards, processes, outages, reboots, losses)


def check(world: World) -> None:
    """Raise ValueError if something in the world can't be."""
    if not 0 < world.seconds <= LONGEST_SECONDS:
        raise ValueError(f"a world lasts up to {LONGEST_SECONDS} seconds, not {world.seconds}")
    if not 0 < len(world.cards) <= MOST_CARDS:
        raise ValueError(f"a world has 1 to {MOST_CARDS} cards, not {len(world.cards)}")
    _check_gpus(world)
    lives: dict[int, set[tuple[int, int, str]]] = defaultdict(set)
    for one in world.processes:
        _check_process(world, one)
        lives[one.pid].add((one.first, one.end, one.user))
    for pid, found in lives.items():
        if any(later[0] < earlier[1] for earlier, later in pairwise(sorted(found))):
            raise ValueError(f"pid {pid} is two processes at a time")
    for number in range(len(world.cards)):
        _check_memory(world, number)


def _check_gpus(world: World) -> None:
    slices: dict[int, list[int]] = defaultdict(list)
    for card in world.cards:
        slices[card.gpu].append(card.slices)
    if sorted(slices) != list(range(len(slices))):
        raise ValueError("GPUs are numbered from 0 without a gap")
    for gpu, found in slices.items():
        if sum(found) > SLICES or (len(found) > 1 and not all(found)):
            raise ValueError(f"GPU {gpu} is one card, or instances of {SLICES} slices together")


def _check_memory(world: World, number: int) -> None:
    on_card = world.on_card(number)
    # At equal times, what ends comes first.
    steps = sorted(step for one in on_card for step in ((one.first, one.memory_mib), (one.end, -one.memory_mib)))
    if max(accumulate((mib for _, mib in steps), initial=0)) > world.cards[number].memory_mib - RESERVED_MIB:
        raise ValueError(f"processes on card {number} use more memory than it has")


def _check_process(world: World, one: Process) -> None:
    if not (0 <= one.card < len(world.cards) and 0 < one.pid <= LARGEST_PID and one.memory_mib >= 0):
        raise ValueError(f"pid {one.pid} has no such card, pid or memory")
    if not 0 <= one.first < one.end <= world.seconds * HZ:
        raise ValueError(f"pid {one.pid} does not live within the world")
    away = [*world.reboots, *(rest for gpu, *rest in world.losses if gpu == world.cards[one.card].gpu)]
    if any(one.first < end * HZ and one.end > begin * HZ for begin, end in away):
        raise ValueError(f"pid {one.pid} lives while the host is down or its GPU is lost")
