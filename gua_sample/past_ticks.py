"""Read past ticks, and find since when the states at a present tick last.

A week is some hundred thousand rows. SQLite decides by the rules of the policy and gives a tick as two short texts,
which stay the same while nothing changes: following a quiet night costs Python one comparison a tick. Ticks are read
from the newest back, an hour first, then twice as long each time and only of cards and processes whose states were
there all along, until every beginning is found.
"""

# No `from __future__ import annotations` here: see records.py.
import os
import sqlite3
import time
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import AbstractContextManager
from itertools import pairwise
from typing import NamedTuple

from gua_sample.errors import EmptyPartition, StoreError
from gua_sample.idleness import NOTHING, Carried, Key, Sight, follow, sight_of
from gua_sample.partition_file import check_types, open_to_read
from gua_sample.partition_names import DAY_MS, day_of, list_partitions, partition_path, samples_dir
from gua_sample.policy import (
    ACTIVE,
    DEFAULT,
    DEFAULT_INTERVAL_MS,
    HOLDS,
    IDLE_HELD,
    LONGEST_GAP_INTERVALS,
    STATES,
    STATUS_OK,
    TICKS_AROUND,
    TRULY_IDLE,
    Policy,
    card_states,
    describe_process,
    hold_together,
    is_large,
    typical_gap,
)
from gua_sample.policy_sql import Expression
from gua_sample.records import Tick

RECALLED_DAYS = 8
FIRST_PORTION_MS = 3_600_000
# A card's code is the position of its state, plus this if small processes hold it together. A process's are its bits.
TOGETHER = len(STATES)
CARD_CODES, PROCESS_CODES = 2 * TOGETHER, 16  # numbers of distinct codes
IDS = 1 << 32  # exceeds every id in a partition

Open = Callable[[str], AbstractContextManager[sqlite3.Connection]]
# The cards and processes whose states may have begun before a time, given what is known so far.
FindOpen = Callable[[Carried, int], tuple[set[str], set[Key]]]


class Names(NamedTuple):
    """The meaning of a partition's ids."""

    uuids: dict[int, str]
    processes: dict[int, tuple[int, int | None]]  # pid and start time


class Row(NamedTuple):
    """A tick, its cards and processes encoded as texts."""

    ts_ms: int
    interval_ms: int | None
    boot_id: str
    cards: str | None  # a number for each card that was asked for: its id and code. None: the tick saw no cards
    processes: str | None  # a number for each process on a card: both ids and the code
    names: Names

    def sight(self) -> Sight:
        if self.cards is None:
            return Sight(self.ts_ms, self.boot_id, None, {})
        uuids, names = self.names
        codes = {uuids[card]: code for card, code in _decode(self.cards, CARD_CODES) if card in uuids}
        processes = {}
        for ids, bits in _decode(self.processes or "", PROCESS_CODES):
            card, process = divmod(ids, IDS)
            uuid = uuids.get(card, "")
            if uuid in codes and process in names:
                processes[(uuid, *names[process])] = bits | HOLDS * (codes[uuid] >= TOGETHER)
        states = {uuid: STATES[code % TOGETHER] for uuid, code in codes.items()}
        return Sight(self.ts_ms, self.boot_id, states, processes)


def _decode(text: str, codes: int) -> list[tuple[int, int]]:
    return [divmod(int(number), codes) for number in text.split(",") if number]


