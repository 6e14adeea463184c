"""The plan of a report: which days it takes from rollups.sqlite, and which parts of its windows from ticks."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime, timedelta
from itertools import pairwise
from typing import NamedTuple

from gua_report.config import Config
from gua_report.console.spelling import span_of_days
from gua_report.rollups.index import ROWS, path_of, read_index
from gua_report.rollups.reader import read_days
from gua_report.rollups.usable import find_usable, has_changed
from gua_report.ticks.history import History
from gua_report.window import HOUR_MS, Window
from gua_sample.errors import EmptyPartition, StoreError
from gua_sample.partition_names import DAY_MS, day_of
from gua_sample.policy import RULE, Policy

FROM_TICKS, FROM_ROLLUPS, IN_PROPORTION = "ticks", "rollups", "proportion"
OTHER_THRESHOLDS = "rolled up under other thresholds"
UNREADABLE = "in rollups that can't be read"
OLDER_RULE = "rolled up by an older rule"
NEWER_RULE = "rolled up by a newer rule (upgrade gua here)"
Grid = tuple[int, int]  # the offset of hours from UTC's, and their length
FULL_HOURS: Grid = (0, HOUR_MS)


class WindowPart(NamedTuple):
    """A part of a window that is taken from one source.

    Rollups only have whole hours; an hour that the window cuts is taken from ticks or, if these have expired, in
    proportion.
    """

    start_ms: int
    end_ms: int
    source: str


class DayPlan(NamedTuple):
    """The stored days that come from rollups. Other days come from ticks, except lost ones, which are left out."""

    path: str  # of rollups.sqlite
    days: frozenset[str] = frozenset()
    expired: frozenset[str] = frozenset()  # stored, but without ticks
    lost: Mapping[str, str] = {}  # expired, and the reason why the rollup is not usable either
    damaged: frozenset[str] = frozenset()  # stored, but unreadable, or not as they were written
    failed: frozenset[str] = frozenset()  # used, but their ticks or rollups are not as they were verified: bit rot
    of_older_rule: frozenset[str] = frozenset()  # used, though another rule decided their states: ticks have expired
    of_newer_rule: frozenset[str] = frozenset()  # the same, of a newer gua
    inexact: frozenset[str] = frozenset()  # off by a tick at midnight: neighbours' ticks are gone or have changed
    late: tuple[str, ...] = ()  # expired, with ticks that came later and are not counted
    warnings: tuple[str, ...] = ()

    def without(self, days: Collection[str], why: str = UNREADABLE) -> DayPlan:
        """The plan without these stored days. Those of them that have expired are lost; `why` is the reason."""
        lost = {**self.lost, **dict.fromkeys(sorted(self.expired.intersection(days)), why)}
        return self._replace(days=self.days.difference(days), lost=lost)

    def for_grid(self, grid: Grid) -> DayPlan:
        """The plan for hours that begin elsewhere than UTC's: only expired days come from rollups."""
        return self if grid == FULL_HOURS else self._replace(days=self.days & self.expired)

    def without_damaged(self, error: StoreError) -> DayPlan:
        """The plan without the stored days that are unreadable; without any if that does not explain the error."""
        damaged = frozenset(day for day in self.days if not _is_readable(self.path, day))
        if not damaged or damaged == self.days:
            return self.without_rollups(error)
        warning = f"rollups of {span_of_days(sorted(damaged))} are not used: {error}"
        return self.without(damaged)._replace(damaged=self.damaged | damaged, warnings=(*self.warnings, warning))

    def without_rollups(self, error: StoreError) -> DayPlan:
        """The plan without any stored day."""
        warning = f"rollups are not used: {error}"
        return self.without(self.days | self.expired)._replace(warnings=(*self.warnings, warning))

    def without_other_rules(self) -> DayPlan:
        """The plan without the days whose states another rule decided."""
        plan = self.without(self.of_older_rule, OLDER_RULE).without(self.of_newer_rule, NEWER_RULE)
        return plan._replace(of_older_rule=frozenset(), of_newer_rule=frozenset())

    def find_days(self, start_ms: int, end_ms: int) -> list[str]:
        """The planned days that a time touches, in order."""
        first, last = day_of(start_ms), day_of(end_ms - 1)
        return sorted(day for day in self.days if first <= day <= last)


