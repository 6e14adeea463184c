"""File names: which file a tick belongs to, and what may lie beside it."""

from __future__ import annotations

import os
import time

SUFFIX = ".sqlite"
JOURNAL_SUFFIX = "-journal"
SIDECARS = (JOURNAL_SUFFIX, "-wal", "-shm")  # what SQLite opens beside a file
PENDING_SUFFIX = ".pending"
SQLITE_MAGIC = b"SQLite format 3\0"  # how every database of SQLite's begins
DAY_MS = 86_400_000
EARLIEST_MS = 1_767_225_600_000  # 2026-01-01: gua is not older, so a clock that says less was never set

_DIGITS_TO_ZERO = str.maketrans("123456789", "000000000")


def samples_dir(data_dir: str) -> str:
    return os.path.join(data_dir, "samples")


def day_of(ts_ms: int) -> str:
    """The UTC day of a time, as it stands in file names."""
    return time.strftime("%Y-%m-%d", time.gmtime(ts_ms // 1000))


def partition_path(folder: str, day: str) -> str:
    """The file of a UTC day. It is computed at every write, so nothing rotates."""
    return os.path.join(folder, day + SUFFIX)


def is_partition(name: str) -> bool:
    """Partitions that were set aside, journals and kept ticks have other names."""
    return name.translate(_DIGITS_TO_ZERO) == "0000-00-00" + SUFFIX


def list_partitions(folder: str) -> list[str]:
    """Paths of all partitions, oldest first."""
    return [os.path.join(folder, name) for name in sorted(os.listdir(folder)) if is_partition(name)]
