"""Writing ticks atomically to the right partition.

A tick is one transaction; a file that is no partition (any more) is set aside, never deleted; a tick for a busy
partition is kept beside it and taken in exactly once. Other failures leave the file as it was and raise StoreError.
"""

import fcntl
import os
import stat
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from itertools import groupby
from typing import NamedTuple

from gua_sample import pending
from gua_sample.errors import CorruptPartition, NewerPartition, PartitionBusy, StoreError
from gua_sample.partition_file import BUSY_SECONDS, IN_MEMORY, Writer, storage_error
from gua_sample.partition_names import (
    JOURNAL_SUFFIX,
    SIDECARS,
    day_of,
    is_partition,
    list_partitions,
    partition_path,
    samples_dir,
)
from gua_sample.records import Previous, Tick
from gua_sample.rights import become_owner, is_open_place
from gua_sample.safe_file import sync_folder

Warn = Callable[[str], None]

# A run just before midnight may see a partition that another run created just after midnight.
CLOCKS_DIFFER_MS = 600_000
LOOK_SECONDS = 0.05  # between two tries to lock


class Outcome(NamedTuple):
    path: str
    kept: bool  # the partition was busy: the tick waits beside it


def prepare(data_dir: str) -> str:
    """The folder of the partitions, created if missing. Root becomes its owner first."""
    folder = samples_dir(data_dir)
    try:
        if os.geteuid() == 0 and is_open_place(data_dir):
            with suppress(FileExistsError, FileNotFoundError):
                os.mkdir(data_dir)  # become_owner detects another creator, or a missing parent
        become_owner(data_dir)
        if not os.path.isdir(folder):
            os.makedirs(folder, exist_ok=True)
            for parent in (data_dir, os.path.dirname(data_dir)):
                sync_folder(parent)  # otherwise a power cut days later may lose the whole folder
        found = os.lstat(folder)
        if stat.S_ISLNK(found.st_mode) and found.st_uid not in (0, os.stat(data_dir).st_uid):
            raise StoreError(f"{folder} is a link of uid {found.st_uid}'s, which is not followed: rm {folder}")
    except OSError as error:
        raise storage_error(error, folder) from error
    return folder


def heal(folder: str, warn: Warn) -> None:
    """Roll back what killed writers left in all partitions, as readers can't."""
    for name in sorted(os.listdir(folder)):
        path = os.path.join(folder, name[: -len(JOURNAL_SUFFIX)])
        if name.endswith(JOURNAL_SUFFIX) and is_partition(os.path.basename(path)) and os.path.lexists(path):
            identity = _identity(path)
            try:
                with Writer(path) as writer:
                    writer.check()
            except (NewerPartition, PartitionBusy):  # the latter: the journal of a live writer
                pass
            except CorruptPartition as error:
                try:
                    _set_aside(path, identity, error, warn)
                except PartitionBusy as busy:
                    warn(str(busy))
            except StoreError as error:
                warn(str(error))


def read_previous(folder: str, ts_ms: int, boot_id: str, warn: Warn) -> Previous | None:
    """The newest tick's state, if of this boot: from today's partition or one beside it."""
    paths = list_partitions(folder)
    today = partition_path(folder, day_of(ts_ms))
    earlier, later = [path for path in paths if path < today], [path for path in paths if path > today]
    if later and later[-1] > partition_path(folder, day_of(ts_ms + CLOCKS_DIFFER_MS)):
        warn(f"{later[-1]} is of a day to come: was the clock set back? see 'timedatectl', and move what is wrong away")
    for path in [today, *earlier[-1:], *later[:1]]:
        if path in paths:
            # The tick does not need it, and writing to that file will raise the error.
            with suppress(StoreError), Writer(path) as writer:
                previous = writer.previous()
                if previous and previous.boot.id == boot_id:
                    return previous
    return None


