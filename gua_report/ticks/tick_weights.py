"""The weight of each tick, which is the time that it stands for, and how windows and hours divide that time.

A tick is the interval [t, t + weight). Windows, hours and days cut it, so any division of time adds up
to the whole, and missed ticks, mixed intervals and manual runs can't distort a share. A UTC day stands alone: its ticks
are weighed by nothing but each other, and no time of theirs lies outside of it. Below that: the weight of
MIG instances, which is the share of each in its physical card, and what of that card no instance covers.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd

from gua_report.ticks.arrays import Booleans, Floats, Integers, spread
from gua_report.ticks.read_partition import Rows
from gua_report.window import HOUR_MS
from gua_sample.partition_names import DAY_MS
from gua_sample.policy import (
    DEFAULT_INTERVAL_MS,
    LONGEST_GAP_INTERVALS,
    LONGEST_INTERVAL_MS,
    LONGEST_REACH_INTERVALS,
    STATUS_OK,
    TICKS_AROUND,
    UNPARTITIONED,
)

# Shares of a card that add up to 1, such as seven sevenths, may miss it by the last bits of a float.
NOTHING = 1e-9


class Pieces(NamedTuple):
    """Parts of ticks, in time order, each within one hour."""

    tick: Integers  # position of the tick
    hour_ms: Integers  # beginning of that hour
    weight_ms: Integers


def with_weights(ticks: pd.DataFrame, midnight_ms: int) -> pd.DataFrame:
    """The ticks of the day that begins at `midnight_ms`, in time order, with `interval_ms` and `weight_ms`.

    `joined`: the tick's time ends with the next tick, by which it is judged too. `is_lead`: the row is not a tick but
    the time before the day's first one, if that is short and the machine was up. It is judged by that tick alone, so
    it has the tick's `id`, and stands before it.
    """
    if not len(ticks):
        return ticks.assign(weight_ms=0, joined=False, is_lead=False)
    times, interval = ticks["ts_ms"].to_numpy(dtype=np.int64), ticks["interval_ms"].to_numpy(dtype="float64")
    if np.isnan(interval).any():  # it was not told: the median gap of the ticks around
        steps = pd.Series(np.diff(times), dtype="float64")
        typical = steps.where(steps <= LONGEST_INTERVAL_MS).rolling(TICKS_AROUND, center=True, min_periods=1).median()
        around = np.append(typical.to_numpy(), typical.iloc[-1] if len(typical) else np.nan)
        interval = np.where(np.isnan(interval), np.where(np.isnan(around), DEFAULT_INTERVAL_MS, around), interval)
    interval = np.maximum(1, interval)
    gaps = np.diff(times, append=times[-1:])
    boot = ticks["boot_id"].to_numpy(dtype=object)
    joined = np.append(boot[1:] == boot[:-1], False) & (gaps <= LONGEST_GAP_INTERVALS * interval)
    weight = np.where(joined, gaps, np.rint(interval)).astype(np.int64)
    # Ticks of two boots may be closer than one interval, and no time must count twice.
    weight[:-1] = np.minimum(weight[:-1], gaps[:-1])
    if (rest_ms := midnight_ms + DAY_MS - times[-1]) <= LONGEST_REACH_INTERVALS * interval[-1]:
        weight[-1] = rest_ms
    ticks = ticks.assign(interval_ms=interval, weight_ms=weight, joined=joined, is_lead=False)
    if times[0] - midnight_ms > LONGEST_REACH_INTERVALS * interval[0]:
        return ticks
    start_ms = max(midnight_ms, int(ticks["boot_time_ms"].iloc[0]))
    if start_ms >= times[0]:
        return ticks
    lead = ticks.iloc[:1].assign(ts_ms=start_ms, weight_ms=times[0] - start_ms, joined=True, is_lead=True)
    return pd.concat([lead, ticks], ignore_index=True)


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


def weigh(rows: Rows, ticks: int) -> tuple[Floats, list[str], Floats]:
    """The share of each card-tick, which is 1, or that of a MIG instance in its physical card; the uuids of the
    physical cards with MIG on; and, by tick and those, what no instance covers: 0 if that is not told.

    An instance weighs its compute slices over the card's most, else its memory over the card's. Those that tell neither
    have equal parts of what the others leave of the card.
    """
    facts = rows.card_facts
    unusable = (facts["status"] == UNPARTITIONED).to_numpy()
    gpu, gpus = pd.factorize(facts["parent_uuid"].where(facts["parent_uuid"].notna() | ~unusable, facts["uuid"]))
    shares, size = np.ones(len(rows.cards.tick)), ticks * len(gpus)
    if not size:
        return shares, [], np.zeros((ticks, 0))
    own = np.flatnonzero(gpu[rows.cards.card] >= 0)
    fact = rows.cards.card[own]
    family = np.ravel_multi_index((rows.cards.tick[own], gpu[fact]), (ticks, len(gpus)))  # a tick and a physical card
    told, by_slices = _told(facts, unusable)
    share = told[fact]
    is_told = ~np.isnan(share)
    left = np.clip(1 - np.bincount(family, np.where(is_told, share, 0.0), size), 0.0, 1.0)
    untold = np.bincount(family, ~is_told, size)
    shares[own] = np.where(is_told, share, (left / np.maximum(untold, 1))[family])
    counts, sliced = np.bincount(family, minlength=size), np.bincount(family, by_slices[fact], size)
    claimed = (counts > 0) & (sliced == counts) & (left > NOTHING)
    return shares, [str(uuid) for uuid in gpus], np.where(claimed, left, 0.0).reshape(ticks, len(gpus))


def _told(facts: pd.DataFrame, unusable: Booleans) -> tuple[Floats, Booleans]:
    """The share that each set of facts tells, and if by slices. A failed instance has what it had that day."""
    told = pd.DataFrame(
        {
            "slices": _ratio(facts["compute_slices"], facts["most_compute_slices"]),
            "memory": _ratio(facts["memory_total_mib"], facts["parent_memory_mib"]),
        }
    )
    if (failed := ~facts["status"].isin([STATUS_OK, UNPARTITIONED])).any():
        told[failed] = told.fillna(told.groupby(facts["uuid"]).transform("last"))
    slices = told["slices"].mask(unusable, 0.0)  # a card without any instance: none of it is covered
    return slices.fillna(told["memory"]).to_numpy(), slices.notna().to_numpy()


def _ratio(part: pd.Series[float], whole: pd.Series[float]) -> pd.Series[float]:
    ratio = part / whole
    return ratio.where((ratio > 0) & (ratio <= 1))  # else a file makes no sense
