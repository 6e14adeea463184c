"""The rows of one file in portions: a long name is stored once in the file, but repeated here at each tick."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from operator import itemgetter
from typing import TypeVar

from gua_report.exporting.rows import TEXT, Bounds, Row, Rules, Table
from gua_report.ticks.open_partition import Kind, open_database, use_own_views

# Approximate size of a portion. On many machines even the largest days are smaller.
PORTION_CHARACTERS = 4 << 20
ROW_CHARACTERS = 100  # allowance for a row's columns that are no text

Block = TypeVar("Block")


def read_portions(
    path: str,
    kind: Kind,
    table: Table,
    bounds: Bounds,
    rules: Rules,
    encode: Callable[[Iterator[Row]], Block],
) -> Iterator[Block]:
    """The blocks that `encode` makes of the rows within the bounds, portion by portion. Raises StoreError.

    The file is closed before a block is handed out: the consumer may be slow, and a writer of the file must not wait
    for it.
    """
    start_ms: int | None = bounds[0]
    while start_ms is not None:
        with open_database(path, kind) as connection:
            use_own_views(connection, kind)
            portion = Portion(table, table.read(connection, (start_ms, bounds[1]), rules))
            block = encode(iter(portion))
            if portion.rest_ms is not None and portion.rest_ms <= start_ms:
                raise ValueError("ticks that are not in the order of time")
        if block:
            yield block
        start_ms = portion.rest_ms


class Portion:
    """Rows up to the end of the tick that fills the portion. Remaining rows, if any, begin at `rest_ms`."""

    def __init__(self, table: Table, rows: Iterator[Row]) -> None:
        self._table, self._rows = table, rows
        self.rest_ms: int | None = None

    def __iter__(self) -> Iterator[Row]:
        columns = self._table.columns
        when = columns.index("ts_ms") if "ts_ms" in columns else 0
        texts = itemgetter(*(position for position, name in enumerate(columns) if name in TEXT))
        left, last_ms = PORTION_CHARACTERS, None
        for row in self._rows:
            if left < 0 and row[when] != last_ms:
                self.rest_ms = row[when]
                return
            if left < -PORTION_CHARACTERS:
                raise ValueError(f"over {PORTION_CHARACTERS:,} characters in a tick")
            left -= ROW_CHARACTERS + sum(map(len, filter(None, texts(row))))
            last_ms = row[when]
            yield row
