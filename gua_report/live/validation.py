"""Compare each card's users with its reservations, in the words that people know from canhazgpu."""

from collections.abc import Callable
from typing import NamedTuple

from gua_report.config import Config
from gua_report.console.spelling import duration, first_of
from gua_report.live.cards_now import CardSeen, ProcessNow, Since
from gua_report.people.identities import apply_mapping
from gua_report.reservations.reservation import FOREVER_MS, Book, Reservation, name_strays, names_of, read_book
from gua_sample.console import plural
from gua_sample.partition_names import DAY_MS
from gua_sample.policy import ACTIVE, IDLE_HELD, UNKNOWN, UNPARTITIONED
from gua_sample.processes import printable

AVAILABLE = "available"
CONFIRMED = "confirmed"
UNRESERVED = "unreserved"
UNUSED = "unused"
SEVERAL_USERS = "several-users"
KINDS = (AVAILABLE, CONFIRMED, UNRESERVED, UNUSED, SEVERAL_USERS, UNKNOWN)
MOST_NAMED, MOST_LISTED = 3, 10
RECENT_MS = 7 * DAY_MS  # how far back the end of a reservation may tell since when a card is free


class Validation(NamedTuple):
    kind: str
    text: str  # clean, for a terminal
    reserved_by: list[str]  # clean, for a terminal
    details: dict[str, object]  # plain values, for JSON
    reservations: list[str]  # a sentence on each that is in force


def check(cards: list[CardSeen], config: Config, now_ms: int, complain: Callable[[str], None]) -> dict[str, Validation]:
    """The validations by uuid; empty without a source of reservations. Each problem is one complaint."""
    if not any(config.reservations):
        return {}
    book = read_book(config, now_ms - RECENT_MS, complain, with_history=False)
    # Only current and future ones: a past reservation may name a card that no longer exists.
    to_come = [one for one in book.reservations if one.end_ms > now_ms]
    names = {seen.card.facts.uuid: _names(seen) for seen in cards}
    users = {apply_mapping(one.user, config.people) for seen in cards for one in seen.processes}
    name_strays(to_come, names, users, config.people, complain)
    return {seen.card.facts.uuid: _Case(seen, book, config, now_ms).validate() for seen in cards}


def _names(seen: CardSeen) -> set[str]:
    return names_of(seen.card.facts.uuid, seen.card.facts.gpu_index, seen.card.facts.parent_uuid)


