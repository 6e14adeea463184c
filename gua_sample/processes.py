"""Who a pid is: owner, login user, start time, command name and cgroup, from /proc.

Command lines and environments are never read. What can't be read (the process has ended, hidepid)
is None; what can is made printable, since users choose these names.
"""

from __future__ import annotations

import _thread
import os
import pwd
import time
from collections.abc import Iterable
from contextlib import suppress

from gua_sample.records import Boot, Process

LOGIN_UID_UNSET = 4294967295
# How long a tick waits for names of users.
ANSWER_SECONDS = 2.0
CLOCK_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


def read_boot(proc: str = "/proc") -> Boot:
    """This boot, and the time at which its uptime was 0 as far as the clock tells now."""
    boot_id = read_file(f"{proc}/sys/kernel/random/boot_id") or b"unknown"
    return Boot(printable(boot_id.strip()), time.time_ns() // 1_000_000 - uptime_ms())


def uptime_ms() -> int:
    """Time since boot, suspended or not; the clock being set does not change it."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000


def describe(pid: int, boot: Boot, proc: str = "/proc") -> Process:
    """What /proc tells. The names of users come from elsewhere (see user_names)."""
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
        _cgroup(read_file(f"{folder}/cgroup")),
    )


def user_names(uids: Iterable[int], seconds: float = ANSWER_SECONDS) -> dict[int, str | None]:
    """The name of each, or None if it has none. Those that the user directory did not answer for in time are absent.

    A directory such as LDAP may hang for minutes. So a thread asks (which waits without the interpreter's lock), and
    is left behind if it must be: the process ends without waiting for it.
    """
    names: dict[int, str | None] = {}
    pending = _thread.allocate_lock()

    def ask() -> None:
        for uid in sorted(uids):
            names[uid] = _user_name(uid)
        pending.release()

    pending.acquire()
    with suppress(RuntimeError):  # no thread to be had: then nobody answers
        _thread.start_new_thread(ask, ())
        pending.acquire(timeout=seconds)
    return dict(names)


def _user_name(uid: int) -> str | None:
    try:
        return printable(pwd.getpwuid(uid).pw_name)
    except (KeyError, OverflowError):  # OverflowError: not a uid this C library knows
        return None


def printable(name: bytes | str) -> str:
    """The name with everything that could steer a terminal or break a line spelled as an escape."""
    text = name.decode("utf-8", "backslashreplace") if isinstance(name, bytes) else name
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def _owner(folder: str) -> int | None:
    # Not the owner of the folder: that is root for a process which is not dumpable.
    for line in (read_file(f"{folder}/status") or b"").splitlines():
        if line.startswith(b"Uid:"):
            return _number(line.split()[1])
    try:
        return os.stat(folder).st_uid
    except OSError:
        return None


def _start_time_ms(stat: bytes | None, boot: Boot) -> int | None:
    # The command name in parentheses may itself hold blanks, newlines and parentheses.
    fields = (stat or b"").rpartition(b")")[2].split()
    if len(fields) < 20:
        return None
    return boot.time_ms + int(fields[19]) * 1000 // CLOCK_TICKS_PER_SECOND


def _cgroup(lines: bytes | None) -> str | None:
    """The path, or all distinct ones of a cgroup v1 host joined by ';' (Slurm is on some hierarchies only)."""
    paths = [line.split(b":", 2)[-1] for line in (lines or b"").splitlines()]
    distinct = list(dict.fromkeys(path for path in paths if path != b"/")) or paths[:1]
    return ";".join(printable(path) for path in distinct) or None


def _number(text: bytes | None) -> int | None:
    return int(text) if text and text.strip().isdigit() else None


def read_file(path: str) -> bytes | None:
    """All of it, or None if it is gone or not for us."""
    try:
        with open(path, "rb", buffering=0) as file:
            return file.read()
    except OSError:
        return None
