"""What the newest ticks don't tell: whether they failed, and whether the last that saw cards stands for them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd

from gua_report.rollups.reader import read_spans
from gua_report.summary.plan import DayPlan
from gua_report.ticks.history import History
from gua_report.window import Window
from gua_sample.partition_names import day_of
from gua_sample.policy import DEFAULT_INTERVAL_MS, LONGEST_GAP_INTERVALS


class NewestFailed(NamedTuple):
    error: str  # why the newest tick of all has no cards
    since_ms: int  # the first of the failed ticks
    seen_ms: int | None  # the last tick that saw cards; None if none was found
    is_near: bool  # the newest tick can be joined to that one, which so tells who holds what right now


class NewestTick(NamedTuple):
    ts_ms: int
    failed: NewestFailed | None  # None: it saw cards

    @property
    def seen_ms(self) -> int | None:
        """The tick that tells who holds what right now; None if that is not known."""
        if self.failed is None:
            return self.ts_ms
        return self.failed.seen_ms if self.failed.is_near else None


def look_at_newest(history: History, plan: DayPlan, window: Window, newest_ms: int) -> NewestTick:
    """The newest tick of the history, which is at `newest_ms`, and what is known of failed ticks at its end.

    The rule is that of gaps, measured from the newest tick of any kind: as long as that is at most 2.5 intervals after
    the last one that saw cards, and of the same boot, what that one saw holds.
    """
    day = day_of(newest_ms)
    if day in plan.lost:
        return NewestTick(newest_ms, None)
    if day in plan.expired:
        return NewestTick(newest_ms, _from_spans(read_spans(plan.path, day, day), newest_ms))
    return NewestTick(newest_ms, _from_ticks(history, window, newest_ms))


def _from_ticks(history: History, window: Window, newest_ms: int) -> NewestFailed | None:
    """The failure as ticks tell it. It is followed back to the window's first day, and no farther."""
    parts: list[pd.DataFrame] = []
    seen = np.empty(0, np.int64)
    for day in reversed(history.days):
        ticks = history.timed_ticks_of(day)
        parts += [ticks] if len(ticks) else []
        seen = np.flatnonzero(pd.isna(ticks["error"]).to_numpy())
        if len(seen) or (parts and day <= day_of(window.start_ms)):
            break
    ticks = pd.concat(parts[::-1], ignore_index=True)
    errors, times, boots = (ticks[name].tolist() for name in ("error", "ts_ms", "boot_id"))
    if not len(seen):
        return NewestFailed(errors[-1], times[0], None, False)
    last = int(seen[-1])
    if last == len(ticks) - 1:
        return None
    longest_ms = LONGEST_GAP_INTERVALS * float(ticks["interval_ms"].iloc[last])
    is_near = newest_ms - times[last] <= longest_ms and len(set(boots[last:])) == 1
    return NewestFailed(errors[-1], times[last + 1], times[last], is_near)


def _from_spans(spans: pd.DataFrame, newest_ms: int) -> NewestFailed | None:
    """The failure as a stored day tells it, which knows neither intervals nor names of errors."""
    kinds, starts, ends, boots = (spans[name].tolist() for name in ("kind", "start_ms", "end_ms", "boot_id"))
    seen = [position for position, kind in enumerate(kinds) if pd.isna(kind)]
    if not seen:
        return NewestFailed(kinds[-1], starts[0], None, False)
    last = seen[-1]
    if last == len(kinds) - 1:
        return None
    is_near = newest_ms - (ends[last] - 1) <= LONGEST_GAP_INTERVALS * DEFAULT_INTERVAL_MS
    return NewestFailed(kinds[-1], starts[last + 1], ends[last] - 1, is_near and len(set(boots[last:])) == 1)
