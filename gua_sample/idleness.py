"""The idle time of each process, carried from run to run.

Each run leaves a small state file in the data folder for the next one. If that file is missing, damaged, of another
boot, or may lack ticks, the state is computed from the history instead, by the same rule.
"""

# No `from __future__ import annotations` here: see records.py.
import os
from contextlib import suppress
from itertools import pairwise
from typing import NamedTuple

from gua_sample.errors import StoreError
from gua_sample.partition_file import Writer
from gua_sample.partition_names import DAY_MS, day_of, list_partitions, partition_path, samples_dir
from gua_sample.policy import (
    DEFAULT_INTERVAL_MS,
    IDLE_HELD,
    LONGEST_GAP_INTERVALS,
    TICKS_AROUND,
    card_state,
    process_states,
)
from gua_sample.records import Card, Tick, Usage
from gua_sample.safe_file import read_regular
from gua_sample.whole_file import replace_file

NAME = "idle.state"
FIRST_LINE, LAST_LINE = "gua idle state, version 1", "end"
# Days of history to read: the next number is tried only if a process was idle through all of the days before.
DAYS_BACK = (1, 2, 4, 8)
RECENT_MS = 3_600_000
MOST_BYTES = 4 << 20  # a line of a hundred bytes for each process
# A process that is idle since one of the first ticks that were read may have been idle for longer.
FIRST_TICKS = 4

Key = tuple[str, int, int | None]  # the card's uuid, the pid, and the process's start, because pids are reused


class Trace(NamedTuple):
    """The carried state of one process on one card."""

    seen_ms: int  # the last tick that saw it
    at_0_ms: int | None  # the last tick at which its SM utilization was 0, unless it was above 0 since
    idle_since_ms: int | None  # the second such tick in a row
    held_since_ms: int | None  # the first tick of its idle-held episode, as in reports


class Carried(NamedTuple):
    boot_id: str
    times_ms: list[int]  # of the last ticks, newest last
    success_ms: int | None  # the last tick that saw cards
    errors: int  # number of failed ticks since counting began
    traces: dict[Key, Trace]


class Seen(NamedTuple):
    """One process on one card at this tick."""

    card: Card
    usage: Usage
    state: str
    counts: bool  # whether it holds the card or works on it
    trace: Trace


NOTHING = Carried("", [], None, 0, {})