class _Case:
    def __init__(self, seen: CardSeen, book: Book, config: Config, now_ms: int) -> None:
        self.seen, self.now_ms, self.people = seen, now_ms, config.people
        names = _names(seen)
        own = [one for one in book.reservations if one.gpu in names]
        self.current = [one for one in own if one.start_ms <= now_ms < one.end_ms]
        self.ended_ms = [one.end_ms for one in own if one.end_ms <= now_ms]
        self.released_ms = book.released_ms.get(str(seen.card.facts.gpu_index))
        self.is_readable = book.is_complete and not names & book.unreadable
        self.owners = list(dict.fromkeys(apply_mapping(one.user, self.people) for one in self.current))
        threshold = config.policy.process_memory_mib
        large = [one for one in seen.processes if one.memory_mib is None or one.memory_mib > threshold]
        self.is_in_use = seen.state in (ACTIVE, IDLE_HELD) or any(one.memory_mib is not None for one in large)
        # As in reports, a desktop beside somebody's work does not count as a user; many small processes together do.
        self.holders = (large or seen.processes) if self.is_in_use else []
        self.users = list(dict.fromkeys(self._who(one) for one in self.holders))
        self.shown = {self._who(one): one.who for one in self.holders}  # names for people
        self.strangers = [user for user in self.users if user not in self.owners]

    def validate(self) -> Validation:
        kind, text = self._validate_use() if self.is_in_use else self._validate_free()
        told = [self._tell(one) for one in self.current[:MOST_NAMED]]
        told += [f"and {more} more" for more in [len(self.current) - len(told)] if more]
        return Validation(kind, text, [printable(owner) for owner in self.owners], self._details(), told)

    def _validate_free(self) -> tuple[str, str]:
        if self.seen.state == UNPARTITIONED:
            return UNKNOWN, f"unpartitioned: nothing can use it until an instance is made{self._reserved_by()}"
        if self.seen.state == UNKNOWN:
            return UNKNOWN, f"unknown: the driver does not tell{self._reserved_by()}"
        if self.owners:
            # The processes on a card that is not in use are small; a job is told whether there are any.
            is_empty = any(one.job for one in self.current) and not self.seen.processes
            usage = "not used" if is_empty else "no usage detected"
            return UNUSED, f"{self._claims()}, {usage}{self._expiry()}"
        if not self.is_readable:
            return UNKNOWN, "unknown: not in use, but reservations can't be read"
        since_ms = self._free_since_ms()
        return AVAILABLE, "available" + ("" if since_ms is None else f", free for {self._spell(since_ms)}")

    def _validate_use(self) -> tuple[str, str]:
        if len(self.users) > 1:
            return SEVERAL_USERS, self._several()
        if not self.users and self.owners:
            return UNKNOWN, f"unknown: in use, but no process shows by whom{self._reserved_by()}"
        if self.users and not self.strangers:
            length = "some time" if self.seen.since is None else self._spell(self.seen.since.ts_ms)
            idle = f", no work for {length}" if self.seen.state == IDLE_HELD else ""
            return CONFIRMED, f"in use by {self._users()}, confirmed: {self._usage()}{idle}{self._expiry()}"
        who = f"by {self._users()}" if self.users else "by nobody visible"
        if not self.is_readable:
            return UNKNOWN, f"unknown: in use {who}, but reservations can't be read"
        processes = f": {_processes(self.holders)}" if self.holders else ""
        return UNRESERVED, f"in use WITHOUT RESERVATION {who}{processes}{self._reserved_by()}"

    def _several(self) -> str:
        without = " WITHOUT RESERVATION" if self.is_readable else ""
        marks = [without if user in self.strangers else " (reserved)" for user in self.users]
        users = [self.shown.get(user, user) + mark for user, mark in zip(self.users, marks, strict=True)]
        strange = [one for one in self.holders if self._who(one) in self.strangers]
        usage = _processes(strange) if strange else self._usage()
        absent = [owner for owner in self.owners if owner not in self.users]
        return f"several users: {_listed(users)}: {usage}{self._reserved_by() if absent else ''}"

    def _who(self, holder: ProcessNow) -> str:
        return apply_mapping(holder.user, self.people)

    def _users(self) -> str:
        return _listed([self.shown.get(user, user) for user in self.users])

    def _usage(self) -> str:
        memories = [one.memory_mib for one in self.holders]
        known = [memory for memory in memories if memory is not None]
        return f"{_mib(sum(known) if known == memories else None)}, {plural(len(memories), 'process', 'es')}"

    def _claims(self) -> str:
        jobs = [f"{apply_mapping(one.user, self.people)} (job {one.job})" for one in self.current if one.job]
        others = dict.fromkeys(apply_mapping(one.user, self.people) for one in self.current if not one.job)
        told = [f"allocated to {_listed(jobs)}"] if jobs else []
        return " and ".join([*told, f"reserved by {_listed([*others])}"] if others else told)

    def _reserved_by(self) -> str:
        return f"; {self._claims()}" if self.owners else ""

    def _tell(self, one: Reservation) -> str:
        """What canhazgpu's table has: since when, by whom, which type, the heartbeat, the note."""
        text = f"reserved {self._ago(one.start_ms)} by {apply_mapping(one.user, self.people)}, type {one.kind}"
        text += f", heartbeat {self._ago(one.heartbeat_ms)}" if one.heartbeat_ms is not None else ""
        return printable(f"{text}: {one.note}" if one.note else text)

    def _ago(self, ts_ms: int) -> str:
        return f"{duration(max(0, self.now_ms - ts_ms) / 1000)} ago"

    def _expiry(self) -> str:
        """The time until reservations with a fixed end expire; those of type run end with their program."""
        ends = [one.end_ms for one in self.current if one.kind != "run" and one.end_ms != FOREVER_MS]
        return f", expires in {duration((max(ends) - self.now_ms) / 1000)}" if ends else ""

    def _spell(self, since_ms: int) -> str:
        """The duration since then, marked as a minimum if the card's state may be older than the history."""
        at_least = "≥ " if self.seen.since == Since(since_ms, False) else ""
        return at_least + duration(max(0, self.now_ms - since_ms) / 1000)

    def _free_since_ms(self) -> int | None:
        """The time since which the card has been neither used nor reserved, if known.

        Without a history, canhazgpu's word for it is passed on: when the last reservation was released.
        """
        ended_ms = [*self.ended_ms, self.released_ms or 0]
        return self.released_ms if self.seen.since is None else max([self.seen.since.ts_ms, *ended_ms])

    def _details(self) -> dict[str, object]:
        since_ms = self._free_since_ms() if not self.is_in_use and not self.owners and self.is_readable else None
        return {
            "users": [printable(user) for user in self.users],
            "unreserved_users": [printable(user) for user in self.strangers] if self.is_readable else None,
            "processes": [
                {
                    "user": printable(self._who(one)),
                    "pid": one.pid,
                    "command": printable(one.command),
                    "memory_mib": one.memory_mib,
                }
                for one in self.holders
            ],
            "reservations": [_record(one, self.people) for one in self.current],
            "free_seconds": None if since_ms is None else max(0, self.now_ms - since_ms) / 1000,
        }


def _record(one: Reservation, people: dict[str, str]) -> dict[str, object]:
    return {
        "user": printable(apply_mapping(one.user, people)),
        "from_ms": one.start_ms,
        "to_ms": None if one.end_ms == FOREVER_MS else one.end_ms,
        "type": printable(one.kind),
        "note": printable(one.note),
        "slurm_job": one.job,
        "heartbeat_ms": one.heartbeat_ms,
    }


def _listed(names: list[str]) -> str:
    """The names as a list in prose: alice, bob and carol. Of very many, the first."""
    clean = [printable(name) for name in names]
    if len(clean) > MOST_LISTED:
        return first_of(clean, MOST_LISTED)
    return " and ".join([", ".join(clean[:-1]), clean[-1]] if len(clean) > 1 else clean)


def _processes(holders: list[ProcessNow]) -> str:
    named = [f"PID {one.pid} ({printable(one.command)}) {_mib(one.memory_mib)}" for one in holders]
    return first_of(named, MOST_NAMED)


def _mib(memory_mib: float | None) -> str:
    return "? MiB" if memory_mib is None else f"{memory_mib:,.0f} MiB"
