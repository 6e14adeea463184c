"""Edge files, `edges/2026-11-16.sqlite`: partitions that hold the first and the last ticks of an expired day.

One is kept while a neighbouring day has its ticks, so that the neighbour's rollup can be rebuilt exactly.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Collection
from contextlib import closing, suppress

from gua_report.ticks.history import edges_dir
from gua_report.ticks.open_partition import open_partition
from gua_report.ticks.tick_weights import TICKS_AROUND
from gua_report.upkeep.retention import remove
from gua_report.window import is_day
from gua_sample import schema
from gua_sample.errors import StoreError
from gua_sample.partition_file import storage_error
from gua_sample.partition_names import JOURNAL_SUFFIX, is_partition, partition_path
from gua_sample.whole_file import sync_folder

# At each end: the ticks that the neighbouring day may need, and those whose gaps determine their intervals.
TICKS_AT_AN_END = 2 * TICKS_AROUND
NEW_SUFFIX = ".new"
ENDS = """
    SELECT id FROM (SELECT id FROM tick ORDER BY ts_ms LIMIT :count)
    UNION SELECT id FROM (SELECT id FROM tick ORDER BY ts_ms DESC LIMIT :count)
"""
# The rows kept of each table; no cursors are kept.
KEPT = {
    "tick": f"id IN ({ENDS})",
    "session": f"id IN (SELECT session_id FROM tick WHERE id IN ({ENDS}))",
    "card_sample": f"tick_id IN ({ENDS})",
    "process_sample": f"tick_id IN ({ENDS})",
    "card": f"id IN (SELECT card_id FROM card_sample WHERE tick_id IN ({ENDS}))",
    "process": f"id IN (SELECT process_id FROM process_sample WHERE tick_id IN ({ENDS}))",
}


def write_edge(data_dir: str, day: str, partition: str) -> None:
    """Write the edge file of a day, atomically and durably. Raises StoreError."""
    folder = edges_dir(data_dir)
    new = os.path.join(folder, f".{day}{NEW_SUFFIX}")
    try:
        if not os.path.isdir(folder):
            os.mkdir(folder)
            sync_folder(data_dir)
        remove([new])
        # Built in memory, so that a nearly full disk needs room for nothing but the result.
        with open_partition(partition) as source, closing(sqlite3.connect(":memory:", isolation_level=None)) as copy:
            schema.begin(copy)
            for table, condition in KEPT.items():
                columns = [row[1] for row in copy.execute(f"PRAGMA table_info({table})")]
                selected, marks = ", ".join(columns), ", ".join("?" * len(columns))
                rows = source.execute(f"SELECT {selected} FROM {table} WHERE {condition}", {"count": TICKS_AT_AN_END})
                copy.executemany(f"INSERT INTO {table} ({selected}) VALUES ({marks})", rows)
            copy.execute("VACUUM INTO ?", (new,))
        with open(new, "rb") as file:
            os.fsync(file.fileno())
        os.replace(new, partition_path(folder, day))
        sync_folder(folder)
    except (sqlite3.Error, OSError) as error:
        with suppress(StoreError):
            remove([new])
        raise storage_error(error, new) from error


def remove_edges(data_dir: str, wanted: Collection[str]) -> None:
    """Remove all edge files but those of the wanted days, and temporary files of killed runs."""
    folder = edges_dir(data_dir)
    try:
        for name in os.listdir(folder) if os.path.isdir(folder) else []:
            day = name.removeprefix(".")[:10]
            is_left = name in (f".{day}{NEW_SUFFIX}", f".{day}{NEW_SUFFIX}{JOURNAL_SUFFIX}") and is_day(day)
            if is_left or (is_partition(name) and is_day(day) and day not in wanted):
                remove([os.path.join(folder, name)])
    except OSError as error:
        raise storage_error(error, folder) from error
