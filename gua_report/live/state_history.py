"""Read the states at earlier ticks, newest first, decided in SQL by the rules of the policy.

A week is some hundred thousand rows. A tick is read as two short texts, which stay the same while nothing changes:
walking back over a quiet night costs Python one comparison a tick.
"""

import os
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from typing import Any, NamedTuple

from gua_report.live.policy_sql import Expression
from gua_report.ticks.newest import CLOCKS_DIFFER_MS, median
from gua_report.ticks.open_partition import open_partition
from gua_sample.errors import EmptyPartition, StoreError
from gua_sample.partition_names import day_of, partition_path
from gua_sample.policy import (
    DEFAULT_INTERVAL_MS,
    LONGEST_GAP_INTERVALS,
    NAN,
    STATES,
    STATUS_OK,
    TRULY_IDLE,
    Policy,
    card_state,
    card_states,
    hold_together,
    is_large,
    rests,
)
from gua_sample.records import Card, Tick

Key = tuple[str, int, int | None]  # a process on a card: uuid, pid, start time
Complain = Callable[[str], None]

# A card's code is the position of its state, plus this if small processes hold it together.
TOGETHER = len(STATES)
# A process's code is the sum of the flags that are true of it.
IS_LARGE, RESTS, DOES_NOTHING = 1, 2, 4
CODES = 8  # number of distinct codes (three bits)
IDS = 1 << 32  # exceeds every id in a partition

# A missing interval is the median gap of this many ticks around, the rule of ticks/tick_weights.
TICKS_BEFORE, TICKS_AFTER = 10, 9


class Situation(NamedTuple):
    """The codes of cards and processes at one moment."""

    cards: dict[str, int]
    processes: dict[Key, int]

    def state(self, uuid: str) -> str | None:
        return STATES[self.cards[uuid] % TOGETHER] if uuid in self.cards else None


class Names(NamedTuple):
    """The meaning of a partition's ids."""

    uuids: dict[int, str]
    processes: dict[int, tuple[int, int | None]]  # pid and start time


class Row(NamedTuple):
    """A tick, its cards and processes encoded as texts."""

    ts_ms: int
    interval_ms: int | None
    boot_id: str
    cards: str | None  # a number for each card: its id and code. None: the tick saw no cards
    processes: str | None  # a number for each requested process on a card: both ids and the code
    names: Names

    def situation(self) -> Situation:
        uuids, processes = self.names
        cards = [divmod(int(number), CODES) for number in (self.cards or "").split(",") if number]
        rows = [divmod(int(number), CODES) for number in (self.processes or "").split(",") if number]
        found = [(divmod(ids, IDS), code) for ids, code in rows]
        # In a damaged partition, ids may refer to missing rows.
        return Situation(
            {uuids[card]: code for card, code in cards if card in uuids},
            {
                (uuids[card], *processes[process]): code
                for (card, process), code in found
                if card in uuids and process in processes
            },
        )


def situation_of(tick: Tick, policy: Policy) -> Situation:
    """The codes of a tick that is not in the history."""
    processes = {}
    for card in tick.cards:
        for usage in card.usages:
            memory_mib, sm_percent = _number(usage.memory_mib), _number(usage.sm_percent)
            code = IS_LARGE * is_large(memory_mib, policy) + RESTS * rests(memory_mib, sm_percent, policy)
            key = (card.facts.uuid, usage.pid, tick.processes[usage.pid].start_time_ms)
            processes[key] = code + DOES_NOTHING * (sm_percent == 0)
    return Situation({card.facts.uuid: _card_code(card, policy) for card in tick.cards}, processes)


def _card_code(card: Card, policy: Policy) -> int:
    memories = [_number(usage.memory_mib) for usage in card.usages]
    has_large = any(is_large(memory, policy) for memory in memories)
    together: bool = hold_together(sum(memories), has_large, policy)
    return STATES.index(card_state(card, policy)) + TOGETHER * together


def _number(value: float | None) -> float:
    return NAN if value is None else value


def read_rows(
    partitions: list[str],
    policy: Policy,
    pids: Iterable[int],
    reach: tuple[int, int],
    seconds: float,
    complain: Complain,
) -> Iterator[Row]:
    """The ticks within `reach`, newest first, with the processes of `pids`; ends early after `seconds`.

    Unreadable partitions are skipped and reported.
    """
    oldest_ms, now_ms = reach
    ends = time.monotonic() + seconds
    for path in reversed(partitions):
        if path < partition_path(os.path.dirname(path), day_of(oldest_ms)):
            return
        try:
            with open_partition(path) as connection:
                for row in _read_partition(connection, policy, pids, now_ms):
                    if row.ts_ms < oldest_ms or time.monotonic() > ends:
                        return
                    yield row
        except EmptyPartition:
            continue
        except StoreError as error:
            complain(f"skipped: {error}")


