"""Parquet: one file, or one for each host and day. No other module uses pyarrow, which is optional."""

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


def to_file(schema: Any, blocks: Iterable[Any]) -> Iterator[bytes]:
    """The content of one file with all the blocks, in one part; nothing if there are no blocks."""
    if content := b"".join(to_stream(schema, blocks)):
        yield content


class Sink:
    """A buffer that pyarrow writes to as a file, and that is emptied part by part."""

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
        """The bytes written since the last call."""
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
    """Files `host=NAME/day=YYYY-MM-DD/part.parquet`, which pandas, polars, DuckDB and Spark read as one table.

    Each file is replaced atomically. The folder holds one table: rows of another one would not fit.
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
