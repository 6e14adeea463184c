"""The truth about a world, by brute force: second by second, and by nothing that the sampler or the report know.

A card that nobody holds is free; a held one is at work if its load is 10 % or more in the mean of the 30 s around the
second, else it is held idle; a lost one is unknown. A person who alone holds a card is judged as the card, but not by
what other holders do on it just before or after; where two or more people hold it, each by the mean of their own
processes. A person counts once a card. Only observed time counts.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from benchmarks.worlds.world import HZ, Load, Process, Span, World

ACTIVE, HELD, FREE, UNKNOWN = range(4)
STATES = ("active", "idle-held", "truly-idle", "unknown")
THRESHOLD_PERCENT = 10.0
HOLDS_MIB = 100
AROUND_SECONDS = 15  # on either side of a second's middle

LONG_SECONDS = 600
CLEARLY_IDLE_PERCENT, CLEARLY_AT_WORK_PERCENT = 5.0, 15.0
EDGE_SECONDS = 2 * AROUND_SECONDS  # within which a mean rises or falls at an edge
WORKS_ON_SECONDS = 60

Floats = npt.NDArray[np.float64]
Booleans = npt.NDArray[np.bool_]
Codes = npt.NDArray[np.int8]


class Edge(NamedTuple):
    """Begin or end of a clear episode. `is_sharp`: the process begins or ends there, or works on for a minute."""

    second: int
    is_sharp: bool


class Episode(NamedTuple):
    """A clear episode; an edge is None where observation begins or ends."""

    card: int
    pid: int
    start: Edge | None
    end: Edge | None


class Truth(NamedTuple):
    observed_hours: float
    cards: list[list[float]]  # GPU-hours of each card by state
    cards_by_second: list[list[float]]  # each second judged by itself
    people: dict[str, list[float]]  # GPU-hours of each user by state
    episodes: list[Episode]


def find_truth(world: World, observed: Iterable[Span]) -> Truth:
    """The truth in the observed time, which is given as spans in seconds."""
    seen = mask_of(world, observed)
    cards, by_second = [], []
    episodes: list[Episode] = []
    people: dict[str, list[float]] = defaultdict(lambda: [0.0] * len(STATES))
    for number, card in enumerate(world.cards):
        look = Look(world, number, seen)
        cards.append(_hours(look.states, seen, card.share))
        by_second.append(_hours(look.judge(look.second_means), seen, card.share))
        for user, states in look.people():
            hours = _hours(states, seen & look.holders[user], card.share)
            people[user] = [one + more for one, more in zip(people[user], hours, strict=True)]
        for process in look.processes:
            episodes += look.clear_episodes(process)
    return Truth(float(seen.sum()) / 3600, cards, by_second, dict(people), episodes)


def mask_of(world: World, spans: Iterable[Span]) -> Booleans:
    """Whether the middle of each second lies in one of the spans."""
    mask = np.zeros(world.seconds, bool)
    for begin, end in spans:
        mask[max(0, round(begin)) : max(0, round(end))] = True
    return mask


class Look:
    """One card in every second."""

    def __init__(self, world: World, card: int, seen: Booleans) -> None:
        self.seen, self.card, self.seconds = seen, card, world.seconds
        self.processes = [one for one in world.on_card(card) if one.memory_mib > HOLDS_MIB]
        self.load = world.card_load(card)
        self.means, self.second_means = means_around(self.load), self.load.reshape(-1, HZ).mean(axis=1)
        self._alone_means: dict[str, Floats] = {}
        self.holders: dict[str, Booleans] = {}
        for one in self.processes:
            alive = self.holders.setdefault(one.user, np.zeros(world.seconds, bool))
            alive[_life(one)] = True
        self.people_count = sum(
            (alive.astype(np.int8) for alive in self.holders.values()), np.zeros(world.seconds, np.int8)
        )
        gpu = world.cards[card].gpu
        self.lost = mask_of(world, [(begin, end) for lost, begin, end in world.losses if lost == gpu])
        self.states = self.judge(self.means)

    def judge(self, means: Floats) -> Codes:
        """The card's state in each second by these means."""
        held = np.where(means >= THRESHOLD_PERCENT, ACTIVE, HELD)
        return np.where(self.lost, UNKNOWN, np.where(self.people_count > 0, held, FREE)).astype(np.int8)

    def own_means(self, process: Process) -> Floats:
        """The means of a process alone, from the beginning of its life to its end."""
        life = _life(process)
        load = np.zeros((life.stop - life.start + 2 * EDGE_SECONDS) * HZ, np.uint8)
        first = process.first - (life.start - EDGE_SECONDS) * HZ
        load[first : first + len(process.load)] = process.load
        return means_around(load)[EDGE_SECONDS:-EDGE_SECONDS]

    def people(self) -> Iterable[tuple[str, Codes]]:
        """Each holder's state in each second, wherever they hold the card."""
        own = {user: np.zeros(self.seconds) for user in self.holders}
        for one in self.processes:
            own[one.user][_life(one)] = np.maximum(own[one.user][_life(one)], self.own_means(one))
        for user, means in own.items():
            decisive = np.where(self.people_count > 1, means, self.alone_means(user))
            yield user, self.judge(decisive)

    def alone_means(self, user: str) -> Floats:
        """The means of all that is on the card, except for other holders."""
        if user not in self._alone_means:
            others = [one for one in self.processes if one.user != user]
            load = self.load.astype(np.int16)
            for one in others:
                load[one.first : one.end] -= one.load
            self._alone_means[user] = means_around(np.maximum(load, 0).astype(np.uint8)) if others else self.means
        return self._alone_means[user]

    def clear_episodes(self, process: Process) -> Iterable[Episode]:
        """The idle stretches of a process of ten minutes or more about which there can be no two opinions."""
        life = _life(process)
        is_shared = self.people_count[life] > 1
        means = np.where(is_shared, self.own_means(process), self.alone_means(process.user)[life])
        seen = self.seen[life] & ~self.lost[life]
        for begin, end in runs_of((means < THRESHOLD_PERCENT) & seen):
            if (
                end - begin < LONG_SECONDS
                or means[begin + EDGE_SECONDS : end - EDGE_SECONDS].max() >= CLEARLY_IDLE_PERCENT
            ):
                continue
            start, stop = _edge(means[:begin], seen[:begin]), _edge(means[end:][::-1], seen[end:][::-1])
            if None not in (start, stop):
                yield Episode(
                    self.card,
                    process.pid,
                    Edge(life.start + begin, start == SHARP) if start != NOT_SEEN else None,
                    Edge(life.start + end, stop == SHARP) if stop != NOT_SEEN else None,
                )


