"""The steps of gua rollup, in order. Each can be interrupted: the next run continues from there."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import pairwise
from typing import NamedTuple

import pandas as pd

from gua_report.config import Config
from gua_report.rollups.closed_day import Made, is_closed, roll_up_day
from gua_report.rollups.index import Edges, Origin, Stored, find_current, origin_of, path_of, read_index
from gua_report.rollups.reader import read_days
from gua_report.rollups.writer import RollupWriter
from gua_report.ticks.history import History
from gua_report.upkeep.compaction import compact
from gua_report.upkeep.daily_csv import csv_dir, csv_path, remove_left_csvs, write_daily_csv
from gua_report.upkeep.edge_files import remove_edges, write_edge
from gua_report.upkeep.repair import read_or_repair
from gua_report.upkeep.retention import find_expired, is_old, list_csvs, remove
from gua_report.upkeep.verification import verify
from gua_report.window import midnight_ms
from gua_sample.errors import CorruptPartition, EmptyPartition, NewerPartition, PartitionBusy, StoreError
from gua_sample.partition_file import storage_error
from gua_sample.partition_names import DAY_MS, day_of
from gua_sample.store import lock_within

LOCK_NAME = ".rollup.lock"
# The wait for the lock is bounded: its holder may be anybody whom the owner permits, and not be working at all.
LONGEST_WAIT_SECONDS = 3600.0
# A rebuilt day may change the edges of its neighbours, and these the edges of theirs.
PASSES = 3


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


class Upkeep:
    """A run of gua rollup on a data folder. `complain` receives warnings for the administrator."""

    def __init__(self, data_dir: str, config: Config, now_ms: int, dry_run: bool, complain: Callable[[str], None]):
        self.data_dir, self.config, self.now_ms = data_dir, config, now_ms
        self.dry_run, self.complain = dry_run, complain
        self.history = History(data_dir)
        # Stat the partitions before reading them, so that a tick written meanwhile makes the stored day outdated.
        self.origins = self.find_origins()
        self.index = read_or_repair(data_dir, set(self.history.days), dry_run, complain)
        expired = {day for day, stored in self.index.items() if stored.is_expired}
        # Partitions of expired days are ignored: the stored rollup is all there is of such a day.
        self.left = {day: self.history.paths[day] for day in expired & set(self.history.days)}
        self.history.forget(expired)
        self.today = day_of(now_ms)
        self.csv_problems: list[str] = []
        for partition in sorted(set(self.left.values()) - set(self.find_leftovers())):
            complain(f"{partition} holds ticks that came when those of its day had been removed: move it away")

    def find_origins(self) -> dict[str, Origin]:
        found = {}
        for day in self.history.days:
            with suppress(FileNotFoundError):
                found[day] = origin_of(self.history.paths[day], self.config.policy)
        return found

    def run(self, rebuild: bool, compacting: bool, progress: Callable[[int, int], None] | None) -> Done:
        history = self.history
        if not self.dry_run:
            remove_left_csvs(self.data_dir)
        removed, _ = self.expire(set())  # first, to free disk space for new files
        current = self.find_current()
        closed = [day for day in history.days if self.is_closed(day)]
        due = [day for day in closed if day not in current or (rebuild and not self.would_lack(day))]
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
        rolled_up = sorted({*rolled_up, *self.store_stale(closed)})
        compacted = self.compact_days(closed) if compacting else []
        more, kept = self.expire(set(rolled_up))
        for text in history.warnings + self.csv_problems:
            self.complain(text)
        return Done(
            rolled_up,
            len(current - {*due, *rolled_up}),
            [day for day in history.days if day not in closed and day not in current],
            [day for day in due if day in history.unreadable],
            csv,
            compacted,
            list(dict.fromkeys(removed + more)),
            kept,
            self.find_inexact(),
        )

    def find_current(self) -> set[str]:
        """The days with a verified rollup that matches the present ticks of the day and of its neighbours."""
        partitions = {day: self.history.paths[day] for day in self.history.days}
        found = find_current(self.index, partitions, self.config.policy)
        return {day for day in found if self.index[day].is_verified and not self.can_be_mended(day)}

    def can_be_mended(self, day: str) -> bool:
        stored = self.index[day]
        return stored.is_stale or (stored.lacks_edge and not self.would_lack(day))

    def would_lack(self, day: str) -> bool:
        """Whether a neighbour's ticks are missing, so that a rebuilt rollup would lack an edge."""
        return self.is_missing(day, -1) or self.is_missing(day, 1)

    def is_missing(self, day: str, step: int) -> bool:
        near = beside(day, step)
        self.history.ticks_of(near)  # marks the day as unreadable if it is
        return near in (self.history.unreadable if near in self.history.paths else self.index)

    def are_neighbours(self, day: str, other: str) -> bool:
        """Whether no known day between the two is unreadable or without a file at present."""
        known = {*self.index, *self.history.paths}
        hidden = self.history.unreadable | (known - set(self.history.paths))
        return not any(min(day, other) < between < max(day, other) for between in hidden)

    def episodes_before(self, day: str) -> pd.DataFrame | None:
        """The stored episodes of the previous day, if its ticks are missing; else None."""
        before = beside(day, -1)
        if before not in self.index or not self.is_missing(day, -1):
            return None
        return read_days(path_of(self.data_dir), before, before).episodes

    def store_stale(self, closed: list[str]) -> list[str]:
        """Rebuild the days that became stale when their neighbours were rebuilt; return those that were stored."""
        done: list[str] = []
        for _ in range(PASSES):
            self.refresh()
            stale = [day for day in closed if day in self.index and self.index[day].is_stale]
            if self.dry_run or not stale:
                break
            done += [day for day in stale if self.store_day(day)]
        return done

    def store_day(self, day: str) -> bool:
        """Roll up and store a day in its own transaction, so that a killed run keeps the days stored before."""
        made = self.make(day)
        if made is None or self.dry_run:
            return made is not None
        # Asked after the rollup was made, as reading the rows may show that a neighbour is unreadable.
        lacks = [self.is_missing(day, step) for step in (-1, 1)]
        origin, stored = self.origins[day], self.index.get(day)
        if any(lacks) and stored and stored.is_exact and stored.is_verified and stored.origin == origin:
            return False  # the stored rollup is exact, the new one is not
        edges = Edges(*(None if is_missing else key for key, is_missing in zip(made.edges, lacks, strict=True)))
        path = path_of(self.data_dir)
        is_compact = stored is not None and stored.is_compact and stored.origin[1:] == origin[1:]
        with RollupWriter(path) as writer:
            seen = [near for near in made.beside if self.are_neighbours(day, near.day)]
            writer.write(day, made.sums, Stored(origin, is_compact=is_compact), edges, seen)
            verify(path, day, made.sums)
            writer.mark_verified(day)
        return True

    def make(self, day: str) -> Made | None:
        """The rollup of a day; None on failure. A damaged file may raise any error, which must not stop other days."""
        before = self.episodes_before(day)
        try:
            return roll_up_day(self.history, day, self.config.policy, before)
        except Exception as error:  # of any kind: see above
            self.fail(day, error)
            return None

    def is_closed(self, day: str) -> bool:
        try:
            return is_closed(self.history, day, self.now_ms)
        except Exception as error:  # a damaged file may raise any error: it costs that day alone
            self.fail(day, error)
            return True

    def fail(self, day: str, error: Exception) -> None:
        path, what = self.history.paths[day], f"{type(error).__name__}: {error}"
        self.history.skip(day, CorruptPartition(f"{path} can't be rolled up ({what})"))

    def lacks_csv(self, day: str) -> bool:
        """Whether the day's CSV file is missing or older than the ticks, and has not expired."""
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
            if day not in self.history.unreadable:  # else the failed rollup was reported already
                self.csv_problems.append(f"no CSV file of {day}: {error}")
            return False

    def compact_days(self, closed: list[str]) -> list[str]:
        """Compact closed days whose rollup can record the new size, lest it be taken for new ticks; return them."""
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
        """Remove what has expired; return it, and the old days that were kept. `rolled_up`: days done by this run."""
        self.refresh()
        history = self.history
        current = self.find_current() | (rolled_up if self.dry_run else set())
        # Neighbours of a day that is not rolled up yet are kept: their ticks determine the weights at its edges.
        due = {day for day in history.days if day not in current and self.is_to_come(day)}
        awaited = {day for pair in pairwise(history.days) if due & set(pair) for day in pair}
        awaited |= {day for day in history.days if self.awaits(day)}
        csvs = list_csvs(csv_dir(self.data_dir))
        expired = find_expired(
            [day for day in history.days if day in current or len(history.ticks_of(day)) or day in history.unreadable],
            csvs,
            set(self.index) - set(self.left),
            current,
            self.config.retention,
            self.now_ms,
        )
        days = [day for day in expired.days if day not in awaited]
        wanted = self.find_wanted_edges(set(days))
        rollups = [day for day in expired.rollups if day not in wanted]
        leftovers = self.find_leftovers()
        partitions = [history.paths[day] for day in days]
        if not self.dry_run:
            remove(leftovers + expired.csvs)  # first: frees room on a full disk
            self.left = {day: path for day, path in self.left.items() if path not in leftovers}
            for day in set(days) & wanted:
                write_edge(self.data_dir, day, history.paths[day])
            if days or rollups:
                with RollupWriter(path_of(self.data_dir)) as writer:
                    writer.mark_expired(days)  # before the removal: never rebuild them from a remainder
                    writer.delete(rollups)
            remove(partitions)
            remove_edges(self.data_dir, wanted)
            history.forget(days)
        removed = [*leftovers, *partitions, *expired.csvs, *(f"rollup of {day}" for day in rollups)]
        return removed, expired.kept

    def is_to_come(self, day: str) -> bool:
        """Whether the day is over and has readable ticks, so that it can still be rolled up."""
        return day < self.today and len(self.history.ticks_of(day)) > 0 and day not in self.history.unreadable

    def awaits(self, day: str) -> bool:
        """Whether the day's rollup lacks the edge of a neighbour that can't be read now, but perhaps later."""
        stored, errors = self.index.get(day), self.history.errors
        if stored is None or not stored.lacks_edge:
            return False
        trouble = [errors[near] for near in (beside(day, -1), beside(day, 1)) if near in errors]
        return any(not isinstance(error, CorruptPartition | NewerPartition) for error in trouble)

    def find_wanted_edges(self, expiring: set[str]) -> set[str]:
        """The expired days whose edge files are needed, as a neighbouring day still has its ticks."""
        expired = {day for day, stored in self.index.items() if stored.is_expired} | expiring
        there = set(self.history.days) - expiring
        return {day for day in expired if {beside(day, -1), beside(day, 1)} & there}

    def find_leftovers(self) -> list[str]:
        """Partitions of expired days that a killed run did not get to remove."""
        found = []
        for day, partition in sorted(self.left.items()):
            with suppress(FileNotFoundError):
                origin = self.index[day].origin
                if origin == origin_of(partition, origin.policy):
                    found.append(partition)
        return found

    def find_inexact(self) -> list[str]:
        self.refresh()
        return [day for day, stored in self.index.items() if not stored.is_exact]

    def refresh(self) -> None:
        if not self.dry_run:
            try:
                self.index = read_index(path_of(self.data_dir))
            except EmptyPartition:
                self.index = {}


def beside(day: str, step: int) -> str:
    """The day before the given one (`step` -1), or the day after it (1)."""
    return day_of(midnight_ms(day) + step * DAY_MS)


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
