"""Digests of stored days and of their partitions, by which bit rot is found. Without pandas."""

from __future__ import annotations

import errno
import sqlite3
from functools import cache
from hashlib import blake2b
from zlib import crc32

from gua_report.rollups import schema
from gua_report.rollups.index import Origin, open_rollups, origin_of
from gua_report.window import number_of
from gua_sample.errors import PartitionBusy, StoreError
from gua_sample.policy import Policy
from gua_sample.safe_file import MOST_DATABASE_BYTES, open_regular

DIGEST_BYTES = 16
READ_AT_ONCE = 1 << 20
UNREADABLE = ""  # differs from every digest
UNPARTITIONED = schema.ADDED["unpartitioned_hour"]


def digest_partition(path: str, origin: Origin) -> str | None:
    """The digest of the partition's bytes; None if its size or time of change is not that of `origin`.

    Nobody may have a connection to the file open in this process, which would lose its locks.
    """
    digest = blake2b(digest_size=DIGEST_BYTES)
    try:
        if origin_of(path, origin.policy) != origin:
            return None
        with open(open_regular(path, MOST_DATABASE_BYTES), "rb") as file:
            while data := file.read(READ_AT_ONCE):
                digest.update(data)
        return digest.hexdigest() if origin_of(path, origin.policy) == origin else None
    except OSError as error:
        return UNREADABLE if error.errno == errno.EIO else None


def digest_stored(path: str, day: str) -> str | None:
    """The digest of a day's rows in the file at `path`; UNREADABLE if it can't be had, None while the file is busy."""
    try:
        with open_rollups(path) as connection:
            return digest_rows(connection, number_of(day))
    except PartitionBusy:
        return None
    except StoreError:
        return UNREADABLE


def with_crc(*row: int | str) -> tuple[int | str, ...]:
    """A row of `unpartitioned_hour`, which the digest of a day does not cover, with its CRC."""
    return *row, crc32(repr(row).encode())


def digest_rows(connection: sqlite3.Connection, number: int) -> str:
    """The digest of the rows of a day, with words and cards in place of their ids, which differ between files.

    UNREADABLE if a row that it does not cover is not as it was written.
    """
    added = connection.execute(f"SELECT {', '.join(UNPARTITIONED)} FROM unpartitioned_hour WHERE day_id = ?", (number,))
    if any(row != with_crc(*row[:-1]) for row in added):
        return UNREADABLE
    digest = blake2b(digest_size=DIGEST_BYTES)
    for query in _queries():
        lines = sorted(map(repr, connection.execute(query, (number,))))
        digest.update("\n".join([*lines, "\n"]).encode())
    return digest.hexdigest()


@cache
def _queries() -> list[str]:
    """A query for each table of a day, of the columns that every version knows."""
    queries = [f"SELECT {', '.join(['CAST(day AS BLOB)', *Policy._fields])} FROM day WHERE id = ?"]
    facts = [_bytes(f"c.{name}", schema.columns_of("card")[name]) for name in schema.CARD_FACTS]
    for table in schema.DAY_TABLES:
        added = schema.ADDED.get(table, ())
        selected = []
        for name, kind in schema.columns_of(table).items():
            if name == "card_id":
                selected += facts
            elif (table, name) in schema.WORD_COLUMNS:
                selected.append(f"(SELECT CAST(text AS BLOB) FROM word WHERE id = t.{name})")
            elif name not in added:
                selected.append(_bytes(f"t.{name}", kind))
        cards = "LEFT JOIN card c ON c.id = t.card_id" if "card_id" in schema.columns_of(table) else ""
        queries.append(f"SELECT {', '.join(selected)} FROM {table} t {cards} WHERE t.day_id = ?")
    return queries


def _bytes(name: str, kind: str) -> str:
    """The column as bytes if it is a text, which a flipped bit may have made unreadable."""
    return f"CAST({name} AS BLOB)" if kind == "TEXT" else name
