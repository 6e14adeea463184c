"""The steps of gua rollup, in order. Each can be interrupted: the next run continues from there."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from gua_report.upkeep import neighbours
from gua_report.upkeep.compaction import compact_days
from gua_report.upkeep.daily_csv import csv_path, lacks_csv, remove_left_csvs, write_csv
from gua_report.upkeep.expiry import expire
from gua_report.upkeep.night import Night
from gua_report.upkeep.publishing import publish, remove_left_copy, unpublish
from gua_report.upkeep.read_back import choose_days
from gua_report.upkeep.retention import is_old
from gua_report.upkeep.storing import store_day, store_stale
from gua_sample.errors import StoreError
from gua_sample.partition_file import storage_error
from gua_sample.store import lock_within

LOCK_NAME = ".rollup.lock"
# The wait for the lock is bounded: its holder may be anybody whom the owner permits, and not be working at all.
LONGEST_WAIT_SECONDS = 3600.0


class Done(NamedTuple):
    rolled_up: list[str]
    unchanged: int
    open: list[str]  # not closed yet
    failed: list[str]
    csv: list[str]
    compacted: list[str]
    removed: list[str]  # paths of files, and rollups by day
    kept: list[str]  # days that are old enough to expire, but have no current rollup
    inexact: list[str]  # stored days that are off by a tick at midnight, as neighbouring ticks are gone or have changed
    failed_check: tuple[str, ...] = ()  # days whose ticks or rollup are not what was verified: bit rot
    published: str | None = None  # path of the copy for the fleet
    publish_failed: bool = False  # the older copy stays, if there is one


class Upkeep(Night):
    """A run of gua rollup on a data folder."""

    def run(self, rebuild: bool, compacting: bool, progress: Callable[[int, int], None] | None) -> Done:
        history = self.history
        if not self.dry_run:
            remove_left_csvs(self.data_dir)
            remove_left_copy(self.data_dir)
        self.read_back()
        removed, _ = expire(self, set())  # before the rest, to free disk space for new files
        current = self.find_current()
        right = [day for day in history.days if not self.checks.is_rotten(day)]
        closed = [day for day in right if self.is_closed(day)]
        rebuilt = [day for day in closed if rebuild and not any(neighbours.missing_edges(history, self.index, day))]
        due = [day for day in closed if day not in current or day in rebuilt]
        csv_due = [day for day in closed if lacks_csv(self, day)]
        days = sorted({*due, *csv_due})
        rolled_up, csv = [], []
        for number, day in enumerate(days, 1):
            if day in due and store_day(self, day):
                rolled_up.append(day)
            if day in csv_due and write_csv(self, day):
                csv.append(csv_path(self.data_dir, day))
            if progress:
                progress(number, len(days))
        rolled_up = sorted({*rolled_up, *store_stale(self, closed)})
        compacted = compact_days(self, closed) if compacting else []
        more, kept = expire(self, set(rolled_up))
        if not self.dry_run:
            self.checks.save(self.index, self.now_ms)
        self.refresh()
        for text in history.warnings:
            self.complain(text)
        published, unpublished, publish_failed = self.publish()
        return Done(
            rolled_up,
            len(current - {*due, *rolled_up}),
            [day for day in right if day in history.days and day not in closed and day not in current],
            [day for day in due if day in history.unreadable and not self.checks.is_rotten(day)],
            csv,
            compacted,
            list(dict.fromkeys(removed + more + unpublished)),
            kept,
            [day for day, stored in self.index.items() if not stored.is_exact],
            tuple(sorted(self.checks.failed)),
            published,
            publish_failed,
        )

    def publish(self) -> tuple[str | None, list[str], bool]:
        """Publish, or take back what was published: the path, what was removed, and whether that failed."""
        try:
            return (publish(self), [], False) if self.config.fleet.publish else (None, unpublish(self), False)
        except StoreError as error:
            self.complain(f"not published: {error}")
            return None, [], True

    def read_back(self) -> None:
        """Check some of the days, and those whose ticks may expire now, for bit rot."""
        expiring = {day for day in self.index if is_old(day, self.config.retention.raw_days, self.now_ms)}
        days = {*choose_days(self.index, self.now_ms), *expiring.intersection(self.history.days)}
        self.checks.check(self.index, sorted(days))


@contextmanager
def alone(data_dir: str) -> Iterator[None]:
    """Hold the lock of gua rollup on the folder; wait for another run. Any reader could lock a folder, so it is a file
    that only the owner can open."""
    path = os.path.join(data_dir, LOCK_NAME)
    try:
        lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise storage_error(error, data_dir) from error
    try:
        lock_within(LONGEST_WAIT_SECONDS, lock, f"{path} is held by another process: see 'fuser -v {path}'")
        yield
    finally:
        os.close(lock)
