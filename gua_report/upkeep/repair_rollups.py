"""Repair a damaged rollups.sqlite: set it aside, and rebuild it from ticks, or from itself where these are gone."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Mapping
from contextlib import closing, suppress

from gua_report.rollups.index import Stored, path_of, read_index
from gua_report.rollups.reader import read_days
from gua_report.rollups.writer import RollupWriter, digest_sums
from gua_report.ticks.open_partition import BUSY_SECONDS, has_log
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
        index = None
        with suppress(CorruptPartition):
            index = read_index(path, damaged=[])  # without days that make no sense
        aside = free_name(path)
        unknown = "" if index is not None else "; days whose ticks are gone are lost"
        complain(f"{error}: it is set aside as {aside}, and made again{unknown}")
        try:
            return _set_aside(path, aside, index or {}, partitions, complain)
        except OSError as problem:
            raise storage_error(problem, path) from problem


def _set_aside(
    path: str, aside: str, index: dict[str, Stored], partitions: Mapping[str, str], complain: Callable[[str], None]
) -> dict[str, Stored]:
    """Save the days that can be read to a new file, which replaces the damaged one."""
    new = path + ".new"
    remove([new])
    saved, lost = list[str](), list[str]()
    with RollupWriter(new) as writer:
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
    try:
        os.link(path, aside, follow_symlinks=False)
    except OSError:  # a file system without hard links: the path is missing for a moment
        os.rename(path, aside)
    for suffix in SIDECARS:
        with suppress(FileNotFoundError):
            os.rename(path + suffix, aside + suffix)  # else SQLite would take it for the new file's
    os.replace(new, path)
    return read_index(path)


def _is_foreign(path: str) -> bool:
    try:
        if has_log(path):
            return False  # a write-ahead log: opening the database would write
        with closing(connect(path, "ro", BUSY_SECONDS)) as connection:
            names = {row[0] for row in connection.execute("SELECT name FROM sqlite_master")}
    except (sqlite3.Error, UnicodeDecodeError, OSError, CorruptPartition):
        return False
    return bool(names) and "card_hour" not in names
