"""A reservation, the book of all of them, and the state of a card that is compared with it."""

from collections.abc import Callable
from datetime import tzinfo
from typing import NamedTuple

from gua_report.window import iso_ms
from gua_sample.policy import UNKNOWN
from gua_sample.processes import printable

FOREVER_MS = 253_402_300_799_000  # the end of the calendar
# Nobody reserved a card before 2001, and a smaller number such as 20261116 is a date without its dashes.
EARLIEST_SECONDS, LATEST_SECONDS = 10**9, 10**11
LONGEST_SHOWN = 40
MOST_LINES = 20
AVAILABLE = "available"
CONFIRMED = "confirmed"
UNRESERVED = "unreserved"
UNUSED = "unused"
SEVERAL_USERS = "several-users"
KINDS = (AVAILABLE, CONFIRMED, UNRESERVED, UNUSED, SEVERAL_USERS, UNKNOWN)
JOB = "job"  # the kind of a card's allocation to a Slurm job

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
    heartbeat_ms: int | None = None  # the last sign of life of a run of canhazgpu


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


def complain_of(lines: list[str], more: str, complain: Complain) -> None:
    """Pass on the first of these complaints, and count the rest: a bad file may cause very many."""
    for line in lines[:MOST_LINES]:
        complain(line)
    if len(lines) > MOST_LINES:
        complain(f"{len(lines) - MOST_LINES:,} {more}")


def moment_ms(value: object, zone: tzinfo) -> int | None:
    """Epoch milliseconds of a number (epoch seconds or milliseconds) or of an ISO time, which is in that zone unless it
    names its own; None for anything else."""
    if isinstance(value, str):
        text = value.strip()
        if (ts_ms := iso_ms(text, zone)) is not None:
            return ts_ms
        try:
            value = float(text)
        except ValueError:
            return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if LATEST_SECONDS <= value < LATEST_SECONDS * 1000:
        return int(value)
    return round(value * 1000) if EARLIEST_SECONDS <= value < LATEST_SECONDS else None


def shown(value: object) -> str:
    """Any value as a short, quoted example for a message of one line."""
    text = printable(value) if isinstance(value, str | bytes) else printable(repr(value))
    return repr(text if len(text) <= LONGEST_SHOWN else text[: LONGEST_SHOWN - 3] + "...")


class Holder(NamedTuple):
    user: str  # an identity
    pid: int
    command: str
    memory_mib: float | None
    who: str | None = None  # the name that people are shown; None: the identity


class CardNow(NamedTuple):
    index: int  # type: ignore[assignment]  # a tuple has a method of that name
    uuid: str
    holders: list[Holder]
    state: str  # active, idle-held, truly-idle, unknown, or unpartitioned
    since_ms: int | None  # beginning of this state, if the history tells
    since_is_exact: bool = True  # False: the state may have begun earlier
    parent_uuid: str | None = None  # of a MIG instance


class Validation(NamedTuple):
    kind: str
    text: str  # clean, for a terminal
    reserved_by: list[str]  # clean, for a terminal
    details: dict[str, object]  # plain values, for JSON
    reservations: list[str]  # a sentence on each that is in force
