"""The index of the days in rollups.sqlite, the state of their ticks, and whose a published copy of it is.

A copy, `publish/rollups.sqlite`, says in the table `meta` which host it is of. It is the seam between a host and its
fleet: `gua rollup` writes it, the administrator's own transport moves it, and whoever reads it trusts nothing in it.
Without pandas, since importers use it too.
"""

import errno
import os
import re
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from hashlib import blake2b
from typing import Any, NamedTuple

from gua_report.rollups import schema
from gua_report.ticks.open_partition import CARD_NAMES, Kind, errors_of, open_database
from gua_report.window import is_day, midnight_ms, number_of
from gua_sample.errors import CorruptPartition
from gua_sample.partition_names import DAY_MS
from gua_sample.policy import RULE, Policy
from gua_sample.safe_file import MOST_DATABASE_BYTES, check_tables, open_regular

NAMES = {"word": ("text",), "card": CARD_NAMES, "episode": ("slurm_job",), "unpartitioned_hour": ("gpu_uuid",)}
TABLES = (schema.TABLE_NAMES, schema.VIEWS, NAMES, schema.ADDED)
ROLLUPS = Kind("a file of rollups", schema.APPLICATION_ID, schema.VERSION, *TABLES)
CLOSED_AFTER_MS = 300_000
READ_AT_ONCE = 1 << 20
UNREADABLE = ""  # differs from every digest, and is none: such a day is made anew until it can be read
LARGEST_INTEGER = 2**63 - 1  # SQLite's limit: a file's time may be of any year
FILE_NAME = schema.FILE_NAME
META = "meta"
CREATE_META = f"CREATE TABLE {META} (key TEXT PRIMARY KEY, value ANY) STRICT, WITHOUT ROWID"
LONGEST_TEXT = 255
MACHINE = re.compile(r"[0-9a-f]{32}", re.ASCII)


class Origin(NamedTuple):
    """The partition and thresholds that a day was made from. If they have changed since, the rollup is stale."""

    policy: Policy
    partition_bytes: int
    partition_changed_ns: int


class Stored(NamedTuple):
    origin: Origin
    is_verified: bool = False  # it was read back and found correct
    is_expired: bool = False  # its ticks were removed: the rollup is all that is left, and never made anew
    is_compact: bool = False  # its partition has no empty space
    rule: int | None = RULE  # by which it was made
    ticks_digest: str | None = None  # of the partition's bytes, when it was verified
    sums_digest: str | None = None  # of the day's contents

    def is_current(self, origin: Origin) -> bool:
        return self.rule == RULE and self.origin == origin


DAY_COLUMNS = ("id", "day", *Policy._fields, *Origin._fields[1:], *Stored._fields[1:])


def is_closed(day: str, now_ms: int) -> bool:
    """Whether the day is over, and its last tick is written, or waits beside its partition."""
    return now_ms >= midnight_ms(day) + DAY_MS + CLOSED_AFTER_MS


def path_of(data_dir: str) -> str:
    return os.path.join(data_dir, schema.FILE_NAME)


def origin_of(partition: str, policy: Policy) -> Origin:
    found = os.stat(partition)
    return Origin(policy, found.st_size, min(max(found.st_mtime_ns, -LARGEST_INTEGER), LARGEST_INTEGER))


def find_current(index: Mapping[str, Stored], partitions: Mapping[str, str], policy: Policy) -> set[str]:
    there = {day: stored for day, stored in index.items() if day in partitions and stored.rule == RULE}
    of_policy = {day: stored.origin for day, stored in there.items() if stored.origin.policy == policy}
    return {day for day, origin in of_policy.items() if has_changed(origin, partitions[day]) is False}


def find_expired(index: Mapping[str, Stored], partitions: Mapping[str, str]) -> set[str]:
    """The days whose rollup is all that is left, or all that counts."""
    return {day for day, stored in index.items() if stored.is_expired or day not in partitions}


def has_changed(origin: Origin, partition: str) -> bool | None:
    """Whether the partition is another than the day was made from; None if it has just been removed."""
    with suppress(FileNotFoundError):
        return origin != origin_of(partition, origin.policy)
    return None


