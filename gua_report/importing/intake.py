"""Take a source's ticks into the data folder: once, a day at a time, without replacing existing ticks.

Every kind of source gives its ticks part by part, and a tally of what was skipped, and why. A foreign file's values are
validated: plausible numbers and times, printable names.
"""

import os
from bisect import bisect_left
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from functools import lru_cache
from hashlib import blake2b
from itertools import groupby
from typing import Any, NamedTuple

from gua_report.console.terminal import progress_bar, tracked
from gua_report.rollups.index import path_of, read_index
from gua_report.ticks.open_partition import open_partition
from gua_sample import store
from gua_sample.errors import CorruptPartition, EmptyPartition, NewerPartition, PartitionBusy, StoreError
from gua_sample.partition_file import Writer
from gua_sample.partition_names import DAY_MS, day_of, list_partitions, partition_path, samples_dir
from gua_sample.policy import typical_gap
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

LONGEST_INTERVAL_MS = 900_000  # a day of two ticks has a gap, not an interval
# The sampler waits while today's partition is written, and gets a turn after so many ticks. Closed days are written
# at once.
TICKS_AT_ONCE_TODAY = 1000
OTHER_HOST = (
    "{folder} holds ticks of other cards at that time, and a data folder is one host's: give another --data-dir"
)
STRANGE_CARDS = "none of these cards is known in {folder}: is this the same host? a data folder is one host's history"
TICKS_THERE = """
    SELECT t.ts_ms, n.boot_id, t.interval_ms FROM tick t JOIN session n ON n.id = t.session_id
"""


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


class There(NamedTuple):
    """The ticks and cards that a partition of the data folder already holds."""

    ticks: set[tuple[int, str]]  # time and boot
    interval_ms: float
    uuids: set[str]


NOTHING = There(set(), 0, set())


class Intake:
    def __init__(self, data_dir: str, tally: Tally, now_ms: int, dry_run: bool) -> None:
        self._data_dir, self._folder = data_dir, samples_dir(data_dir)
        self._tally, self._now_ms, self._dry_run = tally, now_ms, dry_run
        self._is_compared = False
        self._expired = _read_expired(data_dir)

    def take(self, source: Source) -> None:
        """Import every tick. Skipped ticks are counted in the tally; fatal errors are raised."""
        for part in tracked(source.parts, progress_bar()):
            ticks = [tick for tick in source.read(part) if self._is_of_a_time(tick)]
            for day, of_the_day in groupby(ticks, key=lambda tick: day_of(tick.ts_ms)):
                self._take_day(day, list(of_the_day))

    def _is_of_a_time(self, tick: Tick) -> bool:
        reason = FUTURE if tick.ts_ms > self._now_ms else NEVER_SET if tick.ts_ms < EARLIEST_MS else None
        if reason:
            self._tally.leave("tick", reason, iso(tick.ts_ms))
        return reason is None

    def _take_day(self, day: str, ticks: list[Tick]) -> None:
        if day in self._expired:
            self._tally.leave("tick", EXPIRED, *(iso(tick.ts_ms) for tick in ticks), count=len(ticks))
            return
        path = partition_path(self._folder, day)
        try:
            self._compare_cards(ticks)
            there = _read_there(path)
            fresh = [tick for tick in ticks if (tick.ts_ms, tick.boot.id) not in there.ticks]
            wanted = self._pass_over_recorded(fresh, ticks, there)
            if wanted and not self._dry_run:
                self._write(path, wanted)
        except (CorruptPartition, NewerPartition, PartitionBusy, AnotherHost) as error:
            self._tally.refuse(day, str(error))
            return
        self._tally.there_already += len(ticks) - len(fresh)
        self._tally.take(wanted)

    def _pass_over_recorded(self, fresh: list[Tick], ticks: list[Tick], there: There) -> list[Tick]:
        """The fresh ticks that do not lie among another sampler's: mixed, both would count for half."""
        boots = {tick.boot.id for tick in ticks}
        others = sorted(ts_ms for ts_ms, boot_id in there.ticks if boot_id not in boots)
        reach = max(there.interval_ms, _interval([tick.ts_ms for tick in ticks], ticks[0].interval_ms))
        wanted = []
        for tick in fresh:
            if _is_near(tick.ts_ms, others, reach):
                if _are_apart({card.facts.uuid for tick in ticks for card in tick.cards}, there.uuids):
                    raise AnotherHost(OTHER_HOST.format(folder=self._data_dir))
                self._tally.leave("tick", RECORDED, iso(tick.ts_ms))
            else:
                wanted.append(tick)
        return wanted

    def _compare_cards(self, ticks: list[Tick]) -> None:
        """Warn once if source and folder have no card in common. Conflicting days are refused in any case."""
        uuids = {card.facts.uuid for card in ticks[0].cards}
        if self._is_compared or not uuids:
            return
        self._is_compared = True
        paths = list_partitions(self._folder) if os.path.isdir(self._folder) else []
        known: set[str] = set()
        for path in {*paths[:1], *paths[-1:]}:
            try:
                known |= _read_there(path).uuids
            except StoreError:
                return  # reported when the partition is written
        if _are_apart(uuids, known):
            self._tally.warnings.append(STRANGE_CARDS.format(folder=self._data_dir))

    def _write(self, path: str, ticks: list[Tick]) -> None:
        store.prepare(self._data_dir)
        today = partition_path(self._folder, day_of(self._now_ms))
        size = TICKS_AT_ONCE_TODAY if path == today else len(ticks)
        for start in range(0, len(ticks), size):
            with Writer(path) as writer:
                writer.write(((tick, key_of(tick)) for tick in ticks[start : start + size]), [])


class AnotherHost(StoreError):
    pass


def key_of(tick: Tick) -> int:
    """The same for every copy of a tick: the partition takes each key once."""
    text = f"{tick.boot.id} {tick.ts_ms}"
    return int.from_bytes(blake2b(text.encode(), digest_size=7).digest(), "big")


def _read_expired(data_dir: str) -> set[str]:
    try:
        return {day for day, stored in read_index(path_of(data_dir)).items() if stored.is_expired}
    except StoreError:
        return set()  # reported by gua rollup


def _read_there(path: str) -> There:
    if not os.path.lexists(path):
        return NOTHING
    try:
        with open_partition(path) as connection:
            rows = connection.execute(TICKS_THERE).fetchall()
            uuids = {row[0] for row in connection.execute("SELECT DISTINCT uuid FROM card")}
            told = next((row[2] for row in rows if row[2] is not None), None)
            interval = _interval(sorted(row[0] for row in rows), told)
    except EmptyPartition:
        return NOTHING
    return There({row[:2] for row in rows}, interval, uuids)


def _interval(times_ms: list[int], told_ms: int | None) -> float:
    return min(typical_gap(times_ms, DAY_MS) if told_ms is None else told_ms, LONGEST_INTERVAL_MS)


def _is_near(ts_ms: int, times_ms: list[int], reach_ms: float) -> bool:
    position = bisect_left(times_ms, ts_ms)
    return any(abs(other - ts_ms) < reach_ms for other in times_ms[max(0, position - 1) : position + 1])


def _are_apart(some: set[str], others: set[str]) -> bool:
    """Whether both sets have real uuids, and none in common: cards of different hosts."""
    some, others = (
        {uuid for uuid in uuids if not uuid.startswith((MADE_UP_UUID, "unknown:"))} for uuids in (some, others)
    )
    return bool(some) and bool(others) and not some & others
