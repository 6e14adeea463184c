"""Coverage of a window: the observed time, and the reasons for the gaps."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pandas as pd

from gua_report.ticks.arrays import Booleans, Integers
from gua_report.ticks.history import History
from gua_report.window import split_days
from gua_sample.partition_names import DAY_MS, day_of
from gua_sample.policy import LONGEST_GAP_INTERVALS
from gua_sample.records import IMPORTED_BOOT, TIMEOUT

NOT_RUNNING = "sampler not running"
DRIVER_ERROR = "driver error"
KILLED = "sampler killed (timeout)"
HOST_DOWN = "host down"
NOT_READABLE = "partition not readable"
EXPIRED = "ticks expired"
NOT_COLLECTED = "not collected"  # of a host in a fleet: its file ends before
LEFT_OUT = "left out"  # of a host in a fleet: stored, and not used
LONGEST_HANG_MS = 300_000  # the unit kills a run that hangs sooner
Gap = tuple[int, int, str]  # from when to when, and its kind
Columns = Mapping[str, Any] | pd.DataFrame
SPAN_COLUMNS = ["start_ms", "end_ms", "boot_id", "driver_version", "kind"]


def find_spans(history: History, days: list[str]) -> pd.DataFrame:
    """Spans of consecutive ticks of days that have some: SPAN_COLUMNS. `kind` is the reason why there are no cards."""
    ticks = history.timeline(days)
    failed = ~pd.isna(ticks["error"]).to_numpy()
    kinds = np.full(len(ticks), None, dtype=object)
    kinds[failed] = DRIVER_ERROR
    kinds[ticks["error"].eq(TIMEOUT).to_numpy()] = KILLED
    times, ends = ticks["ts_ms"].to_numpy(dtype=np.int64), _ends(ticks, failed)
    boots, drivers = (ticks[name].to_numpy(dtype=object) for name in ("boot_id", "driver_version"))
    goes_on = (ends[:-1] == times[1:]) & (boots[1:] == boots[:-1]) & (drivers[1:] == drivers[:-1])
    goes_on &= kinds[1:] == kinds[:-1]
    goes_on &= times[1:] // DAY_MS == times[:-1] // DAY_MS
    first, last = np.append(True, ~goes_on), np.append(~goes_on, True)
    spans = [times[first], ends[last], boots[first], drivers[first], kinds[first]]
    return pd.DataFrame(dict(zip(SPAN_COLUMNS, spans, strict=True)))


def find_gaps(spans: Columns, start_ms: int, end_ms: int) -> list[Gap]:
    """Stretches without card time. `spans` include those just before and after the window."""
    starts, ends = (np.asarray(spans[name], dtype=np.int64) for name in ("start_ms", "end_ms"))
    boots, kinds = (np.asarray(spans[name], dtype=object) for name in ("boot_id", "kind"))
    gaps: list[Gap] = []
    for position in np.flatnonzero(~pd.isna(kinds)):
        gaps.append((int(starts[position]), int(ends[position]), str(kinds[position])))
    for position in np.flatnonzero(starts[1:] > ends[:-1]):
        start, end = int(ends[position]), int(starts[position + 1])
        kind = HOST_DOWN if _rebooted(boots[position], boots[position + 1]) else NOT_RUNNING
        if start % DAY_MS == 0 and end - start <= LONGEST_HANG_MS and not pd.isna(kinds[position]):
            kind = str(kinds[position])  # its day ends at midnight, what has failed then need not
        gaps.append((start, end, kind))
    gaps.append((start_ms, int(starts[0]) if len(starts) else end_ms, NOT_RUNNING))
    gaps += [(int(end), end_ms, NOT_RUNNING) for end in ends[-1:]]
    return _merge([(max(start, start_ms), min(end, end_ms), kind) for start, end, kind in sorted(gaps)])


def _rebooted(boot_id: str, later_boot_id: str) -> bool:
    made_up = boot_id.startswith(IMPORTED_BOOT) or later_boot_id.startswith(IMPORTED_BOOT)
    return boot_id != later_boot_id and not made_up


def _ends(ticks: pd.DataFrame, failed: Booleans) -> Integers:
    """The end of each tick's time: by its weight, or by its run if that failed later; in its day."""
    times = ticks["ts_ms"].to_numpy(dtype=np.int64)
    ends: Integers = times + ticks["weight_ms"].to_numpy(dtype=np.int64)
    ran_until = times + np.nan_to_num(ticks["nvml_ms"].to_numpy(dtype="float64")).astype(np.int64)
    late = failed & (ran_until > ends)
    ends[late] = ran_until[late]
    rest = times[1:] - ends[:-1]
    # No run begins beside a hanging one, and then the timer waits for its next turn: that wait, too, is due to the run.
    short = rest <= LONGEST_GAP_INTERVALS * ticks["interval_ms"].to_numpy(dtype="float64")[:-1]
    boots = ticks["boot_id"].to_numpy(dtype=object)
    until_next = late[:-1] & ((short & (boots[1:] == boots[:-1])) | (rest < 0))
    ends[:-1][until_next] = times[1:][until_next]
    within: Integers = np.minimum(ends, times // DAY_MS * DAY_MS + DAY_MS)
    return within


def mark_days(gaps: Iterable[Gap], kinds: Mapping[str, str]) -> list[Gap]:
    """The gaps, in which these kinds, by day, take the place of "sampler not running"."""
    marked: list[Gap] = []
    for start, end, kind in gaps:
        parts = split_days(start, end) if kind == NOT_RUNNING else [(start, end)]
        marked += [(*part, kinds.get(day_of(part[0]), kind) if kind == NOT_RUNNING else kind) for part in parts]
    return _merge(marked)


def gap_frame(gaps: list[Gap]) -> pd.DataFrame:
    return pd.DataFrame(gaps, columns=["start_ms", "end_ms", "kind"])


def length_of(gaps: Iterable[Gap]) -> int:
    return sum(end - start for start, end, _ in gaps)


def _merge(gaps: list[Gap]) -> list[Gap]:
    merged: list[Gap] = []
    for start, end, kind in gaps:
        if end <= start:
            continue
        if merged and merged[-1][2] == kind and merged[-1][1] == start:
            merged[-1] = (merged[-1][0], end, kind)
        else:
            merged.append((start, end, kind))
    return merged