def digest_partition(path: str, origin: Origin) -> str | None:
    """The digest of the partition's bytes; None if it is not as `origin` says; UNREADABLE if the disk can't read it.

    Nobody may have a connection to the file open in this process, which would lose its locks.
    """
    digest = blake2b(digest_size=16)
    try:
        with open(open_regular(path, MOST_DATABASE_BYTES), "rb") as file:
            while data := file.read(READ_AT_ONCE):
                digest.update(data)
        return digest.hexdigest() if origin_of(path, origin.policy) == origin else None
    except OSError as error:
        return UNREADABLE if error.errno == errno.EIO else None


_kept: dict[str, sqlite3.Connection] = {}  # by path


@contextmanager
def keep_open(path: str) -> Iterator[None]:
    """Open rollups.sqlite once for all that reads it meanwhile: so all of it reads the same file."""
    with open_rollups(path) as connection:
        _kept[path] = connection
        try:
            yield
        finally:
            del _kept[path]


@contextmanager
def open_rollups(path: str) -> Iterator[sqlite3.Connection]:
    """A read-only connection to rollups.sqlite. One bad byte in a name spoils that name, not the whole file."""
    if path in _kept:
        with errors_of(path):
            yield _kept[path]
        return
    with open_database(path, ROLLUPS) as connection:
        connection.text_factory = lambda text: text.decode(errors="backslashreplace")
        yield connection


def read_index(path: str, check: bool = False, damaged: list[str] | None = None) -> dict[str, Stored]:
    """The stored days. `check` examines the whole file; `damaged` gets a line for each invalid day left out."""
    if not os.path.lexists(path):
        return {}
    index = {}
    with open_rollups(path) as connection:
        found = connection.execute("PRAGMA integrity_check(1)").fetchone()[0] if check else "ok"
        if found != "ok":
            raise CorruptPartition(f"{path} is damaged ({' '.join(found.split())})")
        for row in connection.execute(f"SELECT {', '.join(DAY_COLUMNS)} FROM day ORDER BY id"):
            try:
                index[row[1]] = _stored(row)
            except (TypeError, ValueError) as error:
                if damaged is None:
                    raise
                damaged.append(f"{path} is damaged: what it says of one day makes no sense ({error})")
    return index


def _stored(row: tuple[Any, ...]) -> Stored:
    number, day, *values = row
    if not isinstance(day, str) or not is_day(day) or number != number_of(day):
        raise ValueError(f"{str(day)[:20]!r} for day {number}")
    *numbers, rule, ticks_digest, sums_digest = values
    if not all(isinstance(value, int | float) and abs(value) < 2**63 for value in numbers):
        raise ValueError(f"{day} was made from what can't be")
    *thresholds, size, changed_ns, is_verified, is_expired, is_compact = numbers
    marks = bool(is_verified), bool(is_expired), bool(is_compact)
    return Stored(Origin(Policy(*thresholds), size, changed_ns), *marks, rule, ticks_digest, sums_digest)


class Meta(NamedTuple):
    """The rows of the table `meta`: each field is a key. A newer gua may add keys, which are passed over."""

    host: str
    machine: str | None  # see machine/machine_key.py; None where the machine has no id
    gua_version: str
    published_ms: int
    newest_tick_ms: int | None  # of the whole history, the day that is not over included; None without any


def published_path(data_dir: str) -> str:
    return os.path.join(data_dir, "publish", FILE_NAME)


def read_meta(path: str) -> Meta:
    """What a published copy says of itself. Raises StoreError if it is none, or says what can't be."""
    with open_rollups(path) as connection:
        check_tables(connection, path, {META})
        rows = connection.execute(f"SELECT key, value FROM {META} WHERE length(value) <= ?", (LONGEST_TEXT,))
        found: dict[str, Any] = {key: value for key, value in rows if key in Meta._fields}
        meta = Meta(**{key: found.get(key) for key in Meta._fields})  # type: ignore[arg-type] # checked below
        host, machine, version, *times = meta
        is_right = {
            "host": isinstance(host, str) and host.isprintable() and bool(host.strip()),
            "machine": machine is None or (isinstance(machine, str) and bool(MACHINE.fullmatch(machine))),
            "gua_version": isinstance(version, str) and version.isprintable(),
            "published_ms": isinstance(times[0], int) and times[0] >= 0,
            "newest_tick_ms": times[1] is None or (isinstance(times[1], int) and times[1] >= 0),
        }
        if wrong := [key for key, holds in is_right.items() if not holds]:
            raise ValueError(f"no {wrong[0]} in the table {META}")
    return meta
