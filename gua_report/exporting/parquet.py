"""Parquet: one file, or one for each host and day. Nothing else knows of pyarrow, which is optional."""

from __future__ import annotations

import glob
import os
import sys
from collections.abc import Iterable
from itertools import islice
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from gua_report.exporting.files import StandardOutput, cannot_write, whole_file
from gua_report.exporting.rows import Row, kind_of
from gua_sample.errors import GuaError, UsageError

if TYPE_CHECKING:
    from typing import BinaryIO

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


def begin_file(schema: Any, file: BinaryIO | StandardOutput) -> Any:
    """To write blocks to, one after the other; it begins to write at once."""
    return parquet.ParquetWriter(file, schema, compression=COMPRESSION)


class Folder:
    """`host=NAME/day=YYYY-MM-DD/part.parquet`, which pandas, polars, DuckDB and Spark read as one table.

    Each file is replaced as a whole. The folder is of one table: another one's rows would not fit.
    """

    def __init__(self, path: str, host: str, schema: Any) -> None:
        self.path = path
        self.host = f"host={quote(host, safe='')}"
        self.schema = schema
        self._check()

    def write(self, day: str, block: Any) -> None:
        path = os.path.join(self.path, self.host, f"day={day}", PART)
        try:
            os.makedirs(os.path.dirname(path), exist_ok=True)
        except OSError as error:
            raise cannot_write(path, error) from error
        with whole_file(path) as file:
            parquet.write_table(block, file, compression=COMPRESSION)

    def _check(self) -> None:
        pattern = os.path.join(glob.escape(self.path), "host=*", "day=*", PART)
        for found in glob.iglob(pattern):
            try:
                metadata = parquet.read_schema(found).metadata or {}
            except (OSError, pyarrow.ArrowException):
                continue  # damaged: it may be replaced
            if metadata.get(TABLE_KEY) != self.schema.metadata[TABLE_KEY]:
                raise UsageError(
                    f"{self.path} holds {metadata.get(TABLE_KEY, b'something else').decode()},"
                    f" not {self.schema.metadata[TABLE_KEY].decode()}: give each table a folder of its own"
                )
            return
