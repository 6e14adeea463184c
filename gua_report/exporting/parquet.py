"""Parquet: one file, or one for each host and day. No other module uses pyarrow, which is optional."""

from __future__ import annotations

import glob
import io
import os
import sys
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any
from urllib.parse import quote

from gua_report.exporting.rows import Row, kind_of
from gua_sample.errors import CorruptPartition, GuaError, UsageError
from gua_sample.safe_file import MOST_DATABASE_BYTES, open_regular

try:
    import pyarrow
    from pyarrow import parquet
except ImportError as missing:
    raise GuaError(
        "parquet needs the package pyarrow, which is optional: sudo make install EXTRAS=parquet,"
        f" or python3 -m pip --python {sys.executable} install pyarrow"
    ) from missing

PART = "part.parquet"
COMPRESSION = "zstd"
BATCH_ROWS = 10_000
TABLE_KEY = b"gua.table"  # metadata key for the name of a file's table
TYPES = {str: pyarrow.string(), int: pyarrow.int64(), float: pyarrow.float64()}


def schema_of(table: str, columns: tuple[str, ...]) -> Any:
    """The schema of a table, which is the same for every day, whatever the day's values."""
    fields = [pyarrow.field(name, TYPES[kind_of(name)]) for name in columns]
    return pyarrow.schema(fields, metadata={TABLE_KEY: table.encode()})


def block_of(schema: Any, rows: Iterable[Row]) -> Any:
    """The rows as an Arrow table, built a few thousand at a time; None if there are none."""
    rows = iter(rows)
    batches = []
    while batch := list(islice(rows, BATCH_ROWS)):
        columns = zip(zip(*batch, strict=True), schema.types, strict=True)
        batches.append(pyarrow.record_batch([pyarrow.array(*column) for column in columns], schema=schema))
    return pyarrow.Table.from_batches(batches) if batches else None


def to_stream(schema: Any, blocks: Iterable[Any]) -> Iterator[bytes]:
    """The content of one file with all the blocks, part by part; nothing if there are no blocks."""
    sink, writer = Sink(), None
    for block in blocks:
        writer = writer or parquet.ParquetWriter(sink, schema, compression=COMPRESSION)
        writer.write_table(block)
        yield sink.take()
    if writer:
        writer.close()
        yield sink.take()


class Sink(io.RawIOBase):
    """A buffer that pyarrow writes to as a file, and that is emptied part by part."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._position = 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        part = bytes(data)
        self._parts.append(part)
        self._position += len(part)
        return len(part)

    def tell(self) -> int:
        return self._position

    def take(self) -> bytes:
        """The bytes written since the last call."""
        part = b"".join(self._parts)
        self._parts.clear()
        return part


def path_in(folder: str, host: str, day: str) -> str:
    """The file of a host and a day, named so that pandas, polars, DuckDB and Spark read the folder as one table."""
    return os.path.join(folder, f"host={quote(host, safe='')}", f"day={day}", PART)


def check_folder(folder: str, table: str) -> None:
    """Raise UsageError if the folder holds another table, whose rows would not fit."""
    for found in glob.iglob(os.path.join(glob.escape(folder), "host=*", "day=*", PART)):
        try:
            with open(open_regular(found, MOST_DATABASE_BYTES), "rb") as file:
                metadata = parquet.read_schema(file).metadata or {}
        except (OSError, CorruptPartition, pyarrow.ArrowException):
            continue  # damaged, or no file at all: it may be replaced
        other = metadata.get(TABLE_KEY, b"something else").decode("utf-8", "backslashreplace")
        if other != table:
            raise UsageError(f"{folder} holds {other}, not {table}: give each table a folder of its own")
        return
