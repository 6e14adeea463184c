"""All partitions of a data folder: which of them a window needs, and the ticks of their days."""

import grp
import os
from collections.abc import Iterable
from contextlib import suppress

import pandas as pd

from gua_report.ticks.open_partition import open_partition
from gua_report.ticks.read_partition import TICK_COLUMNS, Rows, read_rows, read_ticks, with_lead
from gua_report.ticks.tick_weights import with_weights
from gua_report.window import is_day, midnight_ms
from gua_sample.errors import EmptyPartition, StoreError
from gua_sample.partition_file import storage_error
from gua_sample.partition_names import day_of, list_partitions, samples_dir
from gua_sample.rights import out_of_reach
from gua_sample.safe_file import MOST_DATABASE_BYTES, check_regular


class History:
    """Reads each partition's ticks once. Unreadable partitions are left out, and named in `warnings`.

    `days` are those with a partition, which may be empty. Without `has_ticks`, it is a folder whose rollups are all
    that is used of it.
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
                with suppress(FileNotFoundError):  # it has just expired
                    check_regular(path, MOST_DATABASE_BYTES)
                    self.paths[day] = path
            except StoreError as error:
                self.skip(day, error)
        self.days = sorted(self.paths)
        self._ticks: dict[str, pd.DataFrame] = {}
        self._weighed: dict[str, pd.DataFrame] = {}

    def ticks_of(self, day: str) -> pd.DataFrame:
        if day not in self._ticks:
            frame = pd.DataFrame(columns=["id", *TICK_COLUMNS])
            try:
                if day in self.paths:
                    # Empty while its first tick is just being written.
                    with suppress(EmptyPartition), open_partition(self.paths[day]) as connection:
                        frame = read_ticks(connection, midnight_ms(day))
            except StoreError as error:
                self.skip(day, error)
            self._ticks[day] = frame
        return self._ticks[day]

    def forget(self, days: Iterable[str]) -> None:
        """Treat these days as expired."""
        for day in days:
            self.paths.pop(day, None)
            self.free(day)
        self.days = sorted(self.paths)

    def free(self, day: str) -> None:
        """Its ticks are read again if they are asked for."""
        self._ticks.pop(day, None)
        self._weighed.pop(day, None)

    def has_shrunk(self) -> bool:
        """Whether an unreadable file has expired since it was listed."""
        return any(day in self.paths and not os.path.exists(self.paths[day]) for day in self.unreadable)

    def skip(self, day: str, error: StoreError) -> None:
        if day not in self.unreadable:
            self.warnings.append(f"skipped: {error}")
        self.unreadable.add(day)
        self.errors[day] = error

    def weighed_ticks_of(self, day: str) -> pd.DataFrame:
        if day not in self._weighed:
            self._weighed[day] = with_weights(self.ticks_of(day), midnight_ms(day))
        return self._weighed[day]

    def outermost_ms(self) -> list[int]:
        found = []
        for days, place in ((self.days, 0), (self.days[::-1], -1)):
            ticks = (self.ticks_of(day)["ts_ms"] for day in days)
            found += next(([int(times.iloc[place])] for times in ticks if len(times)), [])
        return found

    def days_of(self, start_ms: int, end_ms: int) -> list[str]:
        first, last = day_of(start_ms), day_of(end_ms - 1)
        return [day for day in self.days if first <= day <= last and len(self.ticks_of(day))]

    def timeline(self, days: list[str]) -> pd.DataFrame:
        """The weighed ticks of these days, in time order."""
        return pd.concat([self.weighed_ticks_of(day) for day in days], ignore_index=True)

    def read(self, day: str, ticks: pd.DataFrame) -> Rows | None:
        """The rows of these weighed ticks of a day; None if it is unreadable."""
        try:
            with open_partition(self.paths[day]) as connection:
                rows = read_rows(connection, ticks)
        except StoreError as error:
            self.skip(day, error)
            return None
        return with_lead(rows) if ticks["is_lead"].iloc[0] else rows


def _list(folder: str, data_dir: str) -> dict[str, str]:
    try:
        paths = list_partitions(folder)
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except PermissionError as error:
        raise StoreError(_why_closed(folder, data_dir)) from error
    except OSError as error:
        raise storage_error(error, folder) from error
    by_day = {os.path.basename(path)[:10]: path for path in paths}
    return {day: path for day, path in by_day.items() if is_day(day)}


def _why_closed(folder: str, data_dir: str) -> str:
    for path in (folder, data_dir):
        try:
            facts = os.stat(path)
        except PermissionError:  # what is around it is closed
            continue
        try:
            group = grp.getgrgid(facts.st_gid).gr_name
        except KeyError:
            group = str(facts.st_gid)
        closed = f"{path} is closed to this user (group {group}, mode {facts.st_mode & 0o777:o})"
        return f"{closed}: ask its administrator to add you to that group"
    return out_of_reach(data_dir)
