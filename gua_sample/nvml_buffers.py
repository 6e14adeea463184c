"""The buffers in which the driver records utilization, of a card and of its processes, and means over time of them.

On some machines a driver writes none while a card idles (DGX Spark: polarsignals/gpu-metrics-agent PR#37). So each
record stands for the time since the one before it, and time that no record stands for was idle. Times are microseconds
of the driver's clock; records come in any order. A cursor is the time of the newest record that was read.
"""

import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

import pynvml

LARGEST_TIMESTAMP = 2**63 - 1  # limit of the store
SECOND_US = 1_000_000
# nvml.h (nvmlUtilization_t): "each sample period may be between 1 second and 1/6 second".
CARD_PERIOD_US = SECOND_US // 6
PROCESS_PERIOD_US = SECOND_US
LONGEST_PERIOD_US = SECOND_US * 3 // 2
# A buffer that is not full says something about the last 16 s: 100 records, six a second.
BUFFER_US = 16 * SECOND_US
# Buffers are rings that drop the oldest record: of 100, or of 72 and "10 seconds of sampling" (ctrl2080gpumon.h and
# ctrl2080perf.h of NVIDIA/open-gpu-kernel-modules). From so many on, there may have been older ones.
FULL_CARD_BUFFER = 60
FULL_PROCESS_BUFFER = 100  # go-nvml#11
# A run by hand right after a tick is not decided by the moment between the two.
SHORTEST_WINDOW_US = 15 * SECOND_US
CLOCKS_DIFFER_US = SECOND_US
POLLED = {"nvmlDeviceGetSamples": (pynvml.NVML_GPU_UTILIZATION_SAMPLES,), "nvmlDeviceGetProcessUtilization": ()}
LARGEST_PERCENT = 100  # nvtop#110 saw 37100 % of a process, some MIG-enabled cards give such values too


# The start and the end of the time that a mean is over, and what a record stands for if there is none before it.
Window = tuple[int, int, int]


def window_us(since_last_tick_ms: int | None) -> int:
    return BUFFER_US if since_last_tick_ms is None else max(SHORTEST_WINDOW_US, since_last_tick_ms * 1000)


def driver_now(newest_us: int, length_us: int) -> int | None:
    """The driver's time (nvtop#110); None if the newest record is not in the window."""
    for clock in (time.CLOCK_MONOTONIC, time.CLOCK_BOOTTIME, time.CLOCK_REALTIME):
        now_us = time.clock_gettime_ns(clock) // 1000
        if -CLOCKS_DIFFER_US <= now_us - newest_us < length_us:
            return max(now_us, newest_us)
    return None


def card_mean(records: list[tuple[int, int]], now_us: int, length_us: int) -> float | None:
    """The mean of (time, percent) records over the window; None if all are implausible."""
    records = sorted(records)
    times = [time_us for time_us, _ in records]
    period_us = _period(map(int.__sub__, times[1:], times), CARD_PERIOD_US)
    return _mean(records, _window(times, now_us, length_us, period_us, FULL_CARD_BUFFER))


def process_means(
    records: Iterable[tuple[int, int, int]], now_us: int, length_us: int, card_percent: float | None
) -> dict[int, int | None]:
    """The mean of each pid's records in the window, rounded up; None if all are implausible."""
    of_pid: dict[int, dict[int, int]] = {}
    for time_us, pid, percent in sorted(records):
        of_pid.setdefault(pid, {})[time_us] = percent
    if all(len(own) == 1 for own in of_pid.values()):
        return _single_records({pid: percent for pid, own in of_pid.items() for percent in own.values()}, card_percent)
    gaps = [gap for own in of_pid.values() for gap in map(int.__sub__, list(own)[1:], own)]
    times = sorted(time_us for own in of_pid.values() for time_us in own)
    window = _window(times, now_us, length_us, _period(gaps, PROCESS_PERIOD_US), FULL_PROCESS_BUFFER)
    means = {pid: _mean(list(own.items()), window) for pid, own in of_pid.items() if max(own) > window[0]}
    return {pid: None if mean is None else _rounded_up(mean) for pid, mean in means.items()}


