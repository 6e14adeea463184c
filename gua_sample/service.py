"""Communication between runs of the sampler in its systemd unit, which gives them a folder in memory.

There a run notes its start, in case it is killed; the errors it logged, so that a lasting one is not logged 2,880 times
a day; the cgroups in which it has looked for containers. In runs by hand nothing is noted, and every error is logged.
"""

import os
import signal
import time
from collections.abc import Iterable
from contextlib import suppress

from gua_sample.errors import StoreError
from gua_sample.processes import read_file, uptime_ms
from gua_sample.safe_file import read_regular, replace_file

HOUR_MS = 3_600_000
MOST_BYTES = 4 << 20  # of a file in the folder
MOST_DIGITS = 18  # of an uptime
WANTED, LOOKED_AT = "containers.wanted", "cgroups"
MOST_CGROUPS = 500  # that are remembered as looked at
# No run takes this long: an older mark was left by an earlier run.
LONGEST_RUN_MS = HOUR_MS
# A killed process that does not hang is gone by then.
DYING_SECONDS = 0.5


def folder_of_runs() -> str | None:
    return os.environ.get("RUNTIME_DIRECTORY", "").split(":")[0] or None


def mark_start() -> None:
    if (folder := folder_of_runs()) is not None:
        with suppress(OSError):
            mark = os.open(os.path.join(folder, "started"), os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, 0o644)
            os.utime(mark)
            os.close(mark)


def read_start_ms(now_ms: int) -> int:
    """The start of the run that has just been killed; `now_ms` if unknown."""
    started_ms = now_ms
    with suppress(OSError):
        started_ms = os.stat(os.path.join(folder_of_runs() or "", "started")).st_mtime_ns // 1_000_000
    return started_ms if 0 <= now_ms - started_ms <= LONGEST_RUN_MS else now_ms


def said_this_hour(text: str) -> bool:
    """Whether a run of the unit has logged the text within the hour. If not, note it as logged now."""
    folder = folder_of_runs()
    if folder is None:
        return False
    path, now_ms, text = os.path.join(folder, "said"), uptime_ms(), " ".join(text.split())
    recent = _read_recent(path, now_ms)
    if any(line.partition(" ")[2] == text for line in recent):
        return True
    # If the note can't be written, the text is logged again: rather twice than never.
    with suppress(OSError):
        replace_file(path, "\n".join([*recent, f"{now_ms} {text}", ""]))
    return False


def ask_for_names(cgroups: Iterable[str | None], data_dir: str) -> None:
    """Leave a note for gua-containers with unknown containers of new cgroups. What goes wrong costs the note alone."""
    folder = folder_of_runs()
    current = {cgroup for cgroup in cgroups if cgroup}
    if folder is None or not current:
        return
    now_ms, note = uptime_ms(), os.path.join(folder, WANTED)
    recent = _read_recent(os.path.join(folder, LOOKED_AT), now_ms)
    new = current.difference(line.partition(" ")[2] for line in recent)
    is_waiting = False  # for somebody to take it
    with suppress(OSError):
        is_waiting = 0 <= time.time() - os.lstat(note).st_mtime < HOUR_MS / 1000
    if new and not is_waiting:
        from gua_sample.containers import list_wanted  # imported late: ordinary ticks see no new cgroup

        with suppress(OSError):
            wanted, looked_at = list_wanted(sorted(new), data_dir)
            lines = [*recent, *(f"{now_ms} {cgroup}" for cgroup in looked_at), ""]
            # First, so that no note is left that will not be remembered.
            replace_file(os.path.join(folder, LOOKED_AT), "\n".join(lines[-MOST_CGROUPS:]))
            if wanted:
                replace_file(note, "\n".join([*wanted, ""]))


def find_hanging_run(proc: str = "/proc", cgroups: str = "/sys/fs/cgroup") -> int | None:
    """The pid of an earlier run in this unit that was killed, but hangs."""
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
    found = []
    for line in (read_file(f"{proc}/self/cgroup") or b"").decode("utf-8", "surrogateescape").splitlines():
        hierarchy, controllers, path = line.split(":", 2)
        if hierarchy == "0":
            found += [cgroups + path, f"{cgroups}/unified{path}"]
        elif controllers == "name=systemd":
            found.append(f"{cgroups}/systemd{path}")
    return found


def _is_being_killed(process: str) -> bool:
    status = read_file(f"{process}/status") or b""
    masks = [line.split()[1] for line in status.splitlines() if line.startswith((b"SigPnd:", b"ShdPnd:"))]
    return any(int(mask, 16) >> (signal.SIGKILL - 1) & 1 for mask in masks)


def _read_recent(path: str, now_ms: int) -> list[str]:
    try:
        lines = read_regular(path, MOST_BYTES).decode("utf-8", "replace").split("\n")
    except (OSError, StoreError):  # StoreError: a pipe, a link or a huge file in its place
        return []
    noted = [(line.partition(" ")[0], line) for line in lines]
    numbers = [(ms, line) for ms, line in noted if ms.isascii() and ms.isdigit() and len(ms) <= MOST_DIGITS]
    return [line for ms, line in numbers if 0 <= now_ms - int(ms) < HOUR_MS]
