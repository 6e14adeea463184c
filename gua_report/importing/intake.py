"""Take a source's ticks into the data folder: once, a day at a time, without replacing existing ticks."""

import os
from bisect import bisect_left
from hashlib import blake2b
from itertools import groupby
from typing import NamedTuple

from gua_report.console.terminal import progress_bar, tracked
from gua_report.importing.source import (
    EARLIEST_MS,
    EXPIRED,
    FUTURE,
    MADE_UP_UUID,
    NEVER_SET,
    RECORDED,
    Source,
    Tally,
    iso,
)
from gua_report.rollups.index import path_of, read_index
from gua_report.ticks.open_partition import open_partition
from gua_sample import store
from gua_sample.errors import CorruptPartition, EmptyPartition, NewerPartition, PartitionBusy, StoreError
from gua_sample.partition_file import Writer
from gua_sample.partition_names import DAY_MS, day_of, list_partitions, partition_path, samples_dir
from gua_sample.policy import typical_gap
from gua_sample.records import Tick

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
        own = {(tick.ts_ms, tick.boot.id) for tick in ticks}
        others: dict[str, list[int]] = {}
        for ts_ms, boot_id in sorted(there.ticks - own):
            others.setdefault(boot_id, []).append(ts_ms)
        reach = max(there.interval_ms, _interval([tick.ts_ms for tick in ticks], ticks[0].interval_ms))
        wanted = []
        for tick in fresh:
            if any(_is_near(tick.ts_ms, times, reach) for boot, times in others.items() if boot != tick.boot.id):
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
