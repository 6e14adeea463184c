"""Counts of what an import took and what it skipped, with the reasons."""

from __future__ import annotations

from typing import Any

from gua_sample.partition_names import day_of
from gua_sample.records import Tick

EXAMPLES = 3
FUTURE = "of the future"
NEVER_SET = "of a clock that was never set"
EXPIRED = "of days whose ticks were removed, and whose sums are final"
RECORDED = "at times that another sampler has recorded there"


class LeftOut:
    """The number of skipped items of one kind and reason, and a few examples."""

    def __init__(self, what: str, reason: str) -> None:
        self.what, self.reason = what, reason
        self.count = 0
        self.examples: list[str] = []


class Tally:
    def __init__(self) -> None:
        self.ticks = 0
        self.there_already = 0
        self.days: set[str] = set()
        self.first_ms: int | None = None
        self.last_ms: int | None = None
        self.left_out: dict[tuple[str, str], LeftOut] = {}
        self.refused: dict[str, str] = {}  # a day, or a file of unknown day: the problem and its remedy
        self.warnings: list[str] = []
        self._cards: set[str] = set()
        self._processes: set[tuple[int, int | None]] = set()

    def take(self, ticks: list[Tick]) -> None:
        self.ticks += len(ticks)
        for tick in ticks:
            self._cards.update(card.facts.uuid for card in tick.cards)
            self._processes.update((process.pid, process.start_time_ms) for process in tick.processes.values())
        if ticks:
            self.days.add(day_of(ticks[0].ts_ms))
            self.first_ms = min(ticks[0].ts_ms, self.first_ms or ticks[0].ts_ms)
            self.last_ms = max(ticks[-1].ts_ms, self.last_ms or 0)

    def leave(self, what: str, reason: str, *examples: str, count: int = 1) -> None:
        """Count items that were skipped. `what` is a noun whose plural ends in s."""
        left = self.left_out.setdefault((what, reason), LeftOut(what, reason))
        left.count += count
        left.examples = [*left.examples, *examples][:EXAMPLES]

    def refuse(self, what: str, reason: str) -> None:
        self.refused.setdefault(what, reason)

    def warn(self, text: str) -> None:
        self.warnings.append(text)

    def hand_over(self) -> list[Any]:
        """Everything left out, refused and warned of since the last call, in plain lists for `take_over`."""
        left_out = [[left.what, left.reason, left.count, left.examples] for left in self.left_out.values()]
        told = [left_out, list(self.refused.items()), self.warnings]
        self.left_out, self.refused, self.warnings = {}, {}, []
        return told

    def take_over(self, left_out: list[Any], refused: list[Any], warnings: list[str]) -> None:
        """Add the entries that another tally has handed over."""
        for what, reason, count, examples in left_out:
            self.leave(what, reason, *examples, count=count)
        for what, reason in refused:
            self.refuse(what, reason)
        self.warnings += warnings

    @property
    def is_empty(self) -> bool:
        """Whether there was nothing to import."""
        accounted_for = {("tick", RECORDED), ("tick", EXPIRED)} & self.left_out.keys()
        return not (self.ticks or self.there_already or self.refused or accounted_for)

    def to_dict(self) -> dict[str, Any]:
        return {
            "taken": {
                "days": sorted(self.days),
                "ticks": self.ticks,
                "cards": len(self._cards),
                "processes": len(self._processes),
                "first_ms": self.first_ms,
                "last_ms": self.last_ms,
            },
            "there_already": {"ticks": self.there_already},
            "left_out": [vars(left) for left in self.left_out.values()],
            "refused": [{"what": what, "reason": reason} for what, reason in self.refused.items()],
            "warnings": self.warnings,
        }
