"""All partitions of a data folder: which of them a window needs, and days with the ticks around them."""

from __future__ import annotations

import grp
import os
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
import pandas as pd

from gua_report.ticks.open_partition import open_partition
from gua_report.ticks.read_partition import TICK_COLUMNS, Rows, concat_rows, read_rows, read_ticks
from gua_report.ticks.tick_weights import TICKS_AROUND, with_intervals, with_weights
from gua_report.window import is_day, midnight_ms
from gua_sample.errors import EmptyPartition, StoreError
from gua_sample.partition_file import storage_error
from gua_sample.partition_names import day_of, list_partitions, samples_dir
from gua_sample.safe_file import MOST_DATABASE_BYTES, check_regular


def edges_dir(data_dir: str) -> str:
    """The folder of edge files: the first and last ticks of expired days, kept while a neighbour has its ticks."""
    return os.path.join(data_dir, "edges")


class Stretch(NamedTuple):
    """The rows of consecutive ticks, with context on either side where there is any."""

    rows: Rows
    ticks: pd.DataFrame  # the rows' ticks, with weights
    inside: slice  # positions of the ticks asked for


class History:
    """Reads each partition's ticks once. Unreadable partitions are left out, and named in `warnings`.

    `days` are the days with ticks. After `forget`, `paths` also has the edge files of expired days. Without
    `has_ticks`, it is a folder whose rollups are all that is used of it.
    """

    def __init__(self, data_dir: str, has_ticks: bool = True) -> None:
        self.data_dir = data_dir
        self.has_ticks = has_ticks
        self.warnings: list[str] = []
        self.unreadable: set[str] = set()
        self.errors: dict[str, StoreError] = {}  # why a day is unreadable
        self.paths: dict[str, str] = {}
        for day, path in _list(samples_dir(data_dir), data_dir).items() if has_ticks else ():
            try:
                check_regular(path, MOST_DATABASE_BYTES)
                self.paths[day] = path
            except FileNotFoundError:
                pass  # it has just expired
            except StoreError as error:
                self.skip(day, error)
        self.days = sorted(self.paths)
        self._ticks: dict[str, pd.DataFrame] = {}
        self._timed: dict[str, pd.DataFrame] = {}

    def ticks_of(self, day: str) -> pd.DataFrame:
        """The ticks of a day in time order; none if its partition is missing or unreadable."""
        if day not in self._ticks:
            frame = pd.DataFrame(columns=["id", *TICK_COLUMNS])
            if day in self.paths:
                try:
                    with open_partition(self.paths[day]) as connection:
                        frame = read_ticks(connection, midnight_ms(day))
                except EmptyPartition:
                    pass  # the first tick of the day is just being written
                except StoreError as error:
                    self.skip(day, error)
            self._ticks[day] = frame
        return self._ticks[day]

    def forget(self, days: Iterable[str]) -> None:
        """Treat these days as expired, and use the edge files that are left of expired days."""
        for day in days:
            self.paths.pop(day, None)
            self._ticks.pop(day, None)
            self._timed.pop(day, None)
        self.days = sorted(day for day in self.days if day in self.paths)
        edges = _list(edges_dir(self.data_dir), self.data_dir) if self.has_ticks else {}
        self.paths |= {day: path for day, path in edges.items() if day not in self.days}

    def has_shrunk(self) -> bool:
        """Whether an unreadable file has been removed since it was listed, because old days expire meanwhile."""
        return any(day in self.paths and not os.path.exists(self.paths[day]) for day in self.unreadable)

    def skip(self, day: str, error: StoreError) -> None:
        """Treat the day as unreadable."""
        if day not in self.unreadable:
            self.warnings.append(f"skipped: {error}")
        self.unreadable.add(day)
        self.errors[day] = error

    def timed_ticks_of(self, day: str) -> pd.DataFrame:
        """The ticks of a day in time order, with their intervals."""
        if day not in self._timed:
            self._timed[day] = with_intervals(self.ticks_of(day))
        return self._timed[day]

    def first_ticks_ms(self, day: str) -> list[int]:
        """The times of the day's first two ticks, which show whether episodes of the day before go on."""
        times: list[int] = self.ticks_of(day)["ts_ms"].iloc[:2].tolist()
        return times

    def first_ms(self, day: str) -> int | None:
        """The time of the day's first tick; None if it has none."""
        return next(iter(self.first_ticks_ms(day)), None)

    def outermost_ms(self) -> list[int]:
        """The times of the oldest and the newest tick; nothing if there are no ticks."""
        oldest = next((day for day in self.days if len(self.ticks_of(day))), None)
        if oldest is None:
            return []
        newest = next(day for day in reversed(self.days) if len(self.ticks_of(day)))
        return [int(self.ticks_of(oldest)["ts_ms"].iloc[0]), int(self.ticks_of(newest)["ts_ms"].iloc[-1])]

    def days_of(self, start_ms: int, end_ms: int) -> list[str]:
        """The days with ticks in a time; else the last day before it, whose last tick may reach into it."""
        first, last = day_of(start_ms), day_of(end_ms - 1)
        days = [day for day in self.days if first <= day <= last and len(self.ticks_of(day))]
        if not days:
            before = self.day_next_to(midnight_ms(first), back=True)
            return [before] if before else []
        return days

    def day_next_to(self, ts_ms: int, back: bool) -> str | None:
        """The nearest day with a tick before that time (`back`), or after it."""
        today = day_of(ts_ms)
        for day in reversed(self.days) if back else self.days:
            if day <= today if back else day >= today:
                times = self.ticks_of(day)["ts_ms"]
                if len(times) and (times.iloc[0] < ts_ms if back else times.iloc[-1] > ts_ms):
                    return day
        return None

    def timeline(self, days: list[str]) -> pd.DataFrame:
        """The ticks of these days and some around them, in time order, with weights; `id` and `day` locate a tick."""
        before, after = self._neighbour(days[0], -1), self._neighbour(days[-1], 1)
        parts = [self.timed_ticks_of(day).assign(day=day) for day in days]
        if before:
            parts.insert(0, self.timed_ticks_of(before).iloc[-TICKS_AROUND:].assign(day=before))
        if after:
            parts.append(self.timed_ticks_of(after).iloc[:TICKS_AROUND].assign(day=after))
        return with_weights(pd.concat(parts, ignore_index=True))

    def read(self, timeline: pd.DataFrame, first: int, last: int, uuids: Sequence[str] | None = None) -> Stretch | None:
        """The rows of the timeline's ticks from position `first` to before `last`, of all cards or those in `uuids`.

        None, with warnings, if all of it has become unreadable.
        """
        # Whether a process is idle depends on the tick before too, and ticks without cards may lie between.
        ticks = timeline.iloc[max(0, first - TICKS_AROUND) : last + TICKS_AROUND]
        groups = [(str(day), ticks.iloc[where]) for day, where in ticks.groupby("day", sort=True).indices.items()]
        # Threads help because SQLite works without the interpreter's lock.
        if len(groups) > 3:
            with ThreadPoolExecutor(min(4, os.cpu_count() or 1)) as pool:
                parts = list(pool.map(lambda group: self._read_partition(group[0], group[1], uuids), groups))
        else:
            parts = [self._read_partition(day, group, uuids) for day, group in groups]
        read = [(part, group) for part, (_, group) in zip(parts, groups, strict=True) if part is not None]
        if not read:
            return None
        rows = concat_rows([part for part, _ in read], [len(group) for _, group in read])
        ticks = pd.concat([group for _, group in read])
        own = np.flatnonzero((ticks.index >= first) & (ticks.index < last))
        return Stretch(rows, ticks.reset_index(drop=True), slice(int(own[0]), int(own[-1]) + 1)) if len(own) else None

    def _read_partition(self, day: str, ticks: pd.DataFrame, uuids: Sequence[str] | None) -> Rows | None:
        try:
            with open_partition(self.paths[day]) as connection:
                return read_rows(connection, ticks, uuids)
        except StoreError as error:
            self.skip(day, error)
            return None

    def _neighbour(self, day: str, step: int) -> str | None:
        """The nearest day in that direction that has ticks or an edge file."""
        days = sorted(self.paths)[::step]
        return next((near for near in days[days.index(day) + 1 :] if len(self.ticks_of(near))), None)


def _list(folder: str, data_dir: str) -> dict[str, str]:
    """The paths of the partitions in a folder, by day."""
    try:
        paths = list_partitions(folder)
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except PermissionError as error:
        raise StoreError(
            f"{data_dir} is closed to this user (group {_group(data_dir)}, mode {os.stat(data_dir).st_mode & 0o777:o}):"
            " ask its administrator to add you to that group"
        ) from error
    except OSError as error:
        raise storage_error(error, folder) from error
    by_day = {os.path.basename(path)[:10]: path for path in paths}
    return {day: path for day, path in by_day.items() if is_day(day)}


def _group(path: str) -> str:
    number = os.stat(path).st_gid
    try:
        return grp.getgrgid(number).gr_name
    except KeyError:
        return str(number)
