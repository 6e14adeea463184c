"""Facts about a pid from /proc: owner, login user, start time, command name and cgroup.

Command lines and environments are never read. Unreadable facts are None. Names are made printable: users choose them.

A cgroup's name belongs to the owner of the folder that it is in: users make cgroups below a unit with `Delegate=yes`,
and could call them after a colleague's. So going down from the root, a component is believed while the folder that
contains it is root's alone. Below a container nothing is: its own root may be uid 0.
"""

import _thread
import os
import pwd
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import cache
from typing import NamedTuple, TypeVar

from gua_sample.identity import find_containers
from gua_sample.records import Boot, Card, Process, Source

Key = TypeVar("Key", int, str)
Value = TypeVar("Value")
ROOT = 0
LOGIN_UID_UNSET = 4294967295
# Timeout of a tick for names of users.
ANSWER_SECONDS = 2.0
LONGEST_CGROUP = 512  # in characters: no runtime makes longer ones, and users might
CLOCK_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


def read_boot() -> Boot:
    """This boot's id, and the time at which its uptime was 0 by the current clock."""
    boot_id = read_file("/proc/sys/kernel/random/boot_id") or b"unknown"
    return Boot(printable(boot_id.strip()), time.time_ns() // 1_000_000 - uptime_ms())


def uptime_ms() -> int:
    """Time since boot, including suspend. Setting the clock does not change it."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000


def describe(pid: int, boot: Boot, proc: str = "/proc") -> Process:
    """The process as /proc describes it, without the names of users (see user_names)."""
    folder = f"{proc}/{pid}"
    # The folder's owner is the second choice: for a process that is not dumpable, that is root.
    # Not splitlines: of line ends in a process's name, the kernel escapes line feeds alone.
    lines = (read_file(f"{folder}/status") or b"").split(b"\n")
    own = [line.split()[1] for line in lines if line.startswith(b"Uid:")]
    uid = _number(own[0]) if own else None
    if not own:
        with suppress(OSError):
            uid = os.stat(folder).st_uid
    login_uid = _number(read_file(f"{folder}/loginuid"))
    if login_uid == LOGIN_UID_UNSET:
        login_uid = None
    # The command name in parentheses may itself contain blanks, newlines and parentheses.
    fields = (read_file(f"{folder}/stat") or b"").rpartition(b")")[2].split()
    start_ms = boot.time_ms + int(fields[19]) * 1000 // CLOCK_TICKS_PER_SECOND if len(fields) > 19 else None
    command = read_file(f"{folder}/comm")
    cgroup = read_cgroup(pid, proc)
    # A process can make its cgroup's path too long for the kernel to tell. It may be in a container, whose uids are its
    # own. So its owner is not known, unless this machine has no cgroups at all.
    if cgroup is None and read_file(f"{proc}/self/cgroup"):
        uid = login_uid = None
    name = None if command is None else printable(command.removesuffix(b"\n"))
    return Process(pid, start_ms, uid, login_uid, command=name, cgroup=cgroup)


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


def user_names(uids: Iterable[int]) -> dict[int, str | None]:
    """The name of each uid, or None if it has none."""
    return ask_directory(uids, lambda uid: printable(pwd.getpwuid(uid).pw_name), ANSWER_SECONDS)


def user_ids(names: Iterable[str], seconds: float = ANSWER_SECONDS) -> dict[str, int | None]:
    """The uid of each user, or None if there is no such user."""
    return ask_directory(names, lambda name: pwd.getpwnam(name).pw_uid, seconds)


def ask_directory(
    keys: Iterable[Key], look_up: Callable[[Key], Value | None], seconds: float
) -> dict[Key, Value | None]:
    """What the directory of users says of each key; None of an impossible or unknown one.

    A directory such as LDAP may hang for minutes, so a thread asks it (which waits without the interpreter's lock). A
    thread that hangs is abandoned: the process exits without waiting for it. Keys without an answer in time are absent.
    """
    found: dict[Key, Value | None] = {}
    pending = _thread.allocate_lock()

    def ask() -> None:
        for key in sorted(keys):
            try:
                found[key] = look_up(key)
            except (KeyError, ValueError, OverflowError):  # the last: out of range for this C library
                found[key] = None
        pending.release()

    pending.acquire()
    with suppress(RuntimeError):  # no thread can be started: nothing is asked
        _thread.start_new_thread(ask, ())
        pending.acquire(timeout=seconds)
    return found


def printable(name: bytes | str) -> str:
    """The name with characters that could steer a terminal or break a line escaped."""
    text = name.decode("utf-8", "backslashreplace") if isinstance(name, bytes) else name
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def read_cgroup(pid: int | str, proc: str = "/proc") -> str | None:
    """The believed part of the cgroup; on a cgroup v1 host all distinct ones joined by ';' (Slurm is in some only).

    None if the cgroup can't be read, or if there is no hierarchy to look at whose path begins with a believed name.
    """
    lines = read_file(f"{proc}/{pid}/cgroup") or b""
    # Not splitlines: users name the groups in their own slice, and the kernel allows all but line feeds in names.
    paths = [believed for line in lines.split(b"\n") if line and (believed := _believe(line, _read_mounts(proc)))]
    distinct = list(dict.fromkeys(path for path in paths if path != b"/")) or paths[:1]
    # Names may have a ';' too.
    text = ";".join(printable(path).replace(";", "\\x3b") for path in distinct)
    if len(text) > LONGEST_CGROUP:
        text = text[: LONGEST_CGROUP + 1].rpartition("/")[0].rstrip(";")
    return text or None


class Mount(NamedTuple):
    """A hierarchy that is mounted: a cgroup v1 host has several."""

    controllers: frozenset[bytes]
    above: bytes  # what paths begin with: `/../..` if it is mounted from outside of this cgroup namespace
    folder: bytes


@cache  # gua-containers looks at all processes, and the file may be long
def _read_mounts(proc: str) -> list[Mount]:
    """The hierarchies that are mounted. Of a part of one, what is above can't be looked at."""
    found = []
    for line in (read_file(f"{proc}/self/mountinfo") or b"").split(b"\n"):
        place, _, described = line.partition(b" - ")
        if described.startswith(b"cgroup"):
            root, folder = place.split(b" ")[3:5]
            kind, _, options = described.split(b" ")
            controllers = frozenset(options.split(b",") if kind == b"cgroup" else [b""])
            found.append(Mount(controllers, root.rstrip(b"/"), folder))
    return [mount for mount in found if not mount.above.strip(b"/.")]


def _believe(line: bytes, mounts: list[Mount]) -> bytes:
    """The believed part of the path in a line of /proc/PID/cgroup, perhaps empty."""
    controllers, _, path = line.partition(b":")[2].partition(b":")
    wanted = controllers.split(b",")
    for known, above, folder in [] if path == b"/" else mounts:
        if known.issuperset(wanted) and path.startswith(above + b"/"):
            names = path[len(above) + 1 :].removesuffix(b" (deleted)").split(b"/")
            believed = [b"", *names[: _count_believed(names, folder)]]
            containers = find_containers(b"/".join(believed).decode("utf-8", "replace"))
            return b"/".join(believed[: containers[-1][0] + 1 if containers else None])
    return path if path == b"/" else b""


def _count_believed(names: list[bytes], folder: bytes) -> int:
    for number, name in enumerate(names):
        owner = None if name == b".." else _sole_writer(folder)
        if owner != ROOT:
            # What users name in their own slices is theirs, so it can't be a colleague's.
            is_own = owner is not None and names[:2] == [b"user.slice", b"user-%d.slice" % owner]
            return len(names) if is_own and number > 1 else number
        folder += b"/" + name
    return len(names)


def _sole_writer(folder: bytes) -> int | None:
    """The owner of a folder; None if others may write there too, or it can't be looked at."""
    try:
        found = os.stat(folder)
    except OSError:
        return None
    may_write = 0o002 if found.st_gid == ROOT else 0o022
    return None if found.st_mode & may_write else found.st_uid


def _number(text: bytes | None) -> int | None:
    return int(text) if text and text.strip().isdigit() else None


def read_file(path: str) -> bytes | None:
    """The content of a file, or None if it is gone or not readable."""
    try:
        with open(path, "rb", buffering=0) as file:
            return file.read()
    except OSError:
        return None
