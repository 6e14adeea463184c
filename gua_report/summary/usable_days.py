"""The choice between sources: which closed days a report takes from rollups.sqlite, and which parts from ticks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pandas as pd

from gua_report.console.spelling import span_of_days
from gua_report.rollups.hourly_sums import Rollup
from gua_report.rollups.index import find_current, origin_of, path_of, read_index
from gua_report.rollups.reader import Day, read_days, read_spans, read_states
from gua_report.window import HOUR_MS, number_of
from gua_sample.errors import EmptyPartition, StoreError
from gua_sample.partition_names import DAY_MS, day_of
from gua_sample.policy import Policy

TICKS, ROLLUPS, PROPORTION = "ticks", "rollups", "proportion"


class Segment(NamedTuple):
    """A part of a window that is taken from one source.

    Rollups only have whole hours; an hour that the window cuts is taken from ticks or, if these have expired, in
    proportion.
    """

    start_ms: int
    end_ms: int
    source: str


class Archive:
    """The usable stored days: made from the current (or last) partition, under the same thresholds."""

    def __init__(
        self,
        data_dir: str,
        partitions: Mapping[str, str],
        policy: Policy,
        first_ms: Callable[[str], int | None] = lambda _: None,
    ) -> None:
        """Read the index. `first_ms` gives the time of the first tick of a day with ticks."""
        self.path = path_of(data_dir)
        self.warnings: list[str] = []
        self.days: set[str] = set()
        self.expired: set[str] = set()  # stored, but without ticks
        self.lost: dict[str, str] = {}  # expired, and the reason why the rollup is not usable either
        self.damaged: set[str] = set()  # stored, but unreadable
        self.late: list[str] = []  # expired, with ticks that came later and are not counted
        self.inexact: set[str] = set()  # off by a tick at midnight, as the neighbours' ticks are gone or have changed
        try:
            index = read_index(self.path, damaged=self.warnings)
        except EmptyPartition:
            return  # the file is just being created
        except StoreError as error:
            self.warnings.append(f"rollups are not used: {error}")
            return
        self.expired = {day for day, stored in index.items() if stored.is_expired or day not in partitions}
        for day in sorted(self.expired):
            origin = index[day].origin
            if origin.policy == policy:
                self.days.add(day)
            else:
                self.lost[day] = "rolled up under other thresholds"
            # An unchanged partition has no late ticks: its removal was cut short, or is under way.
            with suppress(FileNotFoundError):
                if day in partitions and origin != origin_of(partitions[day], origin.policy):
                    self.late.append(day)
        there = {day: path for day, path in partitions.items() if day not in self.expired}
        current = find_current(index, there, policy)
        # The ticks at the edges of a day depend on those beyond. Beside a day that has changed or come back, a rollup
        # is not used until `gua rollup` has made both anew. The newest day grows, but its first ticks stay, unless one
        # comes late.
        days = sorted(there)
        changed = {day for day in days[:-1] if day not in current}
        if len(days) > 1 and days[-2] in current and days[-1] not in current:
            next_ms = first_ms(days[-1])
            if next_ms is not None and not index[days[-2]].fits(next_ms):
                changed.add(days[-1])
        beside = {day for pair in pairwise(days) if changed & set(pair) for day in pair}
        self.days |= {day for day in current - beside if not index[day].is_stale}
        self.inexact = {day for day in self.days if not index[day].is_exact}

    def close_days(self, error: StoreError) -> None:
        """Stop using the stored days that are unreadable."""
        damaged = self.damaged = {day for day in self.days if not self._is_readable(day)}
        if not damaged or damaged == self.days:
            self.close(error)
            return
        self.days -= damaged
        self.lost |= dict.fromkeys(self.expired & damaged, "in rollups that can't be read")
        self.warnings.append(f"rollups of {span_of_days(sorted(damaged))} are not used: {error}")

    def _is_readable(self, day: str) -> bool:
        try:
            read_days(self.path, day, day)
        except StoreError:
            return False
        return True

    def close(self, error: StoreError) -> None:
        """Stop using the rollups."""
        self.days.clear()
        self.lost = dict.fromkeys(self.expired, "in rollups that can't be read")
        self.warnings.append(f"rollups are not used: {error}")

    def read(self, first_ms: int, last_ms: int) -> Day | None:
        """The usable stored days from one time to the other; None if there are none."""
        wanted = self._days(first_ms, last_ms)
        parts = [read_days(self.path, *stretch) for stretch in self._stretches(wanted)]
        if not parts:
            return None
        rollups = [rollup for rollup, _, _ in parts]
        return Day(
            Rollup(
                cards=_own([rollup.cards for rollup in rollups], "hour_ms", wanted),
                identities=_own([rollup.identities for rollup in rollups], "hour_ms", wanted),
                holds=_own([rollup.holds for rollup in rollups], "start_ms", wanted),
                card_facts=_one([rollup.card_facts for rollup in rollups]),
            ),
            _own([episodes for _, episodes, _ in parts], "start_ms", wanted),
            _own([spans for _, _, spans in parts], "start_ms", wanted),
        )

    def read_spans(self, first_ms: int, last_ms: int) -> pd.DataFrame | None:
        wanted = self._days(first_ms, last_ms)
        parts = [read_spans(self.path, *stretch) for stretch in self._stretches(wanted)]
        return _own(parts, "start_ms", wanted) if parts else None

    def read_states(self, first_ms: int, last_ms: int) -> pd.DataFrame | None:
        wanted = self._days(first_ms, last_ms)
        parts = [read_states(self.path, *stretch) for stretch in self._stretches(wanted)]
        return _own(parts, "hour_ms", wanted) if parts else None

    def _stretches(self, days: list[str]) -> list[tuple[str, str]]:
        """First and last days of stretches that can be read at once, with no damaged day between them."""
        found: list[tuple[str, str]] = []
        for day in days:
            if found and not any(found[-1][1] < damaged < day for damaged in self.damaged):
                found[-1] = (found[-1][0], day)
            else:
                found.append((day, day))
        return found

    def _days(self, first_ms: int, last_ms: int) -> list[str]:
        first, last = day_of(first_ms), day_of(last_ms)
        return sorted(day for day in self.days if first <= day <= last)

    def segments(self, start_ms: int, end_ms: int, cuts_ms: Iterable[int]) -> list[Segment]:
        """The segments from `start_ms` to `end_ms`, in order. `cuts_ms` are the starts and ends of windows."""
        cut_hours = {cut // HOUR_MS for cut in cuts_ms if cut % HOUR_MS}
        found: list[Segment] = []
        hour = start_ms // HOUR_MS
        while hour * HOUR_MS < end_ms:
            day = day_of(hour * HOUR_MS)
            # Go up to midnight at once, unless a cut lies in between.
            until = (hour * HOUR_MS // DAY_MS + 1) * DAY_MS // HOUR_MS
            if day in self.days:
                if hour in cut_hours:
                    source, until = (PROPORTION if day in self.expired else TICKS), hour + 1
                else:
                    source, until = ROLLUPS, min([until, *(cut for cut in cut_hours if cut > hour)])
            else:
                source = TICKS
            start, end = max(start_ms, hour * HOUR_MS), min(end_ms, until * HOUR_MS)
            if found and found[-1].source == source != PROPORTION:
                found[-1] = found[-1]._replace(end_ms=end)
            else:
                found.append(Segment(start, end, source))
            hour = until
        return found


def _own(parts: list[pd.DataFrame], column: str, days: list[str]) -> pd.DataFrame:
    frame = _one(parts)
    numbers = np.array([number_of(day) for day in days])
    return frame[np.isin(frame[column].to_numpy(dtype=np.int64) // DAY_MS, numbers)]


def _one(parts: list[pd.DataFrame]) -> pd.DataFrame:
    return parts[0] if len(parts) == 1 else pd.concat(parts, ignore_index=True)