class Scope(NamedTuple):
    """What a report is made from, and by which rules."""

    history: History
    plan: DayPlan
    config: Config
    windows: list[Window]  # consecutive, oldest first; the report is of the last one, and compares it with the other
    grid: Grid

    @property
    def window(self) -> Window:
        return self.windows[-1]


def _is_readable(path: str, day: str) -> bool:
    try:
        read_days(path, day, day)
    except StoreError:
        return False
    return True


def make_plan(history: History, policy: Policy, path: str | None = None) -> DayPlan:
    """Make the plan from the index of rollups.sqlite, or of the file at `path`, and the partitions of the history."""
    path, partitions = path or path_of(history.data_dir), history.paths
    warnings: list[str] = []
    try:
        index = read_index(path, damaged=warnings)
    except EmptyPartition:
        return DayPlan(path)  # the file is just being created
    except StoreError as error:
        return DayPlan(path, warnings=tuple(warnings)).without_rollups(error)
    expired = frozenset(day for day, stored in index.items() if stored.is_expired or day not in partitions)
    there = {day: partition for day, partition in partitions.items() if day not in expired}
    days = expired.union(find_usable(index, there, policy, history.first_ms))
    # An unchanged partition has no late ticks: its removal was cut short, or is under way.
    late = [day for day in sorted(expired & partitions.keys()) if has_changed(index[day], partitions[day])]
    plan = DayPlan(path, days, expired, late=tuple(late), warnings=tuple(warnings))
    plan = plan.without([day for day in expired if index[day].origin.policy != policy], OTHER_THRESHOLDS)
    inexact = frozenset(day for day in plan.days if not index[day].is_exact)
    failed = frozenset(day for day, stored in index.items() if stored.failed_check)
    of_older_rule = frozenset(day for day in plan.days if (index[day].rule or 0) < RULE)
    of_newer_rule = frozenset(day for day in plan.days if (index[day].rule or 0) > RULE)
    # If nothing but the rollup of a day has rotted, its ticks are used instead.
    damaged = frozenset(day for day in failed - expired if index[day].failed_check == ROWS)
    plan = plan.without(damaged)._replace(of_older_rule=of_older_rule, of_newer_rule=of_newer_rule)
    return plan._replace(inexact=inexact - damaged, damaged=damaged, failed=failed - damaged)


def find_parts(plan: DayPlan, windows: list[Window]) -> list[WindowPart]:
    """The parts of consecutive windows by source, in order. One part may reach into two windows."""
    start_ms, end_ms = windows[0].start_ms, windows[-1].end_ms
    cuts = [end_ms, *(window.start_ms for window in windows)]
    cut_hours = {cut // HOUR_MS for cut in cuts if cut % HOUR_MS}
    edges = {start_ms, end_ms, *range(start_ms // DAY_MS * DAY_MS, end_ms, DAY_MS)}
    edges |= {(hour + end) * HOUR_MS for hour in cut_hours for end in (0, 1)}
    parts: list[WindowPart] = []
    for start, end in pairwise(sorted(edge for edge in edges if start_ms <= edge <= end_ms)):
        day, source = day_of(start), FROM_TICKS
        if day in plan.days and start // HOUR_MS not in cut_hours:
            source = FROM_ROLLUPS
        elif day in plan.days and day in plan.expired:
            source = IN_PROPORTION
        if parts and parts[-1].source == source != IN_PROPORTION:
            parts[-1] = parts[-1]._replace(end_ms=end)
        else:
            parts.append(WindowPart(start, end, source))
    return parts


def find_grid(window: Window) -> Grid:
    """The hours of the window's zone; quarters of an hour if its clocks were moved by a part of an hour meanwhile."""
    moments = (*range(window.start_ms, window.end_ms, DAY_MS), window.end_ms)
    offsets = (datetime.fromtimestamp(ms / 1000, window.zone).utcoffset() or timedelta() for ms in moments)
    begins = {-offset // timedelta(milliseconds=1) % HOUR_MS for offset in offsets}
    return (begins.pop(), HOUR_MS) if len(begins) == 1 else (0, HOUR_MS // 4)
