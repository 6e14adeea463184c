"""Opening partitions for reading, by any user who may read the files, without blocking the sampler."""

import errno
import os
import sqlite3
from collections.abc import Collection, Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from typing import NamedTuple

from gua_sample import schema
from gua_sample.errors import CorruptPartition, EmptyPartition, PartitionBusy, StoreError
from gua_sample.partition_file import storage_error
from gua_sample.partition_names import JOURNAL_SUFFIX, SIDECARS
from gua_sample.processes import printable
from gua_sample.safe_file import (
    MOST_DATABASE_BYTES,
    check_database,
    check_journal,
    check_tables,
    connect,
    connect_unchecked,
    is_begun,
    open_regular,
    read_header,
)

BUSY_SECONDS, SHORTEST_BUSY_SECONDS = 5.0, 0.05
LOG_SUFFIXES = SIDECARS[1:]
WAL_VERSION = 2  # in the header of a database that was switched to a write-ahead log
# An export repeats a name at each tick, so a long one in a small file would fill disks. The longest that gua
# writes are control groups: with version 1, a path for each of a dozen.
LONGEST_NAME, LONGEST_ESCAPE = 16 << 10, 10
# Exceptions that the content of a damaged or hostile file may cause in the caller.
DAMAGE = (ArithmeticError, AttributeError, LookupError, MemoryError, RecursionError, TypeError, ValueError)

ATTEMPTS = 5
COPIED_AT_ONCE = 1 << 20
WAL_SUFFIX = "-wal"
WAL_HEADER_BYTES = 32  # includes the salts, which change whenever the log is restarted


class Kind(NamedTuple):
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
    return open_database(path, PARTITION)


@contextmanager
def open_database(path: str, kind: Kind) -> Iterator[sqlite3.Connection]:
    """A read-only connection to a file of that kind. All errors of the file are raised as StoreError.

    That includes errors in the caller's own code because a value in the file makes no sense. A killed writer leaves a
    journal that must be rolled back before anything can be read, which needs write access. The next run of the sampler
    does that; until then a private copy is read.
    """
    with errors_of(path), _open(path, kind) as connection:
        yield connection


@contextmanager
def errors_of(path: str) -> Iterator[None]:
    """Raise all errors of a file of ours, or of what is in it, as StoreError."""
    try:
        yield
    except (sqlite3.Error, UnicodeDecodeError, OSError) as error:
        raise storage_error(error, path) from error
    except DAMAGE as error:
        raise CorruptPartition(f"{path} holds what no gua writes ({type(error).__name__}: {error})") from error


def use_own_views(connection: sqlite3.Connection, kind: Kind) -> None:
    """Shadow the file's views, which are not trusted, by this version's views of the same names."""
    for statement in kind.views:
        connection.execute(statement.replace("CREATE VIEW", "CREATE TEMP VIEW", 1))


class Waits:
    """The timeout for busy files, halved by each: a folder may hold thousands of them."""

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
            texts = [name for name in row if isinstance(name, str | bytes)]
            if any(len(name) > LONGEST_NAME or len(printable(name)) > LONGEST_NAME for name in texts):
                raise CorruptPartition(f"{path} holds a name of over {LONGEST_NAME:,} characters, as no gua writes")


def _fill_in(connection: sqlite3.Connection, kind: Kind, missing: Mapping[str, list[str]]) -> None:
    """Give readers NULL for missing columns and no rows for missing tables, by temporary views."""
    for table, columns in missing.items():
        nulls = ", ".join(f"NULL AS {column}" for column in columns)
        rows = f"SELECT *, {nulls} FROM main.{table}" if table in kind.tables else f"SELECT {nulls} WHERE 0"
        connection.execute(f"CREATE TEMP VIEW {table} AS {rows}")


@contextmanager
def private_copy(path: str) -> Iterator[str]:
    """The path of a consistent copy of database, journal and log."""
    import tempfile  # imported here because most readers need no copy, and some must start fast

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
    """What must not change during a copy. A log may grow: SQLite ignores an incomplete end."""
    state: dict[str, object] = {}
    for suffix in ("", JOURNAL_SUFFIX):
        with suppress(FileNotFoundError):
            state[suffix] = stamp(path + suffix)
    with suppress(FileNotFoundError), open(open_regular(path + WAL_SUFFIX, MOST_DATABASE_BYTES), "rb") as file:
        state[WAL_SUFFIX] = file.read(WAL_HEADER_BYTES)
    return state


def stamp(path: str) -> tuple[int, int, int]:
    found = os.lstat(path)
    return found.st_ino, found.st_size, found.st_mtime_ns
