"""Read past ticks as short texts.

A week is some hundred thousand rows. SQLite decides by the rules of the policy and gives a tick as two texts, which
stay the same while nothing changes: following a quiet night costs Python one comparison a tick.
"""

# No `from __future__ import annotations` here: see records.py.
import os
import sqlite3
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

from gua_sample.errors import EmptyPartition, StoreError
from gua_sample.idleness import Sight
from gua_sample.partition_file import check_types
from gua_sample.partition_names import day_of, partition_path
from gua_sample.policy import (
    HOLDS,
    STATES,
    STATUS_OK,
    TRULY_IDLE,
    UNPARTITIONED,
    Policy,
    card_states,
    describe_process,
    hold_together,
    is_large,
)
from gua_sample.policy_sql import Expression

FIRST_PORTION_MS = 3_600_000
# A card's code is the position of its state, plus this if small processes hold it together. A process's are its bits.
TOGETHER = len(STATES)
CARD_CODES, PROCESS_CODES = 2 * TOGETHER, 16  # numbers of distinct codes
IDS = 1 << 32  # exceeds every id in a partition

Open = Callable[[str], AbstractContextManager[sqlite3.Connection]]


class Names(NamedTuple):
    """The meaning of a partition's ids."""

    uuids: dict[int, str]
    processes: dict[int, tuple[int, int | None]]  # pid and start time
    unpartitioned: frozenset[int]  # ids of cards that are in none of the states


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
        uuids, names, unpartitioned = self.names
        found = [(card, code) for card, code in _decode(self.cards, CARD_CODES) if card in uuids]
        codes = {uuids[card]: code for card, code in found}
        processes = {}
        for ids, bits in _decode(self.processes or "", PROCESS_CODES):
            card, process = divmod(ids, IDS)
            uuid = uuids.get(card, "")
            if uuid in codes and process in names:
                processes[(uuid, *names[process])] = bits | HOLDS * (codes[uuid] >= TOGETHER)
        states = {
            uuids[card]: UNPARTITIONED if card in unpartitioned else STATES[code % TOGETHER] for card, code in found
        }
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
        rows.sort(key=lambda row: row.ts_ms, reverse=True)  # a strange partition may hold ticks of another's day
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
        checked = (check_types(row, int, int, (int, None)) for row in found)
        processes = {number: (pid, start) for number, pid, start in checked}
        cards = [check_types(row, int, str, str) for row in connection.execute("SELECT id, uuid, status FROM card")]
        wanted = {card: uuid for card, uuid, _ in cards if uuids is None or uuid in uuids}
        names = Names(wanted, processes, frozenset(card for card, _, status in cards if status == UNPARTITIONED))
        failed = [card for card, _, status in cards if status != STATUS_OK]
        sql = _tick_sql(self._policy, failed, names, len(names.uuids) == len(cards), pids is None)
        last = None
        for row in connection.execute(sql, span):
            if time.monotonic() > self._ends:
                return
            if row[1:] != last or not isinstance(row[0], int):
                _check(row)
            if not span[0] <= row[0] < span[1]:
                raise ValueError("an index that is out of order")
            last = row[1:]
            yield Row._make((*row, names))


def _check(row: tuple[Any, ...]) -> None:
    """Raise TypeError if the row can't be a tick, so that a damaged file does no harm later."""
    *_, cards, processes = check_types(row, int, (int, None), str, (str, None), (str, None))
    for text in (cards, processes):
        if text and not text.replace(",", "").isdecimal():
            raise TypeError("an id that is no number")


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
    text = f"({card_codes})"
    if not all_cards:  # a tick that saw other cards gives an empty text
        text = f"CASE WHEN EXISTS (SELECT 1 FROM card_sample s WHERE s.tick_id = t.id) THEN coalesce({text}, '') END"
    return f"""
        SELECT t.ts_ms, t.interval_ms, n.boot_id, {text}, {f"({process_codes})" if names.processes else "NULL"}
        FROM tick t JOIN session n ON n.id = t.session_id
        WHERE t.ts_ms >= ? AND t.ts_ms < ? ORDER BY t.ts_ms DESC"""


def _join(numbers: Iterable[int]) -> str:
    return ", ".join(str(int(number)) for number in numbers)
