"""Find since when the states at a present tick last, in past ticks.

These are read from the newest back, an hour first, then twice as long each time and only of cards whose states were
there all along, until every beginning is found.
"""

# No `from __future__ import annotations` here: see records.py.
from collections.abc import Callable
from itertools import groupby

from gua_sample.idleness import (
    DEFAULT_RULES,
    NOTHING,
    Carried,
    Intervals,
    Key,
    Runs,
    Sight,
    follow,
    follow_idle,
    judge,
    runs_now,
    sight_of,
)
from gua_sample.partition_file import open_to_read
from gua_sample.partition_names import DAY_MS, list_partitions, samples_dir
from gua_sample.past_ticks import Past
from gua_sample.policy import ACTIVE, IDLE_HELD, TICKS_AROUND, Policy, typical_gap
from gua_sample.records import Tick

RECALLED_DAYS = 8

# The cards and processes of interest whose states began at that time or earlier, given the present ones.
FindOpen = Callable[[Carried, Runs, int], set[Key]]
Step = Callable[[Carried, Sight, Intervals, Policy], Carried]


def find_intervals(sights: list[Sight]) -> dict[int, float]:
    """The intervals of ticks in time order, by their times: as told, else the median gap of the ticks around.

    As in reports (ticks/tick_weights), only gaps of the same day count; but if the newest tick is the first one of its
    day, which has no gap yet, those of the day before do.
    """
    found: dict[int, float] = {}
    times: list[int] = []
    for _, day in groupby(sights, lambda sight: sight.ts_ms // DAY_MS):
        own = list(day)
        is_alone = len(own) == 1 and own[0] is sights[-1]
        times = [*(times if is_alone else ()), *(sight.ts_ms for sight in own)]
        for place, sight in enumerate(own, len(times) - len(own)):
            middle = min(place, len(times) - 2)  # the last tick has no gap of its own: take that of the one before
            around = times[max(0, middle - TICKS_AROUND // 2) : middle + TICKS_AROUND // 2 + 1]
            found[sight.ts_ms] = max(1, typical_gap(around) if sight.interval_ms is None else sight.interval_ms)
    return found


def look_back(past: Past, now: Sight, find_open: FindOpen, known: Carried = NOTHING, step: Step = follow) -> Carried:
    """The state at a present tick that is not among the past ones, with the beginnings that these tell.

    The search ends when `find_open` finds nothing, or nothing but what is `known` from an earlier search.
    """
    carried, edge_ms, uuids, policy = None, 0, None, past.rules.policy
    sights: list[Sight] = []
    for span in past.portions():
        # The oldest ticks of the portion before are judged again, now that those around them are known.
        sights = [*past.read(span, uuids)[::-1], *sights[: 2 * TICKS_AROUND]]
        if len(sights) <= 2 * TICKS_AROUND:
            continue
        if carried is None:
            carried = _follow_all([*sights, now], find_intervals(sights), step, policy)
        else:
            up_to_edge = sights[: 2 - TICKS_AROUND]  # and the tick after it, by which it is judged
            carried = _extend(carried, _follow_all(up_to_edge, find_intervals(sights), step, policy), edge_ms)
        edge_ms = sights[TICKS_AROUND].ts_ms  # this portion and the next one agree on it
        open_ = find_open(carried, runs_now(carried, policy), edge_ms)
        if not open_ and carried.success_ms is not None:
            return carried
        is_known = open_ <= find_open(known, runs_now(known, policy), edge_ms)
        if is_known and (known.success_ms or 0) >= edge_ms:
            return _extend(carried, known, edge_ms)
        uuids = {key[0] for key in open_}
    return carried or _follow_all([*sights, now], find_intervals(sights), step, policy)


def _follow_all(sights: list[Sight], intervals: dict[int, float], step: Step, policy: Policy) -> Carried:
    carried = NOTHING
    for sight in sights:
        carried = step(carried, sight, intervals.__getitem__, policy)
    return carried


def find_last_use(past: Past, uuids: set[str]) -> dict[str, int]:
    """The last tick at which each card was active or idle-held, by itself; cards that no tick shows so are absent."""
    found: dict[str, int] = {}
    for span in past.portions():
        for sight in past.read(span, uuids - found.keys()):
            for uuid, card in (sight.cards or {}).items():
                _, state = judge(card, None, 0, past.rules.policy)[0]
                if state in (ACTIVE, IDLE_HELD):
                    found.setdefault(uuid, sight.ts_ms)
        if found.keys() == uuids:
            break
    return found


def _extend(carried: Carried, earlier: Carried, edge_ms: int) -> Carried:
    """The state, with beginnings up to the edge replaced by those that an earlier state tells."""

    def begins(ms: int | None, earlier_ms: int | None) -> bool:
        return ms is not None and earlier_ms is not None and max(ms, earlier_ms) <= edge_ms

    runs, traces = dict(carried.runs), dict(carried.traces)
    for key in runs.keys() & earlier.runs.keys():
        known = earlier.runs[key]
        if known.state == runs[key].state and begins(runs[key].since_ms, known.since_ms):
            runs[key] = known
    for key in traces.keys() & earlier.traces.keys():
        since_ms = earlier.traces[key].idle_since_ms
        if begins(traces[key].idle_since_ms, since_ms):
            traces[key] = traces[key]._replace(idle_since_ms=since_ms)
    is_longer = begins(carried.unbroken_ms, earlier.unbroken_ms)
    unbroken_ms = earlier.unbroken_ms if is_longer else carried.unbroken_ms
    return carried._replace(runs=runs, traces=traces, unbroken_ms=unbroken_ms)


def recall(data_dir: str, tick: Tick) -> Carried:
    """The state that runs up to this tick would have left, computed from the history."""
    partitions, reach = list_partitions(samples_dir(data_dir)), (tick.ts_ms - RECALLED_DAYS * DAY_MS, tick.ts_ms)
    # A partition that is unreadable or incomplete leaves a hole.
    past = Past(partitions, open_to_read, DEFAULT_RULES, reach, lambda problem: None)
    return look_back(past, sight_of(tick), _find_idle, step=follow_idle)


def _find_idle(carried: Carried, runs: Runs, edge_ms: int) -> set[Key]:
    """The processes that are at 0 %, or idle-hold a card, since the edge or longer."""
    held = {
        key for key, run in runs.items() if key[1] is not None and run.state == IDLE_HELD and run.since_ms <= edge_ms
    }
    return held | {key for key, trace in carried.traces.items() if (trace.idle_since_ms or edge_ms + 1) <= edge_ms}
