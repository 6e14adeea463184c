"""Notes: what people hold on purpose, for how long and why, as `gua note` writes it.

Each note is a file in a spool of root's that everybody may put files in, and nobody but root can list: those of user
1001 are `1001.0` to `1001.9`. It can only be about that user's own processes, and about no time before it was written.
In a folder of an ordinary user's, that user is the owner of the spool, for whoever reads as that user.
"""

import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

from gua_sample.errors import GuaError, StoreError
from gua_sample.partition_names import DAY_MS
from gua_sample.processes import read_file
from gua_sample.rights import may_be_emptied, others_on_the_way
from gua_sample.settings import NOTES_SPOOL

MODE = 0o1733  # of the spool
MOST_NOTES = 10  # of a user
MOST_BYTES = 64 << 10
MOST_BAD = 1000  # files that are no notes, as anybody may put any number of them there
LONGEST_DAYS = 14
LONGEST_MS = LONGEST_DAYS * DAY_MS
LONGEST_REASON = 200  # characters
LONGEST_NAME = 256
MOST_ABOUT = 1000  # cards or processes in one note
LATEST_MS = 253_402_300_799_999  # the end of the year 9999
# The kernel's times of change may lag behind the clock by a tick of its own.
CLOCK_MS = 1000
# Whoever may not read the history tells the start of a process by the clock of now.
START_DIFFERS_MS = 10_000

FOLDER = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC  # works without permission to list the folder
PLACE = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC  # a file, pipe or link itself, which is not opened
FILE = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC


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
        return self.start_ms <= ts_ms < self.end_ms

    @property
    def end_ms(self) -> int:
        return LATEST_MS + 1 if self.until_ms is None else self.until_ms

    def is_about(self, gpu_uuid: str, pid: int, start_time_ms: float | None) -> bool:
        if self.gpu_uuids and gpu_uuid not in self.gpu_uuids:
            return False
        if not self.processes:
            return True
        starts = [start_ms for other, start_ms in self.processes if other == pid]
        # An unknown start (None, NaN) may be that of another process with this pid: it compares as false.
        return start_time_ms is not None and any(abs(start_time_ms - one) <= START_DIFFERS_MS for one in starts)


class Spool(NamedTuple):
    path: str
    folder: int  # its descriptor
    uid: int  # its owner, whose notes may be about anybody
    mount: bytes  # the number of the mount that it is on


class Entry(NamedTuple):
    name: str
    note: Note | None
    problem: str | None  # why it does not count

    @property
    def uid(self) -> int:
        return int(self.name.partition(".")[0])

    @property
    def number(self) -> str:
        return self.name.partition(".")[2]


@contextmanager
def open_spool(path: str) -> Iterator[Spool]:
    """The spool. Raises FileNotFoundError if there is none, and StoreError if somebody else than root, or than whoever
    reads, decides what is in it.
    """
    try:
        folder = os.open(path, FOLDER)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise StoreError(f"{path} can't be opened ({error.strerror}): notes are not used") from error
    try:
        found = os.fstat(folder)
        right = f"[notes] spool names a folder of root's of mode {MODE:o}"
        if path == NOTES_SPOOL:  # no other folder is ours to change
            right = f"root says chown root: {path} && chmod {MODE:o} {path}"
        if found.st_uid not in (0, os.geteuid()):
            raise StoreError(f"{path} is uid {found.st_uid}'s, not root's: notes are not used until {right}")
        # After the stat: a path that only its owner and root can replace stays theirs.
        if problem := others_on_the_way(path, found.st_uid):
            raise StoreError(f"notes are not used: {problem}")
        if may_be_emptied(path, found):
            raise StoreError(f"everybody may remove others' notes from {path}: they are not used until {right}")
        yield Spool(path, folder, found.st_uid, _mount_of(folder))
    finally:
        os.close(folder)


