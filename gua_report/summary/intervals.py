"""Intervals of time, as rows of start and end, and the cells of a window: its hours, days, weeks or months by the
reader's clock."""

from datetime import datetime, timedelta

import numpy as np
import pandas as pd

from gua_report.ticks.arrays import Floats, Integers
from gua_report.window import HOUR_MS, Window
from gua_sample.partition_names import DAY_MS

MINUTE_MS = 60_000
WEEK_MS = 7 * DAY_MS
MONTH_MS = 2_629_746_000  # on average: only for choosing, the cells are those of the calendar
UNIT_NAMES = {HOUR_MS: "hour", DAY_MS: "day", WEEK_MS: "week", MONTH_MS: "month"}


def union(intervals: Integers) -> Integers:
    """The union of the intervals, as disjoint ones in order."""
    if not len(intervals):
        return intervals
    ordered = intervals[np.argsort(intervals[:, 0], kind="stable")]
    reached = np.maximum.accumulate(ordered[:, 1])
    first = np.append(True, ordered[1:, 0] > reached[:-1])
    last = np.append(first[1:], True)
    return np.column_stack((ordered[first, 0], reached[last]))


def overlap(intervals: Integers, start: Integers, end: Integers) -> Floats:
    """The part of each [start, end) that the disjoint intervals cover."""
    if not len(intervals):
        return np.zeros(len(start))
    # The covered time as a function of time grows within the intervals and is constant between them.
    covered = np.cumsum(intervals[:, 1] - intervals[:, 0])
    points = intervals.ravel()
    values = np.column_stack((np.append(0, covered[:-1]), covered)).ravel()
    result: Floats = np.interp(end, points, values) - np.interp(start, points, values)
    return result


def choose_cell_ms(length_ms: int, cells_ms: tuple[int, ...], most: int) -> int:
    """The first of these lengths, in ascending order, that divides the time into no more than `most` cells."""
    return next((cell_ms for cell_ms in cells_ms if length_ms <= most * cell_ms), cells_ms[-1])


def find_edges(window: Window, cell_ms: int) -> Integers:
    """The start of the window, of each further cell by the clock of its zone, and the end of the window."""
    edges, edge = [window.start_ms], _next(window.start_ms, window, cell_ms)
    while edge < window.end_ms:
        edges.append(edge)
        edge = _next(edge, window, cell_ms)
    return np.array([*edges, window.end_ms], dtype=np.int64)


def _next(ms: int, window: Window, cell_ms: int) -> int:
    """The start of the cell after the one that a time lies in."""
    local = datetime.fromtimestamp(ms / 1000, window.zone)
    if cell_ms <= HOUR_MS:
        since_hour_ms = (local.minute * 60 + local.second) * 1000 + ms % 1000
        return ms + cell_ms - since_hour_ms % cell_ms
    midnight = local.replace(hour=0, minute=0, second=0, microsecond=0, tzinfo=None)
    if cell_ms == DAY_MS:
        midnight += timedelta(days=1)
    elif cell_ms == WEEK_MS:
        midnight += timedelta(days=7 - midnight.weekday())
    else:
        midnight = (midnight.replace(day=1) + timedelta(days=32)).replace(day=1)
    return max(ms + HOUR_MS, round(midnight.replace(tzinfo=window.zone).timestamp() * 1000))


def cell_of(edges: Integers, hours_ms: Integers) -> Integers:
    """The position of the cell that each hour begins in. An hour that the window cuts belongs to the first one."""
    found: Integers = np.clip(np.searchsorted(edges, hours_ms, side="right") - 1, 0, len(edges) - 2)
    return found


def observed_ms(start_ms: Integers, end_ms: Integers, gaps: pd.DataFrame | Integers) -> Floats:
    """The time of each cell that is in no gap."""
    times = gaps if isinstance(gaps, np.ndarray) else gaps[["start_ms", "end_ms"]].to_numpy(dtype=np.int64)
    observed: Floats = end_ms - start_ms - overlap(times, start_ms, end_ms)
    return observed
