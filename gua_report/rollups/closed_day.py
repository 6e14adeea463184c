"""The rollup of one UTC day of ticks with all that reports need of it, as `gua rollup` stores it; when it is closed."""

from __future__ import annotations

from typing import NamedTuple

import pandas as pd

from gua_report.rollups.edges import edges_of
from gua_report.rollups.hourly_sums import roll_up
from gua_report.rollups.index import Beside, Edges, closes_by_ms
from gua_report.rollups.reader import Day
from gua_report.ticks.coverage import find_spans
from gua_report.ticks.episodes import find_episodes, join_to
from gua_report.ticks.history import History
from gua_report.ticks.read_classified import read_classified
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
    start_ms, end_ms = midnight_ms(day), midnight_ms(day) + DAY_MS
    found = read_classified(history, start_ms, end_ms, policy, {})
    if found is None or day in history.unreadable:
        return None
    episodes = find_episodes(found, start_ms, end_ms)
    if before is not None:
        episodes = join_to(before, episodes, history.first_ticks_ms(day))
    sums = Day(roll_up(found, start_ms, end_ms), episodes, find_spans(history, [day]))
    return Made(sums, *edges_of(found, day))


def is_closed(history: History, day: str, now_ms: int) -> bool:
    """Whether the day is over, and no future tick can be joined to its last ones."""
    end_ms = midnight_ms(day) + DAY_MS
    if now_ms < end_ms or now_ms >= closes_by_ms(day):
        return now_ms >= end_ms
    ticks = history.timed_ticks_of(day)
    return not len(ticks) or now_ms > max(end_ms, reach_ms(ticks)) + WRITTEN_WITHIN_MS
