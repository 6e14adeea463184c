"""Opening the files of a data folder, none of which is trusted, and replacing them as a whole.

A user who may write there can replace one of our files by a pipe, a link, a device, a huge file or a crafted database.
So only a regular file of a sane size is opened, and never blocks. Databases are opened as SQLite advises for untrusted
files (https://sqlite.org/security.html), after a check of the journal: it may name any file, which SQLite deletes.

Between a check and the use, the owner can change a file; so root gives up its rights first (rights.py).
"""

import os
import re
import sqlite3
import stat
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from typing import BinaryIO

from gua_sample.errors import CorruptPartition, NewerPartition
from gua_sample.partition_names import JOURNAL_SUFFIX, SIDECARS

# 128 cards sampled every second take 0.7 GB a day.
MOST_DATABASE_BYTES = 8 << 30
# A journal holds the pages that a transaction changes: at most all pages of the database, which may have shrunk since.
LARGEST_JOURNAL_RATIO, SMALL_JOURNAL_BYTES = 2, 64 << 20
UNFINISHED_SUFFIX = ".unfinished"
# The writer of an unfinished file that has not changed for so long was killed.
ABANDONED_SECONDS = 3600
HEADER_BYTES = 20  # up to the two that tell about a write-ahead log
JOURNAL_MAGIC = b"\xd9\xd5\x05\xf9\x20\xa1\x63\xd7"  # also at the end, after the name of a super-journal

# gua writes no longer texts or larger statements. Only Python 3.11 and newer can set these limits: on 3.10, only the
# check of table definitions and the time limit protect us.
LIMITS = {
    "SQLITE_LIMIT_LENGTH": 256 << 20,
    "SQLITE_LIMIT_SQL_LENGTH": 1 << 20,
    "SQLITE_LIMIT_ATTACHED": 1,  # VACUUM needs one
    "SQLITE_LIMIT_TRIGGER_DEPTH": 1,
}
# Limit of CPU time for one visit to a database: many times what the slowest one needs.
VISIT_SECONDS, VISIT_SECONDS_PER_MIB = 4.0, 2.0
INSTRUCTIONS_BETWEEN_LOOKS = 100_000  # of SQLite's virtual machine: about a millisecond
MOST_SCHEMA_ROWS = 200
# Words by which SQLite computes something when a table is read, checked or changed. Foreign keys do not.
COMPUTING = frozenset(("AS", "CHECK", "GENERATED", "COLLATE", "VIRTUAL", "DEFAULT"))
CHECKING = r"\b(CHECK|GENERATED|VIRTUAL)\b"  # forbidden in any table
PLAIN = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_ \t\r\n,()")
# Harmless in another program's table: a quoted name, a constant default. Compiled only when used.
HARMLESS = r"(?i)\"\w+\"|\bDEFAULT\s+('\w*'|-?\d+|NULL)"


def check_regular(path: str, most_bytes: int, found: os.stat_result | None = None) -> os.stat_result:
    """The stat of a file that may be opened. Raises CorruptPartition if it may not, OSError if it is missing."""
    found = found or os.lstat(path)
    if stat.S_ISLNK(found.st_mode):
        raise CorruptPartition(f"{path} is a link, which is not followed: put the file itself there")
    if not stat.S_ISREG(found.st_mode):
        raise CorruptPartition(f"{path} is no regular file")
    if found.st_size > most_bytes:
        raise CorruptPartition(f"{path} is too large ({found.st_size >> 20:,} MiB, at most {most_bytes >> 20:,})")
    return found


def read_regular(path: str, most_bytes: int) -> bytes:
    with open(open_regular(path, most_bytes), "rb") as file:
        return file.read(most_bytes)


def read_header(path: str) -> bytes:
    """The first bytes of a database. Closing the file drops all locks that this process has on it."""
    with open(open_regular(path, MOST_DATABASE_BYTES), "rb", buffering=0) as file:
        return file.read(HEADER_BYTES)