def interval_ms(carried: Carried, tick: Tick | None = None) -> float:
    """The interval between ticks: as stored with the tick, else the median gap of the last ticks."""
    if tick and tick.interval_ms is not None:
        return tick.interval_ms
    times = carried.times_ms
    gaps = sorted(later - earlier for earlier, later in pairwise(times))
    return (gaps[(len(gaps) - 1) // 2] + gaps[len(gaps) // 2]) / 2 if gaps else DEFAULT_INTERVAL_MS


def follow(before: Carried, tick: Tick) -> tuple[Carried, list[Seen]]:
    """The state to carry on from this tick, and the tick's processes."""
    times = [*before.times_ms, tick.ts_ms][-TICKS_AROUND - 1 :]
    after = before._replace(boot_id=tick.boot.id, times_ms=times)
    longest = LONGEST_GAP_INTERVALS * interval_ms(after, tick)
    traces = before.traces if before.boot_id == tick.boot.id else {}
    # A process that is missing from its list for a moment keeps its trace.
    near = {key: trace for key, trace in traces.items() if 0 < tick.ts_ms - trace.seen_ms <= longest}
    if not tick.cards:
        return after._replace(errors=before.errors + 1, traces=near), []
    seen = []
    traces = dict(near)
    for card in tick.cards:
        if not card.usages:
            continue
        keys = [(card.facts.uuid, usage.pid, tick.processes[usage.pid].start_time_ms) for usage in card.usages]
        last = [near.get(key) for key in keys]
        was_at_0 = [trace is not None and trace.at_0_ms == trace.seen_ms for trace in last]
        states = process_states(card, card_state(card), was_at_0)
        for key, usage, trace, (state, counts) in zip(keys, card.usages, last, states, strict=True):
            held_since = None
            if state == IDLE_HELD:
                goes_on = trace is not None and trace.seen_ms == before.success_ms
                held_since = trace.held_since_ms if trace and goes_on else None
                held_since = tick.ts_ms if held_since is None else held_since
            traces[key] = Trace(tick.ts_ms, *_idle(trace, usage.sm_percent, tick.ts_ms, longest), held_since)
            seen.append(Seen(card, usage, state, counts, traces[key]))
    return after._replace(success_ms=tick.ts_ms, traces=traces), seen


def _idle(before: Trace | None, sm_percent: int | None, ts_ms: int, longest: float) -> tuple[int | None, int | None]:
    """The time at which the process was last at 0 %, and the time since which it is idle.

    A tick without a value neither begins nor ends idle time, as long as two ticks with a value bridge it.
    """
    at_0_ms, since_ms = (before.at_0_ms, before.idle_since_ms) if before else (None, None)
    if at_0_ms is None or ts_ms - at_0_ms > longest:
        at_0_ms = since_ms = None
    if sm_percent is None:
        return at_0_ms, since_ms
    if sm_percent:
        return None, None
    if at_0_ms is not None and since_ms is None:
        since_ms = ts_ms
    return ts_ms, since_ms


def carry(data_dir: str, tick: Tick) -> tuple[Carried, list[Seen]]:
    """Follow the state that earlier runs left up to this tick, which is stored or kept already."""
    before = load(data_dir)
    if not before or not _continues(before, tick):
        known = before or NOTHING
        before = recall(samples_dir(data_dir), tick)._replace(errors=known.errors)
        before = before if before.success_ms else before._replace(success_ms=known.success_ms)
    return follow(before, tick)


def _continues(before: Carried, tick: Tick) -> bool:
    if before.boot_id != tick.boot.id or not before.times_ms:
        return False
    return 0 < tick.ts_ms - before.times_ms[-1] <= LONGEST_GAP_INTERVALS * interval_ms(before, tick)


def recall(folder: str, tick: Tick) -> Carried:
    """The state that the runs before the tick would have left, computed from the history."""
    carried, _ = _read_history(folder, tick.ts_ms - RECENT_MS, tick.ts_ms)
    if carried.boot_id != tick.boot.id:
        return carried  # no process stays idle over a reboot, or over a hole that long
    for days in DAYS_BACK:
        start_ms = tick.ts_ms - days * DAY_MS
        carried, edge_ms = _read_history(folder, start_ms, tick.ts_ms)
        since = [time for trace in carried.traces.values() for time in trace[2:] if time is not None]
        if all(time > edge_ms for time in since):
            break
    return carried


def _read_history(folder: str, start_ms: int, end_ms: int) -> tuple[Carried, int]:
    """The state at the end of a time span, and the end of its first ticks, which lack the ticks before them."""
    carried, edge_ms, count = NOTHING, start_ms, 0
    first, last = (partition_path(folder, day_of(ms)) for ms in (start_ms, end_ms))
    for path in list_partitions(folder):
        if first <= path <= last:
            # A partition that is unreadable or incomplete leaves a hole.
            with suppress(StoreError), Writer(path) as writer:
                for tick in writer.read(start_ms, end_ms):
                    carried, _ = follow(carried, tick)
                    count += bool(tick.cards)
                    edge_ms = tick.ts_ms if count <= FIRST_TICKS else edge_ms
    return carried, edge_ms


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
            traces[uuid, int(pid), _number(start)] = Trace(seen or 0, at_0, idle, held)
        return Carried(boot_id, [int(time) for time in times.split()], _number(success), int(errors), traces)
    except (OSError, ValueError, StoreError):
        return None


def save(data_dir: str, carried: Carried) -> None:
    lines = [FIRST_LINE, carried.boot_id, " ".join(map(str, carried.times_ms)), _text(carried.success_ms)]
    lines.append(str(carried.errors))
    for (uuid, pid, start), trace in carried.traces.items():
        lines.append("\t".join([uuid, str(pid), _text(start), *map(_text, trace)]))
    replace_file(os.path.join(data_dir, NAME), "\n".join([*lines, LAST_LINE, ""]))


def _number(text: str) -> int | None:
    return None if text == "-" else int(text)


def _text(number: int | None) -> str:
    return "-" if number is None else str(number)
