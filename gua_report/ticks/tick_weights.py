"""The weight of each tick, which is the time that it stands for, and how windows and hours divide that time.

A tick is the interval [t, t + weight). Windows, hours and days cut it, so any division of time adds up
to the whole, and missed ticks, mixed intervals and manual runs can't distort a share. What a MIG instance weighs is in
mig_shares.py.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd

from gua_report.ticks.arrays import Integers, spread
from gua_report.window import HOUR_MS
from gua_sample.partition_names import DAY_MS
from gua_sample.policy import DEFAULT_INTERVAL_MS as DEFAULT_INTERVAL_MS
from gua_sample.policy import LONGEST_GAP_INTERVALS, LONGEST_INTERVAL_MS
from gua_sample.policy import TICKS_AROUND as TICKS_AROUND


class Pieces(NamedTuple):
    """Parts of ticks, in time order, each within one hour."""

    tick: Integers  # position of the tick
    hour_ms: Integers  # beginning of that hour
    weight_ms: Integers


def with_intervals(ticks: pd.DataFrame) -> pd.DataFrame:
    """The ticks of one day, in time order, with `interval_ms`: as stored, else the median gap of the ticks around.

    Only gaps of that day count, so that ticks of its neighbours never change its weights.
    """
    told = ticks["interval_ms"].to_numpy(dtype="float64")
    if np.isnan(told).any():
        gaps = pd.Series(np.diff(ticks["ts_ms"].to_numpy()), dtype="float64")
        typical = gaps.where(gaps <= LONGEST_INTERVAL_MS).rolling(TICKS_AROUND, center=True, min_periods=1).median()
        around = np.append(typical.to_numpy(), typical.iloc[-1] if len(typical) else np.nan)
        told = np.where(np.isnan(told), np.where(np.isnan(around), DEFAULT_INTERVAL_MS, around), told)
    return ticks.assign(interval_ms=np.maximum(1, told))


def with_weights(ticks: pd.DataFrame) -> pd.DataFrame:
    """The ticks in time order, with `interval_ms`, `weight_ms`, and whether the next tick is `joined`.

    Needs the tick after the last one of interest. Known intervals stay as they are.
    """
    ticks = ticks.sort_values("ts_ms", kind="stable", ignore_index=True)
    times = ticks["ts_ms"].to_numpy()
    if ticks["interval_ms"].isna().any():
        ticks = pd.concat([with_intervals(day) for _, day in ticks.groupby(times // DAY_MS, sort=True)])
    interval = np.maximum(1, ticks["interval_ms"].to_numpy(dtype="float64"))
    gaps = np.diff(times, append=times[-1:])
    boot = ticks["boot_id"].to_numpy(dtype=object)
    joined = np.append(boot[1:] == boot[:-1], False) & (gaps <= LONGEST_GAP_INTERVALS * interval)
    weight = np.where(joined, gaps, np.rint(interval)).astype(np.int64)
    # Ticks of two boots may be closer than one interval, and no time must count twice.
    weight[:-1] = np.minimum(weight[:-1], gaps[:-1])
    return ticks.assign(interval_ms=interval, weight_ms=weight, joined=joined)


def reach_ms(ticks: pd.DataFrame) -> int:
    """The latest time of a tick that can still be joined to the last of these. They have their intervals."""
    last = ticks.iloc[-TICKS_AROUND:]
    ran_ms = min(max(0.0, float(np.nan_to_num(last["nvml_ms"].to_numpy(dtype="float64")[-1]))), DAY_MS)
    intervals = float(last["interval_ms"].max())
    return int(last["ts_ms"].iloc[-1] + ran_ms + min(LONGEST_GAP_INTERVALS * intervals, DAY_MS))


def cut(
    ticks: pd.DataFrame, start_ms: int, end_ms: int, hour_offset_ms: int = 0, hour_length_ms: int = HOUR_MS
) -> Pieces:
    """The ticks' time within a window, cut at every full hour. Hours may begin `hour_offset_ms` after UTC's."""
    times = ticks["ts_ms"].to_numpy()
    begin = np.maximum(times, start_ms)
    end = np.minimum(times + ticks["weight_ms"].to_numpy(), end_ms)
    (inside,) = np.nonzero(end > begin)
    begin, end = begin[inside], end[inside]
    first = (begin - hour_offset_ms) // hour_length_ms
    last = (end - 1 - hour_offset_ms) // hour_length_ms
    item, nth = spread(last - first + 1)
    hour = (first[item] + nth) * hour_length_ms + hour_offset_ms
    weight = np.minimum(end[item], hour + hour_length_ms) - np.maximum(begin[item], hour)
    return Pieces(inside[item], hour, weight)
