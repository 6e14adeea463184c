"""The days of a window, one after the other: a year takes no more memory than a day."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from gua_report.config import Config
from gua_report.console.spelling import span_of_days
from gua_report.console.terminal import Progress, tracked
from gua_report.exporting.portions import read_portions
from gua_report.exporting.rows import TABLES, Row, find_rules
from gua_report.rollups.closed_day import is_closed
from gua_report.rollups.index import ROLLUPS, Stored, find_current, path_of, read_index
from gua_report.summary.no_report import nothing
from gua_report.ticks.history import History
from gua_report.ticks.open_partition import PARTITION
from gua_report.window import Window, midnight_ms, show, zone_name
from gua_sample.errors import CorruptPartition, EmptyPartition, NothingToReport, StoreError
from gua_sample.partition_names import DAY_MS, day_of


class Encoding(NamedTuple):
    """A file format. Nothing comes of no rows: neither a block nor a part of a file."""

    encode: Callable[[Iterable[Row]], Any]  # turns rows into a block
    join: Callable[[Iterable[Any]], Iterator[bytes]]  # turns blocks into the content of a file, part by part


class Days:
    """Days as stored in partitions. Unreadable days are left out and named in `problems`."""

    hint = ""
    kind = PARTITION

    def __init__(self, data_dir: str, window: Window, name: str, config: Config) -> None:
        self.data_dir, self.window, self.name = data_dir, window, name
        self.rules = find_rules(data_dir, config)
        self.history = History(data_dir)
        self.problems: list[str] = []
        self.stored = self._read_stored()
        # Ticks that came after their day had expired are not the whole day, and must not replace it in an archive.
        expired = {day for day, stored in self.stored.items() if stored.is_expired}
        for day in self._touched(expired.intersection(self.history.days)):
            self.problems.append(f"left out: {self.history.paths[day]}, as the ticks of its day have expired")
        # The days of which only sums are left.
        self.expired = self._touched(expired | (self.stored.keys() - self.history.paths.keys()))
        self.history.forget(expired)
        self.days = self._touched(self.history.days)

    def read(self, encoding: Encoding, by_day: bool, progress: Progress | None = None) -> Iterator[tuple[str, bytes]]:
        """The content of a file for each day that has rows, or the parts of a single file. Raises if there are no rows.

        The parts of a single file come without a day.
        """
        blocks = self._read_blocks(encoding, by_day, progress)
        if by_day:
            yield from blocks
        else:
            for part in encoding.join(block for _, block in blocks):
                yield "", part

    def _read_blocks(self, encoding: Encoding, by_day: bool, progress: Progress | None) -> Iterator[tuple[str, Any]]:
        found = False
        for day in tracked(self.days, progress):
            what = "skipped"
            path, bounds = self._place(day)
            blocks = read_portions(path, self.kind, TABLES[self.name], bounds, self.rules, encoding.encode)
            try:
                for block in filter(None, [b"".join(encoding.join(blocks))]) if by_day else blocks:
                    yield day, block
                    found, what = True, "cut off"
            except EmptyPartition:
                pass  # the first tick of the day is just being written
            except StoreError as error:
                self.problems.append(f"{what}: {error}")
        if not found:
            raise StoreError("nothing was exported") if self.problems else self._nothing()

    def _read_stored(self) -> dict[str, Stored]:
        """The days of rollups.sqlite."""
        try:
            return read_index(path_of(self.data_dir))
        except StoreError:
            return {}

    def _place(self, day: str) -> tuple[str, tuple[int, int]]:
        """The day's file, and start and end of the time to read from it."""
        return self.history.paths[day], (self.window.start_ms, self.window.end_ms)

    def notes(self) -> list[str]:
        """What an export lacks without being at fault: names of containers, ticks of expired days."""
        nameless = self.rules.people.problem if "identity" in TABLES[self.name].columns else None
        return [note for note in (nameless, self._left_out()) if note]

    def _left_out(self) -> str | None:
        """A note on the expired days that an export of ticks lacks."""
        if not self.expired or TABLES[self.name].is_of_rollups:
            return None
        return f"the ticks of {span_of_days(self.expired)} have expired; --what card_hours has their sums"

    def _touched(self, days: Iterable[str]) -> list[str]:
        """Those of the days that the window touches, in order."""
        first, last = day_of(self.window.start_ms), day_of(self.window.end_ms - 1)
        return sorted(day for day in days if first <= day <= last)

    def _nothing(self) -> NothingToReport:
        """The error for an export without rows; there may be ticks without any process or card."""
        times = (self.history.ticks_of(day)["ts_ms"] for day in self._touched(self.history.days))
        if any(ticks.between(self.window.start_ms, self.window.end_ms - 1).any() for ticks in times):
            return NothingToReport(f"{self._no_rows()}, though there are ticks{self.hint}")
        left_out = self._left_out()
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
        now_ms = time.time_ns() // 1_000_000
        current = find_current(self.stored, self.history.paths, config.policy)
        due = [day for day in self.days if day not in current and is_closed(self.history, day, now_ms)]
        self.due = [day for day in due if len(self.history.ticks_of(day))]
        self.problems += self.history.warnings
        self.days = self._touched(self.stored)

    def read(self, encoding: Encoding, by_day: bool, progress: Progress | None = None) -> Iterator[tuple[str, bytes]]:
        yield from super().read(encoding, by_day, progress)
        self.problems += [self._missing()] if self.due else []

    def _read_stored(self) -> dict[str, Stored]:
        try:
            return read_index(path_of(self.data_dir))
        except EmptyPartition:
            return {}  # the file is just being created
        except CorruptPartition as error:
            raise StoreError(f"{error}: gua rollup makes it anew") from error

    def _missing(self) -> str:
        remedy = f"run gua rollup --data-dir {shlex.quote(self.data_dir)}"
        return f"{span_of_days(self.due)}: not rolled up yet, or ticks or thresholds have changed since; {remedy}"

    def _place(self, day: str) -> tuple[str, tuple[int, int]]:
        start_ms = midnight_ms(day)
        bounds = max(self.window.start_ms, start_ms), min(self.window.end_ms, start_ms + DAY_MS)
        return path_of(self.data_dir), bounds

    def _nothing(self) -> NothingToReport:
        if self.due:
            return NothingToReport(f"no {self.name} of {self._missing()}")
        return NothingToReport(self._no_rows()) if self.days else super()._nothing()


def whole_days(window: Window) -> Window:
    """The window, extended to whole UTC days."""
    return window._replace(
        start_ms=window.start_ms // DAY_MS * DAY_MS, end_ms=(window.end_ms + DAY_MS - 1) // DAY_MS * DAY_MS
    )
