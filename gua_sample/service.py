"""Communication between runs of the sampler in its systemd unit.

The unit gives each run a folder in memory ($RUNTIME_DIRECTORY). There a run notes its start, for the record in case it
is killed; the errors it logged, so that a lasting one is not logged 2,880 times a day; the cgroups in which it has
looked for containers. Without that folder, as in runs by hand, nothing is noted and every error is logged.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress

from gua_sample.errors import StoreError
from gua_sample.processes import read_file, uptime_ms
from gua_sample.safe_file import read_regular
from gua_sample.whole_file import replace_file

HOUR_MS = 3_600_000
MOST_BYTES = 4 << 20  # of a file in the folder
MOST_DIGITS = 18  # of an uptime
WANTED, LOOKED_AT = "containers.wanted", "cgroups"
# Longer than an hour, after which gua-containers asks again for what nobody knew: no note is to come just too early.
LOOK_AGAIN_MS = HOUR_MS + 60_000
LONGEST_CGROUP = 1000  # in characters: no runtime makes longer ones, and users might
# No run takes this long: an older mark was left by an earlier run.
LONGEST_RUN_MS = HOUR_MS
# A killed process that does not hang is gone by then.
DYING_SECONDS = 0.5


def folder_of_runs(environment: Mapping[str, str] = os.environ) -> str | None:
    return environment.get("RUNTIME_DIRECTORY", "").split(":")[0] or None


def mark_start() -> None:
    folder = folder_of_runs()
    if folder is not None:
        with suppress(OSError):
            mark = os.open(os.path.join(folder, "started"), os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, 0o644)
            os.utime(mark)
            os.close(mark)


def read_start_ms(now_ms: int) -> int:
    """The start of the run that has just been killed; `now_ms` if unknown."""
    folder = folder_of_runs()
    if folder is not None:
        with suppress(OSError):
            started_ms = os.stat(os.path.join(folder, "started")).st_mtime_ns // 1_000_000
            if 0 <= now_ms - started_ms <= LONGEST_RUN_MS:
                return started_ms
    return now_ms


def said_this_hour(text: str) -> bool:
    """Whether a run of the unit has logged the text within the hour. If not, note it as logged now."""
    folder = folder_of_runs()
    if folder is None:
        return False
    path = os.path.join(folder, "said")
    now_ms = uptime_ms()
    recent = _read_recent(path, now_ms, HOUR_MS)
    text = " ".join(text.split())
    if any(line.partition(" ")[2] == text for line in recent):
        return True
    # If the note can't be written, the text is logged again: rather twice than never.
    with suppress(OSError):
        replace_file(path, "\n".join([*recent, f"{now_ms} {text}", ""]))
    return False


def ask_for_names(cgroups: Iterable[str | None], data_dir: str) -> None:
    """Leave a note with the containers whose names are not known, if a cgroup was not looked at within the hour.

    gua-containers takes the note, if it is installed. Until then, or for an hour, no other is written. Whatever goes
    wrong costs the note alone.
    """
    folder = folder_of_runs()
    current = {cgroup for cgroup in cgroups if cgroup and len(cgroup) <= LONGEST_CGROUP}
    if folder is None or not current:
        return
    now_ms = uptime_ms()
    recent = _read_recent(os.path.join(folder, LOOKED_AT), now_ms, LOOK_AGAIN_MS)
    new = current.difference(line.partition(" ")[2] for line in recent)
    if new and not _is_waiting(os.path.join(folder, WANTED)):
        from gua_sample import container_note  # imported late: ordinary ticks see no new cgroup

        with suppress(OSError):
            note = container_note.describe(sorted(new), data_dir)
            lines = [*recent, *(f"{now_ms} {cgroup}" for cgroup in note.looked_at), ""]
            # First, so that no note is left that will not be remembered.
            replace_file(os.path.join(folder, LOOKED_AT), "\n".join(lines[-container_note.MOST_CGROUPS :]))
            if note.wanted:
                replace_file(os.path.join(folder, WANTED), "\n".join([*note.wanted, ""]))


def find_hanging_run(proc: str = "/proc", cgroups: str = "/sys/fs/cgroup") -> int | None:
    """The pid of an earlier run in this unit that was sent SIGKILL but hangs in the driver; None if there is none.

    systemd starts a unit again even if it could not kill all of its processes. Asking the same driver would only add
    another process that can't be killed.
    """
    own_name = read_file(f"{proc}/self/comm")
    for cgroup in _own_cgroups(proc, cgroups):
        for pid in (read_file(f"{cgroup}/cgroup.procs") or b"").split():
            process = f"{proc}/{pid.decode()}"
            if read_file(f"{process}/comm") == own_name and _is_being_killed(process):
                time.sleep(DYING_SECONDS)
                if _is_being_killed(process):
                    return int(pid)
    return None


def _own_cgroups(proc: str, cgroups: str) -> list[str]:
    """The folders of this run's control group: version 2, version 1, or both side by side."""
    found = []
    for line in (read_file(f"{proc}/self/cgroup") or b"").decode("utf-8", "surrogateescape").splitlines():
        hierarchy, controllers, path = line.split(":", 2)
        if hierarchy == "0":
            found += [cgroups + path, f"{cgroups}/unified{path}"]
        elif controllers == "name=systemd":
            found.append(f"{cgroups}/systemd{path}")
    return found


def _is_being_killed(process: str) -> bool:
    """Whether SIGKILL is in one of the two masks of pending signals, of the thread and of the process."""
    status = read_file(f"{process}/status") or b""
    masks = [line.split()[1] for line in status.splitlines() if line.startswith((b"SigPnd:", b"ShdPnd:"))]
    return any(int(mask, 16) >> (signal.SIGKILL - 1) & 1 for mask in masks)


def _read_recent(path: str, now_ms: int, most_ms: int) -> list[str]:
    """The lines that begin with an uptime of which less than `most_ms` have passed; none if the file can't be read."""
    try:
        lines = read_regular(path, MOST_BYTES).decode("utf-8", "replace").split("\n")
    except (OSError, StoreError):  # StoreError: a pipe, a link or a huge file in its place
        return []
    return [line for line in lines if _is_recent(line.partition(" ")[0], now_ms, most_ms)]


def _is_recent(noted_ms: str, now_ms: int, most_ms: int) -> bool:
    is_number = noted_ms.isascii() and noted_ms.isdigit() and len(noted_ms) <= MOST_DIGITS
    return is_number and 0 <= now_ms - int(noted_ms) < most_ms


def _is_waiting(note: str) -> bool:
    """Whether somebody may still take the note: it is there, and younger than an hour."""
    try:
        return 0 <= time.time() - os.lstat(note).st_mtime < HOUR_MS / 1000
    except OSError:
        return False
