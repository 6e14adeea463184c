"""The only rules for the states of cards and processes, which docs/schema.md tells in five sentences.

A state is that of the time from one tick to the next, and is judged by both; the newest tick is judged by itself. The
functions use only comparisons and `&`, `|`, `^`, so that the same code works on single values and on whole columns. A
missing number is NaN, which compares as false.
"""

from itertools import pairwise
from typing import Any, NamedTuple

from gua_sample.errors import UsageError
from gua_sample.records import Card

RULE = 4  # the number of this rule; days that were stored under an earlier one are made anew
ACTIVE = "active"
IDLE_HELD = "idle-held"
TRULY_IDLE = "truly-idle"
UNKNOWN = "unknown"
STATES = (ACTIVE, IDLE_HELD, TRULY_IDLE, UNKNOWN)
# An identity with several processes on a card gets the state of the most active one.
MOST_ACTIVE_FIRST = (ACTIVE, IDLE_HELD, UNKNOWN, TRULY_IDLE)

STATUS_OK = "ok"
# The status of a card with MIG on and no instance: it is in none of the states.
UNPARTITIONED = "unpartitioned"
# A gap between two ticks of up to this many intervals is a late tick; a longer gap is a hole.
LONGEST_GAP_INTERVALS = 2.5
# A day's first and last tick also stand for the time to midnight, if that is at most so many intervals.
LONGEST_REACH_INTERVALS = 1.5
# A tick without a stored interval takes the median gap of this many ticks around it.
TICKS_AROUND = 20
# A longer gap does not count as an interval: a day of two ticks may have none.
LONGEST_INTERVAL_MS = 7_200_000
# The timer's interval, for a history of a single tick, which has no gaps.
DEFAULT_INTERVAL_MS = 30_000
# The driver's buffer reaches back some 16 s. Of a longer interval it leaves a part untold.
LONGEST_TOLD_INTERVAL_MS = 20_000
# Work that had fallen below this part of the tick before, and came to nothing, was over.
FADED = 0.9
# At longer intervals, a process that is seen at a single tick may have held its card for minutes.
LONGEST_PASSING_INTERVAL_MS = 60_000

NAN = float("nan")


class Policy(NamedTuple):
    utilization_percent: float = 10.0  # at or above: active
    process_memory_mib: float = 100.0  # above: held
    unattributed_memory_mib: float = 1024.0  # above: held, though no process shows it


class OneThreshold(Policy):
    """A card is held above `process_memory_mib` of its memory in use, whoever holds it."""

    __slots__ = ()


DEFAULT = Policy()


def parse_policy(text: str) -> Policy:
    """The thresholds of --policy, in the order of [policy]."""
    try:
        utilization_percent, process_mib, unattributed_mib = map(float, text.split(","))
        if 0 <= utilization_percent <= 100 and all(0 <= mib < float("inf") for mib in (process_mib, unattributed_mib)):
            return Policy(utilization_percent, process_mib, unattributed_mib)
    except ValueError:
        pass
    raise UsageError(f"bad thresholds {text!r} for --policy: expected a percentage and two numbers of MiB: 10,100,1024")


class End(NamedTuple):
    """What one tick tells of a card, at one end of the time to be judged. Each field may be a column."""

    utilization_percent: Any
    is_dark: Any  # the card failed, or what it holds can't be known
    is_held: Any


def is_unattributed(memory_used_mib: Any, process_memory_mib: Any, policy: Policy) -> Any:
    """Whether memory is in use that no process shows: a hidden process's, or a zombie's."""
    return memory_used_mib - process_memory_mib > policy.unattributed_memory_mib


def see_end(
    utilization_percent: Any, failed: Any, process_memory_mib: Any, memory_used_mib: Any, policy: Policy = DEFAULT
) -> End:
    """What a tick tells of a card. `failed`: the card failed, or its process list is unavailable."""
    no_process_memory = process_memory_mib != process_memory_mib
    # Where a process's memory is N/A (WSL, some MIG), the card's memory in use stands in for the sum.
    held = (
        (process_memory_mib > policy.process_memory_mib)
        | (no_process_memory & (memory_used_mib > policy.process_memory_mib))
        | is_unattributed(memory_used_mib, process_memory_mib, policy)
        | (isinstance(policy, OneThreshold) & (memory_used_mib > policy.process_memory_mib))
    )
    return End(utilization_percent, failed | (no_process_memory & (memory_used_mib != memory_used_mib)), held)


def is_at_work(first_percent: Any, second_percent: Any, policy: Policy) -> Any:
    threshold = policy.utilization_percent
    return (
        (first_percent + second_percent >= 2 * threshold)
        | ((first_percent != first_percent) & (second_percent >= threshold))
        | ((second_percent != second_percent) & (first_percent >= threshold))
    )


def has_faded(earlier_percent: Any, first_percent: Any) -> Any:
    """Whether there was less work at a tick than at the one before."""
    return first_percent < FADED * earlier_percent


def is_over(has_faded: Any, second_percent: Any, interval_ms: Any) -> Any:
    """Whether work had ended before the first of two ticks. Where buffers tell all of the interval, they tell it."""
    return has_faded & (second_percent < 1) & (interval_ms > LONGEST_TOLD_INTERVAL_MS)


