"""A report: the rollups of a window's days, added up. Renderers take it and nothing else."""

from __future__ import annotations

import shlex
import socket
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timezone
from itertools import pairwise

import numpy as np
import pandas as pd

from gua_report import tables
from gua_report.classify import Classified, classify
from gua_report.config import RECLAIM_AFTER, Config
from gua_report.coverage import find_gaps, mark_unreadable
from gua_report.episodes import episode_keys, find_episodes, join_episodes
from gua_report.history import History, Stretch
from gua_report.reclaim import freed_gpu_hours
from gua_report.rollup import Rollup, roll_up
from gua_report.window import HOUR_MS, Window, parse_time, show, zone_name
from gua_sample.errors import NothingToReport, StoreError
from gua_sample.partition import DAY_MS
from gua_sample.policy import Policy
from gua_sample.settings import duration_ms

RECLAIM_AFTER_MS = tuple(duration_ms(text) for text in RECLAIM_AFTER)
# So many days are read at a time, to bound the memory.
DAYS_AT_A_TIME = 8
Progress = Callable[[int, int], None]


@dataclass(frozen=True, repr=False)
class Report:
    """Frames have one row for each thing they are named after; docs/notebooks.md describes their columns."""

    host: str
    driver_versions: list[str]
    requested: Window
    window: Window  # starts no earlier than the oldest sample
    timezone: str
    newest_ms: int  # the newest tick of all, in the window or not
    policy: Policy
    config: Config
    headline: pd.DataFrame  # by state: share, gpu_hours
    before: pd.DataFrame | None  # the same of the window before, if that was observed
    capacity: pd.DataFrame  # by state: gpu_hours, equivalent_gpus, energy_kwh, cost
    energy_known_share: float | None
    reclaim: pd.DataFrame  # after_seconds, freed_gpu_hours
    gpus: pd.DataFrame
    identities: pd.DataFrame
    heatmap: pd.DataFrame
    episodes: pd.DataFrame
    gaps: pd.DataFrame
    coverage_share: float
    observed_seconds: float
    from_ticks_seconds: float
    from_rollups_seconds: float
    warnings: list[str]

    def __repr__(self) -> str:
        start, end = (show(ms, self.window.zone) for ms in (self.window.start_ms, self.window.end_ms))
        return f"<Report of {self.host}, {start} to {end} {self.timezone}>"

    def _repr_html_(self) -> str:
        from gua_report.render.html import render

        return render(self)


def build_report(
    data_dir: str,
    requested: Window,
    config: Config,
    reclaim_after_ms: tuple[int, ...] = RECLAIM_AFTER_MS,
    progress: Progress | None = None,
) -> Report:
    """Raises NothingToReport if there is no tick in the window."""
    history = History(data_dir)
    oldest_ms, newest_ms = history.oldest_ms(), history.newest_ms()
    if oldest_ms is None or newest_ms is None or not oldest_ms < requested.end_ms:
        raise unreadable(history) if history.warnings else nothing(data_dir, requested)
    window = requested._replace(start_ms=max(requested.start_ms, oldest_ms))
    before = requested.before()
    has_before = oldest_ms < before.end_ms
    days = history.days_of(before.start_ms if has_before else window.start_ms, window.end_ms)
    timeline = history.timeline(days)
    if not _reaches_into(timeline, window):
        raise nothing(data_dir, requested)
    sums = _Sums(history, timeline, config, _grid(window._replace(start_ms=window.before().start_ms)))
    sums.add([before, window] if has_before else [window], progress)
    return _put_together(sums, history, requested, window, before, newest_ms, config, reclaim_after_ms)


def unreadable(history: History) -> StoreError:
    return StoreError("nothing can be read: " + "; ".join(history.warnings))


def nothing(data_dir: str, window: Window) -> NothingToReport:
    start, end = (datetime.fromtimestamp(ms / 1000, window.zone) for ms in (window.start_ms, window.end_ms))
    return NothingToReport(
        f"no ticks from {start:%Y-%m-%d %H:%M} to {end:%Y-%m-%d %H:%M %Z}: run gua doctor --data-dir"
        f" {shlex.quote(data_dir)} to see why, or give a longer --since, or another --data-dir"
    )


