"""Means over time of a driver's records of utilization.

A driver writes them at a pace of its own, and on some machines none while a card idles (DGX Spark:
polarsignals/gpu-metrics-agent PR#37). There a mean over records would be that of the busy moments alone. So each record
stands for the time since the one before it, and time that no record stands for was idle. Times are microseconds of
the driver's clock; records come in any order.
"""

# No `from __future__ import annotations` here: see records.py.

import time
from collections.abc import Iterable
from typing import NamedTuple

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
LARGEST_PERCENT = 100  # nvtop#110 saw 37100 % of a process, some MIG-enabled cards give such values too


class Window(NamedTuple):
    """The time that a mean is over, and what a record stands for if there is none shortly before it."""

    start_us: int
    end_us: int
    period_us: int


def window_us(since_last_tick_ms: int | None) -> int:
    """The time before a tick that its means are over, as far as the driver's buffers reach."""
    return BUFFER_US if since_last_tick_ms is None else max(SHORTEST_WINDOW_US, since_last_tick_ms * 1000)


def driver_now(newest_us: int, length_us: int) -> int | None:
    """The time in the driver's clock, or None if the newest record is of no time within the window by any clock.

    Timestamps count from the epoch (nvtop#110) or from boot (DGX Spark), with or without suspended time.
    """
    for clock in (time.CLOCK_MONOTONIC, time.CLOCK_BOOTTIME, time.CLOCK_REALTIME):
        now_us = time.clock_gettime_ns(clock) // 1000
        if -CLOCKS_DIFFER_US <= now_us - newest_us < length_us:
            return max(now_us, newest_us)
    return None


def card_mean(records: list[tuple[int, int]], now_us: int, length_us: int) -> float | None:
    """The mean of (time, percent) records over the window before now; None if all of its records are implausible."""
    records = sorted(records)
    times = [time_us for time_us, _ in records]
    period_us = _period(map(int.__sub__, times[1:], times), CARD_PERIOD_US)
    return _mean(records, _window(times, now_us, length_us, period_us, FULL_CARD_BUFFER))


def process_means(
    records: Iterable[tuple[int, int, int]], now_us: int, length_us: int, card_percent: float | None
) -> dict[int, int | None]:
    """The mean of (time, pid, percent) records of each pid that has some in the window before now.

    It is None if they are all implausible, and rounded up: a little work is not idle.
    """
    of_pid: dict[int, dict[int, int]] = {}
    for time_us, pid, percent in sorted(records):
        of_pid.setdefault(pid, {})[time_us] = percent
    if all(len(own) == 1 for own in of_pid.values()):
        return _single_records({pid: percent for pid, own in of_pid.items() for percent in own.values()}, card_percent)
    gaps = [gap for own in of_pid.values() for gap in map(int.__sub__, list(own)[1:], own)]
    times = sorted(time_us for own in of_pid.values() for time_us in own)
    window = _window(times, now_us, length_us, _period(gaps, PROCESS_PERIOD_US), FULL_PROCESS_BUFFER)
    means = {pid: _mean(list(own.items()), window) for pid, own in of_pid.items() if max(own) > window.start_us}
    return {pid: None if mean is None else _rounded_up(mean) for pid, mean in means.items()}


def _single_records(percents: dict[int, int], card_percent: float | None) -> dict[int, int | None]:
    """The utilization of pids with one record each, as drivers are documented to give them (nvml.h).

    Then it is a mean already, over the driver's samples since the time asked for: asked for from a later time on, a
    record with the same timestamp has another value (nvtop#110, nvitop PR#85). But since a record might also be of one
    busy second alone, it counts for no more than the card's own: no process works for longer than its card.
    """
    most = LARGEST_PERCENT if card_percent is None else max(1, _rounded_up(card_percent))
    return {pid: min(percent, most) if percent <= LARGEST_PERCENT else None for pid, percent in percents.items()}


def _rounded_up(percent: float) -> int:
    return -int(-percent // 1)


def _period(gaps: Iterable[int], usual_us: int) -> int:
    """The median of the gaps that may be a sample period; a longer one is a time without records."""
    short = sorted(gap for gap in gaps if 0 < gap <= LONGEST_PERIOD_US)
    return short[(len(short) - 1) // 2] if len(short) > 1 else usual_us


def _window(times: list[int], now_us: int, length_us: int, period_us: int, full_buffer: int) -> Window:
    """The window before now, as far as the buffer with records of these times reaches."""
    # While a card works, its newest record is up to a second old (go-nvml#51): the time since says nothing yet.
    end_us = times[-1] if now_us - times[-1] <= max(SECOND_US, period_us * 3 // 2) else now_us
    start_us = max(0, end_us - length_us)  # 0 is when the machine booted, if it has just done so
    oldest_us = times[0] - period_us
    if oldest_us > start_us:
        start_us = oldest_us if len(times) >= full_buffer else max(start_us, min(oldest_us, end_us - BUFFER_US))
    return Window(start_us, end_us, period_us)


def _mean(records: list[tuple[int, int]], window: Window) -> float | None:
    """The mean of sorted records over the window, without the time that implausible ones stand for."""
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
