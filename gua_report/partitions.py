"""Opening partitions to read them: any user who may read the files, while the sampler writes, never in its way."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager, suppress

from gua_sample import schema
from gua_sample.errors import CorruptPartition, EmptyPartition, NewerPartition, PartitionBusy
from gua_sample.partition import JOURNAL_SUFFIX
from gua_sample.writer import storage_error

BUSY_SECONDS = 5.0
COPY_ATTEMPTS = 5


def open_partition(path: str) -> AbstractContextManager[sqlite3.Connection]:
    """A read-only connection to one partition, checked to be one that this version understands."""
    return open_database(path, schema.APPLICATION_ID, schema.VERSION)


@contextmanager
def open_database(path: str, application_id: int, version: int) -> Iterator[sqlite3.Connection]:
    """The same for any file of ours, of that kind and of no later version.

    A writer killed half-way leaves a journal that must be rolled back before anything can be read,
    which takes write access. The next sampler does that; until then a private copy is read.
    """
    try:
        with _open(path, application_id, version) as connection:
            yield connection
    except (sqlite3.Error, UnicodeDecodeError, OSError) as error:
        raise storage_error(error, path) from error


@contextmanager
def _open(path: str, application_id: int, version: int) -> Iterator[sqlite3.Connection]:
    with closing(_connect(path, "ro")) as connection:
        try:
            _check(connection, path, application_id, version)
        except sqlite3.OperationalError:
            if not os.path.exists(path + JOURNAL_SUFFIX):
                raise
        else:
            yield connection
            return
    import tempfile  # as most readers need no copy, and some are in a hurry

    with tempfile.TemporaryDirectory(prefix="gua-") as folder, closing(_connect(_copy(path, folder), "rw")) as copy:
        _check(copy, path, application_id, version)
        yield copy


def _connect(path: str, mode: str) -> sqlite3.Connection:
    # What has a meaning of its own in a URI. Never immutable=1: it would read half a transaction.
    quoted = path.replace("%", "%25").replace("?", "%3f").replace("#", "%23")
    return sqlite3.connect(f"file:{quoted}?mode={mode}", uri=True, timeout=BUSY_SECONDS, isolation_level=None)


def _check(connection: sqlite3.Connection, path: str, wanted_id: int, newest: int) -> None:
    connection.execute("BEGIN")  # so that all of the visit sees the same state of the file
    tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    application_id = connection.execute("PRAGMA application_id").fetchone()[0]
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if (application_id, version, tables) == (0, 0, 0):
        raise EmptyPartition(f"{path} has only just been created")
    if application_id != wanted_id:
        kind = "a partition" if wanted_id == schema.APPLICATION_ID else "a file of rollups"
        raise CorruptPartition(f"{path} is not {kind}")
    if version > newest:
        raise NewerPartition(f"{path} has schema version {version}, this gua reads up to {newest}: upgrade gua")


def _copy(path: str, folder: str) -> str:
    """Copy the partition and its journal as they belong together, that is: with nobody at work on them meanwhile."""
    import shutil

    copy = os.path.join(folder, "partition.sqlite")
    for _ in range(COPY_ATTEMPTS):
        before = _stamps(path)
        shutil.copyfile(path, copy)
        with suppress(FileNotFoundError):
            os.unlink(copy + JOURNAL_SUFFIX)
        with suppress(FileNotFoundError):  # healed meanwhile: then the stamps differ, or there never was one
            shutil.copyfile(path + JOURNAL_SUFFIX, copy + JOURNAL_SUFFIX)
        if _stamps(path) == before:
            return copy
    raise PartitionBusy(f"{path} keeps changing while it is read: try again")


def _stamps(path: str) -> list[tuple[int, int, int] | None]:
    stamps: list[tuple[int, int, int] | None] = []
    for name in (path, path + JOURNAL_SUFFIX):
        try:
            found = os.stat(name)
            stamps.append((found.st_ino, found.st_size, found.st_mtime_ns))
        except FileNotFoundError:
            stamps.append(None)
    return stamps
