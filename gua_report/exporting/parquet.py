"""Parquet: one file, or one for each host and day. No other module uses pyarrow, which is optional."""

import glob
import io
import os
import sys
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import islice
from urllib.parse import quote

from gua_report.exporting.rows import Row, batches, kind_of
from gua_report.machine.child import answer_of
from gua_sample.errors import GuaError, StoreError, UsageError
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
BATCH_ROWS = 10_000  # of a group in a file
PATIENCE_SECONDS = 60.0  # with another user's file
TABLE_KEY = b"gua.table"  # metadata key for the name of a file's table
# Within gua a text is a number in a dictionary, which is small however long the names are; in the file it is a text.
TYPES = {str: pyarrow.dictionary(pyarrow.int32(), pyarrow.string()), int: pyarrow.int64(), float: pyarrow.float64()}


def parquet_file(table: str, columns: tuple[str, ...], days: Iterable[list[Row]]) -> Iterator[bytes]:
    """The content of one file with all the days, part by part; nothing if there are no days.

    The types are the same for every day, whatever the day's values.
    """
    schema = pyarrow.schema([(name, TYPES[kind_of(name)]) for name in columns])
    sink, writer = Sink(), None
    for rows in days:
        writer = writer or parquet.ParquetWriter(sink, schema, compression="zstd", store_schema=False)
        for batch in batches(rows, BATCH_ROWS):
            values = zip(zip(*batch, strict=True), schema.types, strict=True)
            writer.write_table(pyarrow.table([pyarrow.array(*column) for column in values], schema=schema))
            yield sink.take()
    if writer:
        writer.add_key_value_metadata({TABLE_KEY: table})
        writer.close()
        yield sink.take()


class Sink(io.BytesIO):
    """A file that is emptied part by part, while pyarrow writes to it."""

    _taken = 0

    def tell(self) -> int:
        return self._taken + super().tell()

    def take(self) -> bytes:
        part = self.getvalue()
        self._taken += len(part)
        self.seek(0)
        self.truncate()
        return part


def path_in(folder: str, host: str, day: str) -> str:
    """Named so that pandas, polars, DuckDB and Spark read the folder as one table."""
    return os.path.join(folder, f"host={quote(host, safe='')}", f"day={day}", PART)


def check_folder(folder: str, table: str) -> None:
    """Raise UsageError if the folder holds another table, whose rows would not fit. One of its files tells for all."""
    for path in islice(glob.iglob(os.path.join(glob.escape(folder), "host=*", "day=*", PART)), 1):
        try:
            other = find_table(path)
        except (OSError, GuaError):
            return  # damaged, or no file at all: it may be replaced
        if other != table:
            raise UsageError(f"{folder} holds {other}, not {table}: give each table a folder of its own")


def find_table(path: str) -> str:
    """The name of the table in a file. Root asks a child that becomes the file's owner. Raises GuaError or OSError."""
    with open(open_regular(path, MOST_DATABASE_BYTES), "rb") as file:
        found = os.fstat(file.fileno())
        if os.geteuid() == 0 and found.st_uid != 0:
            return str(answer_of(partial(find_table, path), (found.st_uid, found.st_gid), PATIENCE_SECONDS))
        try:
            metadata: dict[bytes, bytes] = parquet.read_schema(file).metadata or {}
        except pyarrow.ArrowException as error:
            raise StoreError(f"{path} is no Parquet file") from error
    return metadata.get(TABLE_KEY, b"something else").decode("utf-8", "backslashreplace")
