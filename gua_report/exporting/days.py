"""The days of a window, one after the other: a year takes no more memory than a day."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Iterator

from gua_report.config import Config
from gua_report.console.spelling import span_of_days
from gua_report.exporting.portions import Block, read_portions
from gua_report.exporting.rows import TABLES, Row
from gua_report.rollups.closed_day import is_closed
from gua_report.rollups.index import ROLLUPS, Stored, find_current, path_of, read_index
from gua_report.summary.build import nothing
from gua_report.ticks.history import History
from gua_report.ticks.open_partition import PARTITION
from gua_report.window import Window, midnight_ms, show, zone_name
from gua_sample.errors import CorruptPartition, EmptyPartition, NothingToReport, StoreError
from gua_sample.partition_names import DAY_MS, day_of

Progress = Callable[[int, int], None]


class Days:
    """Days as stored in partitions. Unreadable days are left out and named in `problems`."""

    hint = ""
    kind = PARTITION

    def __init__(self, data_dir: str, window: Window, name: str, config: Config) -> None:
        self.data_dir, self.window, self.name, self.config = data_dir, window, name, config
        self.history = History(data_dir)
        self.problems: list[str] = []
        self.expired: list[str] = []  # days of which only sums are left
        self._leave_out_expired()
        self.days = [day for day in self.history.days if self._is_touched(day)]

    def _leave_out_expired(self) -> None:
        """Leave out expired days. Ticks that came after the removal are not the whole day, and must not replace it in
        an archive."""
        try:
            index = read_index(path_of(self.data_dir))
        except StoreError:
            return
        expired = {day for day, stored in index.items() if stored.is_expired}
        gone = expired | (index.keys() - self.history.paths.keys())
        self.expired = sorted(day for day in gone if self._is_touched(day))
        for day in sorted(expired & set(self.history.days)):
            if self._is_touched(day):
                self.problems.append(f"left out: {self.history.paths[day]}, as the ticks of its day have expired")
        self.history.forget(expired)

    def read(
        self,
        encode: Callable[[Iterator[Row]], Block],
        progress: Progress | None = None,
        join: Callable[[Iterator[Block]], Iterator[Block]] = iter,
    ) -> Iterator[tuple[str, Block]]:
        """Each day that has rows, with the block that `encode` makes of them. Raises at the end if there was none.

        A large day comes several times, each time with some of its rows, unless `join` makes one block of them.
        """
        found = False
        for done, day in enumerate(self.days):
            if progress:
                progress(done, len(self.days))
            for block in self._read_day(day, encode, join):
                found = True
                yield day, block
        if not found:
            raise StoreError("nothing was exported") if self.problems else self._nothing()

    def _read_day(
        self,
        day: str,
        encode: Callable[[Iterator[Row]], Block],
        join: Callable[[Iterator[Block]], Iterator[Block]],
    ) -> Iterator[Block]:
        what = "skipped"
        try:
            table = TABLES[self.name]
            for block in join(read_portions(self._path(day), self.kind, table, self._bounds(day), self.config, encode)):
                yield block
                what = "cut off"
        except EmptyPartition:
            pass  # the first tick of the day is just being written
        except StoreError as error:
            self.problems.append(f"{what}: {error}")

    def _path(self, day: str) -> str:
        return self.history.paths[day]

    def _bounds(self, day: str) -> tuple[int, int]:
        """Start and end of the time to read from the day's file."""
        return self.window.start_ms, self.window.end_ms

    def left_out(self) -> str | None:
        """A note on the expired days that an export of ticks lacks."""
        if not self.expired or TABLES[self.name].is_of_rollups:
            return None
        return f"the ticks of {span_of_days(self.expired)} have expired; --what card_hours has their sums"

    def _is_touched(self, day: str) -> bool:
        return day_of(self.window.start_ms) <= day <= day_of(self.window.end_ms - 1)

    def _nothing(self) -> NothingToReport:
        """The error for an export without rows; there may be ticks without any process or card."""
        days = [day for day in self.history.days if self._is_touched(day)]
        times = (self.history.ticks_of(day)["ts_ms"] for day in days)
        if any(ticks.between(self.window.start_ms, self.window.end_ms - 1).any() for ticks in times):
            return NothingToReport(f"{self._no_rows()}, though there are ticks{self.hint}")
        left_out = self.left_out()
        return NothingToReport(f"{self._no_rows()}: {left_out}") if left_out else nothing(self.data_dir, self.window)

    def _no_rows(self) -> str:
        start_ms, end_ms, zone = self.window
        return f"no {self.name} from {show(start_ms, zone)} to {show(end_ms, zone)} {zone_name(zone, end_ms)}"


class RolledUpDays(Days):
    """Days as stored in rollups.sqlite. Closed days that are missing or outdated there are a problem, too."""

    hint = ": a day is rolled up when it is over"
    kind = ROLLUPS

    def __init__(self, data_dir: str, window: Window, name: str, config: Config) -> None:
        super().__init__(data_dir, window, name, config)
        self.path = path_of(data_dir)
        self.stored = self._read_stored()
        now_ms = time.time_ns() // 1_000_000
        current = find_current(self.stored, self.history.paths, config.policy)
        due = [day for day in self.days if day not in current and is_closed(self.history, day, now_ms)]
        self.due = [day for day in due if len(self.history.ticks_of(day))]
        self.problems += self.history.warnings
        self.days = [day for day in self.stored if self._is_touched(day)]

    def read(
        self,
        encode: Callable[[Iterator[Row]], Block],
        progress: Progress | None = None,
        join: Callable[[Iterator[Block]], Iterator[Block]] = iter,
    ) -> Iterator[tuple[str, Block]]:
        yield from super().read(encode, progress, join)
        self.problems += [self._missing()] if self.due else []

    def _read_stored(self) -> dict[str, Stored]:
        try:
            return read_index(self.path)
        except EmptyPartition:
            return {}  # the file is just being created
        except CorruptPartition as error:
            raise StoreError(f"{error}: gua rollup makes it anew") from error

    def _missing(self) -> str:
        remedy = f"run gua rollup --data-dir {shlex.quote(self.data_dir)}"
        return f"{span_of_days(self.due)}: not rolled up yet, or ticks or thresholds have changed since; {remedy}"

    def _path(self, day: str) -> str:
        return self.path

    def _bounds(self, day: str) -> tuple[int, int]:
        start_ms = midnight_ms(day)
        return max(self.window.start_ms, start_ms), min(self.window.end_ms, start_ms + DAY_MS)

    def _nothing(self) -> NothingToReport:
        if self.due:
            return NothingToReport(f"no {self.name} of {self._missing()}")
        return NothingToReport(self._no_rows()) if self.days else super()._nothing()


def whole_days(window: Window) -> Window:
    """The window, extended to whole UTC days."""
    return window._replace(
        start_ms=window.start_ms // DAY_MS * DAY_MS, end_ms=(window.end_ms + DAY_MS - 1) // DAY_MS * DAY_MS
    )
