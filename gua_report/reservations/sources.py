"""All reservations that the configuration points to, and what in them fits neither the machine nor each other."""

from __future__ import annotations

import pwd
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress

from gua_report.config import Config
from gua_report.identities import apply_mapping
from gua_report.reservations import csv_file
from gua_report.reservations.reservation import FOREVER_MS, Book, Reservation, shown
from gua_report.window import parse_zone, show
from gua_sample.processes import ANSWER_SECONDS, printable

MOST_OVERLAPS = 5
MOST_COMPARED = 100  # of those that follow one: a file in which all overlap would take for ever
# canhazgpu cuts the start of a reservation to the second, but not the end of the one before.
ROUNDED_MS = 1000

Complain = Callable[[str], None]
Indexes = Mapping[str, int | None]  # of cards, by uuid


def is_configured(config: Config) -> bool:
    return any(config.reservations)


def read_book(config: Config, history_since_ms: int | None, complain: Complain) -> Book:
    """What is reserved, with the past since that time where it is not there anyway."""
    book = Book([], {}, set(), True)
    if config.reservations.file is not None:
        rows = csv_file.read(config.reservations.file, parse_zone(None), complain)
        if rows is None:
            book = book._replace(is_complete=False)
        else:
            book.reservations.extend(rows.reservations)
            book.unreadable.update(rows.unreadable)
            book = book._replace(is_complete=rows.is_complete)
    if config.reservations.redis is not None:
        from gua_report.reservations import canhazgpu

        answer = canhazgpu.read(config.reservations.redis, history_since_ms, complain)
        if answer is None:
            return book._replace(is_complete=False)
        book.reservations.extend(answer.reservations)
        book.released_ms.update(answer.released_ms)
        book.unreadable.update(answer.unreadable)
    return book


def is_for(reservation: Reservation, uuid: str, index: int | None) -> bool:
    """Whether the card is the one meant; with MIG on, an index means all instances."""
    return reservation.gpu == uuid or reservation.gpu == str(index)


def name_strays(
    reservations: Iterable[Reservation],
    cards: Indexes,
    seen: Iterable[str],
    people: Mapping[str, str],
    complain: Complain,
) -> None:
    """A line for each card and user that is not there, and for those that overlap. `seen`: who was on a card."""
    reservations = list(reservations)
    known_cards = {*cards, *(str(index) for index in cards.values())}
    for gpu in dict.fromkeys(one.gpu for one in reservations if one.gpu not in known_cards):
        first = next(one for one in reservations if one.gpu == gpu)
        complain(f"{_called(gpu)} does not exist: reserved for {printable(first.user)} in {first.source}")
    known_people = {*seen, *people.values()}
    doubtful = {one.user for one in reservations if apply_mapping(one.user, people) not in known_people}
    unknown = _unknown_to_the_system(doubtful)
    for user in dict.fromkeys(one.user for one in reservations if one.user in unknown):
        first = next(one for one in reservations if one.user == user)
        complain(f"no user {shown(user)} on this machine, nor on a card: reservation in {first.source}")
    _name_overlaps(reservations, cards, people, complain)


def _unknown_to_the_system(names: set[str]) -> set[str]:
    """Those that there is no account of. A directory of users that does not answer in time says nothing."""
    unknown: set[str] = set()

    def ask() -> None:
        for name in sorted(names):
            try:
                pwd.getpwnam(name)
            except (KeyError, ValueError):  # ValueError: a name that can't be
                unknown.add(name)

    if names:
        thread = threading.Thread(target=ask, daemon=True)
        with suppress(RuntimeError):  # no thread to be had
            thread.start()
            thread.join(ANSWER_SECONDS)
    return set(unknown)


def _name_overlaps(
    reservations: list[Reservation], cards: Indexes, people: Mapping[str, str], complain: Complain
) -> None:
    """Of one card by two people at once. Both count."""
    found: set[tuple[Reservation, Reservation]] = set()
    for uuid, index in cards.items():
        own = sorted((one for one in reservations if is_for(one, uuid, index)), key=lambda one: one.start_ms)
        for position, one in enumerate(own):
            for other in own[position + 1 : position + 1 + MOST_COMPARED]:
                if other.start_ms >= one.end_ms:
                    break
                lasts_ms = min(one.end_ms, other.end_ms) - other.start_ms
                if lasts_ms > ROUNDED_MS and apply_mapping(one.user, people) != apply_mapping(other.user, people):
                    if (one, other) not in found and len(found) < MOST_OVERLAPS:
                        complain(_overlap(one, other))
                    found.add((one, other))
    if len(found) > MOST_OVERLAPS:
        complain(f"{len(found) - MOST_OVERLAPS} more reservations overlap")


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
