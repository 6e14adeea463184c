"""The files that gua rollup makes and removes: a CSV file for each day, and the copy of the rollups for a fleet.

The copy is a whole one under another name, synced, renamed. One of the live file by other means may be taken in the
middle of a transaction, and then SQLite finds no fault with it though its figures are wrong.
"""

import os
import socket
import sqlite3
from contextlib import closing, suppress

from gua_report.config import Config
from gua_report.console.whole_file import share_with_readers, whole_file
from gua_report.exporting.days import csv_file
from gua_report.exporting.rows import TABLES, Rules, find_rules, read_rows
from gua_report.machine.machine_key import find_machine_key
from gua_report.rollups.index import CREATE_META, META, Meta, published_path
from gua_report.rollups.writer import BUSY_SECONDS, RollupWriter
from gua_report.ticks.newest import find_newest, list_history
from gua_report.window import is_day
from gua_sample import __version__
from gua_sample.errors import EmptyPartition, StoreError
from gua_sample.partition_file import storage_error
from gua_sample.partition_names import JOURNAL_SUFFIX, partition_path, samples_dir
from gua_sample.processes import printable
from gua_sample.safe_file import UNFINISHED_SUFFIX, connect, connect_unchecked, remove_unfinished, sync_folder

SUFFIX = ".csv"


def remove(paths: list[str]) -> None:
    """Remove files, each after its journal, which would be replayed into a later file of that name."""
    for name in (name for path in paths for name in (path + JOURNAL_SUFFIX, path)):
        try:
            with suppress(FileNotFoundError):
                os.unlink(name)
        except OSError as error:
            raise storage_error(error, name) from error


def remove_left(data_dir: str) -> None:
    """Remove half-written files of killed runs, however recent. Only for who holds the lock."""
    remove_unfinished(os.path.join(data_dir, "csv"), seconds=0)
    with suppress(StoreError):  # said when it comes to publishing
        remove([_unfinished(data_dir)])


def csv_path(data_dir: str, day: str) -> str:
    return os.path.join(data_dir, "csv", day + SUFFIX)


def list_csvs(data_dir: str) -> dict[str, str]:
    """The daily CSV files by day; other files in the folder are not ours to remove."""
    try:
        names = os.listdir(os.path.join(data_dir, "csv"))
    except FileNotFoundError:
        return {}
    days = [name.removesuffix(SUFFIX) for name in names if name.endswith(SUFFIX)]
    return {day: csv_path(data_dir, day) for day in days if is_day(day)}


def write_daily_csv(data_dir: str, day: str, config: Config, rules: Rules | None = None) -> str | None:
    """Write the CSV file of a UTC day atomically, in the format of gpu_stats_service, with more columns.

    Returns its path, or None if nothing was recorded. Raises StoreError: an earlier file then stays.
    """
    partition = partition_path(samples_dir(data_dir), day)
    if not os.path.exists(partition):
        return None
    try:
        rows = read_rows(partition, "csv", (0, 2**63 - 1), rules or find_rules(data_dir, config))
    except EmptyPartition:
        return None
    path = csv_path(data_dir, day)
    with whole_file(path, is_ours=True) as file:
        file.writelines(csv_file(TABLES["csv"].columns, [rows]))
    return path


def publish(source: str, data_dir: str, now_ms: int) -> None:
    with RollupWriter(source):
        pass  # a host whose first day is not over has a file without days, and is seen in the fleet
    newest = find_newest(list_history(samples_dir(data_dir)), now_ms)
    newest_ms = newest.ts_ms if newest else None
    write_copy(
        source, data_dir, Meta(printable(socket.gethostname()), find_machine_key(), __version__, now_ms, newest_ms)
    )


def write_copy(source: str, data_dir: str, meta: Meta) -> None:
    """Publish a copy of the rollups for whoever can read the data folder: whole or not at all. Raises StoreError."""
    new, path = _unfinished(data_dir), published_path(data_dir)
    try:
        _make_folder(os.path.dirname(path), data_dir)
        remove([new])
        with closing(connect(source, "ro", BUSY_SECONDS)) as connection:
            connection.execute("PRAGMA synchronous = OFF")  # it is synced once, below
            connection.execute("VACUUM INTO ?", (os.path.abspath(new),))
        with closing(connect_unchecked(new, "rw", BUSY_SECONDS)) as connection:
            connection.execute("PRAGMA journal_mode = OFF")  # a file of its own that nobody reads yet
            connection.execute("PRAGMA synchronous = OFF")
            connection.execute("BEGIN")
            connection.execute(f"DROP TABLE IF EXISTS {META}")  # there if the rollups were restored from such a copy
            connection.execute(CREATE_META)
            connection.executemany(f"INSERT INTO {META} VALUES (?, ?)", meta._asdict().items())
            connection.execute("COMMIT")
        with open(new, "rb") as file:
            share_with_readers(file.fileno(), data_dir)
            os.fsync(file.fileno())
        os.replace(new, path)
        sync_folder(os.path.dirname(path))
    except (sqlite3.Error, OSError) as error:
        with suppress(StoreError):
            remove([new])
        raise storage_error(error, path) from error


def unpublish(data_dir: str, dry_run: bool) -> list[str]:
    """Remove the published copy, as it names people; return what was removed."""
    path = published_path(data_dir)
    found = [one for one in (path, _unfinished(data_dir)) if os.path.lexists(one)]
    if found and not dry_run:
        remove(found)
        with suppress(OSError):  # it may hold what somebody else has put there
            os.rmdir(os.path.dirname(path))
    return found


def _unfinished(data_dir: str) -> str:
    folder, name = os.path.split(published_path(data_dir))
    return os.path.join(folder, f".{name}{UNFINISHED_SUFFIX}")


def _make_folder(folder: str, data_dir: str) -> None:
    """Make the folder for those who can read the data folder. A mode that the administrator gave it stays."""
    with suppress(FileExistsError):
        os.mkdir(folder, 0o700)
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            share_with_readers(descriptor, data_dir)
        finally:
            os.close(descriptor)
        sync_folder(data_dir)
