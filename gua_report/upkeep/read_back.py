"""Read stored days back: compare them with what was written, and later, to find bit rot, with their digests."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from gua_report.rollups.digests import digest_partition, digest_stored
from gua_report.rollups.index import ROWS, TICKS, Stored
from gua_report.rollups.reader import Day, read_days
from gua_report.rollups.writer import RollupWriter
from gua_report.ticks.coverage import SPAN_COLUMNS
from gua_report.ticks.episodes import COLUMNS as EPISODE_COLUMNS
from gua_report.ticks.history import History
from gua_sample.errors import CorruptPartition, StoreError
from gua_sample.partition_names import DAY_MS

NIGHTS = 28  # in as many, all days are read
NIGHT_MS = DAY_MS // 2  # what was checked since then was checked tonight


def verify(path: str, day: str, made: Day) -> None:
    """Raise StoreError if the stored day differs from `made`."""
    if fingerprint(made) != fingerprint(read_days(path, day, day)):
        raise StoreError(f"the rollup of {day} does not read back as it was written: is the disk in order?")


def fingerprint(day: Day) -> list[list[tuple[Any, ...]]]:
    """The contents of a day as whole numbers and texts, for a comparison."""
    rollup = day.rollup
    hours = rollup.cards[["hour_ms", "gpu_uuid", "state", "weight_ms", "gpu_ms", "energy_joules", "energy_ms"]]
    presences = rollup.identities[["hour_ms", "gpu_uuid", "identity", "state", "weight_ms", "gpu_ms"]]
    # An older gua stores no Slurm jobs, and a day of its is none the worse for that.
    episodes = day.episodes[EPISODE_COLUMNS].drop(columns="slurm_job")
    frames = (hours, presences, rollup.holds, rollup.unpartitioned, episodes, day.spans[SPAN_COLUMNS])
    return [sorted(map(_whole, frame.astype(object).itertuples(index=False, name=None)), key=repr) for frame in frames]


def _whole(row: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(None if value != value else round(value) if isinstance(value, float) else value for value in row)


def ticks_fail(stored: Stored, partition: str) -> bool:
    """Whether the bytes of the partition differ from those that were verified, though nobody has written to it.

    A new size or time of change is a change, not rot. Without a digest nothing can be said.
    """
    if not stored.is_verified or stored.ticks_digest is None:
        return False
    found = digest_partition(partition, stored.origin)
    return found is not None and found != stored.ticks_digest


def find_failure(path: str, day: str, stored: Stored, partition: str | None) -> str | None:
    """What of the day fails its check: ticks, rows, both, or None."""
    ticks = partition is not None and ticks_fail(stored, partition)
    rows = False
    if stored.is_verified and stored.rows_digest is not None:
        rows = digest_stored(path, day) not in (None, stored.rows_digest)
    return " and ".join([TICKS] * ticks + [ROWS] * rows) or None


def choose_days(index: Mapping[str, Stored], now_ms: int) -> list[str]:
    """The days to check tonight: those that were checked longest ago, and all that failed the last time."""

    def checked_ms(day: str) -> int:
        found = index[day].checked_ms or 0
        return found if found <= now_ms else 0  # the clock was set back, or it is rot

    oldest = sorted(index, key=checked_ms)[: math.ceil(len(index) / NIGHTS)]
    due = {day for day in oldest if checked_ms(day) <= now_ms - NIGHT_MS}
    return sorted(due | {day for day, stored in index.items() if stored.failed_check})


def describe(day: str, failed: str, path: str, partition: str | None) -> str:
    """A line for the administrator. `path`: the file of rollups."""
    rotten = {TICKS: partition, ROWS: f"the rollup of {day} in {path}"}
    what = " and ".join(str(rotten[part]) for part in failed.split(" and "))
    return f"{what} changed on disk though nobody wrote to it (bit rot): restore it from a backup"


class ReadBack:
    """The checks of one run. Ticks that fail are unreadable for `history`, so that nothing is made from them."""

    def __init__(self, path: str, history: History, complain: Callable[[str], None]) -> None:
        self.failed: dict[str, str] = {}  # by day: what failed
        self._path, self._history, self._complain = path, history, complain
        self._right: set[str] = set()
        self._read: set[str] = set()  # days whose partition was read

    def check(self, index: Mapping[str, Stored], days: Iterable[str]) -> None:
        """Check ticks and rows of these days."""
        for day in days:
            partition = self._history.paths[day] if day in self._history.days else None
            self._read.add(day)
            if failed := find_failure(self._path, day, index[day], partition):
                self._fail(day, failed)
            else:
                self._right.add(day)

    def are_ticks_right(self, index: Mapping[str, Stored], day: str) -> bool:
        """Whether the day's ticks show no bit rot. Each partition is read once, before anything is made from it."""
        if day not in self._read and day in self._history.days and day in index:
            self._read.add(day)
            if ticks_fail(index[day], self._history.paths[day]):
                self._fail(day, TICKS)
        return not self.is_rotten(day)

    def is_rotten(self, day: str) -> bool:
        """Whether the day's ticks failed."""
        return TICKS in self.failed.get(day, "")

    def save(self, index: Mapping[str, Stored], now_ms: int) -> None:
        """Mark the days that were checked. A day without ticks that an older gua stored gets its digest now."""
        if not (self._right or self.failed):
            return
        with RollupWriter(self._path) as writer:
            writer.mark(self._right, checked_ms=now_ms, failed_check=None)
            for day, failed in self.failed.items():
                writer.mark([day], failed_check=failed)
            for day in self._right & index.keys() - set(self._history.days):
                if index[day].rows_digest is None:
                    writer.mark([day], rows_digest=digest_stored(self._path, day) or None)

    def _fail(self, day: str, failed: str) -> None:
        self.failed[day] = failed
        text = describe(day, failed, self._path, self._history.paths.get(day))
        if self.is_rotten(day):
            self._history.skip(day, CorruptPartition(text))
        elif day in self._history.days:
            self._complain(f"{text}, or leave it: it is made anew from its ticks")
        else:
            self._complain(text)
