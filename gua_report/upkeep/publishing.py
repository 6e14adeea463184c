"""Publish rollups for a fleet: a whole copy under another name, synced, renamed. A copy of the live file by other means
may be taken in the middle of a transaction, and then SQLite finds no fault with it though its figures are wrong."""

from __future__ import annotations

import os
import socket
import sqlite3
from contextlib import closing, suppress

from gua_report.console.whole_file import share_with_readers
from gua_report.machine.machine_key import find_machine_key
from gua_report.rollups.published import CREATE_META, META, Meta, published_dir, published_path
from gua_report.rollups.writer import BUSY_SECONDS, RollupWriter
from gua_report.ticks.newest import find_newest, list_history
from gua_report.upkeep.night import Night
from gua_report.upkeep.retention import remove
from gua_sample import __version__
from gua_sample.errors import StoreError
from gua_sample.partition_file import storage_error
from gua_sample.partition_names import samples_dir
from gua_sample.processes import printable
from gua_sample.safe_file import connect, connect_unchecked
from gua_sample.whole_file import UNFINISHED_SUFFIX, sync_folder


def publish(night: Night) -> str:
    """Replace the published copy by the rollups as they are now; return its path. Raises StoreError: the older copy
    then stays."""
    path = published_path(night.data_dir)
    if night.dry_run:
        return path
    with RollupWriter(night.path):
        pass  # a host whose first day is not over has a file without days, and is seen in the fleet
    newest = find_newest(list_history(samples_dir(night.data_dir)), night.now_ms)
    meta = Meta(
        printable(socket.gethostname()),
        find_machine_key(),
        __version__,
        night.now_ms,
        newest.ts_ms if newest else None,
    )
    write_copy(night.path, night.data_dir, meta)
    return path


def write_copy(source: str, data_dir: str, meta: Meta) -> None:
    """Write the file of rollups at `source` as the published copy of the folder. Raises StoreError.

    The copy is there whole or not at all, also after a power cut. Whoever can read the data folder can read it.
    """
    new = _unfinished(data_dir)
    try:
        _make_folder(data_dir)
        remove([new])
        with closing(connect(source, "ro", BUSY_SECONDS)) as connection:
            connection.execute("PRAGMA synchronous = OFF")  # it is synced once, below
            connection.execute("VACUUM INTO ?", (os.path.abspath(new),))
        with closing(connect_unchecked(new, "rw", BUSY_SECONDS)) as connection:
            connection.execute("PRAGMA journal_mode = OFF")  # a file of its own that nobody reads yet
            connection.execute("PRAGMA synchronous = OFF")
            connection.execute("BEGIN")
            connection.execute(CREATE_META)
            connection.executemany(f"INSERT INTO {META} VALUES (?, ?)", meta._asdict().items())
            connection.execute("COMMIT")
        with open(new, "rb") as file:
            share_with_readers(file.fileno(), data_dir)
            os.fsync(file.fileno())
        os.replace(new, published_path(data_dir))
        sync_folder(published_dir(data_dir))
    except (sqlite3.Error, OSError) as error:
        with suppress(StoreError):
            remove([new])
        raise storage_error(error, published_path(data_dir)) from error


def unpublish(night: Night) -> list[str]:
    """Remove the published copy, as it names people and nobody asks for it any more; return what was removed."""
    found = [path for path in (published_path(night.data_dir), _unfinished(night.data_dir)) if os.path.lexists(path)]
    if found and not night.dry_run:
        remove(found)
        with suppress(OSError):  # it may hold what somebody else has put there
            os.rmdir(published_dir(night.data_dir))
    return found


def remove_left_copy(data_dir: str) -> None:
    """Remove the half-written copy of a killed run, however recent: only the run that holds the lock may call this."""
    with suppress(StoreError):  # said when it comes to publishing
        remove([_unfinished(data_dir)])


def _unfinished(data_dir: str) -> str:
    folder, name = os.path.split(published_path(data_dir))
    return os.path.join(folder, f".{name}{UNFINISHED_SUFFIX}")


def _make_folder(data_dir: str) -> None:
    """Make the folder for those who can read the data folder. A mode that the administrator gave it stays."""
    folder = published_dir(data_dir)
    try:
        os.mkdir(folder, 0o700)
    except FileExistsError:
        return
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        share_with_readers(descriptor, data_dir)
    finally:
        os.close(descriptor)
    sync_folder(data_dir)
