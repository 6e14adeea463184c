"""Gathering the sums of a report: closed days from rollups.sqlite, the rest computed from ticks by the same code."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise

import numpy as np
import pandas as pd

from gua_report.config import Config
from gua_report.rollups.hourly_sums import CARD_SUMS, Rollup, clip_holds, roll_up
from gua_report.rollups.reader import Day
from gua_report.summary.usable_days import PROPORTION, TICKS, Archive, Segment
from gua_report.summary.whole_episodes import Trail, map_people
from gua_report.ticks.coverage import SPAN_COLUMNS, find_spans, observed_ms
from gua_report.ticks.history import History
from gua_report.window import HOUR_MS, Window, midnight_ms
from gua_sample.partition_names import day_of

# Days that are read at a time, to bound the memory; more if they have few ticks, since each part needs some ticks
# before and after it, which may span as many days.
DAYS_AT_A_TIME = 8
TICKS_AT_A_TIME = 2000
Progress = Callable[[int, int], None]
Grid = tuple[int, int]


class Sums:
    """The sums of `windows`, which are consecutive, oldest first; episodes are those of the last one."""

    def __init__(self, history: History, archive: Archive, config: Config, windows: list[Window], grid: Grid) -> None:
        self.history, self.archive, self.config, self.windows, self.grid = history, archive, config, windows, grid
        self.rollups: dict[Window, list[Rollup]] = {window: [] for window in windows}
        self.start_ms, self.end_ms = windows[0].start_ms, windows[-1].end_ms
        self.earlier_cards = pd.DataFrame()
        self.notes: list[str] = []  # figures that are not exact, since ticks have expired
        self.cut_hours: list[int] = []  # where the window cuts an hour of which only the sum is left
        self._spans = pd.DataFrame(columns=SPAN_COLUMNS)
        self.stored = self._read_stored()
        cuts = [window.start_ms for window in windows] + [self.end_ms]
        self.segments = archive.segments(self.start_ms, self.end_ms, cuts)
        self._trail = Trail(history, archive, config, windows[-1])
        self._trail.parts += [self.stored.episodes] if self.stored else []
        self.episodes = pd.DataFrame()

    def spans(self) -> pd.DataFrame:
        """The spans of all days that the windows touch, and of the nearest days around them."""
        days = sorted(self.archive.days | set(self.history.days))
        first, last = day_of(self.start_ms), day_of(self.end_ms)
        inside = [day for day in days if first <= day <= last]
        before, after = [day for day in days if day < first][-2:], [day for day in days if day > last][:1]
        wanted = [*before, *inside, *after]
        stored = [day for day in wanted if day in self.archive.days]
        parts = []
        if stored:
            found = self.archive.read_spans(midnight_ms(stored[0]), midnight_ms(stored[-1]))
            assert found is not None
            parts.append(found)
        for run in _runs(wanted, self.archive.days):
            timeline = self.history.timeline([day for day in run if len(self.history.ticks_of(day))])
            if len(timeline):
                parts.append(find_spans(timeline, timeline["day"].isin(run).to_numpy()))
        spans = pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=SPAN_COLUMNS)
        self._spans = spans.sort_values("start_ms", kind="stable", ignore_index=True)
        return self._spans

    def add(self, progress: Progress | None) -> None:
        parts = {segment: list(self._parts(segment)) for segment in self.segments if segment.source == TICKS}
        done, total = 0, sum(len(found) for found in parts.values())
        for segment in self.segments:
            if segment.source != TICKS:
                self._add_stored(segment)
            for timeline, first, last in parts.get(segment, []):
                self._add_ticks(segment, timeline, first, last)
                done += 1
                if progress:
                    progress(done, total)
        self.episodes = self._trail.follow()

    # -- from rollups

    def _read_stored(self) -> Day | None:
        window = self.windows[-1]
        if self.grid != (0, HOUR_MS):
            self.archive.days &= self.archive.expired
        found = self.archive.read(window.start_ms, window.end_ms - 1)
        if self.grid != (0, HOUR_MS) and found is not None:
            self.notes.append("ticks have expired: by hour of day, older days are as UTC's full hours cut them")
        if found is not None:
            found = self._map_people(found)
        if len(self.windows) > 1:
            earlier = self.archive.read_states(self.start_ms, window.start_ms)
            if earlier is not None:
                self.earlier_cards = earlier
        return found

    def _map_people(self, found: Day) -> Day | None:
        """The stored days with identities mapped to the people that the configuration names.

        Where two identities of one person are on a card in the same hour, only ticks can tell how much of their time
        overlaps: such days are then not taken from rollups, unless they have expired.
        """
        people, raw = self.config.people, found.rollup.identities
        mapped = map_people(raw, people)
        if people and len(raw):
            named = mapped.assign(raw=raw["identity"])[["hour_ms", "gpu_uuid", "identity", "raw"]].drop_duplicates()
            shared = named[named.duplicated(["hour_ms", "gpu_uuid", "identity"])]
            clashes = {day_of(int(ms)) for ms in shared["hour_ms"].unique()}
            if clashes - self.archive.expired:
                self.archive.days -= clashes - self.archive.expired
                again = self.archive.read(self.windows[-1].start_ms, self.windows[-1].end_ms - 1)
                return None if again is None else self._map_people(again)
            if clashes:
                self.notes.append("ticks have expired: where one person had two identities at a time, both count")
        rollup = found.rollup._replace(identities=mapped)
        return found._replace(rollup=rollup, episodes=map_people(found.episodes, people))

    def _add_stored(self, segment: Segment) -> None:
        for window in self.windows:
            start, end = max(segment.start_ms, window.start_ms), min(segment.end_ms, window.end_ms)
            if start >= end:
                continue
            if window is self.windows[-1]:
                if self.stored is None:
                    continue
                rollup = self.stored.rollup
            else:
                rollup = Rollup(self.earlier_cards, pd.DataFrame(), pd.DataFrame(), pd.DataFrame())
            share = self._share(start, end) if segment.source == PROPORTION else 1.0
            if share < 1 and window is self.windows[-1]:
                self.cut_hours.append(start)
            self.rollups[window].append(
                rollup._replace(
                    cards=_hours(rollup.cards, start, end, share),
                    identities=_hours(rollup.identities, start, end, share),
                    holds=clip_holds(rollup.holds, start, end),
                )
            )

    def _share(self, start_ms: int, end_ms: int) -> float:
        """The share of the hour's observed time that lies in this part of it."""
        hour_ms = start_ms // HOUR_MS * HOUR_MS
        whole = observed_ms(self._spans, hour_ms, hour_ms + HOUR_MS)
        return observed_ms(self._spans, start_ms, end_ms) / whole if whole else 0.0

    # -- from ticks

    def _parts(self, segment: Segment) -> Iterable[tuple[pd.DataFrame, int, int]]:
        """Parts of some whole days: the timeline, and the positions of the ticks that reach into the segment."""
        timeline = self.history.timeline(self.history.days_of(segment.start_ms, segment.end_ms))
        reaches = (timeline["ts_ms"] + timeline["weight_ms"]).to_numpy() > segment.start_ms
        positions = np.flatnonzero(reaches & (timeline["ts_ms"].to_numpy() < segment.end_ms))
        if not len(positions):
            return
        first, last = int(positions[0]), int(positions[-1]) + 1
        days = timeline["day"].to_numpy()[first:last]
        midnights = [*(first + np.flatnonzero(days[1:] != days[:-1]) + 1).tolist(), last]
        for begin, end in pairwise([first, *_some_at_a_time(first, midnights)]):
            yield timeline, begin, end

    def _add_ticks(self, segment: Segment, timeline: pd.DataFrame, first: int, last: int) -> None:
        stretch = self.history.read(timeline, first, last)
        if stretch is None:
            return
        classified = self._trail.classify(stretch)
        self._trail.add(classified, stretch)
        for window in self.windows:
            start, end = max(segment.start_ms, window.start_ms), min(segment.end_ms, window.end_ms)
            if start < end:
                self.rollups[window].append(roll_up(classified, stretch.inside, start, end, self.grid))


def _hours(frame: pd.DataFrame, start_ms: int, end_ms: int, share: float) -> pd.DataFrame:
    if not len(frame):
        return frame
    hours = frame["hour_ms"].to_numpy(dtype=np.int64)
    cut = frame.loc[(hours >= start_ms // HOUR_MS * HOUR_MS) & (hours < end_ms)]
    if share == 1.0:
        return cut
    scaled: pd.DataFrame = cut.assign(**{name: cut[name] * share for name in CARD_SUMS if name in cut})
    return scaled


def _some_at_a_time(first: int, midnights: list[int]) -> Iterator[int]:
    """The positions at which parts end, each at the end of a day."""
    begin, count = first, 0
    for midnight in midnights:
        count += 1
        if (count >= DAYS_AT_A_TIME and midnight - begin >= TICKS_AT_A_TIME) or midnight == midnights[-1]:
            yield midnight
            begin, count = midnight, 0


def _runs(days: list[str], stored: set[str]) -> list[list[str]]:
    """Runs of consecutive days that are not stored."""
    runs: list[list[str]] = []
    for position, day in enumerate(days):
        if day in stored:
            continue
        if runs and position and days[position - 1] not in stored:
            runs[-1].append(day)
        else:
            runs.append([day])
    return runs
