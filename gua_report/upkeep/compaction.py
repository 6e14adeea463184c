"""Compact a partition: pages that were filled tick by tick contain unused space."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing

from gua_sample.partition_file import BUSY_SECONDS, storage_error
from gua_sample.safe_file import connect


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
