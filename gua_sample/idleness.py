"""Since when cards are in their states and processes are idle, followed from tick to tick.

Each run that writes metrics leaves a small state file in the data folder for the next one. If that file is missing,
damaged, of another boot, or may lack ticks, past_ticks.py computes the state from the history, by the same steps.
"""

# No `from __future__ import annotations` here: see records.py.
import os
from collections.abc import Callable
from typing import NamedTuple

from gua_sample.errors import StoreError
from gua_sample.policy import (
    AT_0,
    DEFAULT,
    IDLE_HELD,
    LONGEST_GAP_INTERVALS,
    RESTS,
    TICKS_AROUND,
    UNKNOWN,
    WORKS,
    Policy,
    card_state,
    describe_processes,
    process_state,
    typical_gap,
)
from gua_sample.records import Tick
from gua_sample.safe_file import read_regular
from gua_sample.whole_file import replace_file

NAME = "idle.state"
FIRST_LINE, LAST_LINE = "gua idle state, version 1", "end"
MOST_BYTES = 4 << 20  # a line of a hundred bytes for each process

Key = tuple[str, int, int | None]  # the card's uuid, the pid, and the process's start, because pids are reused
Joins = Callable[[int, int], bool]  # whether there is no hole between two ticks, given the earlier and the later time


class Sight(NamedTuple):
    """What a tick tells: a fresh one, or one of the history."""

    ts_ms: int
    boot_id: str
    cards: dict[str, str] | None  # states by uuid; None: the tick saw no cards
    processes: dict[Key, int]  # the policy's bits


class CardTrace(NamedTuple):
    """The carried state of one card."""

    state: str
    since_ms: int


class Trace(NamedTuple):
    """The carried state of one process on one card."""

    seen_ms: int  # the last tick that saw it
    at_0_ms: int | None  # the last tick at which its SM utilization was 0, unless it was above 0 since
    idle_since_ms: int | None  # the second such tick in a row
    held_since_ms: int | None  # the first tick of its idle-held episode, as in reports
    # The fields above are stored in the file.
    bits: int
    state: str = UNKNOWN
    began: bool = True  # whether the beginning of the episode was seen; else it may have begun earlier


class Carried(NamedTuple):
    boot_id: str
    times_ms: list[int]  # of the last ticks, newest last
    success_ms: int | None  # the last tick that saw cards
    errors: int  # number of failed ticks since counting began
    traces: dict[Key, Trace]
    # The fields above are stored in the file.
    cards: dict[str, CardTrace]  # those of the last tick that saw cards
    unbroken_ms: int | None  # the first tick after the last hole or reboot; None: there was no tick since


NOTHING = Carried("", [], None, 0, {}, {}, None)


def sight_of(tick: Tick, policy: Policy = DEFAULT) -> Sight:
    cards, processes = {}, {}
    for card in tick.cards:
        uuid = card.facts.uuid
        cards[uuid] = card_state(card, policy)
        for usage, bits in zip(card.usages, describe_processes(card, policy), strict=True):
            processes[uuid, usage.pid, tick.processes[usage.pid].start_time_ms] = bits
    return Sight(tick.ts_ms, tick.boot.id, cards or None, processes)


def follow(before: Carried, at: Sight, joins: Joins) -> Carried:
    """The state to carry on from this tick."""
    # A process that is missing from its list for a moment keeps its trace.
    traces = {key: trace for key, trace in before.traces.items() if joins(trace.seen_ms, at.ts_ms)}
    unbroken_ms = before.unbroken_ms
    if before.boot_id != at.boot_id:
        traces = {key: Trace(trace.seen_ms, None, None, None, trace.bits) for key, trace in traces.items()}
        unbroken_ms = None
    times = [*before.times_ms, at.ts_ms][-TICKS_AROUND - 1 :]
    after = before._replace(boot_id=at.boot_id, times_ms=times, traces=traces, unbroken_ms=unbroken_ms)
    if at.cards is None:
        return after._replace(errors=before.errors + 1)
    linked_ms = before.success_ms if unbroken_ms is not None else None
    if linked_ms is None or not joins(linked_ms, at.ts_ms):
        linked_ms, unbroken_ms = None, at.ts_ms
    known = {} if linked_ms is None else before.cards
    cards = {
        uuid: known[uuid] if uuid in known and known[uuid].state == state else CardTrace(state, at.ts_ms)
        for uuid, state in at.cards.items()
    }
    for key, bits in at.processes.items():
        last = traces.get(key)
        state = process_state(at.cards[key[0]], bits, last.bits if last else 0)
        at_0_ms, idle_since_ms = _idle(last, bits, at.ts_ms, joins)
        held_since_ms, began = None, linked_ms is not None
        if last and last.seen_ms == linked_ms:
            held_since_ms, began = last.held_since_ms, last.began
        if state == IDLE_HELD:
            held_since_ms = at.ts_ms if held_since_ms is None else held_since_ms
        else:
            # A process that rests after a hole, beside others, may have been idle already: no tick before can tell.
            held_since_ms, began = None, linked_ms is not None or not bits & RESTS
        traces[key] = Trace(at.ts_ms, at_0_ms, idle_since_ms, held_since_ms, bits, state, began)
    return after._replace(success_ms=at.ts_ms, cards=cards, unbroken_ms=unbroken_ms)