class Past:
    """The ticks of these partitions, from `oldest_ms` to before `end_ms`. Reading ends after so many seconds.

    Unreadable partitions are skipped and reported, once each.
    """

    def __init__(
        self,
        partitions: list[str],
        open_partition: Open,
        policy: Policy,
        reach: tuple[int, int],
        complain: Callable[[str], None],
        seconds: float = float("inf"),
    ) -> None:
        self._partitions, self._open, self._policy = partitions, open_partition, policy
        self._oldest_ms, self._end_ms = reach
        self._complain = complain
        self._ends = time.monotonic() + seconds
        self._begins: dict[str, float] = {}  # by path: the first tick in it

    def portions(self) -> Iterator[tuple[int, int]]:
        """Spans of time, newest first, each twice as long as the one before."""
        end_ms, length_ms = self._end_ms, FIRST_PORTION_MS
        while end_ms > self._oldest_ms and time.monotonic() < self._ends:
            start_ms = max(self._oldest_ms, end_ms - length_ms)
            yield start_ms, end_ms
            end_ms, length_ms = start_ms, 2 * length_ms

    def read(self, span: tuple[int, int], uuids: Collection[str] | None, pids: Collection[int] | None) -> list[Row]:
        """The ticks in a span of time, newest first, with these cards and processes; None: with all of them."""
        rows: list[Row] = []
        for path in reversed(self._partitions):
            first, last = (partition_path(os.path.dirname(path), day_of(ms)) for ms in (span[0], span[1] - 1))
            if first <= path <= last and self._begins.get(path, 0) < span[1]:
                self._begins[path] = float("inf")  # unless it can be read
                try:
                    with self._open(path) as connection:
                        (begin,) = connection.execute("SELECT min(ts_ms) FROM tick").fetchone()
                        self._begins[path] = check_types((begin or 0,), int)[0]
                        rows += self._read(connection, span, uuids, pids)
                except EmptyPartition:
                    continue
                except StoreError as error:
                    self._complain(f"skipped: {error}")
        return rows

    def _read(
        self,
        connection: sqlite3.Connection,
        span: tuple[int, int],
        uuids: Collection[str] | None,
        pids: Collection[int] | None,
    ) -> Iterator[Row]:
        of_pids = "" if pids is None else f" WHERE pid IN ({_join(pids)})"
        found = connection.execute(f"SELECT id, pid, start_time_ms FROM process{of_pids}")
        processes = {number: (pid, start) for number, pid, start in found}
        cards = [check_types(row, int, str, str) for row in connection.execute("SELECT id, uuid, status FROM card")]
        names = Names({card: uuid for card, uuid, _ in cards if uuids is None or uuid in uuids}, processes)
        failed = [card for card, _, status in cards if status != STATUS_OK]
        sql = _tick_sql(self._policy, failed, names, uuids is None, pids is None)
        for row in connection.execute(sql, span):
            if time.monotonic() > self._ends:
                return
            ts_ms, interval_ms, boot_id, card_codes, codes = check_types(
                row, int, (int, None), str, (str, None), (str, None)
            )
            for text in (card_codes, codes):
                if text and not text.replace(",", "").isdecimal():
                    raise TypeError("an id that is no number")
            yield Row(ts_ms, interval_ms, boot_id, card_codes, codes, names)


def _tick_sql(policy: Policy, failed: list[int], names: Names, all_cards: bool, all_processes: bool) -> str:
    """The SQL that gives one row a tick. Texts are computed when a row is fetched, so other rows cost nothing."""
    process_memory = Expression("process_memory")
    states = card_states(
        Expression("utilization"), Expression("failed"), process_memory, Expression("memory_used"), policy
    )
    # Exactly one state is true, so the one that takes longest to decide is the ELSE.
    cases = " ".join(f"WHEN {states[state]} THEN {STATES.index(state)}" for state in STATES if state != TRULY_IDLE)
    cases += f" ELSE {STATES.index(TRULY_IDLE)}"
    together = hold_together(process_memory, Expression("has_large"), policy)
    memory = Expression("p.memory_mib")
    # The view card_ticks has the same sum. Cards are grouped in the order of storage, without sorting.
    card_codes = f"""
        SELECT group_concat(card_id * {CARD_CODES} + CASE {cases} END + {TOGETHER} * {together})
        FROM (
            SELECT s.card_id, s.utilization_hundredths / 100.0 AS utilization, s.card_id IN ({_join(failed)}) AS failed,
                   s.memory_used_mib AS memory_used,
                   CASE WHEN count(p.process_id) = count(p.memory_mib) THEN coalesce(sum(p.memory_mib), 0) END
                   AS process_memory,
                   max(p.process_id IS NOT NULL AND {is_large(memory, policy)}) AS has_large
            FROM card_sample s LEFT JOIN process_sample p ON p.tick_id = s.tick_id AND p.card_id = s.card_id
            WHERE s.tick_id = t.id {"" if all_cards else f"AND s.card_id IN ({_join(names.uuids)})"}
            GROUP BY s.card_id
        )"""
    bits = describe_process(memory, Expression("p.sm_percent"), policy)
    process_codes = f"""
        SELECT group_concat((p.card_id * {IDS} + p.process_id) * {PROCESS_CODES} + {bits})
        FROM process_sample p
        WHERE p.tick_id = t.id {"" if all_processes else f"AND +p.process_id IN ({_join(names.processes)})"}"""
    saw_cards = "EXISTS (SELECT 1 FROM card_sample s WHERE s.tick_id = t.id)"
    return f"""
        SELECT t.ts_ms, t.interval_ms, n.boot_id, CASE WHEN {saw_cards} THEN coalesce(({card_codes}), '') END,
               {f"({process_codes})" if names.processes else "NULL"}
        FROM tick t JOIN session n ON n.id = t.session_id
        WHERE t.ts_ms >= ? AND t.ts_ms < ? ORDER BY t.ts_ms DESC"""


