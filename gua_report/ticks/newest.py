"""The files of a history and its newest tick, for commands that can't wait for pandas."""

import os
import stat
import time
from typing import NamedTuple

from gua_report.ticks.open_partition import open_partition
from gua_sample.errors import StoreError
from gua_sample.partition_file import check_types
from gua_sample.partition_names import PENDING_SUFFIX, SIDECARS, is_partition
from gua_sample.pending import NOT_UNDERSTOOD, load_one
from gua_sample.policy import DEFAULT_INTERVAL_MS, LONGEST_GAP_INTERVALS, TICKS_AROUND, typical_gap

# The least, so that runs by hand, seconds apart, are not stale soon.
SHORTEST_STALE_MS = round(LONGEST_GAP_INTERVALS * DEFAULT_INTERVAL_MS)
AHEAD_MS = 5_000  # a tick that is newer than now by no more than this is not in the future


class Newest(NamedTuple):
    ts_ms: int
    error: str | None
    stale_ms: int  # older than this, it is stale
    waits: bool  # it is kept in a file of its own, beside a busy partition
    due_ms: int | None = None  # time of the next tick if the timer is not late

    def is_stale(self, now_ms: int) -> bool:
        return now_ms - self.ts_ms > self.stale_ms and self.due_ms is None

    def by_timer(self, interval_ms: int | None, due_ms: int | None) -> "Newest":
        """The same tick, judged by the timer: its interval, if that is known, and its next run, if that is not late."""
        stale_ms = self.stale_ms if interval_ms is None else round(LONGEST_GAP_INTERVALS * interval_ms)
        return self._replace(stale_ms=stale_ms, due_ms=due_ms)


class Files(NamedTuple):
    folder: str
    partitions: list[str]  # oldest first
    others: list[str]  # names of the other files in the folder
    hidden: str | None  # why the folder can't be listed
    strange: tuple[str, ...] = ()  # files with our names that are not regular

    @property
    def data_dir(self) -> str:
        return os.path.dirname(self.folder)


def list_history(folder: str) -> Files:
    """List the history's files, without those that are not regular, which must not be opened.

    The caller may be root, and the sampler's user may have put a pipe or a link to a device there.
    """
    try:
        names = sorted(os.listdir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return Files(folder, [], [], None)
    except OSError as problem:
        return Files(folder, [], [], problem.strerror or str(problem))
    strange = [name for name in names if is_ours(name) and not is_regular(os.path.join(folder, name))]
    shunned = {*strange, *(name[: -len(suffix)] for name in strange for suffix in SIDECARS if name.endswith(suffix))}
    paths = [os.path.join(folder, name) for name in names if is_partition(name) and name not in shunned]
    others = [name for name in names if not is_partition(name) and name not in shunned]
    return Files(folder, paths, others, None, tuple(strange))


def is_ours(name: str) -> bool:
    return name.endswith(PENDING_SUFFIX) or any(is_partition(name.removesuffix(suffix)) for suffix in ("", *SIDECARS))


def is_regular(path: str) -> bool:
    try:
        return stat.S_ISREG(os.lstat(path).st_mode)
    except FileNotFoundError:  # a journal or a kept tick that has just been removed
        return True
    except OSError:
        return False


def find_newest(history: Files, now_ms: int) -> Newest | None:
    rows: list[tuple[int, int | None, str | None]] = []
    for path in reversed(history.partitions):
        rows += _read_newest(path, now_ms)
        if len(rows) > TICKS_AROUND:
            break
    waiting_ms = _newest_waiting(history, now_ms)
    if not rows:
        return Newest(waiting_ms, None, SHORTEST_STALE_MS, True) if waiting_ms else None
    ts_ms, interval_ms, problem = rows[0]
    if interval_ms:
        stale_ms = round(LONGEST_GAP_INTERVALS * interval_ms)
    else:
        typical_ms = typical_gap([row[0] for row in rows[TICKS_AROUND::-1]], float("inf"))
        stale_ms = max(SHORTEST_STALE_MS, round(LONGEST_GAP_INTERVALS * typical_ms))
    if waiting_ms and waiting_ms > ts_ms:
        return Newest(waiting_ms, None, stale_ms, True)
    return Newest(ts_ms, problem, stale_ms, False)


def _read_newest(path: str, now_ms: int) -> list[tuple[int, int | None, str | None]]:
    sql = "SELECT ts_ms, interval_ms, error FROM tick WHERE ts_ms <= ? ORDER BY ts_ms DESC LIMIT ?"
    try:
        with open_partition(path) as connection:
            rows = connection.execute(sql, (now_ms + AHEAD_MS, TICKS_AROUND + 1)).fetchall()
            for row in rows:
                check_types(row, int, (int, None), (str, None))
            return rows
    except StoreError:  # commands that read the partition report it
        return []


def _newest_waiting(history: Files, now_ms: int) -> int | None:
    """The time of the newest kept tick, as far as this version understands it."""
    paths = [os.path.join(history.folder, name) for name in history.others if name.endswith(PENDING_SUFFIX)]
    if not paths:
        return None
    try:
        ts_ms = load_one(max(paths, key=modified)).tick.ts_ms
    except (OSError, StoreError, *NOT_UNDERSTOOD):  # taken in meanwhile, or no kept tick
        return None
    return ts_ms if ts_ms <= now_ms + AHEAD_MS else None


def modified(path: str) -> float:
    try:
        return os.stat(path).st_mtime
    except OSError:  # gone meanwhile
        return time.time()
