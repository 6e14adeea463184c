"""Damage to what is stored: a rollups.sqlite that can't be read is set aside and made again, from ticks, or from itself
where these are gone; and gua doctor --deep reads everything back, makes stored days anew and compares."""

import os
import sqlite3
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, closing, suppress

from gua_report.rollups.index import Stored, digest_partition, open_rollups, origin_of, path_of, read_index
from gua_report.rollups.reader import read_days
from gua_report.rollups.writer import RollupWriter, digest_sums, fingerprint, roll_up_day
from gua_report.ticks.history import History
from gua_report.ticks.open_partition import BUSY_SECONDS, has_log, open_partition
from gua_report.upkeep.outputs import remove
from gua_sample.errors import CorruptPartition, EmptyPartition, StoreError
from gua_sample.partition_file import storage_error
from gua_sample.partition_names import SIDECARS
from gua_sample.safe_file import connect
from gua_sample.store import free_name


def read_or_repair(
    data_dir: str, partitions: Mapping[str, str], dry_run: bool, complain: Callable[[str], None]
) -> dict[str, Stored]:
    """The index of stored days, after a repair if need be. `partitions`: those that are there, by day."""
    path = path_of(data_dir)
    try:
        return read_index(path, check=True)
    except EmptyPartition:
        complain(f"{path} is empty: it {'would be' if dry_run else 'is'} made again from the ticks that are there")
        return {}
    except CorruptPartition as error:
        if _is_foreign(path):
            raise StoreError(f"{path} is a database of something else: move it away") from error
        if dry_run:
            complain(f"{error}: it would be set aside, and made again")
            return {}
        index, unknown, aside = dict[str, Stored](), "; days whose ticks are gone are lost", free_name(path)
        with suppress(CorruptPartition):
            index, unknown = read_index(path, damaged=[]), ""  # without days that make no sense
        complain(f"{error}: it is set aside as {aside}, and made again{unknown}")
        _save(path, index, partitions, complain)
    try:
        _set_aside(path, aside)
    except OSError as problem:
        raise storage_error(problem, path) from problem
    return read_index(path)


def _is_foreign(path: str) -> bool:
    names = set[str]()
    with suppress(sqlite3.Error, UnicodeDecodeError, OSError, CorruptPartition):
        if not has_log(path):  # with a write-ahead log, opening the database would write
            with closing(connect(path, "ro", BUSY_SECONDS)) as connection:
                names = {row[0] for row in connection.execute("SELECT name FROM sqlite_master")}
    return bool(names) and "card_hour" not in names


def _save(path: str, index: dict[str, Stored], partitions: Mapping[str, str], complain: Callable[[str], None]) -> None:
    """Write the days that can be read to a new file beside the damaged one."""
    remove([path + ".new"])
    saved, lost = list[str](), list[str]()
    with RollupWriter(path + ".new") as writer:
        for day, stored in index.items():
            is_gone = stored.is_expired or day not in partitions
            try:
                there = read_days(path, day, day)
                if is_gone or digest_sums(there) == stored.sums_digest:  # made anew if its ticks can be read
                    is_verified = stored.is_verified and is_gone
                    writer.write(day, there, stored._replace(is_expired=is_gone, is_verified=is_verified))
                    saved += [day] if is_gone else []
            except (CorruptPartition, sqlite3.IntegrityError):
                writer.roll_back()
                lost += [day] if is_gone else []
    if saved:
        complain(f"of {len(saved)} days the ticks are gone: they were taken over from it")
    if lost:
        complain(f"lost, as the ticks are gone too: {', '.join(lost)}")


def _set_aside(path: str, aside: str) -> None:
    try:
        os.link(path, aside, follow_symlinks=False)
    except OSError:  # a file system without hard links: the path is missing for a moment
        os.rename(path, aside)
    for suffix in SIDECARS:
        with suppress(FileNotFoundError):
            os.rename(path + suffix, aside + suffix)  # else SQLite would take it for the new file's
    os.replace(path + ".new", path)


def spell_rot(what: str) -> str:
    """A line for the administrator about a file, or a part of one."""
    return f"{what} changed on disk though nobody wrote to it (bit rot): restore it from a backup"


def read_everything(data_dir: str, progress: Callable[[int, int], None] | None) -> tuple[int, list[str]]:
    """The number of days that were read, and a line for each trouble."""
    path = path_of(data_dir)
    troubles = _check_file(path, open_rollups)
    history, index = History(data_dir), _read_stored(path, troubles)
    days = sorted({*index, *history.paths})
    history.forget(day for day, stored in index.items() if stored.is_expired)
    for number, day in enumerate(days):
        if progress:
            progress(number, len(days))
        found = _check_file(history.paths[day], open_partition) if day in history.paths else []
        # A run of gua rollup may have made, and verified, the day anew meanwhile, or removed it.
        if not found and day in index and (rotten := _check_day(history, index[day], day, path)):
            found = [rotten] if _read_stored(path, []).get(day) == index[day] else []
        troubles += found
        history.free(day)
    if progress:
        progress(1, 1)
    return len(days), troubles


def _read_stored(path: str, troubles: list[str]) -> dict[str, Stored]:
    with suppress(StoreError):
        return read_index(path, damaged=troubles)
    return {}


def _check_file(path: str, opened: Callable[[str], AbstractContextManager[sqlite3.Connection]]) -> list[str]:
    try:
        with opened(path) as connection:
            found = connection.execute("PRAGMA integrity_check(1)").fetchone()[0]
    except CorruptPartition as error:
        return [str(error)]
    except StoreError:
        return []
    return [] if found == "ok" else [f"{path} is damaged ({' '.join(found.split())})"]


def _check_day(history: History, stored: Stored, day: str, path: str) -> str | None:
    if not stored.is_verified:
        return None
    partition, known = history.paths.get(day), stored.ticks_digest
    if partition and known and digest_partition(partition, stored.origin) not in (None, known):
        return spell_rot(partition)
    try:
        there = read_days(path, day, day)
        if stored.sums_digest and digest_sums(there) != stored.sums_digest:
            return spell_rot(f"the rollup of {day} in {path}")
        if partition is None or not stored.is_current(origin_of(partition, stored.origin.policy)):
            return None
        made = roll_up_day(history, day, stored.origin.policy)
        is_same = made is not None and fingerprint(made) == fingerprint(there)
    except CorruptPartition as error:
        return str(error)
    except Exception as error:  # a damaged file may raise any: it costs that day alone
        return f"{day} can't be made anew ({type(error).__name__}: {error})"
    return None if is_same else f"the rollup of {day} is not what its ticks give: 'gua rollup --rebuild' makes it anew"
