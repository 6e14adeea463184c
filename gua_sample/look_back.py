"""Find since when the states at a present tick last, in past ticks.

These are read from the newest back, an hour first, then twice as long each time and only of cards and processes whose
states were there all along, until every beginning is found.
"""

# No `from __future__ import annotations` here: see records.py.
from bisect import bisect_left
from collections.abc import Callable, Collection
from itertools import pairwise

from gua_sample.idleness import NOTHING, Carried, Key, Sight, follow, sight_of
from gua_sample.partition_file import open_to_read
from gua_sample.partition_names import DAY_MS, list_partitions, samples_dir
from gua_sample.past_ticks import Past, Row
from gua_sample.policy import (
    ACTIVE,
    DEFAULT,
    DEFAULT_INTERVAL_MS,
    IDLE_HELD,
    LONGEST_GAP_INTERVALS,
    TICKS_AROUND,
    typical_gap,
)
from gua_sample.records import Tick

RECALLED_DAYS = 8

# The cards and processes whose states began at that time or earlier.
FindOpen = Callable[[Carried, int], tuple[set[str], set[Key]]]


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
        """The median gap of the ticks around, of the same day, by the rule of ticks/tick_weights.

        If the newest tick is the first one of its day, which has no gap yet, those of the day before count.
        """
        day_ms = self._times[place] // DAY_MS * DAY_MS
        begin, end = bisect_left(self._times, day_ms), bisect_left(self._times, day_ms + DAY_MS)
        if begin == len(self._times) - 1:
            begin = bisect_left(self._times, day_ms - DAY_MS)
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
