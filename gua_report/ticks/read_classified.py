"""Reading and classifying a stretch of time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from gua_report.ticks.classify import Classified, classify
from gua_report.ticks.history import History
from gua_sample.policy import Policy


def read_classified(
    history: History,
    start_ms: int,
    end_ms: int,
    policy: Policy,
    people: Mapping[str, str],
    uuids: Sequence[str] | None = None,
) -> Classified | None:
    """The ticks that reach into a time, classified, of all cards or those in `uuids`.

    None if there are none, or, with warnings of the history, if they are unreadable.
    """
    days = history.days_of(start_ms, end_ms)
    if not days:
        return None
    timeline = history.timeline(days)
    times = timeline["ts_ms"].to_numpy()
    ends = times + timeline["weight_ms"].to_numpy()
    inside = np.flatnonzero((ends > start_ms) & (times < end_ms))
    if not len(inside):
        return None
    stretch = history.read(timeline, int(inside[0]), int(inside[-1]) + 1, uuids)
    return None if stretch is None else classify(stretch, policy, people)
