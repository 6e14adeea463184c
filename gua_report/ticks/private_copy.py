"""A private copy of a database that can't be read in place, because of a journal to roll back or a write-ahead log."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from gua_sample.errors import PartitionBusy, StoreError
from gua_sample.partition_names import JOURNAL_SUFFIX
from gua_sample.safe_file import MOST_DATABASE_BYTES, check_journal, open_regular

ATTEMPTS = 5
COPIED_AT_ONCE = 1 << 20
WAL_SUFFIX = "-wal"
WAL_HEADER_BYTES = 32  # includes the salts, which change whenever the log is restarted


@contextmanager
def private_copy(path: str) -> Iterator[str]:
    """The path of a consistent copy of database, journal and log: copied again if they change meanwhile."""
    with tempfile.TemporaryDirectory(prefix="gua-") as folder:
        copy = os.path.join(folder, "copy.sqlite")
        for _ in range(ATTEMPTS):
            before = _state(path)
            try:
                _copy(path, copy)
            except OSError as error:
                if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                    raise
                text = f"no space in {tempfile.gettempdir()} for a copy of {path} ({os.stat(path).st_size >> 20} MiB)"
                raise StoreError(f"{text}: set TMPDIR to where there is") from error
            if _state(path) == before:
                check_journal(copy + JOURNAL_SUFFIX)
                break
        else:
            raise PartitionBusy(f"{path} keeps changing while it is copied: try again, or stop what writes to it")
        yield copy


def _copy(path: str, copy: str) -> None:
    for suffix in ("", JOURNAL_SUFFIX, WAL_SUFFIX):
        with suppress(FileNotFoundError):
            os.unlink(copy + suffix)
        with suppress(FileNotFoundError):  # it never existed, or was just rolled back: then the state differs
            _copy_file(path + suffix, copy + suffix)


def _copy_file(path: str, copy: str) -> None:
    """Copy a file without its holes: a file that seems to have 50 GB may be empty."""
    source = open_regular(path, MOST_DATABASE_BYTES)
    try:
        with open(copy, "xb") as file:
            size, position = os.fstat(source).st_size, 0
            while position < size:
                try:
                    position = os.lseek(source, position, os.SEEK_DATA)
                except OSError as error:
                    if error.errno == errno.ENXIO:  # a hole up to the end
                        break
                    raise
                data = os.pread(source, COPIED_AT_ONCE, position)
                if not data:
                    break
                file.seek(position)
                file.write(data)
                position += len(data)
            file.truncate(size)
    finally:
        os.close(source)


def _state(path: str) -> dict[str, object]:
    """Everything that must not change during a copy. A log may grow: SQLite ignores an incomplete end."""
    state: dict[str, object] = {}
    for suffix in ("", JOURNAL_SUFFIX):
        with suppress(FileNotFoundError):
            state[suffix] = stamp(path + suffix)
    with suppress(FileNotFoundError), open(open_regular(path + WAL_SUFFIX, MOST_DATABASE_BYTES), "rb") as file:
        state[WAL_SUFFIX] = file.read(WAL_HEADER_BYTES)
    return state


def stamp(path: str) -> tuple[int, int, int]:
    """What changes of a file when its content does."""
    found = os.lstat(path)
    return found.st_ino, found.st_size, found.st_mtime_ns
