"""Everything that a report adds up: closed days from rollups.sqlite, the rest from ticks through the same mapping."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import pairwise

import numpy as np
import pandas as pd

from gua_report.archive import PROPORTION, TICKS, Archive, Segment
from gua_report.classify import Classified, classify
from gua_report.config import Config
from gua_report.coverage import SPAN_COLUMNS, find_spans, observed_ms
from gua_report.episodes import episode_keys, find_episodes, join_episodes, join_to
from gua_report.history import History, Stretch
from gua_report.identities import apply_mapping
from gua_report.rollup import CARD_SUMS, Rollup, clip_holds, roll_up
from gua_report.rollup_file import Day
from gua_report.window import HOUR_MS, Window, midnight_ms
from gua_sample.partition import DAY_MS, day_of

# So many days are read at a time, to bound the memory.
DAYS_AT_A_TIME = 8
Progress = Callable[[int, int], None]
Grid = tuple[int, int]


class Sums:
    """`windows` are consecutive, oldest first; episodes are those of the last one."""

    def __init__(self, history: History, archive: Archive, config: Config, windows: list[Window], grid: Grid) -> None:
        self.history, self.archive, self.config, self.windows, self.grid = history, archive, config, windows, grid
        self.rollups: dict[Window, list[Rollup]] = {window: [] for window in windows}
        self.start_ms, self.end_ms = windows[0].start_ms, windows[-1].end_ms
        self.earlier_cards = pd.DataFrame()
        self.notes: list[str] = []  # what is not exact, since ticks have expired
        self.cut_hours: list[int] = []  # where the window cuts an hour of which there is but the sum
        self._spans = pd.DataFrame(columns=SPAN_COLUMNS)
        self.stored = self._read_stored()
        cuts = [window.start_ms for window in windows] + [self.end_ms]
        self.segments = archive.segments(self.start_ms, self.end_ms, cuts)
        self.episodes = [self.stored.episodes] if self.stored else []
        # The ticks whose episodes are known: from the first to the last there is no hole.
        self._known: list[int] = []
        self._joined: tuple[int, pd.DataFrame] | None = None  # and of how many parts

    def spans(self) -> pd.DataFrame:
        """Of all days that the windows touch, and of the nearest ones around them."""
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
        self._add_tail()
        self._extend(back=True)
        self._extend(back=False)

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
        """Identities as the people that the configuration names. Where two of them are on a card in the same hour, only
        the ticks can tell how much of their time is the same."""
        people, raw = self.config.people, found.rollup.identities
        mapped = _mapped(raw, people)
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
        return found._replace(rollup=rollup, episodes=_mapped(found.episodes, people))

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
        """Of what was observed in the hour, how much was so in that part of it."""
        hour_ms = start_ms // HOUR_MS * HOUR_MS
        whole = observed_ms(self._spans, hour_ms, hour_ms + HOUR_MS)
        return observed_ms(self._spans, start_ms, end_ms) / whole if whole else 0.0

    # -- from ticks

    def _parts(self, segment: Segment) -> Iterable[tuple[pd.DataFrame, int, int]]:
        """Some whole days at a time: the timeline, and the positions of the ticks that reach into the segment."""
        timeline = self.history.timeline(self.history.days_of(segment.start_ms, segment.end_ms))
        reaches = (timeline["ts_ms"] + timeline["weight_ms"]).to_numpy() > segment.start_ms
        positions = np.flatnonzero(reaches & (timeline["ts_ms"].to_numpy() < segment.end_ms))
        if not len(positions):
            return
        first, last = int(positions[0]), int(positions[-1]) + 1
        days = pd.factorize(timeline["day"].to_numpy()[first:last])[0] // DAYS_AT_A_TIME
        cuts = [first, *(first + np.flatnonzero(np.diff(days)) + 1).tolist(), last]
        for begin, end in pairwise(cuts):
            yield timeline, begin, end

    def _add_ticks(self, segment: Segment, timeline: pd.DataFrame, first: int, last: int) -> None:
        stretch = self.history.read(timeline, first, last)
        if stretch is None:
            return
        classified = self._classify(stretch)
        self._add_episodes(classified, stretch)
        for window in self.windows:
            start, end = max(segment.start_ms, window.start_ms), min(segment.end_ms, window.end_ms)
            if start < end:
                self.rollups[window].append(roll_up(classified, stretch.inside, start, end, self.grid))

    def _add_episodes(self, classified: Classified, stretch: Stretch) -> None:
        """Those of ticks that reach into the window, unless their day is stored, which has all of its episodes."""
        inside = np.arange(*stretch.inside)
        ticks = stretch.ticks.iloc[inside]
        ends = (ticks["ts_ms"] + ticks["weight_ms"]).to_numpy()
        own = inside[~ticks["day"].isin(self.archive.days).to_numpy() & (ends > self.windows[-1].start_ms)]
        if len(own):
            self.episodes.append(self._find_episodes(classified, (int(own[0]), int(own[-1]) + 1)))
            self._known += stretch.ticks["ts_ms"].iloc[[own[0], own[-1]]].tolist()

    def _find_episodes(self, classified: Classified, inside: tuple[int, int]) -> pd.DataFrame:
        """Where the ticks before are gone, what is stored tells whether an episode goes on from there."""
        found = find_episodes(classified, inside)
        for day in classified.ticks["day"].iloc[slice(*inside)].unique().tolist():
            before = max((one for one in {*self.archive.expired, *self.history.days} if one < day), default=None)
            if before in self.archive.expired and before in self.archive.days:
                stored = self.archive.read(midnight_ms(before), midnight_ms(before))
                if stored is not None and len(found):
                    found = join_to(stored.episodes, found, self.history.first_ticks_ms(day))
        return found

    def _classify(self, stretch: Stretch) -> Classified:
        return classify(stretch.rows, stretch.ticks, self.config.policy, self.config.people)

    def joined_episodes(self) -> pd.DataFrame:
        """All of them. A year has so many that they are put together again only if some were added."""
        if self._joined is None or self._joined[0] != len(self.episodes):
            self._joined = (len(self.episodes), join_episodes(self.episodes))
        return self._joined[1]

    def _extend(self, back: bool) -> None:
        """Episodes are not clipped to the window: follow those in it as far as they go, on their cards alone."""
        window = self.windows[-1]
        found = self.joined_episodes()
        if not len(found):
            return
        inside = found[(found["end_ms"] > window.start_ms) & (found["start_ms"] < window.end_ms)]
        direction = "joins_before" if back else "joins_after"
        going_on = episode_keys(inside[inside[direction].astype(bool)])
        edge_ms = self._edge(back)
        while going_on:
            day = self._day_beyond(edge_ms, back)
            if day is None:
                return
            if day in self.archive.days:
                stored = self.archive.read(midnight_ms(day), midnight_ms(day))
                assert stored is not None
                more = _mapped(stored.episodes, self.config.people)
                edge_ms = midnight_ms(day) if back else midnight_ms(day) + DAY_MS - 1
            else:
                timeline = self.history.timeline([day])
                times, own = timeline["ts_ms"].to_numpy(), np.flatnonzero((timeline["day"] == day).to_numpy())
                beyond = own[times[own] < edge_ms] if back else own[times[own] > edge_ms]
                uuids = sorted({uuid for uuid, _, _ in going_on})
                stretch = self.history.read(timeline, int(beyond[0]), int(beyond[-1]) + 1, uuids)
                if stretch is None:
                    return
                edge_ms = int(times[beyond[0 if back else -1]])
                classified = self._classify(stretch)
                if not (classified.states[slice(*stretch.inside)] >= 0).any():
                    continue  # driver errors alone end nothing
                more = self._find_episodes(classified, stretch.inside)
            self.episodes.append(more)
            going_on &= episode_keys(more[more["joins_before"].astype(bool) & more["joins_after"].astype(bool)])

    def _edge(self, back: bool) -> int:
        """The time of the first tick whose episodes are known, or of the last."""
        window = self.windows[-1]
        first, last = day_of(window.start_ms), day_of(window.end_ms - 1)
        days = [day for day in self.archive.days if first <= day <= last]
        known = self._known + [midnight_ms(day) + (0 if back else DAY_MS - 1) for day in days]
        return (min if back else max)(known, default=window.start_ms)

    def _add_tail(self) -> None:
        """The last tick of the day before may reach into the window, and an episode end with it."""
        window = self.windows[-1]
        edge_ms = self._edge(back=True)
        day = self._day_beyond(edge_ms, back=True)
        if day is None or edge_ms <= window.start_ms - DAY_MS:
            return
        if day in self.archive.days:
            stored = self.archive.read(midnight_ms(day), midnight_ms(day))
            if stored is not None and (stored.spans["end_ms"] > window.start_ms).any():
                self.episodes.append(_mapped(stored.episodes, self.config.people))
                self._known.append(midnight_ms(day))
            return
        timeline = self.history.timeline([day])
        times = timeline["ts_ms"].to_numpy()
        ends = times + timeline["weight_ms"].to_numpy()
        (reaching,) = np.nonzero((timeline["day"] == day).to_numpy() & (times < edge_ms) & (ends > window.start_ms))
        if len(reaching):
            stretch = self.history.read(timeline, int(reaching[0]), int(reaching[-1]) + 1)
            if stretch is not None:
                self._add_episodes(self._classify(stretch), stretch)

    def _day_beyond(self, edge_ms: int, back: bool) -> str | None:
        """The nearest day that has a tick before that time, or after it."""
        from_ticks = self.history.day_next_to(edge_ms, back)
        today = day_of(edge_ms)
        stored = [day for day in self.archive.days if (day < today if back else day > today)]
        candidates = [day for day in (from_ticks, (max if back else min)(stored, default=None)) if day is not None]
        return (max if back else min)(candidates, default=None)


def _hours(frame: pd.DataFrame, start_ms: int, end_ms: int, share: float) -> pd.DataFrame:
    if not len(frame):
        return frame
    hours = frame["hour_ms"].to_numpy(dtype=np.int64)
    cut = frame.loc[(hours >= start_ms // HOUR_MS * HOUR_MS) & (hours < end_ms)]
    if share == 1.0:
        return cut
    scaled: pd.DataFrame = cut.assign(**{name: cut[name] * share for name in CARD_SUMS if name in cut})
    return scaled


def _mapped(frame: pd.DataFrame, people: dict[str, str]) -> pd.DataFrame:
    if not people or not len(frame):
        return frame
    return frame.assign(identity=[apply_mapping(identity, people) for identity in frame["identity"].tolist()])


def _runs(days: list[str], stored: set[str]) -> list[list[str]]:
    """Days that are not stored, those that follow one another together."""
    runs: list[list[str]] = []
    for position, day in enumerate(days):
        if day in stored:
            continue
        if runs and position and days[position - 1] not in stored:
            runs[-1].append(day)
        else:
            runs.append([day])
    return runs
