"""Intervals of time, as rows of start and end: what several cover together, and how much of others they cover."""

from __future__ import annotations

import numpy as np

from gua_report.ticks.arrays import Floats, Integers


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