def open_regular(path: str, most_bytes: int) -> int:
    """Open a file and return its descriptor. Raises as `check_regular` does."""
    check_regular(path, most_bytes)  # before opening, because opening a device may have effects
    descriptor = os.open(path, os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        check_regular(path, most_bytes, os.fstat(descriptor))
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def connect(path: str, mode: str, busy_seconds: float) -> sqlite3.Connection:
    """Open a database (`mode`: ro, rw, or rwc to create it). The caller begins and ends transactions.

    Raises CorruptPartition, OSError, sqlite3.Error, or UnicodeDecodeError if SQLite complains of a damaged name.
    """
    check_database(path, may_be_missing=mode == "rwc")
    return connect_unchecked(path, mode, busy_seconds)


def connect_unchecked(path: str, mode: str, busy_seconds: float, more: str = "") -> sqlite3.Connection:
    """Open a private database, such as a copy, without checking it. `more` is added to its URI."""
    # Never use immutable=1 for a file of gua's: it would read half a transaction.
    quoted = path.replace("%", "%25").replace("?", "%3f").replace("#", "%23")  # special characters in a URI
    uri = f"file:{quoted}?mode={mode}{more}"
    connection = sqlite3.connect(uri, uri=True, timeout=busy_seconds, isolation_level=None)
    try:
        Deadline(connection, visit_seconds(path))
        connection.execute("PRAGMA trusted_schema = OFF")
        connection.execute("PRAGMA cell_size_check = ON")
        if mode != "ro":
            # FULL, the default, does not sync the folder after deleting the journal: after a power cut the journal may
            # reappear, and roll back a commit that was reported as safe.
            connection.execute("PRAGMA synchronous = EXTRA")
        if hasattr(connection, "setlimit"):
            for name, most in LIMITS.items():
                connection.setlimit(getattr(sqlite3, name), most)
    except BaseException:
        connection.close()
        raise
    return connection


def check_database(path: str, may_be_missing: bool = False) -> None:
    """Check a database and what is beside it, without opening it: closing it would drop our locks."""
    try:
        size = check_regular(path, MOST_DATABASE_BYTES).st_size
    except FileNotFoundError:
        if not may_be_missing:
            raise
        size = 0
    most_bytes = max(SMALL_JOURNAL_BYTES, LARGEST_JOURNAL_RATIO * size)
    for suffix in SIDECARS[1:]:
        with suppress(FileNotFoundError):
            check_regular(path + suffix, most_bytes)
    check_journal(path + JOURNAL_SUFFIX, most_bytes)


def check_journal(path: str, most_bytes: int = MOST_DATABASE_BYTES) -> None:
    """Raise CorruptPartition if SQLite must not roll this journal back."""
    with suppress(FileNotFoundError), open(open_regular(path, most_bytes), "rb", buffering=0) as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - len(JOURNAL_MAGIC)))
        if file.read(len(JOURNAL_MAGIC)) == JOURNAL_MAGIC:
            raise CorruptPartition(f"{path} names another file to delete, as no journal of gua's does: move it away")


def is_begun(connection: sqlite3.Connection, path: str, kind: str, application_id: int, version: int) -> bool:
    """Whether the database has a schema yet. Raises CorruptPartition or NewerPartition."""
    found_id = connection.execute("PRAGMA application_id").fetchone()[0]
    found = connection.execute("PRAGMA user_version").fetchone()[0]
    if (found_id, found) == (0, 0) and not connection.execute("SELECT 1 FROM sqlite_master").fetchone():
        return False
    if found_id != application_id:
        raise CorruptPartition(f"{path} is not {kind}")
    if found > version:
        raise NewerPartition(f"{path} has schema version {found}, this gua reads up to {version}: upgrade gua")
    return True


def check_tables(connection: sqlite3.Connection, path: str, tables: Collection[str]) -> None:
    """Raise CorruptPartition unless all of these are plain tables, and nothing in the file runs by itself."""
    found = read_tables(connection, path)
    plain = {name for name, sql in found.items() if sql.endswith(("STRICT", "ROWID")) and is_plain(sql)}
    if missing := sorted(set(tables) - plain):
        raise CorruptPartition(f"{path} is damaged, or not gua's: {missing[0]} is no plain table in it")


def read_foreign_tables(connection: sqlite3.Connection, path: str) -> set[str]:
    """The plain tables of another program's file. Raises CorruptPartition if anything in it runs by itself."""
    found = read_tables(connection, path)
    return {name for name, sql in found.items() if is_plain(re.sub(HARMLESS, "", sql))}


def is_plain(sql: str) -> bool:
    """Whether a statement has no words by which SQLite computes, and nothing in which they could hide."""
    if not PLAIN.issuperset(sql):
        return False
    words = sql.upper().replace("(", " ").replace(")", " ").replace(",", " ").split()
    return COMPUTING.isdisjoint(words)