def list_uids(spool: Spool) -> set[int]:
    """The users in whose name there are files. For the spool's owner alone."""
    names = [name.partition(".") for name in os.listdir(f"/proc/self/fd/{spool.folder}")]
    return {int(uid) for uid, _, number in names if uid.isdecimal() and uid.isascii() and number.isdecimal()}


def read_entries(path: str, uids: Iterable[int]) -> list[Entry]:
    """The files of these users and of the spool's owner. Raises as `open_spool` does."""
    found, bad = [], 0
    with open_spool(path) as spool:
        for entry in (entry for uid in sorted({*uids, spool.uid}) for entry in read_own(spool, uid)):
            bad += entry.note is None
            if entry.note is not None or bad <= MOST_BAD:
                found.append(entry)
    return found


def read_own(spool: Spool, uid: int) -> list[Entry]:
    return [entry for number in range(MOST_NOTES) if (entry := read_entry(spool, f"{uid}.{number}"))]


def read_entry(spool: Spool, name: str) -> Entry | None:
    try:
        return Entry(name, _read(spool, name, int(name.partition(".")[0])), None)
    except FileNotFoundError:
        return None
    except (NoNote, OSError) as error:
        return Entry(name, None, str(getattr(error, "strerror", None) or error))


def _read(spool: Spool, name: str, uid: int) -> Note:
    """The note in a file. What is checked is what is read."""
    try:
        place = os.open(name, PLACE, dir_fd=spool.folder)
    except PermissionError as error:
        raise StoreError(f"{spool.path} can't be entered by this user: notes are not used") from error
    try:
        # First of all: a file system that a user has mounted could let us wait for ever, and not even a kill ends that.
        if _mount_of(place) != spool.mount:
            raise NoNote("something is mounted there")
        found = os.fstat(place)
        refusals = {
            "it is a link": stat.S_ISLNK(found.st_mode),
            "it is no regular file": not stat.S_ISREG(found.st_mode),
            f"it belongs to uid {found.st_uid}": found.st_uid != uid,
            "others than its owner may write to it": found.st_mode & (stat.S_IWGRP | stat.S_IWOTH),
            f"it is larger than {MOST_BYTES >> 10} kB": found.st_size > MOST_BYTES,
        }
        if why := next((text for text, is_so in refusals.items() if is_so), None):
            raise NoNote(why)
        descriptor = os.open(f"/proc/self/fd/{place}", FILE)
    finally:
        os.close(place)
    with open(descriptor, "rb", buffering=0):
        data = os.read(descriptor, MOST_BYTES)
        # Only now: what was written between the check and the reading must not pass for older.
        changed_ms = os.fstat(descriptor).st_ctime_ns // 1_000_000
    return parse_note(data, changed_ms, uid, is_owners=uid == spool.uid)


def _mount_of(descriptor: int) -> bytes:
    """The number of a file's mount. Its device differs within an overlay file system."""
    lines = (read_file(f"/proc/self/fdinfo/{descriptor}") or b"").splitlines()
    return next((line for line in lines if line.startswith(b"mnt_id:")), b"")


def parse_note(data: bytes, changed_ms: int, uid: int, is_owners: bool) -> Note:
    """The note in a file. Raises NoNote if it does not count.

    It begins no sooner than its file was changed, which nobody can set back; only the spool's owner may write one for
    the past, or about others.
    """
    import json  # imported late: most ticks meet no note

    try:
        content = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise NoNote("it is no JSON") from error
    if not isinstance(content, dict):
        raise NoNote("it is no JSON object")
    from_ms, until_ms = (_time(content.get(name), name) for name in ("from_ms", "until_ms"))
    reason, identity = check_text(content.get("reason"), "reason", LONGEST_REASON), content.get("identity")
    written_ms = from_ms if is_owners else changed_ms
    start_ms = max(from_ms, written_ms)
    if until_ms > written_ms + LONGEST_MS + CLOCK_MS:
        raise NoNote(f"it ends more than {LONGEST_DAYS} days after it was written")
    if until_ms <= start_ms:
        raise NoNote("it ends before it begins, or before it was written")
    if identity is not None:
        if not is_owners:
            raise NoNote("only the owner of the spool may name an identity")
        identity = check_text(identity, "identity", LONGEST_NAME)
    gpu_uuids = tuple(
        check_text(uuid, "gpu_uuids", LONGEST_NAME) for uuid in _list(content.get("gpu_uuids"), "gpu_uuids")
    )
    processes = tuple(_process(entry) for entry in _list(content.get("processes"), "processes"))
    if identity is None and not gpu_uuids and not processes:
        raise NoNote("it is about nothing")
    return Note(start_ms, until_ms, reason, uid, is_owners, identity, gpu_uuids, processes)


