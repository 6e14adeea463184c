"""The GPU-hours that a rule "reclaim memory after some idle time" would have freed."""

from __future__ import annotations

import numpy as np
import pandas as pd

from gua_report.summary.intervals import overlap, union
from gua_report.summary.meant import Meant
from gua_report.window import HOUR_MS, Window

# The times of the curve: closer where most people would set a rule.
CURVE_MINUTES = (0, 5, 10, 15, 20, 30, 45, 60, 90, 120, 180, 240, 360, 480, 720, 1440, 2880)
CURVE_MS = tuple(minutes * 60_000 for minutes in CURVE_MINUTES)


def freed_gpu_hours(
    holds: pd.DataFrame, episodes: pd.DataFrame, meant: Meant, window: Window, after_ms: tuple[int, ...]
) -> pd.DataFrame:
    """For each time: the idle-held GPU-hours in the window in which every holder had been idle for at least as long.

    Unattributed memory can't be reclaimed from anybody, so it frees nothing. What is meant is spared.
    """
    freed = np.zeros(len(after_ms))
    uuids = episodes["gpu_uuid"].to_numpy(dtype=object)
    times = episodes[["start_ms", "end_ms"]].to_numpy(dtype=np.int64)
    for uuid, held in holds.groupby("gpu_uuid", sort=False):
        mine, spared = times[uuids == uuid], meant.times[uuids[meant.episode] == uuid]
        edges = np.clip(held[["start_ms", "end_ms"]].to_numpy(dtype=np.int64), window.start_ms, window.end_ms)
        share = held["share"].to_numpy(dtype="float64")
        anybody = overlap(union(mine), edges[:, 0], edges[:, 1])
        for number, after in enumerate(after_ms):
            young = np.column_stack((mine[:, 0], np.minimum(mine[:, 1], mine[:, 0] + after)))
            kept = overlap(union(np.concatenate((young, spared))), edges[:, 0], edges[:, 1])
            freed[number] += float(((anybody - kept) * share).sum())
    seconds = [after / 1000 for after in after_ms]
    return pd.DataFrame({"after_seconds": seconds, "freed_gpu_hours": freed / HOUR_MS})
