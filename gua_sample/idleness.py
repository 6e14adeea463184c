"""Since when cards and processes are in their states, followed from tick to tick. The states themselves: policy.py.

The time from one tick to the next is judged when the next one is there; until then, the newest tick is judged by
itself. Every run takes up the state that the last one left (idle_state.py), and so does `gua status`.
"""

from collections.abc import Mapping
from typing import NamedTuple

from gua_sample.identity import resolve
from gua_sample.policy import (
    ACTIVE,
    DEFAULT,
    IDLE_HELD,
    LONGEST_GAP_INTERVALS,
    LONGEST_PASSING_INTERVAL_MS,
    NAN,
    TICKS_AROUND,
    UNKNOWN,
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
    memories_mib,
    process_states,
    typical_gap,
)
from gua_sample.records import Card, Process, Tick

REMEMBER_USE_MS = 7 * 86_400_000

# A process on a card: the card's uuid, the pid, and the process's start, because pids are reused. Or a card: only that.
Key = tuple[str, int | None, int | None]


class ProcessSight(NamedTuple):
    key: Key
    identity: str
    holds: bool
    sm_percent: float
    is_new: bool = False  # the tick before saw the card, and not this process there
    has_faded: bool = False  # it did less than at the tick before


class CardSight(NamedTuple):
    key: Key
    status: str
    end: End
    is_unattributed: bool  # memory is held that no process shows
    processes: tuple[ProcessSight, ...]
    has_faded: bool = False  # there was less work on it than at the tick before


class Run(NamedTuple):
    """A state, and the first of the ticks that it lasts since."""

    state: str
    since_ms: int
    is_exact: bool = True  # False: what was before is unknown


Runs = dict[Key, Run]


class Trace(NamedTuple):
    """A process that was at 0 % SM utilization and has not been above that since."""

    at_0_ms: int  # the last tick at which it was at 0 %
    idle_since_ms: int | None  # the second such tick in a row


class Carried(NamedTuple):
    policy: Policy  # by which the states were judged
    boot_id: str
    times_ms: list[int]  # of the last ticks, newest last
    interval_ms: int | None  # of the last tick that saw cards, if it was told
    success_ms: int | None  # the last tick that saw cards
    unbroken_ms: int | None  # the first tick after the last hole or reboot; None: there was no tick since
    errors: int  # number of failed ticks since counting began
    traces: dict[Key, Trace]
    used_ms: dict[str, int]  # when each card was last active or held, by its uuid
    last: dict[str, CardSight] | None  # what the last tick told; None: no cards
    runs: Runs  # the states up to the tick `success_ms`: without it, if it is the last one


def begin(policy: Policy = DEFAULT, errors: int = 0) -> Carried:
    return Carried(policy, "", [], None, None, None, errors, {}, {}, None, {})


def see_card(card: Card, processes: Mapping[int, Process], policy: Policy) -> CardSight:
    uuid, found = card.facts.uuid, []
    for usage, holds in zip(card.usages, holding(card, policy), strict=True):
        who = processes[usage.pid]
        identity = resolve(who.uid, who.login_uid, who.user, who.login_user, who.cgroup)
        percent = NAN if usage.sm_percent is None else usage.sm_percent
        key = uuid, usage.pid, who.start_time_ms
        found.append(ProcessSight(key, identity, holds, percent))
    used_mib = NAN if card.memory_used_mib is None else card.memory_used_mib
    hides = is_unattributed(used_mib, sum(memories_mib(card)), policy)
    return CardSight((uuid, None, None), card.facts.status, end_of(card, policy), hides, tuple(found))


def judge(at: CardSight, after: CardSight | None, interval_ms: float, policy: Policy) -> tuple[tuple[Key, str], ...]:
    """The states of a card and its processes up to the next tick, or by itself if `after` is None."""
    is_brief = interval_ms <= LONGEST_PASSING_INTERVAL_MS
    end = after or at
    later = {one.key: one.sm_percent for one in end.processes}
    # By pid alone: a run that can't read earlier ticks tells another start.
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


