"""All that gua rollup does, in order. Each step can be cut short: the next run goes on from there."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import NamedTuple

import pandas as pd

from gua_report.config import Config
from gua_report.daily import is_closed, roll_up_day
from gua_report.daily_csv import csv_dir, csv_path, write_daily_csv
from gua_report.history import History
from gua_report.rolling.compaction import compact
from gua_report.rolling.repair import read_or_repair
from gua_report.rolling.retention import find_expired, is_old, list_csvs, remove
from gua_report.rolling.verification import verify
from gua_report.rollup_file import read_days
from gua_report.rollup_index import Stored, find_current, origin_of, path_of, read_index
from gua_report.rollup_writer import RollupWriter
from gua_sample.errors import CorruptPartition, EmptyPartition, NewerPartition, PartitionBusy, StoreError
from gua_sample.partition import day_of
from gua_sample.writer import storage_error

LOCK_NAME = ".rollup.lock"


class Done(NamedTuple):
    rolled_up: list[str]
    unchanged: int
    open: list[str]  # not closed yet
    failed: list[str]
    csv: list[str]
    compacted: list[str]
    removed: list[str]  # files, and days of rollups
    kept: list[str]  # days that would have expired, if their sums were there and right


class Upkeep:
    """`complain` takes what the administrator should know."""

    def __init__(self, data_dir: str, config: Config, now_ms: int, dry_run: bool, complain: Callable[[str], None]):
        self.data_dir, self.config, self.now_ms = data_dir, config, now_ms
        self.dry_run, self.complain = dry_run, complain
        self.history = History(data_dir)
        self.index = read_or_repair(data_dir, set(self.history.days), dry_run, complain)
        expired = {day for day, stored in self.index.items() if stored.is_expired}
        # Not seen as ticks any more, whatever lies there: what is stored is all of such a day.
        self.left = {day: self.history.paths[day] for day in expired & set(self.history.days)}
        self.history.forget(expired)
        self.today = day_of(now_ms)
        self.csv_problems: list[str] = []
        for partition in sorted(set(self.left.values()) - set(self.find_leftovers())):
            complain(f"{partition} holds ticks that came when those of its day had been removed: move it away")

    def run(self, rebuild: bool, compacting: bool, progress: Callable[[int, int], None] | None) -> Done:
        history = self.history
        removed, _ = self.expire(set())  # what is old makes room for what is new
        current = self.find_current()
        closed = [day for day in history.days if is_closed(history, day, self.now_ms)]
        due = [day for day in closed if day not in current or (rebuild and not self.follows_expired(day))]
        due = sorted({*due, *self.beside(due, current)})
        csv_due = [day for day in closed if self.lacks_csv(day)]
        step, steps = 0, len(due) + len(csv_due)
        rolled_up, csv = [], []
        for day in sorted({*due, *csv_due}):
            if day in due and self.store_day(day):
                rolled_up.append(day)
            if day in csv_due and self.write_csv(day):
                csv.append(csv_path(self.data_dir, day))
            step += (day in due) + (day in csv_due)
            if progress:
                progress(step, steps)
        compacted = self.compact_days(closed) if compacting else []
        more, kept = self.expire(set(rolled_up))
        for text in history.warnings + self.csv_problems:
            self.complain(text)
        return Done(
            rolled_up,
            len(current - set(due)),
            [day for day in history.days if day not in closed and day not in current],
            [day for day in due if day in history.unreadable],
            csv,
            compacted,
            list(dict.fromkeys(removed + more)),
            kept,
        )

    def find_current(self) -> set[str]:
        """The days that are stored as the ticks are now, and were found right."""
        found = find_current(self.index, self.history.paths, self.config.policy)
        return {day for day in found if self.index[day].is_verified}

    def beside(self, due: list[str], current: set[str]) -> list[str]:
        """Stored days whose neighbour has changed, or has come back: their edges are weighed by it."""
        newest = max(self.index, default="")
        changed = {day for day in due if day in self.index or day < newest}
        pairs = [pair for pair in pairwise(self.history.days) if changed & set(pair)]
        found = {day for pair in pairs for day in pair} & current
        return [day for day in found if not self.follows_expired(day)]

    def follows_expired(self, day: str) -> bool:
        """Whether the ticks before it are gone: what they told of its first ones can't be made anew."""
        before = self.day_before(day)
        return before is not None and before not in self.history.days

    def day_before(self, day: str) -> str | None:
        return max((other for other in {*self.index, *self.history.days} if other < day), default=None)

    def episodes_before(self, day: str) -> pd.DataFrame | None:
        """Those stored of the day before, if its ticks are gone."""
        before = self.day_before(day)
        if before is None or before in self.history.days:
            return None
        return read_days(path_of(self.data_dir), before, before).episodes

    def store_day(self, day: str) -> bool:
        """In a transaction of its own: who is killed has done what is done."""
        # Before it is read: what comes later is to be seen as such.
        origin = origin_of(self.history.paths[day], self.config.policy)
        made = roll_up_day(self.history, day, self.config.policy, self.episodes_before(day))
        if made is None or self.dry_run:
            return made is not None
        path = path_of(self.data_dir)
        is_compact = day in self.index and self.index[day].is_compact and self.index[day].origin[1:] == origin[1:]
        with RollupWriter(path) as writer:
            writer.write(day, made, Stored(origin, is_compact=is_compact))
            verify(path, day, made)
            writer.mark_verified(day)
        return True

    def lacks_csv(self, day: str) -> bool:
        """Whether there is none yet, or one that is older than the ticks."""
        if is_old(day, self.config.retention.csv_days, self.now_ms):
            return False
        path = csv_path(self.data_dir, day)
        return not os.path.exists(path) or os.stat(path).st_mtime_ns < os.stat(self.history.paths[day]).st_mtime_ns

    def write_csv(self, day: str) -> bool:
        if self.dry_run:
            return len(self.history.ticks_of(day)) > 0 and day not in self.history.unreadable
        try:
            return write_daily_csv(self.data_dir, day, self.config) is not None
        except (CorruptPartition, NewerPartition, PartitionBusy) as error:
            if day not in self.history.unreadable:  # else it was said, as its rollup can't be made either
                self.csv_problems.append(f"no CSV file of {day}: {error}")
            return False

    def compact_days(self, closed: list[str]) -> list[str]:
        """Only days that are rolled up: whose partition is changed by us is not to be taken for one that grew."""
        self.refresh()
        current = self.find_current()
        wanted = [day for day in closed if day in current and not self.index[day].is_compact]
        if self.dry_run:
            return wanted
        done = []
        for day in wanted:
            try:
                size = compact(self.history.paths[day])
            except StoreError as error:
                self.complain(f"not compacted: {error}")
                continue
            with RollupWriter(path_of(self.data_dir)) as writer:
                writer.mark_compact(day, size)
            done.append(day)
        return done

    def expire(self, rolled_up: set[str]) -> tuple[list[str], list[str]]:
        """What was removed, and the days that were kept although they are old enough. `rolled_up` are done just now."""
        self.refresh()
        history = self.history
        current = self.find_current() | (rolled_up if self.dry_run else set())
        # The ticks at the edges of a day are weighed by those beyond: these wait until it is rolled up.
        due = {day for day in history.days if day not in current and self.is_to_come(day)}
        awaited = {day for pair in pairwise(history.days) if due & set(pair) for day in pair}
        csvs = list_csvs(csv_dir(self.data_dir))
        expired = find_expired(
            [day for day in history.days if day in current or len(history.ticks_of(day)) or day in history.unreadable],
            csvs,
            set(self.index),
            current,
            self.config.retention,
            self.now_ms,
        )
        expired = expired._replace(days=[day for day in expired.days if day not in awaited])
        leftovers = self.find_leftovers()
        partitions = [history.paths[day] for day in expired.days]
        if not self.dry_run:
            remove(leftovers + expired.csvs)  # on a full disk, this makes room for what follows
            if expired.days or expired.rollups:
                with RollupWriter(path_of(self.data_dir)) as writer:
                    writer.mark_expired(expired.days)  # first: they are never to be made anew from what is left
                    writer.delete(expired.rollups)
            remove(partitions)
            history.forget(expired.days)
        removed = [*leftovers, *partitions, *expired.csvs, *(f"rollup of {day}" for day in expired.rollups)]
        return removed, expired.kept

    def is_to_come(self, day: str) -> bool:
        """Whether it can still be rolled up."""
        return day < self.today and len(self.history.ticks_of(day)) > 0 and day not in self.history.unreadable

    def find_leftovers(self) -> list[str]:
        """Partitions that a run meant to remove when it was killed."""
        found = []
        for day, partition in sorted(self.left.items()):
            origin = self.index[day].origin
            if os.path.exists(partition) and origin == origin_of(partition, origin.policy):
                found.append(partition)
        return found

    def refresh(self) -> None:
        if not self.dry_run:
            try:
                self.index = read_index(path_of(self.data_dir))
            except EmptyPartition:
                self.index = {}


@contextmanager
def alone(data_dir: str) -> Iterator[None]:
    """With no other such run on the folder: it is waited for. A file of the owner's: any reader can lock a folder."""
    path = os.path.join(data_dir, LOCK_NAME)
    try:
        lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise storage_error(error, data_dir) from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)
