"""The days of a window, one after the other: a year takes no more memory than a day."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

from gua_report.build import nothing
from gua_report.config import Config
from gua_report.exporting.rows import Row, Table
from gua_report.history import History
from gua_report.partitions import open_partition
from gua_report.window import Window
from gua_sample.errors import EmptyPartition, StoreError
from gua_sample.partition import DAY_MS, day_of

Block = TypeVar("Block")
Progress = Callable[[int, int], None]


class Days:
    """Those that can't be read are left out, and named in `problems`."""

    def __init__(self, data_dir: str, window: Window, table: Table, config: Config) -> None:
        self.data_dir, self.window, self.table, self.config = data_dir, window, table, config
        self.history = History(data_dir)
        self.problems: list[str] = []

    def read(
        self, encode: Callable[[Iterator[Row]], Block], progress: Progress | None = None
    ) -> Iterator[tuple[str, Block]]:
        """Each day that has rows, with them as `encode` makes them. Raises at the end if there was none.

        The partition is closed again by the time a block is handed out: whoever takes it may be slow, and the sampler
        must not wait for that.
        """
        first, last = day_of(self.window.start_ms), day_of(self.window.end_ms - 1)
        days = [day for day in self.history.days if first <= day <= last]
        found = False
        for done, day in enumerate(days):
            if progress:
                progress(done, len(days))
            block = self._read_day(day, encode)
            if block:
                found = True
                yield day, block
        if progress:
            progress(1, 1)
        if not found:
            raise StoreError("nothing was exported") if self.problems else nothing(self.data_dir, self.window)

    def _read_day(self, day: str, encode: Callable[[Iterator[Row]], Block]) -> Block | None:
        try:
            with open_partition(self.history.paths[day]) as connection:
                return encode(self.table.read(connection, self.window.start_ms, self.window.end_ms, self.config))
        except EmptyPartition:
            return None  # the first tick of the day is just being written
        except StoreError as error:
            self.problems.append(f"skipped: {error}")
            return None


def whole_days(window: Window) -> Window:
    """As long as it takes to have each UTC day that it touches."""
    return window._replace(
        start_ms=window.start_ms // DAY_MS * DAY_MS, end_ms=(window.end_ms + DAY_MS - 1) // DAY_MS * DAY_MS
    )
