"""The rules that decide what a card is doing. They are written here, once.

The functions use nothing but comparison and `&`, `|`, `^`, so the same code takes the sampler's
single floats and the report's whole columns. A missing number is NaN: it compares as false.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from gua_sample.records import Card

ACTIVE = "active"
IDLE_HELD = "idle-held"
TRULY_IDLE = "truly-idle"
UNKNOWN = "unknown"
STATES = (ACTIVE, IDLE_HELD, TRULY_IDLE, UNKNOWN)

STATUS_OK = "ok"
# A gap between two ticks of up to this many intervals is a late tick, a longer one is a hole.
LONGEST_GAP_INTERVALS = 2.5

NAN = float("nan")


class Policy(NamedTuple):
    utilization_percent: float = 10.0  # at or above: active
    process_memory_mib: float = 100.0  # above: held
    unattributed_memory_mib: float = 1024.0  # above: held, though no process shows it


DEFAULT = Policy()


def card_states(
    utilization_percent: Any,
    failed: Any,
    process_memory_mib: Any,
    memory_used_mib: Any,
    policy: Policy = DEFAULT,
) -> dict[str, Any]:
    """One truth value (or one boolean column) for each state; exactly one of them is true.

    `process_memory_mib` is the sum over the card's processes: 0 without any, NaN as soon as one
    of them is not known. `failed`: the card failed, or its process list could not be had.
    """
    no_process_memory = process_memory_mib != process_memory_mib
    no_memory_used = memory_used_mib != memory_used_mib
    # Where a process's memory is N/A (WSL, some MIG), the card's memory in use stands in for the sum.
    held = (
        (process_memory_mib > policy.process_memory_mib)
        | (no_process_memory & (memory_used_mib > policy.process_memory_mib))
        | (memory_used_mib - process_memory_mib > policy.unattributed_memory_mib)
    )
    not_measurable = utilization_percent != utilization_percent

    active = utilization_percent >= policy.utilization_percent
    in_the_dark = failed | (no_process_memory & no_memory_used) | (held & not_measurable)
    unknown = in_the_dark & (active ^ True)
    idle_held = held & ((active | unknown) ^ True)
    truly_idle = (active | unknown | idle_held) ^ True
    return {ACTIVE: active, IDLE_HELD: idle_held, TRULY_IDLE: truly_idle, UNKNOWN: unknown}


def card_state(card: Card, policy: Policy = DEFAULT) -> str:
    """The state of one card-tick."""
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
