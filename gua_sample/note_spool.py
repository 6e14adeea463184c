"""The spool of notes: a folder of root's that everybody may put files in, and nobody but root can list.

So a reader opens the names that a note may have: those of user 1001 are `1001.0` to `1001.9`. In a folder of an
ordinary user's, that user is the owner of the spool, for whoever reads as that user.
"""

# No `from __future__ import annotations` here: it would make NamedTuple compile the text of every field.
import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

from gua_sample.errors import StoreError
from gua_sample.notes import MOST_BYTES, NoNote, Note, check_file, parse_note, spell_note
from gua_sample.processes import read_file
from gua_sample.rights import may_be_emptied, others_on_the_way
from gua_sample.settings import NOTE_SLOTS
from gua_sample.whole_file import UNFINISHED_SUFFIX

MODE = 0o1733
FOLDER = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC  # works without permission to list the folder
PLACE = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC  # a file, pipe or link itself, which is not opened
FILE = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
MOST_BLOCKED = 100  # users, as anybody may put any number of files there


class Spool(NamedTuple):
    path: str
    folder: int  # its descriptor
    uid: int  # its owner, whose notes may be about anybody
    mount: bytes  # the number of the mount that it is on


class Entry(NamedTuple):
    """A file in a place where a note is looked for."""

    uid: int
    slot: int
    note: Note | None
    problem: str | None  # why it does not count

    @property
    def name(self) -> str:
        return f"{self.uid}.{self.slot}"


@contextmanager
def open_spool(path: str) -> Iterator[Spool]:
    """The spool. Raises FileNotFoundError if there is none, StoreError if it can't be trusted."""
    try:
        folder = os.open(path, FOLDER)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise StoreError(f"{path} can't be opened ({error.strerror}): notes are not used") from error
    try:
        found = os.fstat(folder)
        _check_spool(path, found)
        yield Spool(path, folder, found.st_uid, _mount_of(folder))
    finally:
        os.close(folder)


def _check_spool(path: str, found: os.stat_result) -> None:
    """Raise StoreError if somebody else than root, or than whoever reads, decides what is in the spool."""
    make = f"chown root: {path} && chmod {MODE:o} {path}"
    if found.st_uid not in (0, os.geteuid()):
        raise StoreError(f"{path} is uid {found.st_uid}'s, not root's: notes are not used until root says {make}")
    # After the stat: a path that only its owner and root can replace stays theirs.
    if problem := others_on_the_way(path, found.st_uid):
        raise StoreError(f"notes are not used: {problem}")
    if may_be_emptied(path, found):
        raise StoreError(f"everybody may remove others' notes from {path}: they are not used until root says {make}")


def read_entry(spool: Spool, uid: int, slot: int) -> Entry:
    """The file in a user's slot. Raises FileNotFoundError without one, StoreError if the spool can't be entered."""
    try:
        return Entry(uid, slot, _read(spool, uid, f"{uid}.{slot}"), None)
    except FileNotFoundError:
        raise
    except (NoNote, OSError) as error:
        return Entry(uid, slot, None, str(getattr(error, "strerror", None) or error))


def _read(spool: Spool, uid: int, name: str) -> Note:
    """The note in a file. What is checked is what is read: the place is opened once, without any effect on it."""
    try:
        place = os.open(name, PLACE, dir_fd=spool.folder)
    except PermissionError as error:
        raise StoreError(f"{spool.path} can't be entered by this user: notes are not used") from error
    try:
        # First of all: a file system that a user has mounted could say anything, or nothing for ever.
        if _mount_of(place) != spool.mount:
            raise NoNote("something is mounted there")
        check_file(os.fstat(place), uid)
        descriptor = os.open(f"/proc/self/fd/{place}", FILE)
    finally:
        os.close(place)
    try:
        data = os.read(descriptor, MOST_BYTES)
        # Only now: what was written between the check and the reading must not pass for older.
        changed_ms = os.fstat(descriptor).st_ctime_ns // 1_000_000
    finally:
        os.close(descriptor)
    return parse_note(data, changed_ms, uid, is_owners=uid == spool.uid)


def _mount_of(descriptor: int) -> bytes:
    """The number of the mount that a file is on. Not its device, which differs within an overlay file system."""
    lines = (read_file(f"/proc/self/fdinfo/{descriptor}") or b"").splitlines()
    return next((line for line in lines if line.startswith(b"mnt_id:")), b"")


def find_entries(spool: Spool, uid: int) -> dict[int, Entry]:
    """What is in the slots of a user, by slot."""
    found = {}
    for slot in range(NOTE_SLOTS):
        with suppress(FileNotFoundError):
            found[slot] = read_entry(spool, uid, slot)
    return found


def read_entries(path: str, uids: Iterable[int]) -> list[Entry]:
    """What is in the slots of these users and of the spool's owner. Raises as `open_spool` and `read_entry` do."""
    with open_spool(path) as spool:
        return [entry for uid in sorted({*uids, spool.uid}) for entry in find_entries(spool, uid).values()]


