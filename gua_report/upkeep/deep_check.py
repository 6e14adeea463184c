"""What gua doctor --deep does: read everything back, make stored days anew and compare."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress

from gua_report.rollups.index import Stored, digest_partition, open_rollups, origin_of, path_of, read_index
from gua_report.rollups.reader import read_days
from gua_report.rollups.writer import digest_sums, fingerprint, roll_up_day
from gua_report.ticks.history import History
from gua_report.ticks.open_partition import open_partition
from gua_report.upkeep.nightly import spell_rot
from gua_sample.errors import CorruptPartition, StoreError


def read_everything(data_dir: str, progress: Callable[[int, int], None] | None) -> tuple[int, list[str]]:
    """The number of days that were read, and a line for each trouble."""
    path = path_of(data_dir)
    troubles = _check_file(path, open_rollups)
    history, index = _read(data_dir, troubles)
    days = sorted({*index, *history.paths})
    for number, day in enumerate(days):
        if progress:
            progress(number, len(days))
        trouble = _check_file(history.paths[day], open_partition) if day in history.paths else []
        if not trouble and day in index and (trouble := _check_day(history, index[day], day, path)):
            # Meanwhile a run of gua rollup may have made the day anew, or removed it.
            later, now = _read(data_dir, [])
            if now.get(day) != index[day]:
                trouble = _check_day(later, now[day], day, path) if day in now else []
        troubles += trouble
    if progress:
        progress(1, 1)
    return len(days), troubles


def _read(data_dir: str, troubles: list[str]) -> tuple[History, dict[str, Stored]]:
    history = History(data_dir)
    index: dict[str, Stored] = {}
    with suppress(StoreError):
        index = read_index(path_of(data_dir), damaged=troubles)
    history.forget(day for day, stored in index.items() if stored.is_expired)
    return history, index


def _check_file(path: str, opened: Callable[[str], AbstractContextManager[sqlite3.Connection]]) -> list[str]:
    try:
        with opened(path) as connection:
            found = connection.execute("PRAGMA integrity_check(1)").fetchone()[0]
    except CorruptPartition as error:
        return [str(error)]
    except StoreError:
        return []
    return [] if found == "ok" else [f"{path} is damaged ({' '.join(found.split())})"]


def _check_day(history: History, stored: Stored, day: str, path: str) -> list[str]:
    if not stored.is_verified:
        return []
    partition, known = history.paths.get(day), stored.ticks_digest
    if partition and known and digest_partition(partition, stored.origin) not in (None, known):
        return [spell_rot(partition)]
    try:
        there = read_days(path, day, day)
        if stored.sums_digest and digest_sums(there) != stored.sums_digest:
            return [spell_rot(f"the rollup of {day} in {path}")]
        if partition is None or not stored.is_current(origin_of(partition, stored.origin.policy)):
            return []
        made = roll_up_day(history, day, stored.origin.policy)
        is_same = made is not None and fingerprint(made) == fingerprint(there)
    except CorruptPartition as error:
        return [str(error)]
    except Exception as error:  # a damaged file may raise any: it costs that day alone
        return [f"{day} can't be made anew ({type(error).__name__}: {error})"]
    return [] if is_same else [f"the rollup of {day} is not what its ticks give: 'gua rollup --rebuild' makes it anew"]
