"""Names of partitions and of the files beside them."""

import os
import time

SUFFIX = ".sqlite"
JOURNAL_SUFFIX = "-journal"
SIDECARS = (JOURNAL_SUFFIX, "-wal", "-shm")  # files that SQLite opens beside a database
PENDING_SUFFIX = ".pending"
SQLITE_MAGIC = b"SQLite format 3\0"  # first bytes of every SQLite database
CONTAINERS_NAME = "containers.json"  # in the data folder: see containers.py
DAY_MS = 86_400_000
EARLIEST_MS = 1_767_225_600_000  # 2026-01-01: gua is not older, so an earlier clock was never set

_DIGITS_TO_ZERO = str.maketrans("123456789", "000000000")


def samples_dir(data_dir: str) -> str:
    return os.path.join(data_dir, "samples")


def day_of(ts_ms: int) -> str:
    """The UTC day of a time, as spelled in file names."""
    return time.strftime("%Y-%m-%d", time.gmtime(ts_ms // 1000))


def partition_path(folder: str, day: str) -> str:
    """The file of a UTC day. It is computed at every write, so no file needs rotation."""
    return os.path.join(folder, day + SUFFIX)


def is_partition(name: str) -> bool:
    """Whether the name is a partition's, not that of a file beside it."""
    return name.translate(_DIGITS_TO_ZERO) == "0000-00-00" + SUFFIX


def list_partitions(folder: str) -> list[str]:
    """Paths of all partitions, oldest first."""
    return [os.path.join(folder, name) for name in sorted(os.listdir(folder)) if is_partition(name)]
