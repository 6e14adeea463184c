"""Compact partitions: pages that were filled tick by tick contain unused space."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing

from gua_report.rollups.writer import RollupWriter
from gua_report.upkeep.night import Night
from gua_report.upkeep.storing import take_digest
from gua_sample.errors import StoreError
from gua_sample.partition_file import BUSY_SECONDS, storage_error
from gua_sample.safe_file import connect


def compact_days(night: Night, closed: list[str]) -> list[str]:
    """Compact closed days whose rollup can record the new size, lest it be taken for new ticks; return them."""
    night.refresh()
    current = night.find_current()
    wanted = [day for day in closed if day in current and not night.index[day].is_compact]
    if night.dry_run:
        return wanted
    done = []
    for day in wanted:
        if not night.checks.are_ticks_right(night.index, day):
            continue
        stored = night.index[day]
        with RollupWriter(night.path) as writer:
            writer.mark([day], partition_digest=None)  # a killed run must not leave the old one with new bytes
            try:
                size = compact(night.history.paths[day])
            except StoreError as error:
                writer.mark([day], partition_digest=stored.partition_digest)
                night.complain(f"not compacted: {error}")
                continue
            origin = stored.origin._replace(partition_bytes=size)
            writer.mark([day], is_compact=1, partition_bytes=size, **take_digest(night, day, origin, True))
        done.append(day)
    return done


def compact(partition: str) -> int:
    """Compact the partition in place, atomically; return its new size. Raises StoreError.

    Its modification time is kept, as its content is the same. The lock is held until that time is set, so that nobody
    can append meanwhile.
    """
    try:
        before = os.stat(partition)
        with closing(connect(partition, "rw", BUSY_SECONDS)) as connection:
            connection.execute("PRAGMA locking_mode = EXCLUSIVE")
            connection.execute("VACUUM")
            os.utime(partition, ns=(before.st_atime_ns, before.st_mtime_ns))
            return os.stat(partition).st_size
    except (sqlite3.Error, OSError) as error:
        raise storage_error(error, partition) from error