def restore_entry(uid: int, slot: int, note: list[Any] | None, problem: str | None) -> Entry:
    """An entry from its JSON form, in which all tuples are lists."""
    if note is None:
        return Entry(uid, slot, None, problem)
    restored = Note(*note)
    processes = tuple((pid, start_ms) for pid, start_ms in restored.processes)
    return Entry(uid, slot, restored._replace(gpu_uuids=tuple(restored.gpu_uuids), processes=processes), None)


def list_uids(spool: Spool) -> list[int]:
    """The users who have notes in the spool, and some whose places others block. Raises PermissionError for all but
    its owner."""
    own, blocked = set[int](), set[int]()
    with os.scandir(f"/proc/self/fd/{spool.folder}") as entries:
        for entry in entries:
            name, _, slot = entry.name.partition(".")
            if name.isascii() and name.isdigit() and len(name) <= 10 and slot.isdigit():
                with suppress(FileNotFoundError):
                    uid = int(name)
                    if entry.stat(follow_symlinks=False).st_uid == uid:
                        own.add(uid)
                    elif len(blocked) < MOST_BLOCKED:
                        blocked.add(uid)
    return sorted(own | blocked)


def put_note(spool: Spool, note: Note, now_ms: int) -> Entry:
    """Write a note of this user's into a free slot, else in the place of the one that ended longest ago.

    Notes that have ended stay as long as there is room, as reports of past windows read them too.
    """
    uid = os.geteuid()
    unfinished = f".{uid}.{os.urandom(4).hex()}{UNFINISHED_SUFFIX}"
    try:
        descriptor = os.open(unfinished, NEW, 0o600, dir_fd=spool.folder)
        try:
            with open(descriptor, "wb") as file:
                os.fchmod(descriptor, 0o644)
                file.write(spell_note(note))
                file.flush()
                os.fsync(descriptor)
            slot = _take_slot(spool, uid, unfinished, now_ms)
        finally:
            os.unlink(unfinished, dir_fd=spool.folder)
    except OSError as error:
        raise StoreError(f"{spool.path} can't be written to ({error.strerror}): nothing is noted") from error
    written = read_entry(spool, uid, slot)
    if written.note is None:
        os.unlink(written.name, dir_fd=spool.folder)
        raise StoreError(f"nothing is noted, as it would not count in {spool.path}: {written.problem}")
    return written


def _take_slot(spool: Spool, uid: int, unfinished: str, now_ms: int) -> int:
    """Give the file a slot's name; nobody's note in force is replaced."""
    for _ in range(NOTE_SLOTS):  # more than once only if somebody is faster
        entries = find_entries(spool, uid)
        free = [slot for slot in range(NOTE_SLOTS) if slot not in entries]
        slot = free[0] if free else _find_ended(spool, uid, entries, now_ms)
        if slot in entries:
            os.unlink(f"{uid}.{slot}", dir_fd=spool.folder)
        with suppress(FileExistsError):
            # Not renamed: that would replace what another command of this user's has just written.
            os.link(unfinished, f"{uid}.{slot}", src_dir_fd=spool.folder, dst_dir_fd=spool.folder)
            return slot
    raise StoreError(f"{spool.path} is too busy: try again")


def _find_ended(spool: Spool, uid: int, entries: dict[int, Entry], now_ms: int) -> int:
    """The slot whose note ended longest ago, or that has a file of this user's that is no note."""
    ended = {}
    for slot, entry in entries.items():
        if entry.note is not None and entry.note.until_ms is not None and entry.note.until_ms <= now_ms:
            ended[slot] = entry.note.until_ms
        elif entry.note is None and _is_removable(spool, entry.name, uid):
            ended[slot] = 0
    if not ended:
        in_force = sum(entry.note is not None for entry in entries.values())
        blocked = f"; {NOTE_SLOTS - in_force} are blocked by files that are no notes: sudo gua doctor names them"
        raise StoreError(
            f"all {NOTE_SLOTS} places for your notes are taken, {in_force} by notes in force: gua note --list, then"
            f" gua note --remove N{blocked if in_force < NOTE_SLOTS else ''}"
        )
    return min(ended, key=lambda slot: ended[slot])


def _is_removable(spool: Spool, name: str, uid: int) -> bool:
    found = os.stat(name, dir_fd=spool.folder, follow_symlinks=False)
    return found.st_uid == uid and not stat.S_ISDIR(found.st_mode)


def remove_note(spool: Spool, uid: int, slot: int) -> None:
    """Remove a note. Raises StoreError if it is not this user's, or there is none."""
    try:
        os.unlink(f"{uid}.{slot}", dir_fd=spool.folder)
    except FileNotFoundError as error:
        raise StoreError(f"there is no note {slot}: gua note --list lists them") from error
    except OSError as error:
        raise StoreError(f"{spool.path}/{uid}.{slot} can't be removed ({error.strerror}): whose is it?") from error