def card_states(begin: End, end: End, holds_on: Any, was_over: Any = False, policy: Policy = DEFAULT) -> dict[str, Any]:
    """One truth value (or one boolean column) for each state; exactly one of them is true.

    `holds_on`: the card is held at the beginning by more than processes that are seen at a single tick. `was_over`: the
    work that the first reading tells of had ended.
    """
    first, second = begin.utilization_percent, end.utilization_percent
    reaches_first, reaches_second = first >= policy.utilization_percent, second >= policy.utilization_percent
    held, free_later = begin.is_held, end.is_held ^ True
    active = (
        (held & end.is_held & is_at_work(first, second, policy) & (was_over ^ True))
        # What has gone before the second tick may have worked before the first, or after it.
        | (held & free_later & (reaches_first | reaches_second))
        # Somebody who is on the card at neither tick, or not on its list, works there only if both readings say so.
        | ((held ^ True) & free_later & reaches_first & reaches_second)
    )
    # Without a reading at the beginning, the one at the end may show work, but not that there was none.
    unknown = (begin.is_dark | (held & (first != first))) & (active ^ True)
    idle_held = held & holds_on & ((active | unknown) ^ True)
    truly_idle = (active | unknown | idle_held) ^ True
    return {ACTIVE: active, IDLE_HELD: idle_held, TRULY_IDLE: truly_idle, UNKNOWN: unknown}


def is_large(memory_mib: Any, computes: Any, policy: Policy) -> Any:
    """Whether a process holds its card by itself, as one that computes does if its memory is unknown."""
    return (memory_mib > policy.process_memory_mib) | ((memory_mib != memory_mib) & computes)


def computes(type_: str) -> bool:
    """Whether a process is on the card for more than graphics."""
    return type_ != "graphics"


def hold_together(process_memory_mib: Any, has_large: Any, policy: Policy) -> Any:
    return (process_memory_mib > policy.process_memory_mib) & (has_large ^ True)


def process_states(
    on: dict[str, Any],
    is_dark: Any,
    is_alone: Any,
    holds_on: Any,
    percents: tuple[Any, Any],
    was_over: Any,
    is_accounted_for: Any,
    policy: Policy = DEFAULT,
) -> dict[str, Any]:
    """One truth value (or one boolean column) for each state of a process; exactly one of them is true.

    `on`: the states of its card, which failed if `is_dark`. `is_alone`: nobody else holds the card. `percents`: its own
    SM utilization at both ticks; `was_over`: the work that the first tells of had ended. `is_accounted_for`: some
    process accounts for the card's work, or may do so.
    """
    first, second = percents
    did_something = (first > 0) | (second > 0)
    works = is_at_work(first, second, policy) & (was_over ^ True)
    works = works | (on[ACTIVE] & did_something & (is_accounted_for ^ True))
    beside_others = is_alone ^ True
    active = (is_alone & on[ACTIVE]) | (beside_others & works & (is_dark ^ True))
    # On a card that does nothing, nobody does, told or not.
    not_told = (first != first) & (second != second) & (on[ACTIVE] | on[UNKNOWN])
    unknown = holds_on & ((is_alone & on[UNKNOWN]) | (beside_others & (is_dark | not_told))) & (active ^ True)
    idle_held = holds_on & ((active | unknown | on[TRULY_IDLE]) ^ True)
    truly_idle = (active | unknown | idle_held) ^ True
    return {ACTIVE: active, IDLE_HELD: idle_held, TRULY_IDLE: truly_idle, UNKNOWN: unknown}


def memories_mib(card: Card) -> list[float]:
    """The memory of each process on a card; NaN if that is unknown."""
    return [NAN if usage.memory_mib is None else float(usage.memory_mib) for usage in card.usages]


def end_of(card: Card, policy: Policy = DEFAULT) -> End:
    percent, used_mib = (NAN if known is None else known for known in (card.utilization_percent, card.memory_used_mib))
    return see_end(percent, card.facts.status != STATUS_OK, sum(memories_mib(card)), float(used_mib), policy)


def card_state(card: Card, policy: Policy = DEFAULT) -> str:
    """The state of a card by one tick alone, or `unpartitioned`, if nothing can use it."""
    if card.facts.status == UNPARTITIONED:
        return UNPARTITIONED
    end = end_of(card, policy)
    return chosen(card_states(end, end, True, policy=policy))


def chosen(states: dict[str, bool]) -> str:
    return next(state for state in STATES if states[state])


def unattributed_mib(card: Card, policy: Policy = DEFAULT) -> int | None:
    """The memory on an idle-held card that no process shows; None if that is little or unknown."""
    held_mib, used_mib = sum(memories_mib(card)), card.memory_used_mib
    if used_mib is None or card_state(card, policy) != IDLE_HELD or not is_unattributed(used_mib, held_mib, policy):
        return None
    return used_mib - int(held_mib)


def holding(card: Card, policy: Policy = DEFAULT) -> list[bool]:
    """Whether each process on a card holds it, by itself or together with others."""
    memories = memories_mib(card)
    pairs = zip(memories, card.usages, strict=True)
    large = [is_large(memory, computes(usage.type), policy) for memory, usage in pairs]
    together = hold_together(sum(memories), any(large), policy)
    return [one or together for one in large]


def typical_gap(times_ms: list[int], longest_ms: float = LONGEST_INTERVAL_MS) -> float:
    """The median gap between ticks, oldest first."""
    gaps = sorted(later - earlier for earlier, later in pairwise(times_ms) if later - earlier <= longest_ms)
    return (gaps[(len(gaps) - 1) // 2] + gaps[len(gaps) // 2]) / 2 if gaps else DEFAULT_INTERVAL_MS