def _read_partition(connection: sqlite3.Connection, policy: Policy, pids: Iterable[int], now_ms: int) -> Iterator[Row]:
    sql = f"SELECT id, pid, start_time_ms FROM process WHERE pid IN ({_join(pids)})"
    processes = connection.execute(sql).fetchall()
    cards = connection.execute("SELECT id, uuid, status FROM card").fetchall()
    if not all(isinstance(uuid, str) for _, uuid, _ in cards):
        raise TypeError("a card without a uuid")
    names = Names({card: uuid for card, uuid, _ in cards}, {number: (pid, start) for number, pid, start in processes})
    failed = [card for card, _, status in cards if status != STATUS_OK]
    sql = _tick_sql(policy, failed, list(names.processes))
    for row in connection.execute(sql, (now_ms + CLOCKS_DIFFER_MS,)):
        _check(row)
        ts_ms, interval_ms, boot_id, card_codes, codes = row
        yield Row(ts_ms, interval_ms, boot_id, card_codes, codes, names)


def _check(row: tuple[Any, ...]) -> None:
    """Validate a row: raises TypeError if it can't be a tick, so that a damaged file does no harm later."""
    ts_ms, interval_ms, boot_id, *codes = row
    if not (isinstance(ts_ms, int) and isinstance(interval_ms, int | None) and isinstance(boot_id, str)):
        raise TypeError("a tick without a time or a boot")
    for text in codes:
        if text is not None and not text.replace(",", "").isdecimal():
            raise TypeError("an id that is no number")


def _tick_sql(policy: Policy, failed: list[int], processes: list[int]) -> str:
    """The SQL that gives one row a tick. Texts are computed when a row is fetched, so other rows cost nothing."""
    process_memory = Expression("process_memory")
    states = card_states(
        Expression("utilization"), Expression("failed"), process_memory, Expression("memory_used"), policy
    )
    # Exactly one state is true, so the one that takes longest to decide is the ELSE.
    cases = " ".join(f"WHEN {states[state]} THEN {STATES.index(state)}" for state in STATES if state != TRULY_IDLE)
    cases += f" ELSE {STATES.index(TRULY_IDLE)}"
    together = hold_together(process_memory, Expression("has_large"), policy)
    memory, sm = Expression("p.memory_mib"), Expression("p.sm_percent")
    large, resting = is_large(memory, policy), rests(memory, sm, policy)
    # The view card_ticks has the same sum. Cards are grouped in the order of storage, without sorting.
    card_codes = f"""
        SELECT group_concat(card_id * {CODES} + CASE {cases} END + {TOGETHER} * {together})
        FROM (
            SELECT s.card_id, s.utilization_hundredths / 100.0 AS utilization, s.card_id IN ({_join(failed)}) AS failed,
                   s.memory_used_mib AS memory_used,
                   CASE WHEN count(p.process_id) = count(p.memory_mib) THEN coalesce(sum(p.memory_mib), 0) END
                   AS process_memory,
                   max(p.process_id IS NOT NULL AND {large}) AS has_large
            FROM card_sample s LEFT JOIN process_sample p ON p.tick_id = s.tick_id AND p.card_id = s.card_id
            WHERE s.tick_id = t.id GROUP BY s.card_id
        )"""
    code = f"{IS_LARGE} * {large} + {RESTS} * {resting} + {DOES_NOTHING} * {sm == 0}"
    process_codes = f"""
        SELECT group_concat((p.card_id * {IDS} + p.process_id) * {CODES} + {code})
        FROM process_sample p WHERE p.tick_id = t.id AND +p.process_id IN ({_join(processes)})"""
    return f"""
        SELECT t.ts_ms, t.interval_ms, n.boot_id, ({card_codes}), {f"({process_codes})" if processes else "NULL"}
        FROM tick t JOIN session n ON n.id = t.session_id
        WHERE t.ts_ms <= ? ORDER BY t.ts_ms DESC"""


def _join(numbers: Iterable[int]) -> str:
    return ", ".join(str(int(number)) for number in numbers)


class Timeline:
    """Rows by position, the newest being 0, fetched on demand; also tells whether a gap between two is a hole."""

    def __init__(self, rows: Iterator[Row]) -> None:
        self._rows = rows
        self._fetched: list[Row] = []
        self._shortest_ms = float("inf")

    def row(self, position: int) -> Row | None:
        while len(self._fetched) <= position:
            row = next(self._rows, None)
            if row is None:
                return None
            if self._fetched:
                self._shortest_ms = min(self._shortest_ms, self._fetched[-1].ts_ms - row.ts_ms)
            self._fetched.append(row)
        return self._fetched[position]

    def joins(self, position: int, gap_ms: int) -> bool:
        """Whether a tick that comes `gap_ms` after the one at `position` is linked to it; if not, there is a hole."""
        self.row(position + TICKS_BEFORE + 1)
        told_ms = self._fetched[position].interval_ms
        # No median is less than the shortest gap, so it is computed for unusual gaps only.
        if told_ms is None and gap_ms <= LONGEST_GAP_INTERVALS * self._shortest_ms < float("inf"):
            return True
        return gap_ms <= LONGEST_GAP_INTERVALS * max(1, self._interval_ms(position) if told_ms is None else told_ms)

    def _interval_ms(self, position: int) -> float:
        position = max(1, position)  # the newest has no gap of its own: take that of the one before
        around = self._fetched[max(0, position - TICKS_AFTER - 1) : position + TICKS_BEFORE + 1]
        gaps = [later.ts_ms - earlier.ts_ms for later, earlier in pairwise(around)]
        return median(gaps) if gaps else DEFAULT_INTERVAL_MS

    def close(self) -> None:
        """Close the partition that is being read."""
        self._rows.close()  # type: ignore[attr-defined]  # a generator, which an iterator need not be
