"""Facts about a pid from /proc: owner, login user, start time, command name and cgroup.

Command lines and environments are never read. Unreadable facts (the process has ended, hidepid) are
None. Names are made printable, since users choose them.
"""

from __future__ import annotations

import _thread
import os
import pwd
import time
from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from gua_sample.records import Boot, Card, Process, Source

Key = TypeVar("Key", int, str)
Value = TypeVar("Value")
LOGIN_UID_UNSET = 4294967295
# Timeout of a tick for names of users.
ANSWER_SECONDS = 2.0
CLOCK_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


def read_boot(proc: str = "/proc") -> Boot:
    """This boot's id, and the time at which its uptime was 0 by the current clock."""
    boot_id = read_file(f"{proc}/sys/kernel/random/boot_id") or b"unknown"
    return Boot(printable(boot_id.strip()), time.time_ns() // 1_000_000 - uptime_ms())


def uptime_ms() -> int:
    """Time since boot, including suspend. Setting the clock does not change it."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000


def describe(pid: int, boot: Boot, proc: str = "/proc") -> Process:
    """The process as /proc describes it, without the names of users (see user_names)."""
    folder = f"{proc}/{pid}"
    uid = _owner(folder)
    login_uid = _number(read_file(f"{folder}/loginuid"))
    if login_uid == LOGIN_UID_UNSET:
        login_uid = None
    command = read_file(f"{folder}/comm")
    return Process(
        pid,
        _start_time_ms(read_file(f"{folder}/stat"), boot),
        uid,
        login_uid,
        None,
        None,
        None if command is None else printable(command[:-1] if command.endswith(b"\n") else command),
        read_cgroup(pid, proc),
    )


def describe_all(
    cards: Iterable[Card], boot: Boot, source: Source, recall: Callable[[], Mapping[int, str | None]] = dict
) -> dict[int, Process]:
    """The processes on the cards, with the names of their users.

    `recall` gives known names, by uid, in case that the directory of users does not answer.
    """
    pids = dict.fromkeys(usage.pid for card in cards for usage in card.usages)
    described = {pid: source.describe(pid, boot) for pid in pids}
    uids = {uid for one in described.values() for uid in (one.uid, one.login_uid) if uid is not None}
    names = source.names(uids) if uids else {}
    if uids - names.keys():
        names = {**recall(), **names}

    def name(uid: int | None) -> str | None:
        return None if uid is None else names.get(uid)

    return {
        pid: one._replace(user=one.user or name(one.uid), login_user=one.login_user or name(one.login_uid))
        for pid, one in described.items()
    }


def user_names(uids: Iterable[int], seconds: float = ANSWER_SECONDS) -> dict[int, str | None]:
    """The name of each uid, or None if it has none. Uids without an answer before the timeout are absent."""
    return ask_directory(uids, _user_name, seconds)


def user_ids(names: Iterable[str], seconds: float = ANSWER_SECONDS) -> dict[str, int | None]:
    """The uid of each user, or None if there is no such user. Names without an answer before the timeout are absent."""
    return ask_directory(names, _user_id, seconds)


def ask_directory(keys: Iterable[Key], look_up: Callable[[Key], Value], seconds: float) -> dict[Key, Value]:
    """What the directory of users says of each key. Keys without an answer before the timeout are absent."""
    found: dict[Key, Value] = {}

    def ask() -> None:
        for key in sorted(keys):
            found[key] = look_up(key)

    ends_within(seconds, ask)
    return dict(found)


def ends_within(seconds: float, ask: Callable[[], None]) -> bool:
    """Whether questions to the directory of users are answered before the timeout.

    A directory such as LDAP may hang for minutes, so a thread asks it (which waits without the interpreter's lock). A
    thread that hangs is abandoned: the process exits without waiting for it.
    """
    pending = _thread.allocate_lock()

    def ask_and_tell() -> None:
        ask()
        pending.release()

    pending.acquire()
    try:
        _thread.start_new_thread(ask_and_tell, ())
    except RuntimeError:  # no thread can be started: nothing is asked
        return False
    return pending.acquire(timeout=seconds)


def _user_name(uid: int) -> str | None:
    try:
        return printable(pwd.getpwuid(uid).pw_name)
    except (KeyError, OverflowError):  # OverflowError: out of range for this C library
        return None


def _user_id(name: str) -> int | None:
    try:
        return pwd.getpwnam(name).pw_uid
    except (KeyError, ValueError):  # ValueError: an impossible name
        return None


def printable(name: bytes | str) -> str:
    """The name with characters that could steer a terminal or break a line escaped."""
    text = name.decode("utf-8", "backslashreplace") if isinstance(name, bytes) else name
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def _owner(folder: str) -> int | None:
    # Not the folder's owner first: for a process that is not dumpable, that is root.
    # Not splitlines: a process is called what it likes, and of line ends the kernel escapes line feeds alone.
    for line in (read_file(f"{folder}/status") or b"").split(b"\n"):
        if line.startswith(b"Uid:"):
            return _number(line.split()[1])
    try:
        return os.stat(folder).st_uid
    except OSError:
        return None


def _start_time_ms(stat: bytes | None, boot: Boot) -> int | None:
    # The command name in parentheses may itself contain blanks, newlines and parentheses.
    fields = (stat or b"").rpartition(b")")[2].split()
    if len(fields) < 20:
        return None
    return boot.time_ms + int(fields[19]) * 1000 // CLOCK_TICKS_PER_SECOND


def read_cgroup(pid: int | str, proc: str = "/proc") -> str | None:
    """The cgroup path; on a cgroup v1 host all distinct ones joined by ';' (Slurm is in some hierarchies only)."""
    return _cgroup(read_file(f"{proc}/{pid}/cgroup"))


def _cgroup(lines: bytes | None) -> str | None:
    # Not splitlines: users name the groups in their own slice, and the kernel allows all but line feeds in names.
    paths = [line.split(b":", 2)[-1] for line in (lines or b"").split(b"\n") if line]
    distinct = list(dict.fromkeys(path for path in paths if path != b"/")) or paths[:1]
    # Names may have a ';' too.
    return ";".join(printable(path).replace(";", "\\x3b") for path in distinct) or None


def _number(text: bytes | None) -> int | None:
    return int(text) if text and text.strip().isdigit() else None


def read_file(path: str) -> bytes | None:
    """The content of a file, or None if it is gone or not readable."""
    try:
        with open(path, "rb", buffering=0) as file:
            return file.read()
    except OSError:
        return None
