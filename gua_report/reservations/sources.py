"""Read all configured reservations, and name those that do not fit the machine or overlap."""

from collections.abc import Collection, Iterable, Iterator, Mapping

from gua_report.config import Config
from gua_report.people.identities import apply_mapping
from gua_report.reservations import csv_files
from gua_report.reservations.reservation import (
    FOREVER_MS,
    MOST_LINES,
    Book,
    Complain,
    Reservation,
    complain_of,
    shown,
)
from gua_report.window import parse_zone, show
from gua_sample.processes import printable, user_ids

MOST_OVERLAPS = 5
# canhazgpu cuts the start of a reservation to the second, but not the end of the one before.
ROUNDED_MS = 1000

Names = Mapping[str, Collection[str]]  # of cards in reservations, by uuid


def read_book(config: Config, since_ms: int, complain: Complain, with_history: bool = True) -> Book:
    """All reservations that last until that time or longer; older ones too where that costs nothing.

    `with_history`: whether Redis is asked for past ones.
    """
    book = Book(complain)
    if config.reservations.file is not None:
        csv_files.read_file(config.reservations.file, parse_zone(None), book)
    if config.reservations.folder is not None:
        csv_files.read_folder(config.reservations.folder, since_ms, parse_zone(None), book)
    if config.reservations.redis is not None:
        from gua_report.reservations import canhazgpu

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
    """Complain about each unknown card and user, and about overlaps. `seen`: the users who were on a card."""
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
    for user in unknown[:MOST_LINES]:
        source = first_by_user[user].source
        complain(f"no user {shown(user)} on this machine, nor on a card: reservation in {source}")
    if len(unknown) > MOST_LINES:
        complain("more users who have reserved cards are neither on this machine nor on a card")
    _name_overlaps(reservations, cards, people, complain)


def _name_overlaps(
    reservations: list[Reservation], cards: Names, people: Mapping[str, str], complain: Complain
) -> None:
    """Complain about reservations of one card by two people at once. Both count."""
    found: set[tuple[Reservation, Reservation]] = set()  # MIG instances share the reservations of their card
    for names in cards.values():
        for pair in _overlaps([one for one in reservations if one.gpu in names], people):
            if pair not in found and len(found) < MOST_OVERLAPS:
                complain(_overlap(*pair))
            found.add(pair)
    if len(found) > MOST_OVERLAPS:
        complain(f"{len(found) - MOST_OVERLAPS:,} more reservations overlap")


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
