"""Communication between runs of the sampler in its systemd unit.

The unit gives each run a folder in memory ($RUNTIME_DIRECTORY). There a run notes its start, for the record in case it
is killed, and the errors it logged, so that a lasting one is not logged 2,880 times a day. Without that folder, as in
runs by hand, nothing is noted and every error is logged.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Mapping
from contextlib import suppress

from gua_sample.processes import read_file, uptime_ms
from gua_sample.whole_file import replace_file

HOUR_MS = 3_600_000
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
    lines = (read_file(path) or b"").decode("utf-8", "replace").splitlines()
    recent = [line for line in lines if _is_recent(line.partition(" ")[0], now_ms)]
    text = " ".join(text.split())
    if any(line.partition(" ")[2] == text for line in recent):
        return True
    # If the note can't be written, the text is logged again: rather twice than never.
    with suppress(OSError):
        replace_file(path, "\n".join([*recent, f"{now_ms} {text}", ""]))
    return False


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


def _is_recent(noted_ms: str, now_ms: int) -> bool:
    return noted_ms.isascii() and noted_ms.isdigit() and 0 <= now_ms - int(noted_ms) < HOUR_MS
