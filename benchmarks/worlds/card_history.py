"""One card of a world, prepared so that a driver can answer at any moment without looking at all of it."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from typing import Any

import numpy as np

from benchmarks.worlds.world import HZ, Process, World


class CardHistory:
    """One card of the world, as the driver knows it."""

    def __init__(self, world: World, card: int) -> None:
        self.load = world.card_load(card)
        self.percent_seconds = np.concatenate([[0.0], np.cumsum(self.load.reshape(-1, HZ).mean(axis=1))])
        found = world.on_card(card)
        self.changes = sorted({0, *(edge for one in found for edge in (one.first, one.end))})
        self.alive: list[list[Process]] = [[] for _ in self.changes]
        position = {edge: number for number, edge in enumerate(self.changes)}
        for one in found:
            for number in range(position[one.first], position[one.end]):
                self.alive[number].append(one)
        self.busy = {one: _busy_seconds(one) for one in found}

    def at(self, sample: int) -> list[Process]:
        return self.alive[bisect_right(self.changes, sample) - 1]

    def records(self, begin: int, end: int) -> Iterator[tuple[int, Process, int]]:
        """Second, process and percent of each second from `begin` to before `end` in which a process did something."""
        stretches = range(bisect_right(self.changes, begin * HZ) - 1, bisect_right(self.changes, end * HZ))
        for one in dict.fromkeys(one for number in stretches for one in self.alive[number]):
            first, percents = self.busy[one]
            since, until = max(begin, first), min(end, first + len(percents))
            for second, percent in enumerate(percents[since - first : max(since, until) - first].tolist(), since):
                if percent:
                    yield second, one, percent

    def percent_seconds_until(self, second: float) -> float:
        """The load added up until then."""
        whole = min(max(0, int(second)), len(self.percent_seconds) - 2)
        begin, end = self.percent_seconds[whole : whole + 2].tolist()
        return float(begin + (end - begin) * (second - whole)) if second > 0 else 0.0


def _busy_seconds(process: Process) -> tuple[int, Any]:
    """The first second of a process, and the mean of its load in each of its seconds."""
    first = process.first // HZ
    padded = np.zeros((-(-process.end // HZ) - first) * HZ)
    padded[process.first - first * HZ :][: len(process.load)] = process.load
    return first, np.rint(padded.reshape(-1, HZ).mean(axis=1)).astype(np.int64)
