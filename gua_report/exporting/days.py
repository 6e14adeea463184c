"""The days of a window, one after the other: a year takes no more memory than a day.

As text they are CSV that is safe in a spreadsheet, or JSON lines.
"""

import csv
import io
import json
import shlex
import time
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import TypeAlias

from gua_report.config import Config
from gua_report.console.spelling import span_of_days
from gua_report.console.terminal import Progress, tracked
from gua_report.exporting.rows import TABLES, TEXT, Row, batches, find_rules, read_rows
from gua_report.render.csv import no_formula
from gua_report.rollups.index import Stored, find_current, is_closed, path_of, read_index
from gua_report.summary.report import nothing
from gua_report.ticks.history import History
from gua_report.window import Window, midnight_ms, show, zone_name
from gua_sample.errors import CorruptPartition, EmptyPartition, NothingToReport, StoreError
from gua_sample.partition_names import DAY_MS, day_of
from gua_sample.processes import printable

Encode: TypeAlias = Callable[[Iterable[list[Row]]], Iterator[bytes]]  # turns days into the content of a file


class Days:
    """Days as stored in partitions, or, for tables of sums, in rollups.sqlite.

    Unreadable days are left out and named in `problems`; so are closed days that rollups.sqlite lacks or has outdated.
    """

    def __init__(self, data_dir: str, window: Window, name: str, config: Config) -> None:
        self.data_dir, self.window, self.name = data_dir, window, name
        self.is_of_rollups = TABLES[name].is_of_rollups
        self.rules = find_rules(data_dir, config)
        self.problems: list[str] = []
        history = self.history = History(data_dir)
        stored = self._read_stored()
        # Ticks that came after their day had expired are not the whole day, and must not replace it in an archive.
        expired = {day for day, one in stored.items() if one.is_expired}
        for day in self._touched(expired.intersection(history.days)):
            self.problems.append(f"left out: {history.paths[day]}, as the ticks of its day have expired")
        # The days of which only sums are left.
        self.expired = self._touched(expired | (stored.keys() - history.paths.keys()))
        history.forget(expired)
        self.days = self._touched(history.days)
        self.due: list[str] = []
        if self.is_of_rollups:
            now_ms = time.time_ns() // 1_000_000
            current = find_current(stored, history.paths, config.policy)
            due = [day for day in self.days if day not in current and is_closed(day, now_ms)]
            self.due = [day for day in due if len(history.ticks_of(day))]
            self.problems += history.warnings
            self.days = self._touched(stored)

    def encode(self, encode: Encode, by_day: bool, progress: Progress | None = None) -> Iterator[tuple[str, bytes]]:
        """A file for each day that has rows, or the parts of a single file. Raises if there are no rows.

        The parts of a single file come without a day.
        """
        days = self._read(progress)
        if by_day:
            yield from ((day, b"".join(encode([rows]))) for day, rows in days)
        else:
            yield from (("", part) for part in encode(rows for _, rows in days))
        self.problems += [self._missing()] if self.due else []

    def _read(self, progress: Progress | None) -> Iterator[tuple[str, list[Row]]]:
        """The days that have rows: one of them is in memory at a time."""
        found = False
        for day in tracked(self.days, progress):
            start_ms = midnight_ms(day)
            bounds = max(self.window.start_ms, start_ms), min(self.window.end_ms, start_ms + DAY_MS)
            path = path_of(self.data_dir) if self.is_of_rollups else self.history.paths[day]
            try:
                rows = read_rows(path, self.name, bounds, self.rules)
            except EmptyPartition:
                continue  # the first tick of the day is just being written
            except StoreError as error:
                self.problems.append(f"skipped: {error}")
                continue
            if rows:
                found = True
                yield day, rows
        if not found:
            raise StoreError("nothing was exported") if self.problems else self._nothing()

    def notes(self) -> list[str]:
        """What an export lacks without being at fault: names of containers, ticks of expired days."""
        nameless = self.rules.people.problem if "identity" in TABLES[self.name].columns else None
        return [note for note in (nameless, self._left_out()) if note]

    def _read_stored(self) -> dict[str, Stored]:
        """The days of rollups.sqlite; without them there are ticks to export, but no closed days."""
        try:
            return read_index(path_of(self.data_dir))
        except CorruptPartition as error:
            if self.is_of_rollups:
                raise StoreError(f"{error}: gua rollup makes it anew") from error
        except EmptyPartition:
            pass  # the file is just being created
        except StoreError:
            if self.is_of_rollups:
                raise
        return {}

    def _left_out(self) -> str | None:
        if not self.expired or self.is_of_rollups:
            return None
        return f"the ticks of {span_of_days(self.expired)} have expired; --what card_hours has their sums"

    def _missing(self) -> str:
        remedy = f"run gua rollup --data-dir {shlex.quote(self.data_dir)}"
        return f"{span_of_days(self.due)}: not rolled up yet, or ticks or thresholds have changed since; {remedy}"

    def _touched(self, days: Iterable[str]) -> list[str]:
        first, last = day_of(self.window.start_ms), day_of(self.window.end_ms - 1)
        return sorted(day for day in days if first <= day <= last)

    def _nothing(self) -> NothingToReport:
        """The error for an export without rows; there may be ticks without any process or card."""
        start_ms, end_ms, zone = self.window
        no_rows = f"no {self.name} from {show(start_ms, zone)} to {show(end_ms, zone)} {zone_name(zone, end_ms)}"
        if self.due:
            return NothingToReport(f"no {self.name} of {self._missing()}")
        if self.is_of_rollups and self.days:
            return NothingToReport(no_rows)
        times = (self.history.ticks_of(day)["ts_ms"] for day in self._touched(self.history.days))
        if any(ticks.between(start_ms, end_ms - 1).any() for ticks in times):
            hint = ": a day is rolled up when it is over" if self.is_of_rollups else ""
            return NothingToReport(f"{no_rows}, though there are ticks{hint}")
        left_out = self._left_out()
        return NothingToReport(f"{no_rows}: {left_out}") if left_out else nothing(self.data_dir, self.window)


BATCH_ROWS = 200  # encoded at once: names in them may be long


def csv_file(columns: tuple[str, ...], days: Iterable[list[Row]]) -> Iterator[bytes]:
    """CSV with one line for each row, whatever a name contains; an unknown value is an empty field.

    The names of the columns come before the first day, and without days nothing does.
    """
    header: list[Row] = [columns]
    for rows in days:
        yield _lines(header)
        header = []
        for batch in batches(rows, BATCH_ROWS):
            values = zip(columns, zip(*batch, strict=True), strict=True)
            yield _lines(zip(*(map(cell, column) if name in TEXT else column for name, column in values), strict=True))


def _lines(rows: Iterable[Row]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue().encode()


@lru_cache(maxsize=10_000)  # names recur at each tick
def cell(text: str | None) -> str | None:
    return None if text is None else no_formula(printable(text))


def json_file(columns: tuple[str, ...], days: Iterable[list[Row]]) -> Iterator[bytes]:
    """One JSON object a line. ASCII preserves names exactly, and keeps them from steering a terminal on the way."""
    encode = json.JSONEncoder(separators=(",", ":")).encode
    for rows in days:
        for batch in batches(rows, BATCH_ROWS):
            yield "".join(f"{encode(dict(zip(columns, row, strict=True)))}\n" for row in batch).encode("ascii")
