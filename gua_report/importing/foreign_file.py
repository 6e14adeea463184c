"""An SQLite file of another program, read without leaving a trace: no lock, no -wal, no -shm beside it.

Such a file is mostly in WAL mode, where even a reader makes files, or writes to those of a running daemon. Therefore
a file without a log, or with an empty one, is read as if it could not change, and the caller checks that it has not
before using what was read. Otherwise a private copy of file and log is read.
"""

from __future__ import annotations

import errno
import os
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from functools import partial

from gua_report.ticks.open_partition import DAMAGE, copy_file
from gua_sample.errors import StoreError
from gua_sample.partition_names import JOURNAL_SUFFIX
from gua_sample.safe_file import MOST_DATABASE_BYTES, check_journal, connect_unchecked, open_regular

LOG_SUFFIXES = ("-wal", JOURNAL_SUFFIX)
WAL_HEADER_BYTES = 32  # includes the salts, which change whenever the log is restarted
COPY_ATTEMPTS = 5
LONGEST_ROW = 256 << 10  # in bytes; real rows have hundreds

Check = Callable[[], None]


@contextmanager
def open_foreign(path: str) -> Iterator[tuple[sqlite3.Connection, Check]]:
    """A connection for reading, and a check that raises if the file has changed meanwhile."""
    try:
        if any(_size(path + suffix) for suffix in LOG_SUFFIXES):
            with _private_copy(path) as copy, closing(_connect(copy, "rw")) as connection:
                yield connection, lambda: None
        else:
            before = _stamp(path)
            with closing(_connect(path, "ro", "&immutable=1")) as connection:
                yield connection, lambda: _check_unchanged(path, before)
    except sqlite3.Error as error:
        raise StoreError(f"{path} can't be read as a database ({error})") from error
    except DAMAGE as error:
        raise StoreError(f"{path} holds what its program does not write ({type(error).__name__}: {error})") from error


def _connect(path: str, mode: str, more: str = "") -> sqlite3.Connection:
    connection = connect_unchecked(path, mode, 0.0, more)
    if hasattr(connection, "setlimit"):
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LONGEST_ROW)
    connection.text_factory = partial(str, encoding="utf-8", errors="backslashreplace")
    return connection


@contextmanager
def _private_copy(path: str) -> Iterator[str]:
    """A consistent copy of file and log. Meanwhile the daemon may append to its log, but not reset it."""
    with tempfile.TemporaryDirectory(prefix="gua-import-") as folder:
        copy = os.path.join(folder, "copy.sqlite")
        for _ in range(COPY_ATTEMPTS):
            before = _state(path)
            try:
                _copy(path, copy)
            except OSError as error:
                if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                    raise
                wanted = f"a copy of {path} ({_size(path) >> 20} MiB)"
                raise StoreError(
                    f"no space in {tempfile.gettempdir()} for {wanted}: set TMPDIR to where there is"
                ) from error
            if _state(path) == before:
                yield copy
                return
        raise StoreError(f"{path} keeps changing while it is copied: try again, or stop what writes to it")


def _copy(path: str, copy: str) -> None:
    for suffix in ("", *LOG_SUFFIXES):
        with suppress(FileNotFoundError):
            os.unlink(copy + suffix)
        with suppress(FileNotFoundError):
            copy_file(path + suffix, copy + suffix)
    check_journal(copy + JOURNAL_SUFFIX)


def _state(path: str) -> tuple[object, ...]:
    """Everything that must not change during a copy. A WAL may grow: SQLite ignores an incomplete end."""
    header = None
    with suppress(FileNotFoundError), open(open_regular(path + "-wal", MOST_DATABASE_BYTES), "rb") as file:
        header = file.read(WAL_HEADER_BYTES)
    journal = None
    with suppress(FileNotFoundError):
        journal = _stamp(path + "-journal")
    return _stamp(path), header, journal


def _stamp(path: str) -> tuple[int, int, int]:
    found = os.stat(path)
    return found.st_ino, found.st_size, found.st_mtime_ns


def _check_unchanged(path: str, before: tuple[int, int, int]) -> None:
    if _stamp(path) != before:
        raise StoreError(f"{path} was changed while it was read: run this again")


def _size(path: str) -> int:
    try:
        return os.lstat(path).st_size or not os.path.isfile(path)
    except FileNotFoundError:
        return 0