class _Sums:
    """Rolls up days and keeps what the report needs of them."""

    def __init__(self, history: History, timeline: pd.DataFrame, config: Config, grid: tuple[int, int]) -> None:
        self.history, self.timeline, self.config, self.grid = history, timeline, config, grid
        self.rollups: dict[Window, list[Rollup]] = {}
        self.episodes: list[pd.DataFrame] = []

    def add(self, windows: list[Window], progress: Progress | None) -> None:
        """Consecutive windows, oldest first."""
        for window in windows:
            self.rollups[window] = []
        reaches = (self.timeline["ts_ms"] + self.timeline["weight_ms"]).to_numpy() > windows[0].start_ms
        starts = self.timeline["ts_ms"].to_numpy() < windows[-1].end_ms
        positions = np.flatnonzero(reaches & starts)
        first, last = int(positions[0]), int(positions[-1]) + 1
        # Whole days, a few at a time.
        days = pd.factorize(self.timeline["day"].to_numpy()[first:last])[0] // DAYS_AT_A_TIME
        cuts = [first, *(first + np.flatnonzero(np.diff(days)) + 1).tolist(), last]
        for number, (begin, end) in enumerate(pairwise(cuts), 1):
            stretch = self.history.read(self.timeline, begin, end)
            if stretch is not None:
                classified = self._classify(stretch)
                self.episodes.append(find_episodes(classified, stretch.inside))
                for window in windows:
                    rollup = roll_up(classified, stretch.inside, window.start_ms, window.end_ms, self.grid)
                    self.rollups[window].append(rollup)
            if progress:
                progress(number, len(cuts) - 1)
        times = self.timeline["ts_ms"]
        self._extend(int(times.iloc[first]), windows[-1], "joins_before")
        self._extend(int(times.iloc[last - 1]), windows[-1], "joins_after")

    def _classify(self, stretch: Stretch) -> Classified:
        return classify(stretch.rows, stretch.ticks, self.config.policy, self.config.people)

    def _extend(self, edge_ms: int, window: Window, direction: str) -> None:
        """Episodes are not clipped to the window: follow those in it as far as they go, on their cards alone."""
        back = direction == "joins_before"
        found = join_episodes(self.episodes)
        inside = found[(found["end_ms"] > window.start_ms) & (found["start_ms"] < window.end_ms)]
        going_on = episode_keys(inside[inside[direction].astype(bool)])
        while going_on:
            day = self.history.day_next_to(edge_ms, back)
            if day is None:
                return
            timeline = self.history.timeline([day])
            times, own = timeline["ts_ms"].to_numpy(), np.flatnonzero((timeline["day"] == day).to_numpy())
            beyond = own[times[own] < edge_ms] if back else own[times[own] > edge_ms]
            uuids = sorted({uuid for uuid, _, _ in going_on})
            stretch = self.history.read(timeline, int(beyond[0]), int(beyond[-1]) + 1, uuids)
            if stretch is None:
                return
            more = find_episodes(self._classify(stretch), stretch.inside)
            self.episodes.append(more)
            going_on &= episode_keys(more[more["joins_before"].astype(bool) & more["joins_after"].astype(bool)])
            edge_ms = int(times[beyond[0 if back else -1]])


def _put_together(
    sums: _Sums,
    history: History,
    requested: Window,
    window: Window,
    before: Window,
    newest_ms: int,
    config: Config,
    reclaim_after_ms: tuple[int, ...],
) -> Report:
    rollups = sums.rollups[window]
    if not rollups:
        raise unreadable(history)
    cards = tables.concat([rollup.cards for rollup in rollups])
    facts = tables.concat([rollup.card_facts for rollup in rollups]).groupby("uuid", sort=False).last().reset_index()
    holds = tables.concat([rollup.holds for rollup in rollups])
    all_episodes = join_episodes(sums.episodes)
    # A day whose ticks can be read but whose rows can't was not observed.
    timeline = sums.timeline[~sums.timeline["day"].isin(history.unreadable)]
    midnights = [parse_time(day, timezone.utc, "a day") for day in sorted(history.unreadable)]
    skipped = [(start, start + DAY_MS) for start in midnights]
    gaps = mark_unreadable(find_gaps(timeline, window.start_ms, window.end_ms), skipped)
    observed_ms = window.length_ms - int((gaps["end_ms"] - gaps["start_ms"]).sum())
    headline = tables.headline(cards)
    earlier = tables.concat([rollup.cards for rollup in sums.rollups.get(before, [])])
    ends = timeline["ts_ms"] + timeline["weight_ms"]
    in_window = timeline[(timeline["ts_ms"] < window.end_ms) & (ends > window.start_ms)]
    energy_ms, weight_ms = cards["energy_ms"].sum(), cards["weight_ms"].sum()
    return Report(
        host=socket.gethostname(),
        driver_versions=sorted(set(in_window["driver_version"].dropna())),
        requested=requested,
        window=window,
        timezone=zone_name(window.zone, window.end_ms),
        newest_ms=newest_ms,
        policy=config.policy,
        config=config,
        headline=headline,
        before=tables.headline(earlier) if len(earlier) else None,
        capacity=tables.capacity(cards, observed_ms, config),
        energy_known_share=float(energy_ms / weight_ms) if weight_ms else None,
        reclaim=freed_gpu_hours(holds, all_episodes, window, reclaim_after_ms),
        gpus=tables.gpus(cards, facts),
        identities=tables.identities(tables.concat([rollup.identities for rollup in rollups])),
        heatmap=tables.heatmap(cards, window),
        episodes=tables.episodes(all_episodes, window, newest_ms, facts),
        gaps=gaps,
        coverage_share=observed_ms / window.length_ms,
        observed_seconds=observed_ms / 1000,
        from_ticks_seconds=observed_ms / 1000,
        from_rollups_seconds=0.0,
        warnings=history.warnings,
    )


def _reaches_into(timeline: pd.DataFrame, window: Window) -> bool:
    ends = timeline["ts_ms"] + timeline["weight_ms"]
    return bool(((timeline["ts_ms"] < window.end_ms) & (ends > window.start_ms)).any())


def _grid(window: Window) -> tuple[int, int]:
    """Where the zone's hours begin after UTC's full hours, and how finely to cut: a half-hour change needs quarters."""
    offsets = {_offset_ms(ts_ms, window) for ts_ms in (*range(window.start_ms, window.end_ms, DAY_MS), window.end_ms)}
    begins = {-offset % HOUR_MS for offset in offsets}
    return (begins.pop(), HOUR_MS) if len(begins) == 1 else (0, HOUR_MS // 4)


def _offset_ms(ts_ms: int, window: Window) -> int:
    offset = datetime.fromtimestamp(ts_ms / 1000, window.zone).utcoffset()
    return round(offset.total_seconds() * 1000) if offset else 0