def _idle(before: Trace | None, bits: int, ts_ms: int, joins: Joins) -> tuple[int | None, int | None]:
    """The time at which the process was last at 0 %, and the time since which it is idle.

    A tick without a value neither begins nor ends idle time, as long as two ticks with a value bridge it.
    """
    at_0_ms, since_ms = (before.at_0_ms, before.idle_since_ms) if before else (None, None)
    if bits & WORKS or at_0_ms is None or not joins(at_0_ms, ts_ms):
        at_0_ms = since_ms = None
    if not bits & AT_0:
        return at_0_ms, since_ms
    return ts_ms, since_ms if at_0_ms is None or since_ms is not None else ts_ms


def follow_tick(before: Carried, tick: Tick) -> Carried:
    """The state to carry on from a fresh tick."""
    times = [*before.times_ms, tick.ts_ms][-TICKS_AROUND - 1 :]
    longest_ms = LONGEST_GAP_INTERVALS * interval_ms(times, tick)
    return follow(before, sight_of(tick), lambda earlier, later: 0 < later - earlier <= longest_ms)


def interval_ms(times_ms: list[int], tick: Tick | None) -> float:
    """The interval between ticks: as stored with the tick, else the median gap of the last ticks."""
    return typical_gap(times_ms) if tick is None or tick.interval_ms is None else tick.interval_ms


def continues(before: Carried, tick: Tick) -> bool:
    """Whether the tick comes right after those that led to this state."""
    if before.boot_id != tick.boot.id or not before.times_ms:
        return False
    return 0 < tick.ts_ms - before.times_ms[-1] <= LONGEST_GAP_INTERVALS * interval_ms(before.times_ms, tick)


def load(data_dir: str) -> Carried | None:
    """The state that the last run left, or None if it is missing or not understood."""
    try:
        text = read_regular(os.path.join(data_dir, NAME), MOST_BYTES).decode()
        first, boot_id, times, success, errors, *rows, last = text.splitlines()
        if (first, last) != (FIRST_LINE, LAST_LINE):
            return None
        traces = {}
        for row in rows:
            uuid, pid, start, *ends = row.split("\t")
            seen, at_0, idle, held = map(_number, ends[:4])  # a newer gua may have written more columns
            bits = AT_0 if at_0 is not None and at_0 == seen else 0
            traces[uuid, int(pid), _number(start)] = Trace(seen or 0, at_0, idle, held, bits)
        success_ms = _number(success)
        times_ms = [int(time) for time in times.split()]
        return Carried(boot_id, times_ms, success_ms, int(errors), traces, {}, success_ms)
    except (OSError, ValueError, StoreError):
        return None


def save(data_dir: str, carried: Carried) -> None:
    lines = [FIRST_LINE, carried.boot_id, " ".join(map(str, carried.times_ms)), _text(carried.success_ms)]
    lines.append(str(carried.errors))
    for (uuid, pid, start), trace in carried.traces.items():
        lines.append("\t".join([uuid, str(pid), _text(start), *map(_text, trace[:4])]))
    replace_file(os.path.join(data_dir, NAME), "\n".join([*lines, LAST_LINE, ""]))


def _number(text: str) -> int | None:
    return None if text == "-" else int(text)


def _text(number: int | None) -> str:
    return "-" if number is None else str(number)
