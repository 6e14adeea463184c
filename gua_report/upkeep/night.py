"""What one run of gua rollup knows: the ticks that are there, what is stored of them, and which of it is in order."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from gua_report.config import Config
from gua_report.exporting.rows import find_rules
from gua_report.rollups.closed_day import is_closed
from gua_report.rollups.index import Origin, find_current, origin_of, path_of, read_index
from gua_report.ticks.history import History
from gua_report.upkeep import neighbours
from gua_report.upkeep.read_back import ReadBack
from gua_report.upkeep.repair_rollups import read_or_repair
from gua_report.upkeep.retention import is_old
from gua_sample.errors import CorruptPartition, EmptyPartition


class Night:
    """The state of a run on a data folder. `complain` receives warnings for the administrator."""

    def __init__(self, data_dir: str, config: Config, now_ms: int, dry_run: bool, complain: Callable[[str], None]):
        self.data_dir, self.config, self.now_ms = data_dir, config, now_ms
        self.dry_run, self.complain = dry_run, complain
        self.path = path_of(data_dir)
        self.history = History(data_dir)
        # Stat the partitions before reading them, so that a tick written meanwhile makes the stored day outdated.
        self.origins: dict[str, Origin] = {}
        for day in self.history.days:
            with suppress(FileNotFoundError):
                self.origins[day] = origin_of(self.history.paths[day], config.policy)
        self.index = read_or_repair(data_dir, self.history.paths, dry_run, complain)
        self.checks = ReadBack(self.path, self.history, complain)
        self.left: dict[str, str] = {}  # partitions of expired days that a killed run did not get to remove
        self.ignored: set[str] = set()  # expired days with partitions that are not for us to remove
        self.rules = find_rules(data_dir, config)
        if self.rules.people.problem:
            complain(self.rules.people.problem)
        self.forget_expired()

    def forget_expired(self) -> None:
        """Ignore the partitions of expired days: the stored rollup is all there is of such a day."""
        expired = {day for day, stored in self.index.items() if stored.is_expired}
        for day in sorted(expired & self.origins.keys()):
            partition, stored = self.history.paths[day], self.index[day]
            if stored.origin[1:] != self.origins[day][1:]:
                self.ignored.add(day)
                self.complain(f"{partition} holds ticks that came when those of its day had been removed: move it away")
            elif is_old(day, self.config.retention.raw_days, self.now_ms) and not stored.failed_check:
                self.left[day] = partition
            else:
                self.ignored.add(day)  # nobody asks for its removal: retention was changed, or the mark has rotted
        self.history.forget(expired)

    def find_current(self) -> set[str]:
        """The days with a verified rollup that matches the present ticks of the day and of its neighbours."""
        partitions = {day: self.history.paths[day] for day in self.history.days}
        found = find_current(self.index, partitions, self.config.policy)
        safe = filter(self.is_safe, found)
        return {day for day in safe if not neighbours.can_be_mended(self.history, self.index, day)}

    def is_safe(self, day: str) -> bool:
        """Whether the stored day was verified, with digests that it still has. An older gua stores it without."""
        stored = self.index[day]
        has_digests = stored.rows_digest is not None and stored.ticks_digest is not None
        return stored.is_verified and has_digests and day not in self.checks.failed

    def is_closed(self, day: str) -> bool:
        try:
            return is_closed(self.history, day, self.now_ms)
        except Exception as error:  # a damaged file may raise any error: it costs that day alone
            self.fail(day, error)
            return True

    def fail(self, day: str, error: Exception) -> None:
        path, what = self.history.paths[day], f"{type(error).__name__}: {error}"
        self.history.skip(day, CorruptPartition(f"{path} can't be rolled up ({what})"))

    def refresh(self) -> None:
        if not self.dry_run:
            try:
                self.index = read_index(self.path)
            except EmptyPartition:
                self.index = {}
