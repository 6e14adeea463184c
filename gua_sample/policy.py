"""The rules that decide what a card and a process are doing. They are written here, once.

The functions use nothing but comparison and `&`, `|`, `^`, so the same code takes the sampler's
single floats, the report's whole columns, and names of columns to make SQL of. A missing number
is NaN: it compares as false.
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
# Of an identity's processes on a card, the most active one counts.
MOST_ACTIVE_FIRST = (ACTIVE, IDLE_HELD, UNKNOWN, TRULY_IDLE)

STATUS_OK = "ok"
# A gap between two ticks of up to this many intervals is a late tick, a longer one is a hole.
LONGEST_GAP_INTERVALS = 2.5
# A tick that was told no interval takes the median gap of so many ticks around it.
TICKS_AROUND = 20
# A history of a single tick has no gap to go by; this is what the timer has.
DEFAULT_INTERVAL_MS = 30_000

NAN = float("nan")


class Policy(NamedTuple):
    utilization_percent: float = 10.0  # at or above: active
    process_memory_mib: float = 100.0  # above: held
    unattributed_memory_mib: float = 1024.0  # above: held, though no process shows it


DEFAULT = Policy()


def is_unattributed(memory_used_mib: Any, process_memory_mib: Any, policy: Policy) -> Any:
    """Whether memory is in use that no process shows: one that is hidden, or a zombie's."""
    return memory_used_mib - process_memory_mib > policy.unattributed_memory_mib


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
    """Whether a process holds its card by itself. One whose memory is not known may well do."""
    return (memory_mib <= policy.process_memory_mib) ^ True


def hold_together(process_memory_mib: Any, has_large: Any, policy: Policy) -> Any:
    """Whether many small processes hold a card together: by their sum, where none of them is large."""
    return (process_memory_mib > policy.process_memory_mib) & (has_large ^ True)


def rests(memory_mib: Any, sm_percent: Any, policy: Policy) -> Any:
    """Whether a process is known to hold memory and to do nothing, whatever else goes on on its card."""
    return (memory_mib > policy.process_memory_mib) & (sm_percent == 0)


def is_idle(on_idle_held: Any, holds: Any, rests: Any, did_nothing_before: Any) -> Any:
    """Whether a process idle-holds its card: with the card, or by itself, at this tick and the one before.

    `holds`: it is large, or one of those that hold together.
    """
    return (on_idle_held & holds) | (rests & did_nothing_before)


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


def process_states(card: Card, state: str, was_at_0: list[bool], policy: Policy = DEFAULT) -> list[tuple[str, bool]]:
    """The state of each process on a card in that state, and whether it is one of those who hold it or work on it."""
    memories = [NAN if usage.memory_mib is None else float(usage.memory_mib) for usage in card.usages]
    large = [is_large(memory, policy) for memory in memories]
    total, card_has_large = sum(memories), any(large)
    found = []
    for usage, memory, own_large, at_0 in zip(card.usages, memories, large, was_at_0, strict=True):
        holder = own_large | hold_together(total, card_has_large, policy)
        own = state
        if is_idle(state == IDLE_HELD, holder, rests(memory, usage.sm_percent, policy), at_0):
            own = IDLE_HELD
        elif state == IDLE_HELD:
            own = TRULY_IDLE  # a desktop beside somebody's idle notebook holds nothing
        found.append((own, holder or bool(usage.sm_percent)))
    return found
