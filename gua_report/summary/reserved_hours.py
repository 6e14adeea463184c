"""Hours reserved, used as reserved, reserved and idle, and used without a reservation: per person and card, from ticks.

Reservations begin and end anywhere in an hour, so the stored hourly sums of closed days are too coarse.
"""

from collections import defaultdict
from collections.abc import Collection
from typing import NamedTuple

import numpy as np
import pandas as pd

from gua_report.config import Config
from gua_report.console.spelling import span_of_days
from gua_report.people.identities import UNATTRIBUTED, apply_mapping
from gua_report.reservations.reservation import Book, Reservation, name_strays, names_of, read_book
from gua_report.rollups.hourly_sums import presences
from gua_report.summary.intervals import overlap, union
from gua_report.summary.plan import Scope
from gua_report.ticks.arrays import Booleans, Integers
from gua_report.ticks.classify import ABSENT, CODE_OF, Classified, read_classified
from gua_report.window import HOUR_MS, split_days
from gua_sample.partition_names import day_of
from gua_sample.policy import ACTIVE, IDLE_HELD, TRULY_IDLE

KEYS = ["identity", "gpu_uuid", "gpu_index", "mig_index"]
SUMS = ["reserved_hours", "used_hours", "idle_hours", "idle_held_hours", "unknown_hours", "unreserved_hours"]
SUMS += ["not_used_hours"]
RESERVATION_COLUMNS = KEYS + SUMS

# Of a person and a card: more than a machine has. Each takes time for each day, and anybody may write to a Redis.
MOST_PAIRS = 5000
NOT_THERE = -1
NO_INTERVALS = np.zeros((0, 2), np.int64)
Key = tuple[str, str]  # a person, and the uuid of a card
Indexes = dict[str, int | None]  # by uuid
Parents = dict[str, str | None]  # by uuid: the physical card of a MIG instance
# The milliseconds of each that were reserved, used, free, held and unreserved.
Spent = defaultdict[Key, list[int]]


class Told(NamedTuple):
    book: Book
    problems: list[str]


def read_told(config: Config, since_ms: int) -> Told | None:
    """The reservations since `since_ms`, and the problems in reading them; None if no source of them is configured."""
    if not any(config.reservations):
        return None
    problems: list[str] = []
    return Told(read_book(config, since_ms, problems.append), problems)


def reserved_hours(
    scope: Scope, told: Told, facts: pd.DataFrame, identities: Collection[str]
) -> tuple[pd.DataFrame, list[str]]:
    """A table of RESERVATION_COLUMNS, and problems. `facts` and `identities`: the cards and people that were seen."""
    window, config, problems = scope.window, scope.config, list(told.problems)
    wanted = [one for one in told.book.reservations if one.end_ms > window.start_ms and one.start_ms < window.end_ms]
    if len({(one.user, one.gpu) for one in wanted}) > MOST_PAIRS:
        problems.append(f"reservations are left out: they are of more than {MOST_PAIRS:,} people and cards")
        wanted, told.book.is_complete = [], False
    known = list(zip(*(facts[name].tolist() for name in ("uuid", "gpu_index", "parent_uuid")), strict=True))
    indexes: Indexes = {uuid: int(index) for uuid, index, _ in known}
    parents: Parents = {uuid: None if pd.isna(parent) else parent for uuid, _, parent in known}
    names = {uuid: names_of(uuid, index, parents[uuid]) for uuid, index in indexes.items()}
    name_strays(wanted, names, identities, config.people, problems.append)
    days = split_days(window.start_ms, window.end_ms)
    if gone := [day for start_ms, _ in days if (day := day_of(start_ms)) in scope.plan.expired]:
        problems.append(f"ticks have expired: who used what in {span_of_days(gone)} is not known here")
    spent = Spent(lambda: [0] * 5)
    for start_ms, end_ms in days:
        found = read_classified(scope.history, start_ms, end_ms, config.policy, config.people)
        if found is not None:
            indexes = _move(indexes, found)
        called = _called(indexes, parents)
        own = _intervals(wanted, called, start_ms, end_ms, config)
        jobs = _intervals([one for one in wanted if one.job], called, start_ms, end_ms, config)
        for key, intervals in own.items():
            spent[key][0] += int((intervals[:, 1] - intervals[:, 0]).sum())
        if found is not None:
            _add_part(spent, found, own, jobs, start_ms, end_ms)
    return _table(spent, facts, told.book.is_complete), problems


def _move(before: Indexes, day: Classified) -> Indexes:
    """The indexes as of that day. A missing card keeps its index, by which it may be reserved, until another has it."""
    seen = day.states[day.inside] != ABSENT
    cards = day.cards.assign(last=len(seen) - np.argmax(seen[::-1], axis=0))[seen.any(axis=0)].sort_values("last")
    # If two cards had the same index, the one seen last has it.
    own = cards.drop_duplicates(["gpu_index", "mig_index"], keep="last")
    today = {str(uuid): int(index) for uuid, index in zip(own["uuid"], own["gpu_index"], strict=True)}
    kept = {uuid: None if index in today.values() else index for uuid, index in before.items()}
    return {**kept, **today}