def _single_records(percents: dict[int, int], card_percent: float | None) -> dict[int, int | None]:
    """The utilization of pids with one record each, as drivers are documented to give them (nvml.h).

    Then it is a mean already (nvtop#110, nvitop PR#85). But since it might also be of one busy second alone, it counts
    for no more than the card's own.
    """
    most = LARGEST_PERCENT if card_percent is None else max(1, _rounded_up(card_percent))
    return {pid: min(percent, most) if percent <= LARGEST_PERCENT else None for pid, percent in percents.items()}


def _rounded_up(percent: float) -> int:
    return -int(-percent // 1)


def _period(gaps: Iterable[int], usual_us: int) -> int:
    short = sorted(gap for gap in gaps if 0 < gap <= LONGEST_PERIOD_US)
    return short[(len(short) - 1) // 2] if len(short) > 1 else usual_us


def _window(times: list[int], now_us: int, length_us: int, period_us: int, full_buffer: int) -> Window:
    # While a card works, its newest record is up to a second old (go-nvml#51): the time since says nothing yet.
    end_us = times[-1] if now_us - times[-1] <= max(SECOND_US, period_us * 3 // 2) else now_us
    start_us = max(0, end_us - length_us)  # 0 is when the machine booted, if it has just done so
    oldest_us = times[0] - period_us
    if oldest_us > start_us:
        start_us = oldest_us if len(times) >= full_buffer else max(start_us, min(oldest_us, end_us - BUFFER_US))
    return start_us, end_us, period_us


def _mean(records: list[tuple[int, int]], window: Window) -> float | None:
    start_us, end_us, period_us = window
    longest_us = period_us * 7 // 4  # between a record that comes late and one that is missing
    known_us, busy, is_known = end_us - start_us, 0, False
    before_us = records[0][0] - period_us
    for time_us, percent in records:
        gap_us, before_us = time_us - before_us, time_us
        if time_us > start_us:
            span_us = min(gap_us if gap_us <= longest_us else period_us, time_us - start_us)
            if percent <= LARGEST_PERCENT:
                busy += percent * span_us
                is_known = True
            else:
                known_us -= span_us
    return busy / known_us if is_known and known_us > 0 else None


def listed(function: Callable[..., Any], *arguments: Any) -> list[Any]:
    """The rows of an NVML list. NVIDIA's mock answers "success, no rows", which pynvml raises."""
    try:
        rows: list[Any] = function(*arguments)
    except pynvml.NVMLError as error:
        if error.value != pynvml.NVML_SUCCESS:
            raise
        return []
    return rows


def card_utilization(handle: Any, length_us: int, cursor: int | None) -> tuple[float | None, int | None]:
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
    """The driver's time up to which the buffer tells; None if it tells nothing of the window."""
    now_us = driver_now(newest_us, length_us)
    if now_us is None:  # a card with nothing new to tell, or else a clock that is none of ours
        return None if newest_us == cursor else newest_us
    if now_us - newest_us > SECOND_US:
        # The card idles without records, or the driver's clock is slow: the rate tells which.
        with suppress(pynvml.NVMLError):
            return newest_us if pynvml.nvmlDeviceGetUtilizationRates(handle).gpu else now_us
    return now_us


def process_utilization(
    handle: Any, length_us: int, cursor: int | None, card_percent: float | None
) -> tuple[dict[int, int | None], int | None]:
    """The SM utilization of pids that did something, None if implausible, and the next cursor."""
    records = _process_records(handle, cursor)
    if not records:
        return {}, cursor
    newest_us = max(records)[0]
    now_us = driver_now(newest_us, length_us) or newest_us
    return process_means(records, now_us, length_us, card_percent), newest_us


def _process_records(handle: Any, cursor: int | None) -> list[tuple[int, int, int]]:
    """The records newer than the cursor; all of them if the clock of the driver was set back."""

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


def poll(newest: dict[tuple[int, str], int]) -> None:
    """Ask each card for its newest records, for gua doctor --record."""
    with suppress(pynvml.NVMLError):
        pynvml.nvmlInit()
        for index in range(pynvml.nvmlDeviceGetCount()):
            for name, kind in POLLED.items():
                with suppress(pynvml.NVMLError):
                    handle, since = pynvml.nvmlDeviceGetHandleByIndex(index), newest.get((index, name), 0)
                    answer = getattr(pynvml, name)(handle, *kind, since)
                    newest[index, name] = max([since, *(one.timeStamp for one in (answer[1] if kind else answer))])
        pynvml.nvmlShutdown()