SHARP, SOFT, NOT_SEEN = "sharp", "soft", "not seen"


def _edge(means: Floats, seen: Booleans) -> str | None:
    """What lies beyond an edge, given what a process did before an episode (or, turned around, after it).

    None: it neither begins there, nor gets clearly to work within half a minute.
    """
    if not len(means):
        return SHARP
    if not seen[-1]:
        return NOT_SEEN
    if means[-EDGE_SECONDS:].max() <= CLEARLY_AT_WORK_PERCENT:
        return None
    beyond = means[-WORKS_ON_SECONDS:]
    return SHARP if len(beyond) == WORKS_ON_SECONDS and beyond.min() >= THRESHOLD_PERCENT else SOFT


def means_around(load: Load) -> Floats:
    """For each second, the mean of the samples that lie up to 15 s away from its middle."""
    sums = np.concatenate([[0], np.cumsum(load, dtype=np.int64)])
    middles = np.arange(HZ // 2, len(load), HZ)
    first = np.maximum(middles - AROUND_SECONDS * HZ, 0)
    end = np.minimum(middles + AROUND_SECONDS * HZ, len(load))
    means: Floats = (sums[end] - sums[first]) / (end - first)
    return means


def _life(process: Process) -> slice:
    """The seconds in whose middle the process lives."""
    half = HZ // 2
    first = -(-(process.first - half) // HZ)
    return slice(max(0, first), max(0, first, -(-(process.end - half) // HZ)))


def runs_of(mask: Booleans) -> list[tuple[int, int]]:
    """Begin and end of each run of true values."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], mask.astype(np.int8), [0]])))
    return list(zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True))


def _hours(states: Codes, seen: Booleans, share: float) -> list[float]:
    return [float(count) * share / 3600 for count in np.bincount(states[seen], minlength=len(STATES))]
