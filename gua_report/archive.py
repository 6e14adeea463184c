"""Which closed days a report can take from rollups.sqlite, and which parts of its windows it must take from ticks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pandas as pd

from gua_report.rollup_file import Day, read_days, read_spans, read_states
from gua_report.rollup_index import find_current, origin_of, path_of, read_index
from gua_report.window import HOUR_MS, number_of
from gua_sample.errors import EmptyPartition, StoreError
from gua_sample.partition import DAY_MS, day_of
from gua_sample.policy import Policy

TICKS, ROLLUPS, PROPORTION = "ticks", "rollups", "proportion"


class Segment(NamedTuple):
    """A part of a window that is taken from one source. Rollups can only give whole hours; an hour that the window
    cuts is taken from ticks or, if these have expired, in proportion."""

    start_ms: int
    end_ms: int
    source: str


class Archive:
    """Days that were made from the very partition that is there now (or was there), under the same thresholds."""

    def __init__(self, data_dir: str, partitions: Mapping[str, str], policy: Policy) -> None:
        self.path = path_of(data_dir)
        self.warnings: list[str] = []
        self.days: set[str] = set()
        self.expired: set[str] = set()  # stored, and no longer there as ticks
        self.lost: dict[str, str] = {}  # expired, and why they can't be told from what is stored either
        self.late: list[str] = []  # expired, and since then ticks came that are not counted
        try:
            index = read_index(self.path)
        except EmptyPartition:
            return  # it is just being begun
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
            # The same as before if its removal was cut short, or goes on just now.
            with suppress(FileNotFoundError):
                if day in partitions and origin != origin_of(partitions[day], origin.policy):
                    self.late.append(day)
        there = {day: path for day, path in partitions.items() if day not in self.expired}
        current = find_current(index, there, policy)
        # The ticks at the edges of a day are weighed by those beyond: beside a day that has changed or come back
        # it does not count until `gua rollup` has made both anew. The newest day grows, but its first ticks stay.
        days = sorted(there)
        changed = {day for day in days[:-1] if day not in current}
        beside = {day for pair in pairwise(days) if changed & set(pair) for day in pair}
        self.days |= current - beside

    def close(self, error: StoreError) -> None:
        """Do without it from now on."""
        self.days.clear()
        self.lost = dict.fromkeys(self.expired, "in rollups that can't be read")
        self.warnings.append(f"rollups are not used: {error}")

    def read(self, first_ms: int, last_ms: int) -> Day | None:
        """What is stored of the days from one time to the other."""
        wanted = self._days(first_ms, last_ms)
        if not wanted:
            return None
        rollup, episodes, spans = read_days(self.path, wanted[0], wanted[-1])
        return Day(
            rollup._replace(
                cards=_own(rollup.cards, "hour_ms", wanted),
                identities=_own(rollup.identities, "hour_ms", wanted),
                holds=_own(rollup.holds, "start_ms", wanted),
            ),
            _own(episodes, "start_ms", wanted),
            _own(spans, "start_ms", wanted),
        )

    def read_spans(self, first_ms: int, last_ms: int) -> pd.DataFrame | None:
        wanted = self._days(first_ms, last_ms)
        return _own(read_spans(self.path, wanted[0], wanted[-1]), "start_ms", wanted) if wanted else None

    def read_states(self, first_ms: int, last_ms: int) -> pd.DataFrame | None:
        wanted = self._days(first_ms, last_ms)
        return _own(read_states(self.path, wanted[0], wanted[-1]), "hour_ms", wanted) if wanted else None

    def _days(self, first_ms: int, last_ms: int) -> list[str]:
        first, last = day_of(first_ms), day_of(last_ms)
        return sorted(day for day in self.days if first <= day <= last)

    def segments(self, start_ms: int, end_ms: int, cuts_ms: Iterable[int]) -> list[Segment]:
        """The time between, in order. `cuts_ms` are where windows start and end."""
        cut_hours = {cut // HOUR_MS for cut in cuts_ms if cut % HOUR_MS}
        found: list[Segment] = []
        hour = start_ms // HOUR_MS
        while hour * HOUR_MS < end_ms:
            day = day_of(hour * HOUR_MS)
            # Up to midnight at once, if nothing in between makes a difference.
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


def _own(frame: pd.DataFrame, column: str, days: list[str]) -> pd.DataFrame:
    numbers = np.array([number_of(day) for day in days])
    return frame[np.isin(frame[column].to_numpy(dtype=np.int64) // DAY_MS, numbers)]
