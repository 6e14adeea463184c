"""Notes: what people hold on purpose, for how long and why, as `gua note` writes it. Without pandas.

A note is a file in a spool that everybody may put files in, so each is trusted no more than its owner: it can only be
about that user's own processes, and about no time before it was written. The rules are here, one after the other;
`note_spool` reads and writes the files.
"""

# No `from __future__ import annotations` here: it would make NamedTuple compile the text of every field.
import json
import os
import stat
from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple

from gua_sample.errors import GuaError
from gua_sample.identity import UNATTRIBUTED, UNKNOWN
from gua_sample.partition_names import DAY_MS
from gua_sample.processes import user_ids

MOST_BYTES = 64 << 10
LONGEST_DAYS = 14
LONGEST_MS = LONGEST_DAYS * DAY_MS
LONGEST_REASON = 200  # characters
LONGEST_NAME = 256
MOST_ABOUT = 1000  # cards or processes in one note
LATEST_MS = 253_402_300_799_999  # the end of the year 9999
# The kernel's times of change may lag behind the clock by a tick of its own.
CLOCK_MS = 1000
# Whoever may not read the history tells the start of a process by the clock of now, not by that of the first tick.
START_DIFFERS_MS = 10_000
UID = "uid:"  # prefix of the identity of a user without a name


class NoNote(GuaError):
    """Why a file in the spool does not count."""


class Note(NamedTuple):
    start_ms: int
    until_ms: int | None  # None: it has no end
    reason: str
    uid: int | None  # who wrote it; None: the configuration
    is_about_anybody: bool  # of the spool's owner, or of the configuration; else about the writer's own processes
    identity: str | None = None
    gpu_uuids: tuple[str, ...] = ()  # empty: any
    processes: tuple[tuple[int, int], ...] = ()  # pids and start times; empty: any

    def is_in_force(self, ts_ms: int) -> bool:
        return self.start_ms <= ts_ms and (self.until_ms is None or ts_ms < self.until_ms)

    def is_about(self, gpu_uuid: str, pid: int, start_time_ms: float | None) -> bool:
        """Whether it is about this process on this card, if it is about processes of this identity at all."""
        if self.gpu_uuids and gpu_uuid not in self.gpu_uuids:
            return False
        if not self.processes:
            return True
        starts = [start_ms for other, start_ms in self.processes if other == pid]
        # An unknown start (None, NaN) may be that of another process with this pid: it compares as false.
        return start_time_ms is not None and any(abs(start_time_ms - one) <= START_DIFFERS_MS for one in starts)


class MeantNow(NamedTuple):
    """What a note in force says of a process."""

    until_ms: int | None  # None: it has no end
    reason: str
    by: str  # who says so: an identity, root, or the configuration


class KnownNotes(NamedTuple):
    """The notes that count, and whose they are."""

    of_anybody: list[Note]  # those that may be about others than their writer
    own: Mapping[int, list[Note]]  # the others, by the uid that wrote them
    uids: Mapping[str, Collection[int]]  # of each identity
    problems: list[str]  # why some may be missing

    def about(self, identity: str) -> list[Note]:
        """The notes that may be about processes of this identity."""
        own = [note for uid in self.uids.get(identity, ()) for note in self.own.get(uid, ())]
        return own + [note for note in self.of_anybody if note.identity in (None, identity)]

    def find(self, identity: str, gpu_uuid: str, pid: int, start_time_ms: int | None, ts_ms: int) -> MeantNow | None:
        """What the note in force that lasts longest says of this process on this card; None without one."""
        found = [
            note
            for note in self.about(identity)
            if note.is_in_force(ts_ms) and note.is_about(gpu_uuid, pid, start_time_ms)
        ]
        if not found:
            return None
        note = max(found, key=lambda one: LATEST_MS if one.until_ms is None else one.until_ms)
        return MeantNow(note.until_ms, note.reason, identity if not note.is_about_anybody else _spell_writer(note))


def _spell_writer(note: Note) -> str:
    if note.uid is None:
        return "config"
    return "root" if note.uid == 0 else f"{UID}{note.uid}"


def sort_notes(notes: Iterable[Note], uids: Mapping[str, Collection[int]], problems: list[str]) -> KnownNotes:
    """The notes by whom they may be about."""
    of_anybody: list[Note] = []
    own: dict[int, list[Note]] = {}
    for note in notes:
        if note.is_about_anybody or note.uid is None:
            of_anybody.append(note)
        else:
            own.setdefault(note.uid, []).append(note)
    return KnownNotes(of_anybody, own, uids, problems)


def check_file(found: os.stat_result, uid: int) -> None:
    """Raise NoNote unless the file may be a note of this user's."""
    if stat.S_ISLNK(found.st_mode):
        raise NoNote("it is a link")
    if not stat.S_ISREG(found.st_mode):
        raise NoNote("it is no regular file")
    if found.st_uid != uid:
        raise NoNote(f"it belongs to uid {found.st_uid}")
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise NoNote("others than its owner may write to it")
    if found.st_nlink != 1:
        raise NoNote(f"it has {found.st_nlink} hard links")
    if found.st_size > MOST_BYTES:
        raise NoNote(f"it is larger than {MOST_BYTES >> 10} kB")


