"""The processes on cards, tick by tick: who holds, who was only passing, who is alone, and the state of each.

The rule is in gua_sample/policy.py.
"""

from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from gua_report.ticks.arrays import Booleans, Floats, Integers
from gua_report.ticks.read_partition import ProcessRows
from gua_sample.policy import (
    LONGEST_PASSING_INTERVAL_MS,
    STATES,
    Policy,
    computes,
    has_faded,
    hold_together,
    is_at_work,
    is_large,
    is_over,
    process_states,
)

NOBODY = -1


class Ends(NamedTuple):
    """Whether a tick can be judged together with the tick beside it, as tables of ticks by cards."""

    before: Booleans
    after: Booleans


class Sightings(NamedTuple):
    """Processes on cards, as columns sorted by process, card and tick; and tables of ticks by cards."""

    tick: Integers
    card: Integers
    cell: Integers  # tick and card as one number
    key: Integers
    process: Integers
    person: Integers
    memory_mib: Floats
    sm_percent: Floats
    later_percent: Floats  # at the other end of the tick's time; NaN if it is not told, or the process has gone
    was_over: Booleans  # what it did had ended before the tick
    holds: Booleans
    passes: Booleans  # it holds the card at this tick, but neither at the one before nor at the next
    holds_on: Booleans  # [tick, card]: whether a process holds the card that does not pass
    has_passing: Booleans  # [tick, card]


def see_processes(
    rows: ProcessRows,
    intervals_ms: Floats,
    facts: pd.DataFrame,
    cell: Integers,
    total_mib: Floats,
    ends: Ends,
    policy: Policy,
) -> Sightings:
    """The processes of all ticks. `cell` is the tick and card of each row, in tables like `total_mib`."""
    shape = total_mib.shape
    card = np.unravel_index(cell, shape)[1]
    key = facts["key"].to_numpy()[rows.process]
    place = np.ravel_multi_index((key, card), (len(facts), shape[1]))
    # A stable sort is faster, and right unless a tick was written late.
    in_order = bool((np.diff(rows.tick) >= 0).all())
    order = np.argsort(place, kind="stable") if in_order else np.lexsort((rows.tick, place))
    tick, card, cell, key, process, place = (
        column[order] for column in (rows.tick, card, cell, key, rows.process, place)
    )
    memory, percent = rows.memory_mib[order], rows.sm_percent[order]

    stays = (place[1:] == place[:-1]) & (tick[1:] == tick[:-1] + 1)
    was_there, will_be_there = (np.append(False, stays)[: len(tick)], np.append(stays, False)[: len(tick)])
    has_before, has_after = ends.before.ravel()[cell], ends.after.ravel()[cell]
    later = np.where(will_be_there, np.append(percent[1:], np.nan)[: len(tick)], np.nan)
    earlier = np.where(was_there & has_before, np.append(np.nan, percent[:-1])[: len(tick)], np.nan)

    large = is_large(memory, facts["type"].map(computes).to_numpy(dtype=bool)[process], policy)
    has_large = _mark(shape, cell[large]).ravel()[cell]
    holds = large | hold_together(total_mib.ravel()[cell], has_large, policy)
    interval = intervals_ms[tick]
    is_brief = interval <= LONGEST_PASSING_INTERVAL_MS
    passes = holds & is_brief & has_before & ~was_there & has_after & ~will_be_there
    passes[passes] = ~_are_seen_beside(facts["pid"].to_numpy()[process], tick, card, np.flatnonzero(passes))
    person = pd.factorize(facts["identity"])[0][process]
    was_over = has_after & is_over(has_faded(earlier, percent), later, interval)
    later = np.where(has_after, later, percent)
    tables = _mark(shape, cell[holds & ~passes]), _mark(shape, cell[passes])
    return Sightings(tick, card, cell, key, process, person, memory, percent, later, was_over, holds, passes, *tables)


def _are_seen_beside(pid: Integers, tick: Integers, card: Integers, rows: Integers) -> Booleans:
    """Whether the pids of these rows are on their card at a tick beside, though with another start.

    The start of a process is told anew where a run can't read what earlier ones stored.
    """
    near = np.flatnonzero(np.isin(pid, pid[rows]))
    number = np.unique(pid[near], return_inverse=True)[1]
    # Only the numbers of ticks beside each other are one apart.
    sizes = len(near), int(card.max(initial=0)) + 1, int(tick.max(initial=0)) + 3
    seen = np.ravel_multi_index((number, card[near], tick[near]), sizes)
    own = seen[np.searchsorted(near, rows)]
    beside: Booleans = np.isin(own - 1, seen) | np.isin(own + 1, seen)
    return beside


def judge_processes(
    seen: Sightings, on: dict[str, Booleans], is_dark: Booleans, ends: Ends, policy: Policy
) -> pd.DataFrame:
    holds_on = seen.holds & ~seen.passes
    percents = seen.sm_percent, seen.later_percent
    not_told = np.isnan(percents[0]) & np.isnan(percents[1])
    at_work = (is_at_work(*percents, policy) & ~seen.was_over) | (holds_on & not_told)
    states = process_states(
        {state: mask.ravel()[seen.cell] for state, mask in on.items()},
        is_dark.ravel()[seen.cell],
        _are_alone(seen, holds_on, ends),
        holds_on,
        percents,
        seen.was_over,
        _mark(is_dark.shape, seen.cell[at_work]).ravel()[seen.cell],
        policy,
    )
    return pd.DataFrame(
        {
            "tick": seen.tick,
            "card": seen.card,
            "key": seen.key,
            "process": seen.process,
            "state": np.select([states[state] for state in STATES], range(len(STATES))),
            "counts": holds_on | (seen.sm_percent > 0),
            "memory_mib": seen.memory_mib,
            "sm_percent": seen.sm_percent,
        }
    )


def _are_alone(seen: Sightings, holds_on: Booleans, ends: Ends) -> Booleans:
    """Whether nobody else holds the card, at either end; or is on it, if nobody holds it at all."""
    shape = ends.after.shape
    person, shared = _company(shape, seen, holds_on | ~seen.holds_on.ravel()[seen.cell])
    later, shared_later = (np.roll(table, -1, axis=0) for table in _company(shape, seen, seen.holds))
    joined_by_others = shared_later | ((later != NOBODY) & (later != person))
    shared |= ends.after & joined_by_others
    alone: Booleans = ~shared.ravel()[seen.cell] & (person.ravel()[seen.cell] == seen.person)
    return alone


def _company(shape: tuple[int, ...], seen: Sightings, counts: Booleans) -> tuple[Integers, Booleans]:
    """One of the people who count on each card at each tick, or NOBODY; and whether there are others."""
    cell, person = seen.cell[counts], seen.person[counts]
    one = np.full(shape, NOBODY, np.int64)
    one.ravel()[cell] = person
    return one, _mark(shape, cell[one.ravel()[cell] != person])


def _mark(shape: tuple[Any, ...], cell: Integers) -> Booleans:
    table = np.zeros(shape, bool)
    table.ravel()[cell] = True
    return table
