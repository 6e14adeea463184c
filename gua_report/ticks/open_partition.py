"""Opening partitions for reading, by any user who may read the files, without blocking the sampler."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Collection, Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager
from typing import NamedTuple

from gua_sample import schema
from gua_sample.errors import CorruptPartition, EmptyPartition
from gua_sample.partition_file import storage_error
from gua_sample.partition_names import JOURNAL_SUFFIX, SIDECARS
from gua_sample.processes import printable
from gua_sample.safe_file import (
    check_database,
    check_tables,
    connect,
    connect_unchecked,
    is_begun,
    read_header,
)

BUSY_SECONDS, SHORTEST_BUSY_SECONDS = 5.0, 0.05
LOG_SUFFIXES = SIDECARS[1:]
WAL_VERSION = 2  # in the header of a database that was switched to a write-ahead log
# An export repeats a name at each tick, so a long one in a small file would fill disks. The longest that gua
# writes are control groups: with version 1, a path for each of a dozen.
LONGEST_NAME, LONGEST_ESCAPE = 16 << 10, 10
# Exceptions that the content of a damaged or hostile file may cause in the caller.
DAMAGE = (ArithmeticError, LookupError, MemoryError, RecursionError, TypeError, ValueError)


class Kind(NamedTuple):
    """Description of one kind of our databases."""

    name: str
    application_id: int
    version: int  # the newest supported version
    tables: tuple[str, ...]
    views: tuple[str, ...]  # the statements that create them
    names: Mapping[str, tuple[str, ...]]  # by table: the columns with texts that others choose
    added: Mapping[str, Collection[str]]  # by table: columns, or whole tables, that files of an older gua may lack


CARD_NAMES = ("uuid", "name", "parent_uuid", "status")
NAMES = {
    "session": ("boot_id", "driver_version"),
    "tick": ("error",),
    "card": (*CARD_NAMES, "missing"),
    "process": ("user", "login_user", "command", "cgroup", "type"),
}
PARTITION = Kind(
    "a partition", schema.APPLICATION_ID, schema.VERSION, schema.TABLE_NAMES, schema.VIEWS, NAMES, schema.ADDED
)


def open_partition(path: str) -> AbstractContextManager[sqlite3.Connection]:
    """A read-only connection to a partition, after a check that this version understands it."""
    return open_database(path, PARTITION)


@contextmanager
def open_database(path: str, kind: Kind) -> Iterator[sqlite3.Connection]:
    """A read-only connection to a file of that kind. All errors of the file are raised as StoreError.

    That includes errors in the caller's own code because a value in the file makes no sense. A killed writer leaves a
    journal that must be rolled back before anything can be read, which needs write access. The next run of the sampler
    does that; until then a private copy is read.
    """
    try:
        with _open(path, kind) as connection:
            yield connection
    except (sqlite3.Error, UnicodeDecodeError, OSError) as error:
        raise storage_error(error, path) from error
    except DAMAGE as error:
        raise CorruptPartition(f"{path} holds what no gua writes ({type(error).__name__}: {error})") from error


def use_own_views(connection: sqlite3.Connection, kind: Kind) -> None:
    """Shadow the file's views, which are not trusted, by this version's views of the same names."""
    for statement in kind.views:
        connection.execute(statement.replace("CREATE VIEW", "CREATE TEMP VIEW", 1))


class Waits:
    """The timeout for busy files. Each timeout halves the next one, since a folder may hold thousands of such files."""

    in_vain = 0  # number of timeouts in this process

    @classmethod
    def seconds(cls) -> float:
        return max(SHORTEST_BUSY_SECONDS, BUSY_SECONDS * 0.5**cls.in_vain)


@contextmanager
def _open(path: str, kind: Kind) -> Iterator[sqlite3.Connection]:
    # With a write-ahead log, a reader would create files in the folder and share memory with other processes.
    if not has_log(path):
        with closing(connect(path, "ro", Waits.seconds())) as connection:
            try:
                _check(connection, path, kind)
            except sqlite3.OperationalError as error:
                Waits.in_vain += "locked" in str(error)
                if not os.path.lexists(path + JOURNAL_SUFFIX):
                    raise
            else:
                yield connection
                return
    # Imported here because most readers need no copy, and some must start fast.
    from gua_report.ticks.private_copy import private_copy

    check_database(path)
    with private_copy(path) as copy, closing(connect_unchecked(copy, "rw", BUSY_SECONDS)) as connection:
        _check(connection, path, kind)
        yield connection


def has_log(path: str) -> bool:
    """Whether the database was switched to a write-ahead log. Raises CorruptPartition or OSError."""
    if any(os.path.lexists(path + suffix) for suffix in LOG_SUFFIXES):
        return True
    return WAL_VERSION in read_header(path)[18:]  # this process has no locks to lose: no file is read twice at a time


def _check(connection: sqlite3.Connection, path: str, kind: Kind) -> None:
    connection.execute("BEGIN")  # all queries see the same state of the file
    if not is_begun(connection, path, kind.name, kind.application_id, kind.version):
        raise EmptyPartition(f"{path} has only just been created")
    missing = schema.find_missing(connection, kind.added)
    whole_tables = [table for table, columns in kind.added.items() if missing.get(table) != list(columns)]
    check_tables(connection, path, {*kind.tables, *whole_tables})
    _fill_in(connection, kind, missing)
    for table, columns in kind.names.items():
        long = " OR ".join(f"length({column}) > {LONGEST_NAME // LONGEST_ESCAPE}" for column in columns)
        for row in connection.execute(f"SELECT {', '.join(columns)} FROM {table} WHERE {long}"):
            if any(_is_too_long(name) for name in row):
                raise CorruptPartition(f"{path} holds a name of over {LONGEST_NAME:,} characters, as no gua writes")


def _is_too_long(name: object) -> bool:
    """Whether the name is too long, as stored or as printed."""
    return isinstance(name, str | bytes) and (len(name) > LONGEST_NAME or len(printable(name)) > LONGEST_NAME)


def _fill_in(connection: sqlite3.Connection, kind: Kind, missing: Mapping[str, list[str]]) -> None:
    """Give readers NULL for missing columns, and empty tables for missing tables.

    A temporary view takes the name of the table, for this connection only.
    """
    for table, columns in missing.items():
        nulls = ", ".join(f"NULL AS {column}" for column in columns)
        rows = f"SELECT *, {nulls} FROM main.{table}" if table in kind.tables else f"SELECT {nulls} WHERE 0"
        connection.execute(f"CREATE TEMP VIEW {table} AS {rows}")