def parse_note(data: bytes, changed_ms: int, uid: int, is_owners: bool) -> Note:
    """The note in a file that was last changed at that time. Raises NoNote if it does not count.

    A note begins no sooner than its file was changed, which nobody can set back. Only the spool's owner (`is_owners`),
    who could set the clock, may write one for the past, or about others.
    """
    try:
        content = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise NoNote("it is no JSON") from error
    if not isinstance(content, dict):
        raise NoNote("it is no JSON object")
    from_ms, until_ms = (_time(content.get(name), name) for name in ("from_ms", "until_ms"))
    reason, identity = _text(content.get("reason"), "reason", LONGEST_REASON), content.get("identity")
    written_ms = from_ms if is_owners else changed_ms
    start_ms = max(from_ms, written_ms)
    if until_ms > written_ms + LONGEST_MS + CLOCK_MS:
        raise NoNote(f"it ends more than {LONGEST_DAYS} days after it was written")
    if until_ms <= start_ms:
        raise NoNote("it ends before it begins, or before it was written")
    if identity is not None:
        if not is_owners:
            raise NoNote("only the owner of the spool may name an identity")
        identity = _text(identity, "identity", LONGEST_NAME)
    gpu_uuids = tuple(_text(uuid, "gpu_uuids", LONGEST_NAME) for uuid in _list(content.get("gpu_uuids"), "gpu_uuids"))
    processes = tuple(_process(entry) for entry in _list(content.get("processes"), "processes"))
    if identity is None and not gpu_uuids and not processes:
        raise NoNote("it is about nothing")
    return Note(start_ms, until_ms, reason, uid, is_owners, identity, gpu_uuids, processes)


def spell_note(note: Note) -> bytes:
    """The content of the note's file."""
    content: dict[str, Any] = {"from_ms": note.start_ms, "until_ms": note.until_ms, "reason": note.reason}
    if note.identity is not None:
        content["identity"] = note.identity
    if note.gpu_uuids:
        content["gpu_uuids"] = note.gpu_uuids
    if note.processes:
        content["processes"] = [{"pid": pid, "start_time_ms": start_ms} for pid, start_ms in note.processes]
    return json.dumps(content).encode()


def _time(value: Any, name: str) -> int:
    if type(value) is not int or not 0 <= value <= LATEST_MS:  # `type` excludes bool
        raise NoNote(f"{name} is no time in milliseconds")
    return value


def _text(value: Any, name: str, longest: int) -> str:
    if not isinstance(value, str) or not value.isprintable() or not value.strip() or len(value) > longest:
        raise NoNote(f"{name} is no text of 1 to {longest} printable characters")
    return value


def _list(value: Any, name: str) -> list[Any]:
    if value is None:
        return []
    if not isinstance(value, list) or len(value) > MOST_ABOUT:
        raise NoNote(f"{name} is no list of at most {MOST_ABOUT:,} entries")
    return value


def _process(entry: Any) -> tuple[int, int]:
    pid = entry.get("pid") if isinstance(entry, dict) else None
    if type(pid) is not int or not 0 < pid < 1 << 31:
        raise NoNote("an entry of processes has no pid")
    return pid, _time(entry.get("start_time_ms"), "start_time_ms")


def check_reason(reason: str) -> str:
    """The reason, if a note may have it. Raises NoNote."""
    return _text(reason, "the reason", LONGEST_REASON)


def exempt_notes(exempt: Mapping[str, str]) -> list[Note]:
    """The exemptions of the configuration: notes about identities, of all time."""
    return [Note(0, None, reason, None, True, identity) for identity, reason in exempt.items()]


def find_clashes(exempt: Iterable[str], people: Mapping[str, str]) -> list[str]:
    """Exemptions that never apply, since [people] gives the identity another name."""
    return [who for who in exempt if people.get(who, who) != who]


def find_uids(identities: Iterable[str], people: Mapping[str, str]) -> tuple[dict[str, set[int]], int]:
    """The uids that each identity stands for, and the number of names for which the directory did not answer.

    Whom the configuration names a person stands for the accounts of that person. Containers, jobs and units stand for
    no uid: nobody but the spool's owner can write notes about them.
    """
    accounts = {who: {who} for who in identities}
    for account, person in people.items():
        if person in accounts:
            accounts[person].add(account)
    names = {name for some in accounts.values() for name in some}
    numbered = {name: int(name[len(UID) :]) for name in names if _is_numbered(name)}
    asked = {name for name in names if ":" not in name and name not in (UNATTRIBUTED, UNKNOWN)}
    answered = user_ids(asked) if asked else {}
    known = numbered | {name: uid for name, uid in answered.items() if uid is not None}
    uids = {who: {known[name] for name in some if name in known} for who, some in accounts.items()}
    return uids, len(asked - answered.keys())


def _is_numbered(identity: str) -> bool:
    digits = identity[len(UID) :]
    return identity.startswith(UID) and digits.isascii() and digits.isdigit() and len(digits) <= 10
