"""The state that a run which writes metrics leaves for the next one: a small file in the data folder."""

# No `from __future__ import annotations` here: see records.py.
import os

from gua_sample.errors import StoreError
from gua_sample.idleness import CardSight, Carried, ProcessSight, Run, Trace
from gua_sample.policy import NAN, End
from gua_sample.processes import printable
from gua_sample.safe_file import read_regular
from gua_sample.whole_file import replace_file

NAME = "idle.state"
FIRST_LINE, LAST_LINE = "gua idle state, version 2", "end"
YES = str(True)
MOST_BYTES = 4 << 20  # three lines of a hundred bytes for each process


def load(data_dir: str) -> Carried | None:
    """The state that the last run left, or None if it is missing or not understood."""
    try:
        return from_text(read_regular(os.path.join(data_dir, NAME), MOST_BYTES).decode())
    except (LookupError, OSError, ValueError, StoreError):
        return None


def save(data_dir: str, carried: Carried) -> None:
    replace_file(os.path.join(data_dir, NAME), to_text(carried))


def to_text(carried: Carried) -> str:
    """The state as lines: some of the host, then one for each thing that is known of a card or process."""
    rows: list[tuple[object, ...]] = [("at-0", *key, *trace) for key, trace in carried.traces.items()]
    rows += [("run", *key, *run) for key, run in carried.runs.items()]
    for card in (carried.last or {}).values():
        rows.append(("card", *card.key, card.status, *card.end, card.is_unattributed, card.has_faded))
        rows += [("process", *one.key, *one[1:]) for one in card.processes]
    numbers = [carried.success_ms, carried.unbroken_ms, carried.errors]
    lines = [FIRST_LINE, carried.boot_id, " ".join(map(str, carried.times_ms)), *map(_spell, numbers)]
    return "\n".join([*lines, *("\t".join(map(_spell, row)) for row in rows), LAST_LINE, ""])


def from_text(text: str) -> Carried:
    """The state that a text tells. Raises ValueError or LookupError if it is not understood."""
    first, boot_id, times, success, unbroken, errors, *rows, last = text.splitlines()
    if (first, last) != (FIRST_LINE, LAST_LINE):
        raise ValueError("not a state of this version")
    traces, runs, cards = {}, {}, {}
    for row in rows:
        kind, uuid, pid, start, *values = row.split("\t")  # a newer gua may have written more kinds and columns
        key = uuid, _number(pid), _number(start)
        if kind == "at-0":
            traces[key] = Trace(int(values[0]), _number(values[1]))
        elif kind == "run":
            runs[key] = Run(values[0], int(values[1]))
        elif kind == "card":
            end = End(_percent(values[1]), values[2] == YES, values[3] == YES)
            cards[uuid] = CardSight(key, values[0], end, values[4] == YES, (), values[5] == YES)
        elif kind == "process":
            marks = (mark == YES for mark in values[3:5])
            one = ProcessSight(key, values[0], values[1] == YES, _percent(values[2]), *marks)
            cards[uuid] = cards[uuid]._replace(processes=(*cards[uuid].processes, one))
    times_ms = [int(time) for time in times.split()]
    numbers = _number(success), _number(unbroken), int(errors)
    return Carried(boot_id, times_ms, *numbers, traces, cards or None, runs)


def _spell(value: object) -> str:
    return "-" if value is None or value is NAN else printable(str(value))


def _number(text: str) -> int | None:
    return None if text == "-" else int(text)


def _percent(text: str) -> float:
    return NAN if text == "-" else float(text)
