"""What every kind of source gives to the intake: its ticks part by part, and a tally of what was skipped, and why.

A foreign file's values are validated: plausible numbers and times, printable names.
"""

from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from functools import lru_cache
from typing import Any, NamedTuple

from gua_sample.partition_names import day_of
from gua_sample.processes import printable
from gua_sample.records import Tick

EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
# Nobody sampled cards earlier: an older time comes from a clock that was never set.
EARLIEST_MS = 1_262_304_000_000  # 2010-01-01
MOST_MIB = 2**40
LARGEST_PID = 2**31 - 1
LONGEST_NAME = 200
# Prefix of card ids that were made up because the source lacks the real ones.
MADE_UP_UUID = "stats-csv:gpu-"

EXAMPLES = 3
FUTURE = "of the future"
NEVER_SET = "of a clock that was never set"
EXPIRED = "of days whose ticks were removed, and whose sums are final"
RECORDED = "at times that another sampler has recorded there"


class Source(NamedTuple):
    kind: str  # for display, such as "gpu-usage-audit database"
    parts: list[str]  # mostly days, in time order
    read: Callable[[str], list[Tick]]  # the ticks of a part, in time order; skipped ones are counted in the tally


class LeftOut(NamedTuple):
    """The number of skipped items of one kind and reason, and a few examples."""

    what: str
    reason: str
    count: int  # type: ignore[assignment]  # a tuple has a method of that name
    examples: list[str]


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
        left = self.left_out.get((what, reason), LeftOut(what, reason, 0, []))
        all_examples = [*left.examples, *examples][:EXAMPLES]
        self.left_out[what, reason] = left._replace(count=left.count + count, examples=all_examples)

    def refuse(self, what: str, reason: str) -> None:
        self.refused.setdefault(what, reason)

    def hand_over(self) -> list[Any]:
        """Everything left out, refused and warned of since the last call, in plain lists for `take_over`."""
        told = [list(self.left_out.values()), list(self.refused.items()), self.warnings]
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
            "left_out": [left._asdict() for left in self.left_out.values()],
            "refused": [{"what": what, "reason": reason} for what, reason in self.refused.items()],
            "warnings": self.warnings,
        }


def whole(value: object, lowest: int, highest: int) -> int | None:
    """The number, truncated to an integer; None if it is no number or out of range."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not lowest <= value <= highest:
        return None
    return int(value)


@lru_cache(4096)
def name(value: object) -> str | None:
    """The value as a printable text of limited length; None if it is empty or no text."""
    if isinstance(value, bytes):
        value = value.decode("utf-8", "backslashreplace")
    return printable(value[:LONGEST_NAME]) or None if isinstance(value, str) else None


def shown(value: object) -> str:
    return name(value if isinstance(value, str | bytes) else repr(value)) or "nothing"


def iso(ts_ms: int) -> str:
    try:
        return (EPOCH + timedelta(milliseconds=ts_ms)).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (OverflowError, ValueError):  # beyond the calendar
        return f"{ts_ms} ms since 1970"
