"""The state that each run leaves for the next one and for `gua status`: a small file in the data folder.

A file that is missing, not understood or older than the newest tick counts as none: then nothing is known of what was
before. By other thresholds it tells only when each card was last used.
"""

import os
from collections.abc import Callable
from contextlib import suppress

from gua_sample.errors import StoreError
from gua_sample.idleness import CardSight, Carried, ProcessSight, Run, Trace, begin, follow
from gua_sample.policy import NAN, TICKS_AROUND, End, Policy
from gua_sample.processes import printable
from gua_sample.records import Tick
from gua_sample.safe_file import read_regular, replace_file

NAME = "idle.state"
FIRST_LINE, LAST_LINE = "gua idle state, version 4", "end"
YES = str(True)
MOST_BYTES = 4 << 20  # three lines of a hundred bytes for each process
MOST_DIGITS = 19
GAVE_WAY_MS = 100  # the store moves a tick by a millisecond or two if its time is another one's


def carry_on(
    data_dir: str, policy: Policy, tick: Tick | None, previous_ms: int | None, warn: Callable[[str], None]
) -> Carried:
    """The state at a tick, or at a run without one, saved for the next run. `previous_ms`: of the tick before."""
    before = understand(read(data_dir)) or begin(policy)
    if is_outdated(before, previous_ms):
        before = begin(policy, before.errors)
    elif before.policy != policy:
        before = begin(policy, before.errors)._replace(used_ms=before.used_ms)
    carried = follow(before, tick) if tick else before._replace(errors=before.errors + 1)
    path = os.path.join(data_dir, NAME)
    try:
        replace_file(path, to_text(carried))
    except OSError as error:
        with suppress(OSError):
            os.unlink(path)  # the next run must not take it for the state at this tick
        if tick:  # without a tick, a StoreError reports the same problem
            warn(f"{path} can't be written ({error.strerror}): since when somebody idles is not known")
    return carried


def is_outdated(carried: Carried, newest_ms: int | None) -> bool:
    """Whether a tick was stored after those that led to this state."""
    return newest_ms is not None and bool(carried.times_ms) and newest_ms - carried.times_ms[-1] > GAVE_WAY_MS


def read(data_dir: str) -> str:
    try:
        return read_regular(os.path.join(data_dir, NAME), MOST_BYTES).decode()
    except (OSError, StoreError, UnicodeDecodeError):
        return ""


def to_text(carried: Carried) -> str:
    rows: list[tuple[object, ...]] = [("at-0", *key, *trace) for key, trace in carried.traces.items()]
    rows += [("used", uuid, ms) for uuid, ms in carried.used_ms.items()]
    rows += [("run", *key, *run) for key, run in carried.runs.items()]
    for card in (carried.last or {}).values():
        rows.append(("card", *card.key, card.status, *card.end, card.is_unattributed, card.has_faded))
        rows += [("process", *one.key, *one[1:]) for one in card.processes]
    numbers = carried.interval_ms, carried.success_ms, carried.unbroken_ms, carried.errors
    lines = (carried.policy, [carried.boot_id], carried.times_ms, numbers, *rows)
    return "\n".join([FIRST_LINE, *("\t".join(map(_spell, line)) for line in lines), LAST_LINE, ""])


def understand(text: str) -> Carried | None:
    try:
        first, *lines, last = text.splitlines()
        return _restore(lines) if (first, last) == (FIRST_LINE, LAST_LINE) else None
    except (LookupError, TypeError, ValueError):
        return None


def _restore(lines: list[str]) -> Carried:
    thresholds, (boot_id,), times, numbers, *rows = (line.split("\t") for line in lines)
    interval_ms, success_ms, unbroken_ms, errors = map(_number, numbers)
    traces, used_ms, runs, cards = {}, {}, {}, {}
    processes: dict[str, list[ProcessSight]] = {}
    for kind, uuid, *values in rows:
        if kind == "used":
            used_ms[uuid] = _time(values[0])
            continue
        key, first, more = (uuid, _number(values[0]), _number(values[1])), values[2], values[3:]
        marks = [one == YES for one in more]
        if kind == "at-0":
            traces[key] = Trace(_time(first), _number(more[0]))
        elif kind == "run":
            runs[key] = Run(first, _time(more[0], unbroken_ms, success_ms), more[1:] != [str(False)])
        elif kind == "card":
            cards[uuid] = CardSight(key, first, End(_percent(more[0]), *marks[1:3]), marks[3], (), marks[4])
        elif kind == "process":
            processes.setdefault(uuid, []).append(ProcessSight(key, first, marks[0], _percent(more[1]), *marks[2:4]))
    last_cards = {uuid: card._replace(processes=tuple(processes.get(uuid, ()))) for uuid, card in cards.items()}
    times_ms = [_time(ms) for ms in times[-TICKS_AROUND - 1 :] if ms]
    facts = interval_ms, success_ms, unbroken_ms, errors or 0
    policy = Policy(*map(_percent, thresholds))
    return Carried(policy, boot_id, times_ms, *facts, traces, used_ms, last_cards or None, runs)


def _spell(value: object) -> str:
    return "-" if value is None or value is NAN else printable(str(value))


def _number(text: str) -> int | None:
    if len(text) > MOST_DIGITS:
        raise ValueError("a number that is too long")
    return None if text == "-" else int(text)


def _time(text: str, earliest_ms: int | None = None, latest_ms: int | None = None) -> int:
    """A time that is known, between two others. Raises ValueError if it is not."""
    time_ms = _number(text)
    if time_ms is None or time_ms < (earliest_ms or 0) or (latest_ms is not None and time_ms > latest_ms):
        raise ValueError("a time that can't be")
    return time_ms


def _percent(text: str) -> float:
    return NAN if text == "-" else float(text)
