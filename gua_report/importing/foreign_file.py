"""An SQLite file of another program, read without leaving a trace: no lock, no -wal, no -shm beside it.

Such a file is mostly in WAL mode, where even a reader makes files, or writes to those of a running daemon. Therefore
a file without a log, or with an empty one, is read as if it could not change, and the caller checks that it has not
before using what was read. Otherwise a private copy of file and log is read.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial

from gua_report.ticks.open_partition import DAMAGE
from gua_report.ticks.private_copy import WAL_SUFFIX, private_copy, stamp
from gua_sample.errors import StoreError
from gua_sample.partition_names import JOURNAL_SUFFIX
from gua_sample.safe_file import connect_unchecked

LONGEST_ROW = 256 << 10  # in bytes; real rows have hundreds

Check = Callable[[], None]


@contextmanager
def open_foreign(path: str) -> Iterator[tuple[sqlite3.Connection, Check]]:
    """A connection for reading, and a check that raises if the file has changed meanwhile."""
    try:
        if any(_has_content(path + suffix) for suffix in (WAL_SUFFIX, JOURNAL_SUFFIX)):
            with private_copy(path) as copy, closing(_connect(copy, "rw")) as connection:
                yield connection, lambda: None
        else:
            before = stamp(path)
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


def _check_unchanged(path: str, before: tuple[int, int, int]) -> None:
    if stamp(path) != before:
        raise StoreError(f"{path} was changed while it was read: run this again")


def _has_content(path: str) -> bool:
    """Whether there is something at the path other than an empty file."""
    try:
        return os.lstat(path).st_size > 0 or not os.path.isfile(path)
    except FileNotFoundError:
        return False
