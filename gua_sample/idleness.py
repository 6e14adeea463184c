"""Since when cards and processes are in their states, followed from tick to tick. The states themselves: policy.py.

The time from one tick to the next is judged when the next one is there; until then, the newest tick is judged by
itself. A run that writes metrics takes up the state that the last one left (idle_state.py), or looks for it in the
history (look_back.py).
"""

# No `from __future__ import annotations` here: see records.py.
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import NamedTuple

from gua_sample.identity import resolve
from gua_sample.policy import (
    DEFAULT,
    LONGEST_GAP_INTERVALS,
    LONGEST_PASSING_INTERVAL_MS,
    NAN,
    TICKS_AROUND,
    UNPARTITIONED,
    End,
    Policy,
    card_states,
    chosen,
    end_of,
    has_faded,
    holding,
    is_at_work,
    is_over,
    is_unattributed,
    process_states,
    typical_gap,
)
from gua_sample.records import Card, Process, Tick

# A process on a card: the card's uuid, the pid, and the process's start, because pids are reused. Or a card: only that.
Key = tuple[str, int | None, int | None]
Intervals = Callable[[int], float]  # the interval of the tick at a time


class ProcessSight(NamedTuple):
    """What a tick tells of a process on a card."""

    key: Key
    identity: str
    holds: bool
    sm_percent: float
    is_new: bool = False  # the tick before saw the card, and not this process there
    has_faded: bool = False  # it did less than at the tick before


class CardSight(NamedTuple):
    """What a tick tells of a card."""

    key: Key
    status: str
    end: End
    is_unattributed: bool  # memory is held that no process shows
    processes: tuple[ProcessSight, ...]
    has_faded: bool = False  # there was less work on it than at the tick before


class Sight(NamedTuple):
    """What a tick tells: a fresh one, or one of the history."""

    ts_ms: int
    interval_ms: int | None
    boot_id: str
    cards: dict[str, CardSight] | None  # by uuid; None: the tick saw no cards


class Run(NamedTuple):
    """A state, and the first of the ticks that it lasts since."""

    state: str
    since_ms: int


Runs = dict[Key, Run]


class Trace(NamedTuple):
    """A process that was at 0 % SM utilization and has not been above that since."""

    at_0_ms: int  # the last tick at which it was at 0 %
    idle_since_ms: int | None  # the second such tick in a row


class Carried(NamedTuple):
    """What is carried on from tick to tick."""

    boot_id: str
    times_ms: list[int]  # of the last ticks, newest last
    success_ms: int | None  # the last tick that saw cards
    unbroken_ms: int | None  # the first tick after the last hole or reboot; None: there was no tick since
    errors: int  # number of failed ticks since counting began
    traces: dict[Key, Trace]
    last: dict[str, CardSight] | None  # what the last tick told; None: no cards
    runs: Runs  # the states up to the tick `success_ms`: without it, if it is the last one


NOTHING = Carried("", [], None, None, 0, {}, None, {})


class Rules(NamedTuple):
    """What states depend on, besides the ticks."""

    policy: Policy = DEFAULT
    people: Mapping[str, str] = {}  # by identity


DEFAULT_RULES = Rules()


def sight_of_card(card: Card, processes: Mapping[int, Process], rules: Rules) -> CardSight:
    """What a tick tells of a card, whether it is a fresh tick or one of the history."""
    policy, people = rules
    uuid, found, memories = card.facts.uuid, [], []
    for usage, holds in zip(card.usages, holding(card, policy), strict=True):
        who = processes[usage.pid]
        identity = resolve(who.uid, who.login_uid, who.user, who.login_user, who.cgroup)
        percent = NAN if usage.sm_percent is None else usage.sm_percent
        key = uuid, usage.pid, who.start_time_ms
        found.append(ProcessSight(key, people.get(identity, identity), holds, percent))
        memories.append(NAN if usage.memory_mib is None else usage.memory_mib)
    used_mib = NAN if card.memory_used_mib is None else card.memory_used_mib
    hides = is_unattributed(used_mib, sum(memories), policy)
    return CardSight((uuid, None, None), card.facts.status, end_of(card, policy), hides, tuple(found))


def sight_of(tick: Tick, rules: Rules = DEFAULT_RULES) -> Sight:
    cards = {card.facts.uuid: sight_of_card(card, tick.processes, rules) for card in tick.cards}
    return Sight(tick.ts_ms, tick.interval_ms, tick.boot.id, cards or None)


@lru_cache(maxsize=4096)  # most ticks of a history tell the same as others
def judge(at: CardSight, after: CardSight | None, interval_ms: float, policy: Policy) -> tuple[tuple[Key, str], ...]:
    """The states of a card and of its processes from one tick to the next, or by the tick itself if `after` is None."""
    is_brief = interval_ms <= LONGEST_PASSING_INTERVAL_MS
    end = after or at
    later = {one.key: one.sm_percent for one in end.processes}
    # By pid alone: the start of a process is told anew where a run can't read what earlier ones stored.
    stays = {one.key[1] for one in end.processes}
    passing = {one.key for one in at.processes if one.holds and is_brief and one.is_new and one.key[1] not in stays}
    holders = {one.key: one.identity for one in at.processes if one.holds and one.key not in passing}
    company = set(holders.values()) or {one.identity for one in at.processes}
    if after:
        company |= {one.identity for one in after.processes if one.holds}
    was_over = after is not None and is_over(at.has_faded, end.end.utilization_percent, interval_ms)
    on = card_states(at.end, end.end, at.is_unattributed or bool(holders) or not passing, was_over, policy)
    percents = {one.key: (one.sm_percent, later.get(one.key, NAN)) for one in at.processes}
    over = {one.key for one in at.processes if after and is_over(one.has_faded, percents[one.key][1], interval_ms)}
    is_accounted_for = any(
        (is_at_work(first, second, policy) and key not in over)
        or (key in holders and first != first and second != second)
        for key, (first, second) in percents.items()
    )
    found = [(at.key, UNPARTITIONED if at.status == UNPARTITIONED else chosen(on))]
    for one in at.processes:
        place = company == {one.identity}, one.key in holders
        did = percents[one.key], one.key in over
        found.append((one.key, chosen(process_states(on, at.end.is_dark, *place, *did, is_accounted_for, policy))))
    return tuple(found)


