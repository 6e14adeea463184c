"""Reading the buffers in which the driver records utilization, of a card and of its processes.

A cursor is the time of the newest record that was read, in whatever clock the driver uses.
"""

# No `from __future__ import annotations` here: see records.py.

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pynvml

from gua_sample.busy_time import SECOND_US, SHORTEST_WINDOW_US, card_mean, driver_now, process_means

LARGEST_TIMESTAMP = 2**63 - 1  # limit of the store


def listed(function: Callable[..., Any], *arguments: Any) -> list[Any]:
    """The rows of an NVML list. NVIDIA's own mock answers "success, no rows", which pynvml raises as an error."""
    try:
        rows: list[Any] = function(*arguments)
    except pynvml.NVMLError as error:
        if error.value != pynvml.NVML_SUCCESS:
            raise
        return []
    return rows


def card_utilization(handle: Any, length_us: int, cursor: int | None) -> tuple[float | None, int | None]:
    """The card's mean utilization over the window, None if the buffer does not tell, and the next cursor."""
    try:
        _, samples = pynvml.nvmlDeviceGetSamples(handle, pynvml.NVML_GPU_UTILIZATION_SAMPLES, 0)
    except pynvml.NVMLError:  # mostly NOT_FOUND: the buffer of an idle card is empty
        return None, cursor
    records = [(sample.timeStamp, sample.sampleValue.uiVal) for sample in samples]
    records = [record for record in records if 0 < record[0] <= LARGEST_TIMESTAMP]
    if not records:
        return None, cursor
    newest_us = max(records)[0]
    now_us = _end_of_samples(handle, newest_us, length_us, cursor)
    percent = None if now_us is None else card_mean(records, now_us, length_us)
    return None if percent is None else round(percent, 2), newest_us


def _end_of_samples(handle: Any, newest_us: int, length_us: int, cursor: int | None) -> int | None:
    """The time up to which the buffer tells, by the driver's clock; None if it tells nothing of the window."""
    now_us = driver_now(newest_us, length_us)
    if now_us is None:  # a card with nothing new to tell, or else a clock that is none of ours
        return None if newest_us == cursor else newest_us
    if now_us - newest_us > SECOND_US:
        # The card idles and the driver writes no zeros, or the driver's clock is slow. The rate tells which.
        with suppress(pynvml.NVMLError):
            return newest_us if pynvml.nvmlDeviceGetUtilizationRates(handle).gpu else now_us
    return now_us


def process_utilization(
    handle: Any, length_us: int, cursor: int | None, card_percent: float | None
) -> tuple[dict[int, int | None], int | None]:
    """The SM utilization of pids that did something in the window, None if implausible, and the next cursor.

    `card_percent` is the card's mean over the same window, if that is known.
    """
    records = _process_records(handle, cursor)
    if not records:
        return {}, cursor
    newest_us = max(records)[0]
    now_us = driver_now(newest_us, length_us) or newest_us
    return process_means(records, now_us, length_us, card_percent), newest_us


def _process_records(handle: Any, cursor: int | None) -> list[tuple[int, int, int]]:
    """The (time, pid, percent) records newer than the cursor, and older ones if the last tick was a moment ago.

    If all records are older than the cursor, the driver's clock was set back, and all of them are new.
    """

    def newer_than(since: int) -> list[tuple[int, int, int]]:
        try:
            rows = listed(pynvml.nvmlDeviceGetProcessUtilization, handle, since)
        except pynvml.NVMLError_NotFound:
            return []
        records = [(row.timeStamp, row.pid, row.smUtil) for row in rows if row.pid]
        return [record for record in records if since < record[0] <= LARGEST_TIMESTAMP]

    if not cursor:
        return newer_than(0)
    now_us = driver_now(cursor, SHORTEST_WINDOW_US)
    records = newer_than(cursor if now_us is None else max(0, now_us - SHORTEST_WINDOW_US))
    if records:
        return records
    everything = newer_than(0)
    return everything if everything and max(everything)[0] < cursor else []
