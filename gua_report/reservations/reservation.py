"""A reservation, and the book of all that are configured; those that do not fit the machine, or overlap, are named."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from datetime import tzinfo
from itertools import chain
from typing import NamedTuple

from gua_report.config import Config
from gua_report.people.identities import apply_mapping
from gua_report.window import iso_ms, parse_zone, show
from gua_sample.processes import printable, user_ids

FOREVER_MS = 253_402_300_799_000  # the end of the calendar
# Nobody reserved a card before 2001, and a smaller number such as 20261116 is a date without its dashes.
EARLIEST_SECONDS, LATEST_SECONDS = 10**9, 10**11
LONGEST_SHOWN = 40
MOST_LINES = 20
MOST_OVERLAPS = 5
# canhazgpu cuts the start of a reservation to the second, but not the end of the one before.
ROUNDED_MS = 1000
JOB = "job"  # the kind of a card's allocation to a Slurm job

Complain = Callable[[str], None]
Names = Mapping[str, Collection[str]]  # of cards in reservations, by uuid


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


def read_book(config: Config, since_ms: int, complain: Complain, with_history: bool = True) -> Book:
    """All reservations that last until that time or longer; older ones too where that costs nothing.

    `with_history`: whether Redis is asked for past ones.
    """
    from gua_report.reservations import canhazgpu, csv_files  # here, as few have any

    book = Book(complain)
    if config.reservations.file is not None:
        csv_files.read_file(config.reservations.file, parse_zone(None), book)
    if config.reservations.folder is not None:
        csv_files.read_folder(config.reservations.folder, since_ms, parse_zone(None), book)
    if config.reservations.redis is not None:
        canhazgpu.read(config.reservations.redis, since_ms if with_history else None, book)
    return book


def names_of(uuid: str, index: int | None, parent_uuid: str | None) -> set[str]:
    """The names of a card in reservations; with MIG on, the card's index and its uuid mean all instances."""
    return {uuid, str(index)} if parent_uuid is None else {uuid, str(index), parent_uuid}


def name_strays(
    reservations: Iterable[Reservation],
    cards: Names,
    seen: Iterable[str],
    people: Mapping[str, str],
    complain: Complain,
) -> None:
    """Complain about unknown cards and users, and cards that two have reserved at once. `seen`: who was on a card."""
    reservations = list(reservations)
    first_by_card: dict[str, Reservation] = {}
    first_by_user: dict[str, Reservation] = {}
    for one in reservations:
        first_by_card.setdefault(one.gpu, one)
        if one.job is None:  # else Slurm knows the user
            first_by_user.setdefault(one.user, one)
    known_cards = {name for names in cards.values() for name in names}
    strays = [
        f"{_called(gpu)} does not exist: reserved for {printable(first.user)} in {first.source}"
        for gpu, first in first_by_card.items()
        if gpu not in known_cards
    ]
    complain_of(strays, "more cards that are reserved do not exist", complain)
    known_people = {*seen, *people.values()}
    asked = [user for user in first_by_user if apply_mapping(user, people) not in known_people]
    uids = user_ids(asked) if asked else {}  # who is missing there got no answer in time
    unknown = [user for user in asked if uids.get(user, user) is None]
    complain_of(
        [
            f"no user {shown(user)} on this machine, nor on a card: reservation in {first_by_user[user].source}"
            for user in unknown
        ],
        "more users who have reserved cards are neither on this machine nor on a card",
        complain,
    )
    # MIG instances share the reservations of their card.
    pairs = [_overlaps([one for one in reservations if one.gpu in names], people) for names in cards.values()]
    overlaps = list(dict.fromkeys(chain(*pairs)))
    for pair in overlaps[:MOST_OVERLAPS]:
        complain(_overlap(*pair))
    if len(overlaps) > MOST_OVERLAPS:
        complain(f"{len(overlaps) - MOST_OVERLAPS:,} more reservations overlap")


def _overlaps(own: list[Reservation], people: Mapping[str, str]) -> Iterator[tuple[Reservation, Reservation]]:
    """Pairs of reservations of a card: one that begins while somebody else has the card, preceded by the latest-ending
    reservation of that person. Not two jobs, which share a card because Slurm lets them (MPS, shards)."""
    latest: list[tuple[str, Reservation]] = []  # the latest-ending one of each of the two people with the latest ends
    for one in sorted(own, key=lambda one: one.start_ms):
        person = apply_mapping(one.user, people)
        for other, before in latest:
            if other != person and min(before.end_ms, one.end_ms) - one.start_ms > ROUNDED_MS:
                if before.job is None or one.job is None:
                    yield before, one
                break
        candidates = sorted([*latest, (person, one)], key=lambda item: -item[1].end_ms)
        first = candidates[0]
        latest = [first, *[item for item in candidates if item[0] != first[0]][:1]]


def _overlap(one: Reservation, other: Reservation) -> str:
    zone = parse_zone(None)
    start_ms, end_ms = other.start_ms, min(one.end_ms, other.end_ms)
    until = "on" if end_ms == FOREVER_MS else f"to {show(end_ms, zone)}"
    return (
        f"{_called(one.gpu)} is reserved twice from {show(start_ms, zone)} {until}, both count:"
        f" {printable(one.user)} in {one.source}, {printable(other.user)} in {other.source}"
    )


def _called(gpu: str) -> str:
    return f"GPU {gpu}" if gpu.isdigit() else printable(gpu)