def _join(numbers: Iterable[int]) -> str:
    return ", ".join(str(int(number)) for number in numbers)


class Times:
    """The times and intervals of the ticks read so far, which tell holes."""

    def __init__(self) -> None:
        self._times: list[int] = []
        self._told: list[int | None] = []
        self._shortest_ms = DEFAULT_INTERVAL_MS

    def put_before(self, rows: list[Row]) -> None:
        self._times = [*(row.ts_ms for row in rows), *self._times]
        self._told = [*(row.interval_ms for row in rows), *self._told]
        gaps = [later - earlier for earlier, later in pairwise(self._times[: len(rows) + 1])]
        self._shortest_ms = min([self._shortest_ms, *gaps])

    def joins(self, earlier_ms: int, later_ms: int) -> bool:
        """Whether there is no hole between two ticks: the interval of the earlier one decides, as in reports."""
        gap_ms = later_ms - earlier_ms
        place = bisect_left(self._times, earlier_ms)
        told_ms = self._told[place]
        # No median is less than the shortest gap, so it is computed for unusual gaps only.
        if told_ms is None and gap_ms <= LONGEST_GAP_INTERVALS * self._shortest_ms:
            return True
        return gap_ms <= LONGEST_GAP_INTERVALS * max(1, self._typical_gap(place) if told_ms is None else told_ms)

    def _typical_gap(self, place: int) -> float:
        """The median gap of the ticks around, of the same day, by the rule of ticks/tick_weights."""
        day_ms = self._times[place] // DAY_MS * DAY_MS
        begin, end = bisect_left(self._times, day_ms), bisect_left(self._times, day_ms + DAY_MS)
        place = min(place, end - 2)  # the last tick has no gap of its own: take that of the one before
        return typical_gap(self._times[max(begin, place - TICKS_AROUND // 2) : min(end, place + TICKS_AROUND // 2 + 1)])


def look_back(
    past: Past, now: Sight, pids: Collection[int] | None, find_open: FindOpen, known: Carried = NOTHING
) -> Carried:
    """The state at a present tick that is not among the past ones, with the beginnings that these tell.

    `pids`: the processes to look for, None for all. The search ends when `find_open` finds nothing, or nothing but
    what is `known` from an earlier search.
    """
    carried, edge_ms, uuids, times = None, 0, None, Times()
    rows: list[Row] = []
    for span in past.portions():
        found = past.read(span, uuids, pids)[::-1]
        times.put_before(found)
        # The oldest ticks of the portion before are judged again, now that those around them are known.
        rows = [*found, *rows[:TICKS_AROUND]]
        if len(rows) <= TICKS_AROUND:
            continue
        state = _follow_all(rows, times)
        carried = _extend(carried, state, edge_ms) if carried else follow(state, now, times.joins)
        edge_ms = rows[TICKS_AROUND - 1].ts_ms
        cards, processes = find_open(carried, edge_ms)
        if not cards and not processes and carried.success_ms is not None:
            return carried
        known_cards, known_processes = find_open(known, edge_ms)
        if (known.success_ms or 0) >= edge_ms and cards <= known_cards and processes <= known_processes:
            return _extend(carried, known, edge_ms)
        uuids, pids = {*cards, *(key[0] for key in processes)}, {key[1] for key in processes}
    return carried or follow(_follow_all(rows, times), now, times.joins)


def find_last_use(past: Past, uuids: set[str]) -> dict[str, int]:
    """The time at which each card was last active or idle-held; cards that no tick shows so are absent."""
    found: dict[str, int] = {}
    for span in past.portions():
        last = None
        for row in past.read(span, uuids - found.keys(), ()):
            states = {} if last and row[3:] == last[3:] else row.sight().cards or {}
            for uuid, state in states.items():
                if state in (ACTIVE, IDLE_HELD):
                    found.setdefault(uuid, row.ts_ms)
            last = row
        if found.keys() == uuids:
            break
    return found


def _follow_all(rows: list[Row], times: Times) -> Carried:
    """The state after these ticks. The first two of a run of equal ones are followed; the others change only times."""
    carried, last, repeats = NOTHING, None, 0
    for row in rows:
        if last and last.cards is not None and row[2:] == last[2:] and times.joins(last.ts_ms, row.ts_ms):
            repeats += 1
        else:
            carried = _repeat(carried, last.ts_ms) if last and repeats > 1 else carried
            repeats = 0
        if repeats < 2:
            carried = follow(carried, row.sight(), times.joins)
        last = row
    carried = _repeat(carried, last.ts_ms) if last and repeats > 1 else carried
    return carried._replace(times_ms=[row.ts_ms for row in rows[-TICKS_AROUND:]])


def _repeat(carried: Carried, ts_ms: int) -> Carried:
    """The state after more ticks, up to that time, that told the same as the last two."""
    traces = dict(carried.traces)
    for key, trace in traces.items():
        if trace.seen_ms == carried.success_ms:
            at_0_ms = ts_ms if trace.at_0_ms == trace.seen_ms else trace.at_0_ms
            traces[key] = trace._replace(seen_ms=ts_ms, at_0_ms=at_0_ms)
    return carried._replace(success_ms=ts_ms, traces=traces)


def _extend(carried: Carried, earlier: Carried, edge_ms: int) -> Carried:
    """The state, with beginnings up to the edge replaced by those that an earlier state tells."""

    def begins(ms: int | None, earlier_ms: int | None) -> bool:
        return ms is not None and earlier_ms is not None and max(ms, earlier_ms) <= edge_ms

    cards, traces = dict(carried.cards), dict(carried.traces)
    for uuid in cards.keys() & earlier.cards.keys():
        if begins(cards[uuid].since_ms, earlier.cards[uuid].since_ms):
            cards[uuid] = earlier.cards[uuid]
    for key in traces.keys() & earlier.traces.keys():
        trace, known = traces[key], earlier.traces[key]
        if begins(trace.held_since_ms, known.held_since_ms):
            trace = trace._replace(held_since_ms=known.held_since_ms, began=known.began)
        if begins(trace.idle_since_ms, known.idle_since_ms):
            trace = trace._replace(idle_since_ms=known.idle_since_ms)
        traces[key] = trace
    is_longer = begins(carried.unbroken_ms, earlier.unbroken_ms)
    unbroken_ms = earlier.unbroken_ms if is_longer else carried.unbroken_ms
    return carried._replace(cards=cards, traces=traces, unbroken_ms=unbroken_ms)


def recall(data_dir: str, tick: Tick) -> Carried:
    """The state that runs up to this tick would have left, computed from the history."""
    partitions, reach = list_partitions(samples_dir(data_dir)), (tick.ts_ms - RECALLED_DAYS * DAY_MS, tick.ts_ms)
    # A partition that is unreadable or incomplete leaves a hole.
    past = Past(partitions, open_to_read, DEFAULT, reach, lambda problem: None)
    return look_back(past, sight_of(tick), None, _find_idle)


def _find_idle(carried: Carried, edge_ms: int) -> tuple[set[str], set[Key]]:
    """The processes that are idle, or idle-hold a card, since the edge or longer."""
    times = {key: (trace.idle_since_ms, trace.held_since_ms) for key, trace in carried.traces.items()}
    return set(), {key for key, since in times.items() if any(ms is not None and ms <= edge_ms for ms in since)}
