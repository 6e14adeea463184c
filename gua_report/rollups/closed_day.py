"""The rollup of one UTC day of ticks, with all that reports need of it, as `gua rollup` stores it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd

from gua_report.rollups.edges import edges_of
from gua_report.rollups.hourly_sums import roll_up
from gua_report.rollups.index import Beside, Edges
from gua_report.rollups.reader import Day
from gua_report.ticks.classify import ABSENT, Classified, classify
from gua_report.ticks.coverage import find_spans
from gua_report.ticks.episodes import find_episodes, join_to
from gua_report.ticks.history import History
from gua_report.ticks.tick_weights import reach_ms
from gua_report.window import midnight_ms
from gua_sample.partition_names import DAY_MS
from gua_sample.policy import Policy

WRITTEN_WITHIN_MS = 60_000  # after that, a tick is in its partition


class Made(NamedTuple):
    sums: Day
    edges: Edges  # keys of the neighbours' ticks that it was made with
    beside: list[Beside]  # keys of its own ticks that its neighbours depend on


def roll_up_day(history: History, day: str, policy: Policy, before: pd.DataFrame | None = None) -> Made | None:
    """Roll up a day; None if it is unreadable. Identities are not mapped to people: readers do that.

    `before`: the stored episodes of the day before, if nothing else of it is left.
    """
    if not len(history.ticks_of(day)):
        return None
    start_ms = midnight_ms(day)
    timeline = history.timeline([day])
    times = timeline["ts_ms"].to_numpy()
    ends = times + timeline["weight_ms"].to_numpy()
    positions = np.flatnonzero((ends > start_ms) & (times < start_ms + DAY_MS))
    stretch = history.read(timeline, int(positions[0]), int(positions[-1]) + 1)
    if stretch is None or day in history.unreadable:
        return None
    classified = classify(stretch.rows, stretch.ticks, policy, {}, stretch.inside)
    own = np.flatnonzero((stretch.ticks["day"] == day).to_numpy())
    episodes = find_episodes(classified, (int(own[0]), int(own[-1]) + 1))
    if before is not None:
        episodes = join_to(before, episodes, history.first_ticks_ms(day))
    rollup = roll_up(classified, stretch.inside, start_ms, start_ms + DAY_MS)
    sums = Day(
        rollup._replace(card_facts=_seen(classified, stretch.inside)),
        episodes,
        find_spans(timeline, (timeline["day"] == day).to_numpy()),
    )
    return Made(sums, *edges_of(stretch, day))


def _seen(day: Classified, inside: tuple[int, int]) -> pd.DataFrame:
    """The cards that were seen at these ticks. The others belong to the neighbouring days."""
    seen = (day.states[slice(*inside)] != ABSENT).any(axis=0)
    cards: pd.DataFrame = day.cards[seen].astype({"gpu_index": "int64"})
    return cards


def is_closed(history: History, day: str, now_ms: int) -> bool:
    """Whether the day is over, and no future tick can be joined to its last ones."""
    end_ms = midnight_ms(day) + DAY_MS
    if now_ms < end_ms or now_ms >= end_ms + DAY_MS:
        return now_ms >= end_ms
    ticks = history.timed_ticks_of(day)
    return not len(ticks) or now_ms > max(end_ms, reach_ms(ticks)) + WRITTEN_WITHIN_MS