def _called(indexes: Indexes, parents: Parents) -> dict[str, list[str]]:
    """The uuids that a reservation means, by the name in it.

    A physical card and its MIG instances have the same index: while one is there, the other is not.
    """
    called: defaultdict[str, list[str]] = defaultdict(list)
    divided = {parents.get(uuid) for uuid, index in indexes.items() if index is not None}
    for uuid, index in indexes.items():
        parent = None if index is None else parents.get(uuid)
        for name in () if index is None and uuid in divided else names_of(uuid, index, parent):
            called[name].append(uuid)
    return called


def _intervals(
    reservations: list[Reservation], called: dict[str, list[str]], start_ms: int, end_ms: int, config: Config
) -> dict[Key, Integers]:
    """The reserved times of each person and card, disjoint: overlapping reservations count once."""
    found: defaultdict[Key, list[tuple[int, int]]] = defaultdict(list)
    for one in reservations:
        start, end = max(one.start_ms, start_ms), min(one.end_ms, end_ms)
        if start < end:
            for uuid in called.get(one.gpu, ()):
                found[apply_mapping(one.user, config.people), uuid].append((start, end))
    return {key: union(np.array(intervals, np.int64)) for key, intervals in found.items()}


def _add_part(
    spent: Spent, day: Classified, own: dict[Key, Integers], jobs: dict[Key, Integers], start_ms: int, end_ms: int
) -> None:
    """Add used, idle and unreserved time between two times within one day. `jobs`: those of `own` that are of jobs."""
    ticks = day.ticks.iloc[day.inside]
    times = ticks["ts_ms"].to_numpy(dtype=np.int64)
    begin = np.maximum(times, start_ms)
    end = np.minimum(times + ticks["weight_ms"].to_numpy(dtype=np.int64), end_ms)
    column = {uuid: position for position, uuid in enumerate(day.cards["uuid"])}
    at_work, there = _presences(day)
    for key in {*own, *there}:
        who, uuid = key
        if uuid not in column:
            continue
        on_card = day.states[day.inside, column[uuid]]
        states = there.get(key, np.full(len(times), NOT_THERE, np.int64))
        covered = overlap(own.get(key, NO_INTERVALS), begin, end)
        working, holding = states == CODE_OF[ACTIVE], states == CODE_OF[IDLE_HELD]
        # On an active card without a visible worker, the person who reserved it may be working.
        without_them = (on_card == CODE_OF[ACTIVE]) & at_work[:, column[uuid]]
        without_them |= (on_card == CODE_OF[IDLE_HELD]) | (on_card == CODE_OF[TRULY_IDLE])
        # Unattributed memory may belong to anyone who reserved the card.
        theirs, by_jobs = (
            _of_anybody(some, uuid) if who == UNATTRIBUTED else some.get(key, NO_INTERVALS) for some in (own, jobs)
        )
        beyond = end - begin - overlap(theirs, begin, end)
        # A job ends between two ticks, and its processes with it: the time until the next is held against nobody.
        beyond[overlap(by_jobs, times, times + 1) > 0] = 0
        free = covered[(states == NOT_THERE) & without_them]
        for place, some in enumerate((covered[working], free, covered[holding], beyond[working | holding]), start=1):
            spent[key][place] += int(some.sum())


def _of_anybody(intervals: dict[Key, Integers], uuid: str) -> Integers:
    return union(np.concatenate([NO_INTERVALS, *(some for (_, on), some in intervals.items() if on == uuid)]))


def _presences(day: Classified) -> tuple[Booleans, dict[Key, Integers]]:
    tick, card, identity, state, names = presences(day)
    at_work = np.zeros(day.states.shape, bool)
    at_work[tick[state == CODE_OF[ACTIVE]], card[state == CODE_OF[ACTIVE]]] = True
    uuids = day.cards["uuid"].to_numpy()
    sizes = len(names), len(uuids)
    pairs = np.ravel_multi_index((identity, card), sizes)
    there: dict[Key, Integers] = {}
    distinct = np.unique(pairs)
    for pair, who, where in zip(distinct, *np.unravel_index(distinct, sizes), strict=True):
        states = np.full(len(day.ticks), NOT_THERE, np.int64)
        states[tick[pairs == pair]] = state[pairs == pair]
        there[str(names[who]), str(uuids[where])] = states[day.inside]
    return at_work[day.inside], there


def _table(spent: Spent, facts: pd.DataFrame, is_complete: bool) -> pd.DataFrame:
    """The sums as a table, with most to act on first. Unreserved hours are unknown if reservations are missing.

    Unknown is reserved time that the driver did not report or nobody observed.
    """
    places = dict(zip(facts["uuid"], zip(facts["gpu_index"], facts["mig_index"], strict=True), strict=True))
    rows = []
    for (who, uuid), sums in sorted(spent.items(), key=lambda item: (-sum(item[1][2:]), item[0])):
        if any(sums):
            reserved, used, free, held, unreserved = sums
            idle = free + held
            times = reserved, used, idle, held, reserved - used - idle, unreserved, free
            rows.append([who, uuid, *places.get(uuid, (None, None)), *(ms / HOUR_MS for ms in times)])
    frame = pd.DataFrame(rows, columns=RESERVATION_COLUMNS)
    return frame if is_complete else frame.assign(unreserved_hours=np.nan)
