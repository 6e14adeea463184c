"""What gua rollup does: roll up, verify, write CSV files, compact, expire, publish.

Each step can be interrupted, and is done again by the next run: a day is stored in one transaction, a file is there
whole or not at all, and ticks are marked as expired before they are removed.
"""

import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from typing import NamedTuple

from gua_report.config import Config
from gua_report.console.spelling import span_of_days
from gua_report.exporting.rows import find_rules
from gua_report.rollups.index import (
    Origin,
    Stored,
    digest_partition,
    has_changed,
    is_closed,
    origin_of,
    path_of,
    published_path,
    read_index,
)
from gua_report.rollups.reader import Day, read_days
from gua_report.rollups.writer import RollupWriter, digest_sums, fingerprint, roll_up_day
from gua_report.ticks.history import History
from gua_report.upkeep.damage import read_or_repair, spell_rot
from gua_report.upkeep.outputs import csv_path, list_csvs, publish, remove, remove_left, unpublish, write_daily_csv
from gua_report.window import HOUR_MS, number_of
from gua_sample.errors import CorruptPartition, EmptyPartition, StoreError
from gua_sample.partition_file import BUSY_SECONDS, storage_error
from gua_sample.partition_names import DAY_MS, samples_dir
from gua_sample.policy import RULE
from gua_sample.safe_file import connect
from gua_sample.store import heal, lock_within

LOCK_NAME = ".rollup.lock"
# The wait for the lock is bounded: its holder may not be working at all.
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
    failed_check: tuple[str, ...] = ()  # days whose ticks are not what was verified: bit rot
    published: str | None = None  # path of the copy for the fleet
    publish_failed: bool = False  # the older copy stays, if there is one
    csv_failed: tuple[str, ...] = ()  # days whose CSV file could not be written


