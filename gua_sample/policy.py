"""The only rules for the states of cards and processes.

The functions use only comparisons and `&`, `|`, `^`, so that the same code works on the sampler's
single floats, on the report's whole columns, and on column names that are turned into SQL. A missing
number is NaN, which compares as false.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from gua_sample.records import Card

ACTIVE = "active"
IDLE_HELD = "idle-held"
TRULY_IDLE = "truly-idle"
UNKNOWN = "unknown"
STATES = (ACTIVE, IDLE_HELD, TRULY_IDLE, UNKNOWN)
# An identity with several processes on a card gets the state of the most active one.
MOST_ACTIVE_FIRST = (ACTIVE, IDLE_HELD, UNKNOWN, TRULY_IDLE)

STATUS_OK = "ok"
# The status of a card with MIG on and no instance, which nothing can use: it is in none of the states.
UNPARTITIONED = "unpartitioned"
# A gap between two ticks of up to this many intervals is a late tick; a longer gap is a hole.
LONGEST_GAP_INTERVALS = 2.5
# A tick without a stored interval takes the median gap of this many ticks around it.
TICKS_AROUND = 20
# A longer gap is a hole and does not count as an interval: a day of two ticks has a gap, but may have no interval.
LONGEST_INTERVAL_MS = 7_200_000
# The timer's interval, for a history of a single tick, which has no gaps.
DEFAULT_INTERVAL_MS = 30_000

# What a tick tells of a process on a card, as bits of one number.
HOLDS = 1  # it is large, or small processes hold the card together
RESTS = 2  # see `rests`
AT_0 = 4  # its SM utilization is 0
WORKS = 8  # its SM utilization is above 0

NAN = float("nan")


class Policy(NamedTuple):
    utilization_percent: float = 10.0  # at or above: active
    process_memory_mib: float = 100.0  # above: held
    unattributed_memory_mib: float = 1024.0  # above: held, though no process shows it


DEFAULT = Policy()


def is_unattributed(memory_used_mib: Any, process_memory_mib: Any, policy: Policy) -> Any:
    """Whether memory is in use that no process shows: a hidden process's, or a zombie's."""
    return memory_used_mib - process_memory_mib > policy.unattributed_memory_mib


def card_states(
    utilization_percent: Any,
    failed: Any,
    process_memory_mib: Any,
    memory_used_mib: Any,
    policy: Policy = DEFAULT,
) -> dict[str, Any]:
    """One truth value (or one boolean column) for each state; exactly one of them is true.

    `process_memory_mib` is the sum over the card's processes: 0 without any, NaN if one of them is
    unknown. `failed`: the card failed, or its process list is unavailable.
    """
    no_process_memory = process_memory_mib != process_memory_mib
    no_memory_used = memory_used_mib != memory_used_mib
    # Where a process's memory is N/A (WSL, some MIG), the card's memory in use stands in for the sum.
    held = (
        (process_memory_mib > policy.process_memory_mib)
        | (no_process_memory & (memory_used_mib > policy.process_memory_mib))
        | is_unattributed(memory_used_mib, process_memory_mib, policy)
    )
    not_measurable = utilization_percent != utilization_percent

    active = utilization_percent >= policy.utilization_percent
    in_the_dark = failed | (no_process_memory & no_memory_used) | (held & not_measurable)
    unknown = in_the_dark & (active ^ True)
    idle_held = held & ((active | unknown) ^ True)
    truly_idle = (active | unknown | idle_held) ^ True
    return {ACTIVE: active, IDLE_HELD: idle_held, TRULY_IDLE: truly_idle, UNKNOWN: unknown}


def is_large(memory_mib: Any, policy: Policy) -> Any:
    """Whether a process holds its card by itself. A process with unknown memory is taken to do so."""
    return (memory_mib <= policy.process_memory_mib) ^ True


def hold_together(process_memory_mib: Any, has_large: Any, policy: Policy) -> Any:
    """Whether small processes hold a card together: their sum is large, and none of them is large alone."""
    return (process_memory_mib > policy.process_memory_mib) & (has_large ^ True)


def rests(memory_mib: Any, sm_percent: Any, policy: Policy) -> Any:
    """Whether a process is known to hold memory and to be idle, independent of the other processes on its card."""
    return (memory_mib > policy.process_memory_mib) & (sm_percent == 0)


def is_idle(on_idle_held: Any, holds: Any, rests: Any, did_nothing_before: Any) -> Any:
    """Whether a process idle-holds its card: with the card, or by itself, at this tick and the one before.

    `holds`: it is large, or small processes hold the card together.
    """
    return (on_idle_held & holds) | (rests & did_nothing_before)


def card_state(card: Card, policy: Policy = DEFAULT) -> str:
    """The state of one card-tick; `unpartitioned`, which is none of STATES, for a card that nothing can use."""
    if card.facts.status == UNPARTITIONED:
        return UNPARTITIONED
    memories = [usage.memory_mib for usage in card.usages]
    known = [memory for memory in memories if memory is not None]
    process_memory = float(sum(known)) if len(known) == len(memories) else NAN
    states = card_states(
        NAN if card.utilization_percent is None else card.utilization_percent,
        card.facts.status != STATUS_OK,
        process_memory,
        NAN if card.memory_used_mib is None else float(card.memory_used_mib),
        policy,
    )
    return next(state for state in STATES if states[state])


def unattributed_mib(card: Card, policy: Policy = DEFAULT) -> int | None:
    """The memory in use on an idle-held card that no process shows; None if that is little or unknown."""
    known = [usage.memory_mib for usage in card.usages if usage.memory_mib is not None]
    if card.memory_used_mib is None or len(known) < len(card.usages) or card_state(card, policy) != IDLE_HELD:
        return None
    held_mib = sum(known)
    return card.memory_used_mib - held_mib if is_unattributed(card.memory_used_mib, held_mib, policy) else None


def describe_process(memory_mib: Any, sm_percent: Any, policy: Policy) -> Any:
    """The bits of a process, as far as it tells them by itself: it may also hold the card together with others."""
    large, resting = is_large(memory_mib, policy), rests(memory_mib, sm_percent, policy)
    return HOLDS * large + RESTS * resting + AT_0 * (sm_percent == 0) + WORKS * (sm_percent > 0)


def describe_processes(card: Card, policy: Policy = DEFAULT) -> list[int]:
    """The bits of each process on a card."""
    memories = [NAN if usage.memory_mib is None else float(usage.memory_mib) for usage in card.usages]
    loads = [NAN if usage.sm_percent is None else usage.sm_percent for usage in card.usages]
    found = [describe_process(memory, load, policy) for memory, load in zip(memories, loads, strict=True)]
    together = hold_together(sum(memories), any(bits & HOLDS for bits in found), policy)
    return [bits | HOLDS * together for bits in found]


def process_state(state: str, bits: int, bits_before: int) -> str:
    """The state of a process on a card in that state. `bits_before`: at the last tick that saw it, 0 if long ago."""
    if is_idle(state == IDLE_HELD, bool(bits & HOLDS), bool(bits & RESTS), bool(bits_before & AT_0)):
        return IDLE_HELD
    # A small process, such as a desktop, does not hold a card that somebody else's idle notebook holds.
    return TRULY_IDLE if state == IDLE_HELD else state


def typical_gap(times_ms: list[int], longest_ms: float = LONGEST_INTERVAL_MS) -> float:
    """The median gap between ticks, oldest first. Importing `statistics` would take longer than all of this."""
    gaps = sorted(later - earlier for earlier, later in pairwise(times_ms) if later - earlier <= longest_ms)
    return (gaps[(len(gaps) - 1) // 2] + gaps[len(gaps) // 2]) / 2 if gaps else DEFAULT_INTERVAL_MS