def follow(before: Carried, at: Sight, intervals: Intervals, policy: Policy = DEFAULT) -> Carried:
    """The state to carry on from this tick. The traces stay as they are."""
    times_ms = [*before.times_ms, at.ts_ms][-TICKS_AROUND - 1 :]
    unbroken_ms = before.unbroken_ms if before.boot_id == at.boot_id else None
    after = before._replace(boot_id=at.boot_id, times_ms=times_ms, unbroken_ms=unbroken_ms, last=at.cards)
    if at.cards is None:
        return after._replace(errors=before.errors + 1, runs=runs_now(before, policy))
    if before.success_ms is None or unbroken_ms is None or not _joins(before.success_ms, at, intervals):
        return after._replace(success_ms=at.ts_ms, unbroken_ms=at.ts_ms, runs={})
    runs = _judge_last(before, at.cards, intervals(before.success_ms), policy)
    return after._replace(success_ms=at.ts_ms, runs=runs, last=_compare(at.cards, before.last or {}))


def _joins(earlier_ms: int, at: Sight, intervals: Intervals) -> bool:
    """Whether there is no hole between a tick and this one: the interval of the earlier one decides, as in reports."""
    return 0 < at.ts_ms - earlier_ms <= LONGEST_GAP_INTERVALS * intervals(earlier_ms)


def _compare(cards: dict[str, CardSight], before: dict[str, CardSight]) -> dict[str, CardSight]:
    """The cards of a tick, with marks of what has changed since the tick before: new processes, and work that faded."""
    marked = {}
    for uuid, card in cards.items():
        earlier = before.get(uuid, card)
        if earlier is card or not _both_tell(earlier, card):
            continue
        known = {one.key: one.sm_percent for one in earlier.processes}
        pids = {one.key[1] for one in earlier.processes}
        marks = [(one.key[1] not in pids, has_faded(known.get(one.key, NAN), one.sm_percent)) for one in card.processes]
        faded = has_faded(earlier.end.utilization_percent, card.end.utilization_percent)
        if faded or any(map(any, marks)):
            pairs = zip(card.processes, marks, strict=True)
            processes = tuple(one._replace(is_new=is_new, has_faded=less) for one, (is_new, less) in pairs)
            marked[uuid] = card._replace(processes=processes, has_faded=faded)
    return {**cards, **marked} if marked else cards


def _both_tell(one: CardSight, other: CardSight) -> bool:
    """Whether two ticks tell what is on a card, so that they can be judged together."""
    return not (one.end.is_dark or other.end.is_dark)


def runs_now(carried: Carried, policy: Policy = DEFAULT) -> Runs:
    """The present states, by the last tick itself, and since when."""
    return _judge_last(carried, {}, 0, policy)


def _judge_last(carried: Carried, after: dict[str, CardSight], interval_ms: float, policy: Policy) -> Runs:
    """The states from the last tick to the next, whose cards are `after`, and since when."""
    if carried.last is None or carried.success_ms is None:
        return carried.runs
    runs, known = {}, carried.runs
    for uuid, card in carried.last.items():
        end = after.get(uuid)
        for key, state in judge(card, end if end and _both_tell(card, end) else None, interval_ms, policy):
            run = known.get(key)
            runs[key] = run if run and run.state == state else Run(state, carried.success_ms)
    return runs


def follow_idle(before: Carried, at: Sight, intervals: Intervals, policy: Policy = DEFAULT) -> Carried:
    """The state to carry on from this tick, with the traces of processes by gpu-idle-exporter's rule.

    A tick that does not tell a process's SM utilization neither begins nor ends idle time.
    """
    is_same_boot = before.boot_id == at.boot_id
    traces = {
        key: trace for key, trace in before.traces.items() if is_same_boot and _joins(trace.at_0_ms, at, intervals)
    }
    for card in (at.cards or {}).values():
        for one in card.processes:
            known = traces.get(one.key)
            if one.sm_percent == 0:
                traces[one.key] = Trace(at.ts_ms, (known.idle_since_ms or at.ts_ms) if known else None)
            elif known and one.sm_percent > 0:
                del traces[one.key]
    return follow(before, at, intervals, policy)._replace(traces=traces)


def follow_tick(before: Carried, tick: Tick) -> Carried:
    """The state to carry on from a fresh tick."""
    interval = interval_ms([*before.times_ms, tick.ts_ms][-TICKS_AROUND - 1 :], tick)
    return follow_idle(before, sight_of(tick), lambda ts_ms: interval)


def interval_ms(times_ms: list[int], tick: Tick | None) -> float:
    """The interval between ticks: as stored with the tick, else the median gap of the last ticks."""
    return typical_gap(times_ms) if tick is None or tick.interval_ms is None else tick.interval_ms


def continues(before: Carried, tick: Tick) -> bool:
    """Whether the tick comes right after those that led to this state."""
    if before.boot_id != tick.boot.id or not before.times_ms:
        return False
    return 0 < tick.ts_ms - before.times_ms[-1] <= LONGEST_GAP_INTERVALS * interval_ms(before.times_ms, tick)