class Upkeep:
    def __init__(self, data_dir: str, config: Config, now_ms: int, dry_run: bool, complain: Callable[[str], None]):
        self.data_dir, self.config, self.now_ms = data_dir, config, now_ms
        self.dry_run, self.complain, self.path = dry_run, complain, path_of(data_dir)
        self.started = time.monotonic()
        self.history = History(data_dir)
        if self.history.paths and not dry_run:
            heal(samples_dir(data_dir), complain)  # else compacting would change what was rolled up just before
        # Before the partitions are read, so that a tick written meanwhile makes the stored day outdated.
        self.origins: dict[str, Origin] = {}
        for day, path in self.history.paths.items():
            with suppress(FileNotFoundError):
                self.origins[day] = origin_of(path, config.policy)
        self.history.forget(list(self.history.paths.keys() - self.origins.keys()))  # just removed
        self.index = read_or_repair(data_dir, self.history.paths, dry_run, complain)
        self.rotten: dict[str, bool] = {}  # by day that was checked: whether its ticks are not what they were
        self.rotten_sums: set[str] = set()
        self.planned: set[str] = set()  # days that a dry run would have rolled up
        self.planned_csvs: set[str] = set()
        self.csv_failed: dict[str, StoreError] = {}
        self.rules = find_rules(data_dir, config)
        if self.rules.people.problem:
            complain(self.rules.people.problem)
        self.left = self._forget_expired()

    def run(self, rebuild: bool, compacting: bool, progress: Callable[[int, int], None] | None) -> Done:
        if not self.dry_run:
            remove_left(self.data_dir)
        removed, _ = self._expire()  # before the rest, to free disk space for new files
        current = {day for day in self.history.days if self._is_current(day)}
        closed = [day for day in self.history.days if is_closed(day, self.now_ms)]
        due = [day for day in closed if rebuild or day not in current]
        csv_due = [day for day in closed if self._lacks_csv(day)]
        rolled_up, csv, days = [], [], sorted({*due, *csv_due})
        for number, day in enumerate(days, 1):
            if day in due and self._store(day, rebuild):
                rolled_up.append(day)
            if day in csv_due and self._write_csv(day):
                csv.append(csv_path(self.data_dir, day))
            self.history.free(day)
            if progress:
                progress(number, len(days))
        self._refresh()
        compacted = [day for day in closed if self._compact(day)] if compacting else []
        more, kept = self._expire()
        for text in self.history.warnings:
            self.complain(text)
        for error in list(self.csv_failed.values())[:1]:
            self.complain(f"no CSV file of {span_of_days(list(self.csv_failed))}: {error}")
        published, unpublished, publish_failed = self._publish()
        rotten = sorted(day for day, is_rotten in self.rotten.items() if is_rotten)
        failed = sorted(day for day in self.history.unreadable - set(rotten) if is_closed(day, self.now_ms))
        still_open = [day for day in self.history.days if day not in closed]
        gone = list(dict.fromkeys(removed + more + unpublished))
        done = rolled_up, len(current - {*due, *rolled_up}), still_open, failed, csv, compacted, gone, kept
        return Done(*done, tuple(rotten), published, publish_failed, tuple(self.csv_failed))

    def _forget_expired(self) -> list[str]:
        """Ignore the partitions of expired days; return those that a killed run did not get to remove."""
        left, expired = [], [day for day, stored in self.index.items() if stored.is_expired and day in self.origins]
        for day in expired:
            partition = self.history.paths[day]
            if not self._is_unchanged(day):
                self.complain(f"{partition} holds ticks that came when those of its day had been removed: move it away")
            elif self._is_old(day, self.config.retention.raw_days):  # else retention was changed meanwhile
                left.append(partition)
                del self.origins[day]
        self.history.forget(expired)
        return left

    def _is_unchanged(self, day: str) -> bool:
        return day in self.index and self.index[day].origin[1:] == self.origins[day][1:]

    def _is_current(self, day: str) -> bool:
        stored = self.index.get(day)
        if day in self.planned:
            return True
        if stored is None or not stored.is_verified or not stored.ticks_digest or day in self.rotten_sums:
            return False
        return stored.is_current(self.origins[day])

    def _store(self, day: str, rebuild: bool) -> bool:
        """Make, store and read back a day. A damaged file may raise any error: it costs that day alone."""
        if self._ticks_are_rotten(day):
            return False
        try:
            made = roll_up_day(self.history, day, self.config.policy)
        except Exception as error:  # of any kind: see above
            return self._skip(day, error)
        if made is None or not (rebuild or self._is_whole(day, made)):
            return False
        if self.dry_run:
            self.planned.add(day)
            return True
        try:
            self._write(day, made)
        except StoreError:  # of rollups.sqlite: the next day would meet it too
            raise
        except Exception as error:  # of any kind, such as a sum that is too large to store
            return self._skip(day, error)
        return True

    def _skip(self, day: str, error: Exception) -> bool:
        path, what = self.history.paths[day], f"{type(error).__name__}: {error}"
        self.history.skip(day, CorruptPartition(f"{path} can't be rolled up ({what})"))
        return False

    def _write(self, day: str, made: Day) -> None:
        is_compact = self._is_unchanged(day) and self.index[day].is_compact
        with RollupWriter(self.path) as writer:
            writer.write(day, made, Stored(self.origins[day], is_compact=is_compact))
            if fingerprint(read_days(self.path, day, day)) != fingerprint(made):
                raise StoreError(f"the rollup of {day} does not read back as it was written: is the disk in order?")
            writer.mark([day], is_verified=1, sums_digest=digest_sums(made), ticks_digest=self._digest(day))
        self.rotten_sums.discard(day)

    def _is_whole(self, day: str, made: Day) -> bool:
        """Whether a day made anew has the time that is stored of it: its partition may have begun later."""
        stored = self.index.get(day)
        if not stored or (stored.rule, stored.origin.policy) != (RULE, self.config.policy):
            return True
        with suppress(CorruptPartition):
            there = read_days(self.path, day, day)
            hours, known = (float(one.rollup.cards["weight_ms"].sum()) / HOUR_MS for one in (made, there))
            few = there.rollup.cards["gpu_uuid"].nunique()  # an hour each: late ticks take some from those before
            if hours < known - few and digest_sums(there) == stored.sums_digest:
                what = f"{self.history.paths[day]} has {hours:.1f} of {known:.1f} card-hours in the rollup of {day}"
                self.history.skip(day, StoreError(f"{what}, which stays: restore the file, move it away, or --rebuild"))
                return False
        return True

    def _digest(self, day: str) -> str | None:
        return digest_partition(self.history.paths[day], self.origins[day])

    def _ticks_are_rotten(self, day: str) -> bool:
        """Whether the partition's bytes differ, though nobody has written to it."""
        if not self._is_unchanged(day) or not self.index[day].ticks_digest:
            return False
        if day not in self.rotten:
            self.rotten[day] = self._digest(day) not in (None, self.index[day].ticks_digest)
            if self.rotten[day]:
                self.history.skip(day, CorruptPartition(spell_rot(self.history.paths[day])))
        return self.rotten[day]

    def _may_expire(self, day: str) -> bool:
        if not self._is_current(day) or self._lacks_csv(day) or self._ticks_are_rotten(day):
            return False
        if day in self.planned:
            return True
        with suppress(CorruptPartition):
            if digest_sums(read_days(self.path, day, day)) == self.index[day].sums_digest:
                return True
        self.rotten_sums.add(day)
        self.complain(f"the rollup of {day} in {self.path} changed on disk (bit rot): it is made anew from its ticks")
        return False

    def _lacks_csv(self, day: str) -> bool:
        if day in self.planned_csvs or self._is_old(day, self.config.retention.csv_days):
            return False
        path = csv_path(self.data_dir, day)
        return not os.path.exists(path) or os.stat(path).st_mtime_ns < self.origins[day].partition_changed_ns

    def _write_csv(self, day: str) -> bool:
        if day in self.history.unreadable or self._ticks_are_rotten(day) or not len(self.history.ticks_of(day)):
            return False
        if self.dry_run:
            self.planned_csvs.add(day)
            return True
        try:
            return write_daily_csv(self.data_dir, day, self.config, self.rules) is not None
        except StoreError as error:  # other days must not wait for this one's file
            self.csv_failed[day] = error
            return False

    def _compact(self, day: str) -> bool:
        path = self.history.paths[day]
        is_compact = self._is_unchanged(day) and self.index[day].is_compact
        if not self._is_current(day) or is_compact or self._ticks_are_rotten(day):
            return False
        if self.dry_run:
            return True
        with RollupWriter(self.path) as writer:
            writer.mark([day], ticks_digest=None)  # a killed run must not leave the old one with new bytes
            try:
                writer.mark([day], partition_bytes=compact(path), is_compact=1)
            except StoreError as error:
                self.complain(f"not compacted: {error}")
                return False
            finally:
                self.origins[day] = origin_of(path, self.config.policy)
                writer.mark([day], ticks_digest=self._digest(day))
        return True

    def _is_old(self, day: str, days: int | None) -> bool:
        return days is not None and number_of(day) < self.now_ms // DAY_MS - days

    def _expire(self) -> tuple[list[str], list[str]]:
        """Remove what has expired; return it, and the old days that are kept."""
        self._refresh()
        keep, history = self.config.retention, self.history
        old = [day for day in history.days if self._is_old(day, keep.raw_days)]
        days = [day for day in old if self._may_expire(day)]
        days = [day for day in days if not has_changed(self.origins[day], history.paths[day])]  # late ticks
        csvs = [path for day, path in sorted(list_csvs(self.data_dir).items()) if self._is_old(day, keep.csv_days)]
        rollups = [day for day in self.index if day not in self.origins and self._is_old(day, keep.rollup_days)]
        partitions = [history.paths[day] for day in days]
        left, self.left = self.left, []
        if not self.dry_run:
            remove([*left, *csvs])  # first: frees room on a full disk
            if days or rollups:
                with RollupWriter(self.path) as writer:
                    writer.mark(days, is_expired=1)  # before the removal: never rebuild them from a remainder
                    writer.delete(rollups)
            remove(partitions)
            history.forget(days)
            for day in days:
                del self.origins[day]
        kept = [day for day in old if day not in days and not self.rotten.get(day)]
        kept = [day for day in kept if day in history.unreadable or len(history.ticks_of(day))]
        return [*left, *partitions, *csvs, *(f"rollup of {day}" for day in rollups)], kept

    def _publish(self) -> tuple[str | None, list[str], bool]:
        try:
            if not self.config.fleet.publish:
                return None, unpublish(self.data_dir, self.dry_run), False
            if not self.dry_run:
                minutes = int(time.monotonic() - self.started) // 60  # a fleet compares times no closer
                publish(self.path, self.data_dir, self.now_ms + minutes * 60_000)
            return published_path(self.data_dir), [], False
        except StoreError as error:
            self.complain(f"not published: {error}")
            return None, [], True

    def _refresh(self) -> None:
        if not self.dry_run:
            try:
                self.index = read_index(self.path)
            except EmptyPartition:
                self.index = {}


def compact(partition: str) -> int:
    """Compact a partition in place, and keep its time of change, as its content is the same. Returns its new size.

    The lock is held until that time is set, so that nobody can append meanwhile. Raises StoreError.
    """
    try:
        with closing(connect(partition, "rw", BUSY_SECONDS)) as connection:
            connection.execute("PRAGMA locking_mode = EXCLUSIVE")
            connection.execute("BEGIN EXCLUSIVE").execute("COMMIT")  # keeps the lock: no tick comes after this time
            before = os.stat(partition)
            connection.execute("VACUUM")
            os.utime(partition, ns=(before.st_atime_ns, before.st_mtime_ns))
            return os.stat(partition).st_size
    except (sqlite3.Error, OSError) as error:
        raise storage_error(error, partition) from error


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
