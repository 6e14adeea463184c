"""Communication between runs of the sampler in its systemd unit, which gives them a folder in memory.

There a run notes its start, in case it is killed; the errors it logged, so that a lasting one is not logged 2,880 times
a day; the containers whose names it has asked for. In runs by hand nothing is noted, and every error is logged.
"""

import os
import signal
import time
from collections.abc import Iterable
from contextlib import suppress

from gua_sample.errors import StoreError
from gua_sample.identity import find_container
from gua_sample.partition_names import CONTAINERS_NAME
from gua_sample.processes import read_file, uptime_ms
from gua_sample.safe_file import read_regular, replace_file

HOUR_MS = 3_600_000
MOST_BYTES = 8 << 20  # of a file
MOST_DIGITS = 18  # of an uptime or a pid
WANTED, ASKED = "containers.wanted", "containers.asked"
MOST_WANTED = 50  # names that one note asks for
# No run takes this long: an older mark was left by an earlier run.
LONGEST_RUN_MS = HOUR_MS
# A killed process that does not hang is gone by then.
DYING_SECONDS = 0.5


def folder_of_runs() -> str | None:
    return os.environ.get("RUNTIME_DIRECTORY", "").split(":")[0] or None


def mark_start() -> int | None:
    """Note that this run begins; or return the pid of an earlier one that was killed and hangs."""
    folder = folder_of_runs()
    if folder is None:
        return None
    mark = os.path.join(folder, "started")
    with suppress(OSError, StoreError, ValueError):
        earlier = int(read_regular(mark, MOST_DIGITS))
        if is_hanging(f"/proc/{earlier}"):
            return earlier
    with suppress(OSError):
        replace_file(mark, str(os.getpid()))
    return None


def is_hanging(process: str) -> bool:
    """Whether it is a run of ours that was killed and stays."""
    if read_file(f"{process}/comm") != read_file("/proc/self/comm") or not _is_being_killed(process):
        return False
    time.sleep(DYING_SECONDS)
    return _is_being_killed(process)


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
    """Leave a note for gua-containers with the containers whose names are not known."""
    folder = folder_of_runs()
    found = filter(None, map(find_container, set(cgroups)))
    # What is in a user's slice, no runtime of the machine's knows.
    seen = {(one.key, one.runtime) for one in found if one.key and one.slice_uid is None}
    if folder is None or not seen:
        return
    now_ms, note, asked = uptime_ms(), os.path.join(folder, WANTED), os.path.join(folder, ASKED)
    recent = _read_recent(asked, now_ms)
    seen_before = {line.partition(" ")[2] for line in recent}
    new = sorted((key, runtime) for key, runtime in seen if key not in seen_before)[:MOST_WANTED]
    is_waiting = False  # for somebody to take it
    known = b""
    with suppress(OSError):
        is_waiting = 0 <= time.time() - os.lstat(note).st_mtime < HOUR_MS / 1000
    if not new or is_waiting:
        return
    with suppress(OSError, StoreError):  # nothing is known, or somebody put a pipe or a link there
        known = read_regular(os.path.join(data_dir, CONTAINERS_NAME), MOST_BYTES)
    # The text is searched, not parsed: it may be megabytes, and a note too many does no harm.
    wanted = [f"{runtime}:{key}" for key, runtime in new if f'"{key}": {{'.encode() not in known]
    with suppress(OSError):
        # First, so that no note is left that will not be remembered.
        replace_file(asked, "\n".join([*recent, *(f"{now_ms} {key}" for key, _ in new), ""]))
        if wanted:
            replace_file(note, "\n".join([*wanted, ""]))


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