def read_names(folder: str, ts_ms: int) -> dict[int, str]:
    today = partition_path(folder, day_of(ts_ms))
    names: dict[int, str] = {}
    for path in [path for path in list_partitions(folder) if path <= today][-2:]:
        with suppress(StoreError), Writer(path) as writer:
            names |= writer.names()
    return names


def append(folder: str, tick: Tick, warn: Warn) -> Outcome:
    waiting = pending.load(folder, warn)
    today = day_of(tick.ts_ms)
    by_day = {day: list(kept) for day, kept in groupby(waiting, key=lambda kept: kept.day)}
    of_today = by_day.pop(today, [])
    for day, kept in by_day.items():
        try:
            _append_to_day(partition_path(folder, day), kept, [], warn)
        except (PartitionBusy, NewerPartition):
            pass  # these ticks stay kept
        except StoreError as error:
            warn(f"ticks of {day} are still waiting: {error}")
    path = partition_path(folder, today)
    try:
        _append_to_day(path, of_today, [tick], warn)
    except (PartitionBusy, NewerPartition) as error:
        if isinstance(error, NewerPartition):
            warn(f"{error}; until then ticks wait beside it")
        return Outcome(pending.keep(folder, tick), True)
    return Outcome(path, False)


def append_history(folder: str, ticks: Iterable[Tick]) -> None:
    """Write many ticks in time order, one transaction for each day."""
    for day, of_the_day in groupby(ticks, key=lambda tick: day_of(tick.ts_ms)):
        with Writer(partition_path(folder, day)) as writer:
            writer.write([], of_the_day)


def _append_to_day(path: str, waiting: list[pending.Kept], ticks: list[Tick], warn: Warn) -> None:
    if waiting:
        with suppress(CorruptPartition), Writer(path) as writer:
            writer.check()  # a newer partition can't take them; trying each would take long if they are many
    kept = []
    for one in waiting:
        try:
            with Writer(IN_MEMORY) as trial:  # so that it can't cost this run its own tick
                trial.write([(one.tick, one.key)], [])
            kept.append(one)
        except (StoreError, *pending.NOT_UNDERSTOOD) as error:
            pending.set_aside(one.path, error, warn)
    keyed, identity = [(one.tick, one.key) for one in kept], _identity(path)
    try:
        with Writer(path) as writer:
            writer.write(keyed, ticks)
    except CorruptPartition as error:
        _set_aside(path, identity, error, warn)
        with Writer(path) as writer:
            writer.write(keyed, ticks)
    for one in kept:
        with suppress(OSError):  # the partition has its key and will not take it in again
            os.unlink(one.path)


def _identity(path: str) -> tuple[int, int] | None:
    try:
        found = os.lstat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def lock_within(seconds: float, descriptor: int, busy: str) -> None:
    ends = time.monotonic() + seconds
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError as error:
            if time.monotonic() > ends:
                raise PartitionBusy(busy) from error
            time.sleep(LOOK_SECONDS)


def free_name(path: str) -> str:
    """The name under which a corrupt database can be set aside with its sidecars."""
    number = 1
    while any(os.path.lexists(f"{path}.corrupt-{number}{suffix}") for suffix in ("", *SIDECARS)):
        number += 1
    return f"{path}.corrupt-{number}"


def _set_aside(path: str, identity: tuple[int, int] | None, error: CorruptPartition, warn: Warn) -> None:
    folder = os.open(os.path.dirname(path), os.O_RDONLY)
    try:
        # Every user who may read the folder can hold its lock: then the tick is kept.
        lock_within(BUSY_SECONDS, folder, f"{path} is corrupt, and its folder is locked by another process")
        if _identity(path) != identity:
            return
        aside = free_name(path)
        # Sidecars first: a journal that remains would be taken for the new file's.
        for suffix in (*SIDECARS, ""):
            if os.path.lexists(path + suffix):
                os.rename(path + suffix, aside + suffix)
    except OSError as problem:
        raise storage_error(problem, path) from problem
    finally:
        os.close(folder)
    warn(f"{error}: it was set aside as {aside}")
