"""One UTC day of ticks mapped to all that reports need of it: what `gua rollup` stores."""

from __future__ import annotations

import numpy as np
import pandas as pd

from gua_report.classify import classify
from gua_report.coverage import find_spans
from gua_report.episodes import find_episodes, join_to
from gua_report.history import History
from gua_report.rollup import roll_up
from gua_report.rollup_file import Day
from gua_report.weights import TICKS_AROUND
from gua_report.window import midnight_ms
from gua_sample.partition import DAY_MS, day_of
from gua_sample.policy import Policy


def roll_up_day(history: History, day: str, policy: Policy, before: pd.DataFrame | None = None) -> Day | None:
    """None if nothing of it can be read. Identities are not mapped to people: that is done by whoever reads it.

    `before`: the stored episodes of the day before, if there are no ticks of it any more.
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
    classified = classify(stretch.rows, stretch.ticks, policy, {})
    own = np.flatnonzero((stretch.ticks["day"] == day).to_numpy())
    episodes = find_episodes(classified, (int(own[0]), int(own[-1]) + 1))
    if before is not None:
        episodes = join_to(before, episodes, history.first_ticks_ms(day))
    return Day(
        roll_up(classified, stretch.inside, start_ms, start_ms + DAY_MS),
        episodes,
        find_spans(timeline, (timeline["day"] == day).to_numpy()),
    )


def is_closed(history: History, day: str, now_ms: int) -> bool:
    """Whether no tick can change it any more: not its own, nor those after it by which the last ones are weighed."""
    end_ms = midnight_ms(day) + DAY_MS
    if now_ms < end_ms or now_ms >= end_ms + DAY_MS:
        return now_ms >= end_ms
    today = day_of(now_ms)  # files of days to come are somebody's wrong clock
    return len(history.ticks_of(today)) >= TICKS_AROUND