def follow(before: Carried, tick: Tick, interval_ms: float | None = None) -> Carried:
    """The state to carry on. `interval_ms`: if this tick must have no part in finding it."""
    times_ms = [*before.times_ms, tick.ts_ms][-TICKS_AROUND - 1 :]
    length_ms = interval_ms or before.interval_ms or typical_gap(times_ms)
    is_same_boot = before.boot_id == tick.boot.id

    def joins(earlier_ms: int) -> bool:
        return is_same_boot and 0 < tick.ts_ms - earlier_ms <= LONGEST_GAP_INTERVALS * length_ms

    cards = {card.facts.uuid: see_card(card, tick.processes, before.policy) for card in tick.cards}
    traces = {key: trace for key, trace in before.traces.items() if joins(trace.at_0_ms)}
    unbroken_ms = before.unbroken_ms if is_same_boot else None
    after = before._replace(boot_id=tick.boot.id, times_ms=times_ms, unbroken_ms=unbroken_ms, traces=traces)
    if not cards:
        return after._replace(errors=before.errors + 1, last=None, runs=runs_now(before))
    _trace(traces, cards, tick.ts_ms)
    is_joined = before.success_ms is not None and unbroken_ms is not None and joins(before.success_ms)
    used_ms = {uuid: ms for uuid, ms in before.used_ms.items() if tick.ts_ms - ms < REMEMBER_USE_MS}
    for uuid, card in cards.items():  # as each tick tells by itself
        if chosen(card_states(card.end, card.end, True, policy=before.policy)) in (ACTIVE, IDLE_HELD):
            used_ms[uuid] = tick.ts_ms
    after = after._replace(interval_ms=tick.interval_ms, success_ms=tick.ts_ms, used_ms=used_ms)
    if is_joined:
        runs = _judge_last(before, cards, length_ms)
        return after._replace(runs=runs, last=_compare(cards, before.last or {}))
    return after._replace(unbroken_ms=tick.ts_ms, runs={}, last=cards)


def _trace(traces: dict[Key, Trace], cards: dict[str, CardSight], ts_ms: int) -> None:
    """Follow processes by gpu-idle-exporter's rule. An unknown utilization begins and ends nothing."""
    for card in cards.values():
        for one in card.processes:
            known = traces.get(one.key)
            if one.sm_percent == 0:
                traces[one.key] = Trace(ts_ms, (known.idle_since_ms or ts_ms) if known else None)
            elif known and one.sm_percent > 0:
                del traces[one.key]


def _compare(cards: dict[str, CardSight], before: dict[str, CardSight]) -> dict[str, CardSight]:
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


def runs_now(carried: Carried) -> Runs:
    return _judge_last(carried, {}, 0)


def _judge_last(carried: Carried, after: dict[str, CardSight], interval_ms: float) -> Runs:
    if carried.last is None or carried.success_ms is None:
        return carried.runs
    runs, known = {}, carried.runs
    for uuid, card in carried.last.items():
        end = after.get(uuid)
        for key, state in judge(card, end if end and _both_tell(card, end) else None, interval_ms, carried.policy):
            run = known.get(key)
            if run is None or run.state != state:
                earlier = run or known.get(card.key)
                run = Run(state, carried.success_ms, earlier is None or earlier.state != UNKNOWN)
            runs[key] = run
    return runs


def rename(carried: Carried, people: Mapping[str, str]) -> Carried:
    """With the identities of one person taken for one: who shares a card is judged differently."""
    cards = {
        uuid: card._replace(
            processes=tuple(one._replace(identity=people.get(one.identity, one.identity)) for one in card.processes)
        )
        for uuid, card in (carried.last or {}).items()
    }
    return carried._replace(last=cards or None)
