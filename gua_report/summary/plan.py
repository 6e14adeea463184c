"""The plan of a report: which days it takes from rollups.sqlite, and which parts of its windows from ticks."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime, timedelta
from itertools import pairwise
from typing import NamedTuple

from gua_report.config import Config
from gua_report.console.spelling import span_of_days
from gua_report.rollups.index import find_current, find_expired, has_changed, path_of, read_index
from gua_report.rollups.reader import read_days
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
NO_ERRORS: Mapping[str, StoreError] = {}


class WindowPart(NamedTuple):
    """A part from one source. Of an hour that the window cuts, rollups have only the whole, and give a proportion."""

    start_ms: int
    end_ms: int
    source: str


class DayPlan(NamedTuple):
    """The stored days that come from rollups. Other days come from ticks, except lost ones, which are left out."""

    path: str  # of rollups.sqlite
    days: frozenset[str] = frozenset()
    expired: frozenset[str] = frozenset()  # stored, but without ticks
    lost: Mapping[str, str] = {}  # expired, and the reason why the rollup is not usable either
    damaged: frozenset[str] = frozenset()  # stored, but unreadable
    of_older_rule: frozenset[str] = frozenset()  # used, though another rule decided their states: ticks have expired
    of_newer_rule: frozenset[str] = frozenset()  # the same, of a newer gua
    late: tuple[str, ...] = ()  # expired, with ticks that came later and are not counted
    spare: frozenset[str] = frozenset()  # verified, but their partitions have changed: used if these are unreadable
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
        warning = f"rollups are not used: {error}"
        return self.without(self.days | self.expired)._replace(warnings=(*self.warnings, warning))

    def without_other_rules(self) -> DayPlan:
        plan = self.without(self.of_older_rule, OLDER_RULE).without(self.of_newer_rule, NEWER_RULE)
        return plan._replace(of_older_rule=frozenset(), of_newer_rule=frozenset())

    def find_days(self, start_ms: int, end_ms: int) -> list[str]:
        first, last = day_of(start_ms), day_of(end_ms - 1)
        return sorted(day for day in self.days if first <= day <= last)


class Scope(NamedTuple):
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


def make_plan(
    history: History, policy: Policy, path: str | None = None, unreadable: Mapping[str, StoreError] = NO_ERRORS
) -> DayPlan:
    """Make the plan. Days that are `unreadable`, and why, come from rollups, as if their ticks had expired."""
    path, partitions = path or path_of(history.data_dir), history.paths
    warnings: list[str] = []
    try:
        index = read_index(path, damaged=warnings)
    except EmptyPartition:
        return DayPlan(path)  # the file is just being created
    except StoreError as error:
        return DayPlan(path, warnings=tuple(warnings)).without_rollups(error)
    expired = frozenset(find_expired(index, partitions))
    saved = {day: error for day, error in unreadable.items() if day in index and index[day].is_verified}
    warnings += [f"{error}: what was stored of that day is used" for error in saved.values()]
    expired = expired.union(saved)
    there = {day: partition for day, partition in partitions.items() if day not in expired}
    days = expired.union(find_current(index, there, policy))
    # An unchanged partition has no late ticks: its removal was cut short, or is under way.
    left = sorted((expired & partitions.keys()) - saved.keys())
    late = [day for day in left if has_changed(index[day].origin, partitions[day])]
    spare = frozenset(day for day, stored in index.items() if stored.is_verified) - days
    plan = DayPlan(path, days, expired, late=tuple(late), spare=spare, warnings=tuple(warnings))
    plan = plan.without([day for day in expired if index[day].origin.policy != policy], OTHER_THRESHOLDS)
    of_older_rule = frozenset(day for day in plan.days if (index[day].rule or 0) < RULE)
    of_newer_rule = frozenset(day for day in plan.days if (index[day].rule or 0) > RULE)
    return plan._replace(of_older_rule=of_older_rule, of_newer_rule=of_newer_rule)


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
