"""Parquet: one file, or one for each host and day. Nothing else knows of pyarrow, which is optional."""

from __future__ import annotations

import glob
import os
import sys
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any
from urllib.parse import quote

from gua_report.console.whole_file import whole_file
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
TABLE_KEY = b"gua.table"  # in a file's metadata: which one it is of
TYPES = {str: pyarrow.string(), int: pyarrow.int64(), float: pyarrow.float64()}


def schema_of(table: str, columns: tuple[str, ...]) -> Any:
    """The same for every day, whatever the day's values are."""
    fields = [pyarrow.field(name, TYPES[kind_of(name)]) for name in columns]
    return pyarrow.schema(fields, metadata={TABLE_KEY: table.encode()})


def block_of(schema: Any, rows: Iterable[Row]) -> Any:
    """Some rows in columns, put there a few thousand at a time; None without any."""
    rows = iter(rows)
    batches = []
    while batch := list(islice(rows, BATCH_ROWS)):
        columns = zip(zip(*batch, strict=True), schema.types, strict=True)
        batches.append(pyarrow.record_batch([pyarrow.array(*column) for column in columns], schema=schema))
    return pyarrow.Table.from_batches(batches) if batches else None


def to_stream(schema: Any, blocks: Iterable[Any]) -> Iterator[bytes]:
    """The parts of one file, which holds all the blocks; nothing at all without any."""
    sink, writer = Sink(), None
    for block in blocks:
        writer = writer or parquet.ParquetWriter(sink, schema, compression=COMPRESSION)
        writer.write_table(block)
        yield sink.take()
    if writer:
        writer.close()
        yield sink.take()


def to_file(schema: Any, blocks: Iterable[Any]) -> Iterator[bytes]:
    """One file as a whole, which holds all the blocks; nothing at all without any."""
    if content := b"".join(to_stream(schema, blocks)):
        yield content


class Sink:
    """A file that only pyarrow writes to, to be taken part by part."""

    closed = False

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._position = 0

    def write(self, data: Any) -> int:
        part = bytes(data)
        self._parts.append(part)
        self._position += len(part)
        return len(part)

    def take(self) -> bytes:
        """What was written since the last time."""
        part = b"".join(self._parts)
        self._parts.clear()
        return part

    def tell(self) -> int:
        return self._position

    def flush(self) -> None:
        pass

    def close(self) -> None:
        pass


class Folder:
    """`host=NAME/day=YYYY-MM-DD/part.parquet`, which pandas, polars, DuckDB and Spark read as one table.

    Each file is replaced as a whole. The folder is of one table: another one's rows would not fit.
    """

    def __init__(self, path: str, host: str, schema: Any) -> None:
        self.path = path
        self.host = f"host={quote(host, safe='')}"
        self.schema = schema
        self._check()

    def write(self, day: str, content: bytes) -> None:
        path = os.path.join(self.path, self.host, f"day={day}", PART)
        with whole_file(path, follow=False, make_folders=True) as file:
            file.write(content)

    def _check(self) -> None:
        pattern = os.path.join(glob.escape(self.path), "host=*", "day=*", PART)
        for found in glob.iglob(pattern):
            try:
                with open(open_regular(found, MOST_DATABASE_BYTES), "rb") as file:
                    metadata = parquet.read_schema(file).metadata or {}
            except (OSError, CorruptPartition, pyarrow.ArrowException):
                continue  # damaged, or no file at all: it may be replaced
            if metadata.get(TABLE_KEY) != self.schema.metadata[TABLE_KEY]:
                table = metadata.get(TABLE_KEY, b"something else").decode("utf-8", "backslashreplace")
                raise UsageError(
                    f"{self.path} holds {table},"
                    f" not {self.schema.metadata[TABLE_KEY].decode()}: give each table a folder of its own"
                )
            return
