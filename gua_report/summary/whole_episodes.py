"""The whole episodes of a window: they are not clipped to it."""

from __future__ import annotations

import numpy as np
import pandas as pd

from gua_report.config import Config
from gua_report.people.identities import apply_mapping
from gua_report.summary.usable_days import Archive
from gua_report.ticks.classify import Classified, classify
from gua_report.ticks.episodes import episode_keys, find_episodes, join_episodes, join_to
from gua_report.ticks.history import History, Stretch
from gua_report.window import Window, midnight_ms
from gua_sample.partition_names import DAY_MS, day_of


class Trail:
    def __init__(self, history: History, archive: Archive, config: Config, window: Window) -> None:
        self.history, self.archive, self.config, self.window = history, archive, config, window
        self.parts: list[pd.DataFrame] = []  # the episodes of days or of parts of days
        # Times of ticks whose episodes are known; between the first and the last, all are known.
        self._known: list[int] = []

    def add(self, classified: Classified, stretch: Stretch) -> None:
        """Add the episodes of ticks that reach into the window, except of stored days, whose episodes are complete."""
        inside = np.arange(*stretch.inside)
        ticks = stretch.ticks.iloc[inside]
        ends = (ticks["ts_ms"] + ticks["weight_ms"]).to_numpy()
        own = inside[~ticks["day"].isin(self.archive.days).to_numpy() & (ends > self.window.start_ms)]
        if len(own):
            self.parts.append(self._find(classified, (int(own[0]), int(own[-1]) + 1)))
            self._known += stretch.ticks["ts_ms"].iloc[[own[0], own[-1]]].tolist()

    def follow(self) -> pd.DataFrame:
        """All episodes that reach into the window, from their beginning to their end; and some others."""
        self._add_tail()
        found = join_episodes(self.parts)
        for back in (True, False):
            count = len(self.parts)
            self._extend(found, back)
            if len(self.parts) > count:  # only if needed: joining the many episodes of a year takes a while
                found = join_episodes(self.parts)
        return found

    def classify(self, stretch: Stretch) -> Classified:
        return classify(stretch.rows, stretch.ticks, self.config.policy, self.config.people)

    def _find(self, classified: Classified, inside: tuple[int, int]) -> pd.DataFrame:
        """Find the episodes of ticks. Where all earlier ticks are gone, the stored day before tells which go on."""
        found = find_episodes(classified, inside)
        for day in classified.ticks["day"].iloc[slice(*inside)].unique().tolist():
            before = max((one for one in {*self.archive.expired, *self.history.paths} if one < day), default=None)
            if before in self.archive.days and before not in self.history.paths:
                stored = self.archive.read(midnight_ms(before), midnight_ms(before))
                if stored is not None and len(found):
                    found = join_to(stored.episodes, found, self.history.first_ticks_ms(day))
        return found

    def _extend(self, found: pd.DataFrame, back: bool) -> None:
        """Follow the window's episodes beyond the known ticks, on their own cards only."""
        if not len(found):
            return
        inside = found[(found["end_ms"] > self.window.start_ms) & (found["start_ms"] < self.window.end_ms)]
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
                more = map_people(stored.episodes, self.config.people)
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
                classified = self.classify(stretch)
                if not (classified.states[slice(*stretch.inside)] >= 0).any():
                    continue  # a day with only driver errors ends no episode
                more = self._find(classified, stretch.inside)
            self.parts.append(more)
            going_on &= episode_keys(more[more["joins_before"].astype(bool) & more["joins_after"].astype(bool)])

    def _edge(self, back: bool) -> int:
        """The time of the first tick whose episodes are known, or of the last."""
        first, last = day_of(self.window.start_ms), day_of(self.window.end_ms - 1)
        days = [day for day in self.archive.days if first <= day <= last]
        known = self._known + [midnight_ms(day) + (0 if back else DAY_MS - 1) for day in days]
        return (min if back else max)(known, default=self.window.start_ms)

    def _add_tail(self) -> None:
        """Add the day before if its last tick reaches into the window, since an episode may end with it."""
        edge_ms = self._edge(back=True)
        day = self._day_beyond(edge_ms, back=True)
        if day is None or edge_ms <= self.window.start_ms - DAY_MS:
            return
        if day in self.archive.days:
            stored = self.archive.read(midnight_ms(day), midnight_ms(day))
            if stored is not None and (stored.spans["end_ms"] > self.window.start_ms).any():
                self.parts.append(map_people(stored.episodes, self.config.people))
                self._known.append(midnight_ms(day))
            return
        timeline = self.history.timeline([day])
        times = timeline["ts_ms"].to_numpy()
        ends = times + timeline["weight_ms"].to_numpy()
        (reaching,) = np.nonzero(
            (timeline["day"] == day).to_numpy() & (times < edge_ms) & (ends > self.window.start_ms)
        )
        if len(reaching):
            stretch = self.history.read(timeline, int(reaching[0]), int(reaching[-1]) + 1)
            if stretch is not None:
                self.add(self.classify(stretch), stretch)

    def _day_beyond(self, edge_ms: int, back: bool) -> str | None:
        """The nearest day, from ticks or stored, before that time (`back`) or after it."""
        from_ticks = self.history.day_next_to(edge_ms, back)
        today = day_of(edge_ms)
        stored = [day for day in self.archive.days if (day < today if back else day > today)]
        candidates = [day for day in (from_ticks, (max if back else min)(stored, default=None)) if day is not None]
        return (max if back else min)(candidates, default=None)


def map_people(frame: pd.DataFrame, people: dict[str, str]) -> pd.DataFrame:
    """The frame with identities mapped to the people that the configuration names."""
    if not people or not len(frame):
        return frame
    return frame.assign(identity=[apply_mapping(identity, people) for identity in frame["identity"].tolist()])
