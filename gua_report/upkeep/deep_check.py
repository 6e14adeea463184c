"""What gua doctor --deep does: read everything back, make every stored day anew and compare. Nothing is changed."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, suppress

from gua_report.rollups.closed_day import roll_up_day
from gua_report.rollups.index import Stored, open_rollups, origin_of, path_of, read_index
from gua_report.rollups.reader import read_days
from gua_report.ticks.history import History
from gua_report.ticks.open_partition import open_partition
from gua_report.upkeep.neighbours import episodes_before
from gua_report.upkeep.read_back import describe, find_failure, fingerprint
from gua_sample.errors import CorruptPartition, StoreError
from gua_sample.policy import RULE


def read_everything(data_dir: str, progress: Callable[[int, int], None] | None) -> tuple[int, list[str]]:
    """The number of days that were read, and a line for each trouble. What can't be opened is for others to say."""
    path = path_of(data_dir)
    troubles = _check_file(path, open_rollups)
    history, index = _look(data_dir, troubles)
    days = sorted({*index, *history.paths})
    for number, day in enumerate(days):
        if progress:
            progress(number, len(days))
        trouble = _check_file(history.paths[day], open_partition) if day in history.paths else []
        if not trouble and (trouble := _check_day(history, index, day, path)):
            # Meanwhile a run of gua rollup may have made the day anew, or removed it.
            later, now = _look(data_dir, [])
            trouble = trouble if now.get(day) == index[day] else _check_day(later, now, day, path)
        troubles += trouble
    if progress:
        progress(1, 1)
    return len(days), troubles


def _look(data_dir: str, troubles: list[str]) -> tuple[History, dict[str, Stored]]:
    """The ticks and the stored days at present; `troubles` gets a line for each stored day that makes no sense."""
    history = History(data_dir)
    index: dict[str, Stored] = {}
    with suppress(StoreError):
        index = read_index(path_of(data_dir), damaged=troubles)
    history.forget(day for day, stored in index.items() if stored.is_expired)
    return history, index


def _check_file(path: str, opened: Callable[[str], AbstractContextManager[sqlite3.Connection]]) -> list[str]:
    """The damage that SQLite finds in a file, if any."""
    try:
        with opened(path) as connection:
            found = connection.execute("PRAGMA integrity_check(1)").fetchone()[0]
    except CorruptPartition as error:
        return [str(error)]
    except StoreError:
        return []
    return [] if found == "ok" else [f"{path} is damaged ({' '.join(found.split())})"]


def _check_day(history: History, index: Mapping[str, Stored], day: str, path: str) -> list[str]:
    """Compare a stored day with its digests, and with the same day made anew, if all that it was made from is there."""
    if day not in index:
        return []
    stored = index[day]
    partition = history.paths[day] if day in history.days else None
    if failed := find_failure(path, day, stored, partition):
        return [describe(day, failed, path, partition)]
    if partition is None or not (stored.is_verified and stored.is_exact and stored.rule == RULE):
        return []
    try:
        if origin_of(partition, stored.origin.policy) != stored.origin:
            return []  # ticks came late: the next gua rollup makes it anew
        made = roll_up_day(history, day, stored.origin.policy, episodes_before(history, index, day, path))
        if made is None or made.edges != stored.edges:
            return []  # the days beside it have changed, or are gone
        is_same = fingerprint(made.sums) == fingerprint(read_days(path, day, day))
    except Exception as error:  # a damaged file may raise any: it costs that day alone
        return [f"{day} can't be made anew ({type(error).__name__}: {error})"]
    return [] if is_same else [f"the rollup of {day} is not what its ticks give: 'gua rollup --rebuild' makes it anew"]