def read_tables(connection: sqlite3.Connection, path: str) -> dict[str, str]:
    """The statements that make the tables. Raises CorruptPartition if anything in the file runs by itself."""
    rows = connection.execute("SELECT type, name, sql FROM sqlite_master LIMIT ?", (MOST_SCHEMA_ROWS + 1,)).fetchall()
    if len(rows) > MOST_SCHEMA_ROWS:
        raise CorruptPartition(f"{path} has too many tables")
    tables = {}
    for kind, name, sql in rows:
        if kind == "trigger":
            raise CorruptPartition(f"{path} has a trigger ({name}), as no file has that a sampler wrote")
        # A single function call may exceed any time limit, which is only checked between calls.
        text = sql if isinstance(sql, str) else ""
        is_odd_index = kind == "index" and text and not (is_plain(text) and text.count("(") == 1 and text[-1] == ")")
        if is_odd_index or (kind == "table" and not is_plain(text) and re.search(CHECKING, text.upper())):
            raise CorruptPartition(f"{path} has {name}, which computes something, as nothing does that a sampler wrote")
        if kind == "table":
            tables[name] = text.rstrip()
    return tables


def visit_seconds(path: str) -> float:
    try:
        found = os.lstat(path)
        size = min(found.st_size, found.st_blocks * 512)  # a sparse file may claim any size
    except OSError:  # not created yet
        size = 0
    # Each expired deadline shortens the next ones: a folder may hold thousands of bad files.
    return VISIT_SECONDS / (1 + Deadline.passed) + VISIT_SECONDS_PER_MIB * size / 2**20


class Deadline:
    """Interrupts a connection's statements after too much CPU time; waiting for locks does not count."""

    passed = 0  # number of expired deadlines in this process

    def __init__(self, connection: sqlite3.Connection, seconds: float) -> None:
        self.has_passed = False
        self._ends = time.thread_time() + seconds
        connection.set_progress_handler(self._look, INSTRUCTIONS_BETWEEN_LOOKS)

    def allow(self, seconds: float) -> None:
        self._ends += seconds

    def _look(self) -> bool:
        if not self.has_passed and time.thread_time() > self._ends:
            self.has_passed = True
            Deadline.passed += 1
        return self.has_passed


@contextmanager
def replacing(path: str, durable: bool = True, within: int | None = None, mode: int = 0o666) -> Iterator[BinaryIO]:
    """Open `path`, perhaps in the open folder `within`, for an atomic write: unchanged if the block raises.

    Until then the new file lies hidden beside the old one. A link is replaced, not followed.
    """
    folder, name = os.path.split(path)
    unfinished = os.path.join(folder, f".{name}.{os.urandom(4).hex()}{UNFINISHED_SUFFIX}")
    if within is not None:
        folder = f"/proc/self/fd/{within}/{folder}"
    remove_unfinished(folder, name + ".")
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        with open(os.open(unfinished, flags, mode, dir_fd=within), "wb") as file:
            yield file
            if durable:
                file.flush()
                os.fsync(file.fileno())
        os.rename(unfinished, path, src_dir_fd=within, dst_dir_fd=within)
    except BaseException:
        with suppress(OSError):
            os.unlink(unfinished, dir_fd=within)
        raise
    if durable:
        sync_folder(folder)


def replace_file(path: str, text: str, mode: int | None = None, durable: bool = False) -> None:
    """Replace the content of a file atomically. `mode` overrides the umask."""
    with replacing(path, durable) as file:
        if mode is not None:
            os.fchmod(file.fileno(), mode)
        file.write(text.encode("utf-8", "backslashreplace"))


def sync_folder(path: str) -> None:
    """Make new names in the folder survive a power cut, on file systems that support it."""
    with suppress(OSError):
        folder = os.open(path, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def remove_unfinished(folder: str, begin: str = "", seconds: float = ABANDONED_SECONDS) -> None:
    """Remove the files of killed writers whose final names begin so."""
    with suppress(OSError):  # a folder may be writable, but not readable
        for name in os.listdir(folder):
            if name.startswith(f".{begin}") and name.endswith(UNFINISHED_SUFFIX):
                remove_abandoned(os.path.join(folder, name), seconds)


def remove_abandoned(path: str, seconds: float = ABANDONED_SECONDS) -> None:
    with suppress(OSError):  # already removed, or not ours
        if time.time() - os.lstat(path).st_mtime >= seconds:
            os.unlink(path)