def _time(value: Any, name: str) -> int:
    if type(value) is not int or not 0 <= value <= LATEST_MS:  # `type` excludes bool
        raise NoNote(f"{name} is no time in milliseconds")
    return value


def check_text(value: Any, name: str, longest: int) -> str:
    """The text, if a note may have it. Raises NoNote."""
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


def spell_note(note: Note) -> dict[str, Any]:
    processes = [{"pid": pid, "start_time_ms": start_ms} for pid, start_ms in note.processes]
    about = {"identity": note.identity, "gpu_uuids": list(note.gpu_uuids), "processes": processes}
    return {"from_ms": note.start_ms, "until_ms": note.until_ms, "reason": note.reason, **about}


def put_note(spool: Spool, note: Note, now_ms: int) -> Entry:
    """Write a note under a free name, else in the place of the one that ended longest ago."""
    import json

    own = read_own(spool, os.geteuid())
    taken, names = {entry.name for entry in own}, [f"{os.geteuid()}.{number}" for number in range(MOST_NOTES)]
    try:
        for name in [name for name in names if name not in taken] or [_make_room(spool, own, now_ms)]:
            with suppress(FileExistsError):
                descriptor = os.open(name, NEW, 0o600, dir_fd=spool.folder)
                break
        else:
            raise StoreError(f"{spool.path} is too busy: try again")
        try:
            with open(descriptor, "wb") as file:
                os.fchmod(descriptor, 0o644)
                file.write(json.dumps(spell_note(note)).encode())
                file.flush()
                os.fsync(descriptor)
        except OSError:
            os.unlink(name, dir_fd=spool.folder)
            raise
    except OSError as error:
        raise StoreError(f"{spool.path} can't be written to ({error.strerror}): nothing is noted") from error
    written = read_entry(spool, name)
    if written is None:
        raise StoreError(f"{spool.path} is too busy: try again")
    if written.note is None:
        os.unlink(name, dir_fd=spool.folder)
        raise StoreError(f"nothing is noted, as it would not count in {spool.path}: {written.problem}")
    return written


def _make_room(spool: Spool, own: list[Entry], now_ms: int) -> str:
    notes = [(entry.note.end_ms, entry.name) for entry in own if entry.note is not None]
    end_ms, name = min(notes, default=(LATEST_MS, ""))
    if end_ms <= now_ms:
        os.unlink(name, dir_fd=spool.folder)
        return name
    blocked = f"; {MOST_NOTES - len(notes)} are blocked by files that are no notes: sudo gua doctor names them"
    raise StoreError(
        f"all {MOST_NOTES} places for your notes are taken, {len(notes)} by notes in force: gua note --list, then"
        f" gua note --remove N{blocked if len(notes) < MOST_NOTES else ''}"
    )


def remove_note(spool: Spool, name: str) -> None:
    """Remove a note. Raises StoreError if it is not this user's, or there is none."""
    try:
        os.unlink(name, dir_fd=spool.folder)
    except FileNotFoundError as error:
        number = name.partition(".")[2]
        raise StoreError(f"there is no note {number}: gua note --list lists them") from error
    except OSError as error:
        raise StoreError(f"{spool.path}/{name} can't be removed ({error.strerror}): whose is it?") from error
