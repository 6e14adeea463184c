"""Coverage of a window: the observed time, and the reasons for the gaps."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt
import pandas as pd

from gua_sample.partition_names import DAY_MS
from gua_sample.policy import LONGEST_GAP_INTERVALS
from gua_sample.records import IMPORTED_BOOT, TIMEOUT

NOT_RUNNING = "sampler not running"
DRIVER_ERROR = "driver error"
KILLED = "sampler killed (timeout)"
HOST_DOWN = "host down"
NOT_READABLE = "partition not readable"
EXPIRED = "ticks expired"


SPAN_COLUMNS = ["start_ms", "end_ms", "boot_id", "driver_version", "kind"]


def find_spans(ticks: pd.DataFrame, own: npt.NDArray[np.bool_] | None = None) -> pd.DataFrame:
    """Spans of consecutive ticks within a day: SPAN_COLUMNS, `kind` being the reason why there are no cards.

    `ticks` have their weights. `own` marks the ticks asked for; the others are context.
    """
    times = ticks["ts_ms"].to_numpy(dtype=np.int64)
    failed = ~pd.isna(ticks["error"]).to_numpy()
    killed = ticks["error"].eq(TIMEOUT).to_numpy()
    kinds = np.full(len(ticks), None, dtype=object)
    kinds[failed], kinds[killed] = DRIVER_ERROR, KILLED
    ends = _ends(ticks, failed)
    boots, drivers = (ticks[name].to_numpy(dtype=object) for name in ("boot_id", "driver_version"))
    if own is not None:
        times, ends, boots, drivers, kinds = (values[own] for values in (times, ends, boots, drivers, kinds))
    goes_on = (ends[:-1] == times[1:]) & (boots[1:] == boots[:-1]) & (drivers[1:] == drivers[:-1])
    goes_on &= kinds[1:] == kinds[:-1]
    goes_on &= times[1:] // DAY_MS == times[:-1] // DAY_MS
    first, last = np.append(True, ~goes_on), np.append(~goes_on, True)
    if not len(times):
        first = last = np.zeros(0, bool)
    columns = [times[first], ends[last], boots[first], drivers[first], kinds[first]]
    return pd.DataFrame(dict(zip(SPAN_COLUMNS, columns, strict=True)))


def find_gaps(spans: pd.DataFrame, start_ms: int, end_ms: int) -> pd.DataFrame:
    """Stretches of the window without card time, in time order: start_ms, end_ms, kind.

    `spans` must include the ones just before and after the window.
    """
    starts, ends = (spans[name].to_numpy(dtype=np.int64) for name in ("start_ms", "end_ms"))
    boots, kinds = (spans[name].to_numpy(dtype=object) for name in ("boot_id", "kind"))
    gaps: list[tuple[int, int, str]] = []
    for position in np.flatnonzero(~pd.isna(kinds)):
        gaps.append((int(starts[position]), int(ends[position]), str(kinds[position])))
    for position in np.flatnonzero(starts[1:] > ends[:-1]):
        kind = HOST_DOWN if _rebooted(boots[position], boots[position + 1]) else NOT_RUNNING
        gaps.append((int(ends[position]), int(starts[position + 1]), kind))
    if len(starts):
        gaps += [(start_ms, int(starts[0]), NOT_RUNNING), (int(ends[-1]), end_ms, NOT_RUNNING)]
    else:
        gaps.append((start_ms, end_ms, NOT_RUNNING))
    return _merge([(max(start, start_ms), min(end, end_ms), kind) for start, end, kind in sorted(gaps)])


def observed_ms(spans: pd.DataFrame, start_ms: int, end_ms: int) -> int:
    """Milliseconds between two times that have card time."""
    seen = spans[pd.isna(spans["kind"])]
    starts, ends = (seen[name].to_numpy(dtype=np.int64).clip(start_ms, end_ms) for name in ("start_ms", "end_ms"))
    return int((ends - starts).sum())


def _rebooted(boot_id: str, later_boot_id: str) -> bool:
    """Whether the host rebooted; False if imported ticks do not record that."""
    made_up = boot_id.startswith(IMPORTED_BOOT) or later_boot_id.startswith(IMPORTED_BOOT)
    return boot_id != later_boot_id and not made_up


def _ends(ticks: pd.DataFrame, failed: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
    """The end of each tick's time: by its weight, or by the duration of its run if that failed later."""
    times = ticks["ts_ms"].to_numpy(dtype=np.int64)
    ends: npt.NDArray[np.int64] = times + ticks["weight_ms"].to_numpy(dtype=np.int64)
    ran_until = times + np.nan_to_num(ticks["nvml_ms"].to_numpy(dtype="float64")).astype(np.int64)
    late = failed & (ran_until > ends)
    if not late.any():
        return ends
    ends[late] = ran_until[late]
    rest = times[1:] - ends[:-1]
    # No run begins beside a hanging one, and then the timer waits for its next turn: that wait, too, is due to the run.
    short = rest <= LONGEST_GAP_INTERVALS * ticks["interval_ms"].to_numpy(dtype="float64")[:-1]
    boots = ticks["boot_id"].to_numpy(dtype=object)
    until_next = late[:-1] & ((short & (boots[1:] == boots[:-1])) | (rest < 0))
    ends[:-1][until_next] = times[1:][until_next]
    return ends


def mark_unreadable(gaps: pd.DataFrame, days: Iterable[tuple[int, int]], why: str = NOT_READABLE) -> pd.DataFrame:
    """The gaps, with `why` as the kind of the parts that lie in unreadable days (pairs of start and end)."""
    marked = [(int(start), int(end), str(kind)) for start, end, kind in gaps.itertuples(index=False)]
    for day_start, day_end in days:
        parts: list[tuple[int, int, str]] = []
        for start, end, kind in marked:
            first, last = max(start, day_start), min(end, day_end)
            if kind != NOT_RUNNING or last <= first:
                parts.append((start, end, kind))
            else:
                parts += [(start, first, kind), (first, last, why), (last, end, kind)]
        marked = parts
    return _merge(marked)


def _merge(gaps: list[tuple[int, int, str]]) -> pd.DataFrame:
    merged: list[tuple[int, int, str]] = []
    for start, end, kind in gaps:
        if end <= start:
            continue
        if merged and merged[-1][2] == kind and merged[-1][1] == start:
            merged[-1] = (merged[-1][0], end, kind)
        else:
            merged.append((start, end, kind))
    return pd.DataFrame(merged, columns=["start_ms", "end_ms", "kind"])
