"""Read what past ticks tell of cards and processes, newest first."""

# No `from __future__ import annotations` here: see records.py.
import os
import sqlite3
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager
from functools import cache
from itertools import groupby
from operator import itemgetter

from gua_sample.errors import EmptyPartition, StoreError
from gua_sample.idleness import CardSight, Rules, Sight, sight_of_card
from gua_sample.partition_file import PROCESS, check_types
from gua_sample.partition_names import day_of, partition_path
from gua_sample.records import Card, CardFacts, Process, Usage

FIRST_PORTION_MS = 3_600_000
# A row for each process on a card, for each card without any, and for each tick without cards. What they tell of cards
# begins with the fifth column.
ROWS = """
    SELECT t.ts_ms, t.interval_ms, t.session_id,
           s.card_id IS NOT NULL OR EXISTS (SELECT 1 FROM card_sample o WHERE o.tick_id = t.id),
           s.card_id, s.utilization_hundredths, s.memory_used_mib, p.process_id, p.memory_mib, p.sm_percent
    FROM tick t
    LEFT JOIN card_sample s ON s.tick_id = t.id {only}
    LEFT JOIN process_sample p ON p.tick_id = s.tick_id AND p.card_id = s.card_id
    WHERE t.ts_ms >= ? AND t.ts_ms < ? ORDER BY t.ts_ms DESC
"""

Open = Callable[[str], AbstractContextManager[sqlite3.Connection]]
Row = tuple[int | None, ...]


class Past:
    """The ticks of these partitions, from `oldest_ms` to before `end_ms`, as far as so many seconds of CPU allow.

    Unreadable partitions are skipped and reported, once each.
    """

    def __init__(
        self,
        partitions: list[str],
        open_partition: Open,
        rules: Rules,
        reach: tuple[int, int],
        complain: Callable[[str], None],
        seconds: float = float("inf"),
    ) -> None:
        self.rules = rules
        self._partitions, self._open = partitions, open_partition
        self._oldest_ms, self._end_ms = reach
        self._complain = complain
        self._ends: float = time.process_time() + seconds
        self._begins: dict[str, float] = {}  # by path: the first tick in it

    def portions(self) -> Iterator[tuple[int, int]]:
        """Spans of time, newest first, each twice as long as the one before."""
        end_ms, length_ms = self._end_ms, FIRST_PORTION_MS
        while end_ms > self._oldest_ms and time.process_time() < self._ends:
            start_ms = max(self._oldest_ms, end_ms - length_ms)
            yield start_ms, end_ms
            end_ms, length_ms = start_ms, 2 * length_ms

    def read(self, span: tuple[int, int], uuids: Collection[str] | None = None) -> list[Sight]:
        """The ticks in a span of time, newest first, with these cards; None: with all of them.

        Half of the time that is left is for following them. If reading takes longer, this portion is the last.
        """
        until = (time.process_time() + self._ends) / 2
        sights: list[Sight] = []
        for path in reversed(self._partitions):
            first, last = (partition_path(os.path.dirname(path), day_of(ms)) for ms in (span[0], span[1] - 1))
            if first <= path <= last and self._begins.get(path, 0) < span[1]:
                self._begins[path] = float("inf")  # unless it can be read
                try:
                    with self._open(path) as connection:
                        (begin,) = connection.execute("SELECT min(ts_ms) FROM tick").fetchone()
                        self._begins[path] = check_types((begin or 0,), int)[0]
                        sights += self._read(connection, span, uuids, until)
                except EmptyPartition:
                    continue
                except StoreError as error:
                    self._complain(f"skipped: {error}")
        sights.sort(key=lambda sight: sight.ts_ms, reverse=True)  # a strange partition may hold ticks of another's day
        return sights

    def _read(
        self, connection: sqlite3.Connection, span: tuple[int, int], uuids: Collection[str] | None, until: float
    ) -> Iterator[Sight]:
        boots = dict(check_types(row, int, str) for row in connection.execute("SELECT id, boot_id FROM session"))
        see_card = _card_reader(connection, self.rules)
        only = "" if uuids is None else f"AND s.card_id IN (SELECT id FROM card WHERE uuid IN ({_marks(uuids)}))"
        told: list[Row] = []
        cards: dict[str, CardSight] = {}
        for ts_ms, group in groupby(connection.execute(ROWS.format(only=only), (*(uuids or ()), *span)), itemgetter(0)):
            if time.process_time() > until:
                self._ends = 0
                return
            if not span[0] <= ts_ms < span[1]:
                raise ValueError("an index that is out of order")
            rows = list(group)
            _, interval_ms, session, saw_cards = check_types(rows[0][:4], int, (int, None), int, int)
            tells = [row[4:] for row in rows]
            if tells != told:
                told = tells
                seen = [see_card(tuple(own)) for card, own in groupby(told, itemgetter(0)) if card is not None]
                cards = {sight.key[0]: sight for sight in seen}
            yield Sight(ts_ms, interval_ms, boots[session], cards if saw_cards else None)


def _marks(values: Collection[str]) -> str:
    return ", ".join("?" * len(values))


def _card_reader(connection: sqlite3.Connection, rules: Rules) -> Callable[[tuple[Row, ...]], CardSight]:
    """A function that gives what rows tell of one card. It reads the facts of each card and process once."""

    @cache
    def process(number: int) -> tuple[Process, str]:
        row = connection.execute(f"SELECT {PROCESS} FROM process WHERE id = ?", (number,)).fetchone()
        *facts, type_ = check_types(row, int, *[(int, None)] * 3, *[(str, None)] * 4, str)
        return Process(*facts), type_

    @cache  # most ticks of a partition tell the same as others
    def see_card(rows: tuple[Row, ...]) -> CardSight:
        usages, processes = [], {}
        for row in rows:
            card, hundredths, used_mib, number, memory_mib, sm_percent = check_types(row, int, *[(int, None)] * 5)
            if number is not None:
                who, type_ = process(number)
                usages.append(Usage(who.pid, type_, memory_mib, sm_percent))
                processes[who.pid] = who
        found = connection.execute("SELECT uuid, status FROM card WHERE id = ?", (card,)).fetchone()
        uuid, status = check_types(found, str, str)
        facts = CardFacts(uuid, 0, None, None, None, None, None, None, status, None)
        percent = None if hundredths is None else hundredths / 100
        return sight_of_card(Card(facts, percent, None, used_mib, None, None, None, usages), processes, rules)

    return see_card
