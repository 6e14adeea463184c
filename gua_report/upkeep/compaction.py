"""Packing a partition: pages that filled up tick by tick are left with some room in them."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing

from gua_sample.partition_file import BUSY_SECONDS, storage_error
from gua_sample.safe_file import connect


def compact(partition: str) -> int:
    """In place, and whole or not at all; returns its size then. Raises StoreError.

    Its time of change stays, as what it holds does. Until that is set nobody can add to it: the lock is kept.
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
