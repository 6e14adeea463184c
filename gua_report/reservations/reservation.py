"""A reservation, whatever its source, the book of all of them, and what the readers of sources share."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from contextlib import suppress
from datetime import tzinfo
from typing import NamedTuple

from gua_report.window import parse_time
from gua_sample.errors import UsageError
from gua_sample.processes import printable

FOREVER_MS = 253_402_300_799_000  # the end of the calendar
# Nobody reserved a card before 2001, and a smaller number such as 20261116 is a date without its dashes.
EARLIEST_SECONDS, LATEST_SECONDS = 10**9, 10**11
LONGEST_SHOWN = 40
MOST_LINES = 20
JOB = "job"  # the kind of a card's allocation to a Slurm job

# Times as people and Go write them: a date, or a time with any number of digits after the second.
MOMENT = re.compile(r"(\d{4}-\d\d-\d\d)(?:[T ](\d\d:\d\d(?::\d\d)?)(?:\.(\d+))?(Z|[+-]\d\d:\d\d)?)?", re.ASCII)


Complain = Callable[[str], None]


class Reservation(NamedTuple):
    gpu: str  # the index of a card, or its uuid
    user: str  # the name in the source
    start_ms: int
    end_ms: int  # FOREVER_MS: until somebody ends it
    kind: str  # "run" or "manual" as in canhazgpu, "file", or JOB
    note: str
    source: str  # the place of the reservation, for messages
    job: str | None = None  # the id of the Slurm job that the card is allocated to


class Book:
    """The reservations from all sources, to which each reader adds. Every problem is one complaint."""

    def __init__(self, complain: Complain) -> None:
        self.complain = complain
        self.reservations: list[Reservation] = []
        self.released_ms: dict[str, int] = {}  # by card: when its last reservation was released, if known
        self.unreadable: set[str] = set()  # cards with invalid entries: it is unknown whether they are reserved
        self.is_complete = True  # False: any card may have reservations that could not be read

    def give_up(self, problem: str) -> None:
        """Complain of a source that could not be read, or not as a whole."""
        self.complain(problem)
        self.is_complete = False


class BadEntry(Exception):
    """An entry of a source that makes no sense; the text says what was expected."""


class FewLines:
    """Complaints of one kind: the first are passed on and the rest counted, as a bad file may cause very many."""

    def __init__(self, complain: Complain, more: str) -> None:
        self._complain, self._more, self._count = complain, more, 0

    def say(self, line: str) -> None:
        self._count += 1
        if self._count <= MOST_LINES:
            self._complain(line)

    def finish(self) -> None:
        if self._count > MOST_LINES:
            self._complain(f"{self._count - MOST_LINES:,} {self._more}")


def abandon_after(seconds: float, work: Callable[[], None]) -> None:
    """Let a thread do the work, and leave it behind after so many seconds: a look-up of a name may hang for minutes."""
    thread = threading.Thread(target=work, daemon=True)
    with suppress(RuntimeError):  # the system is out of threads
        thread.start()
        thread.join(seconds)


def moment_ms(value: object, zone: tzinfo) -> int | None:
    """Epoch milliseconds of a number (epoch seconds or milliseconds) or of an ISO time, which is in that zone unless it
    names its own; None for anything else."""
    if isinstance(value, str):
        text = value.strip()
        found = MOMENT.fullmatch(text)
        if found:
            return _iso_ms(found, zone)
        try:
            value = float(text)
        except ValueError:
            return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if LATEST_SECONDS <= value < LATEST_SECONDS * 1000:
        return int(value)
    return round(value * 1000) if EARLIEST_SECONDS <= value < LATEST_SECONDS else None


def _iso_ms(found: re.Match[str], zone: tzinfo) -> int | None:
    day, time, fraction, offset = found.groups()
    # Python 3.10 accepts only three digits or six.
    milliseconds = f".{fraction[:3]:0<3}" if fraction and time and len(time) == 8 else ""
    try:
        return parse_time(f"{day}T{time or '00:00'}{milliseconds}{offset or ''}", zone, "a reservation")
    except UsageError:
        return None


def shown(value: object) -> str:
    """Any value as a short, quoted example for a message of one line."""
    text = printable(value) if isinstance(value, str | bytes) else printable(repr(value))
    return repr(text if len(text) <= LONGEST_SHOWN else text[: LONGEST_SHOWN - 3] + "...")
