"""Means over time of a driver's records, by numbers that can be worked out by hand."""

import time
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gua_sample.nvml_buffers import card_mean, driver_now, process_means, window_us

SECOND = 1_000_000
NOW = 1_794_916_800 * SECOND
ONE, OTHER = 4242, 4243

Records = list[tuple[int, int]]


def stretch(first: float, last: float, percent: int, rate: float = 6) -> Records:
    """Records at a rate a second, the first and the last so many seconds before now."""
    count = round((first - last) * rate) + 1
    return [(NOW - round((first - number / rate) * SECOND), percent) for number in range(count)]


def mean(records: Records, seconds: float = 30, now: int = NOW) -> float | None:
    """The mean to a hundredth, as it is stored."""
    percent = card_mean(records, now, round(seconds * SECOND))
    return None if percent is None else round(percent, 2)


# --- a card ---


def test_a_run_right_after_a_tick_is_over_fifteen_seconds() -> None:
    assert [window_us(ms) for ms in (0, 1000, 15_000, 30_000)] == [each * SECOND for each in (15, 15, 15, 30)]
    assert window_us(None) == 16 * SECOND
    records = stretch(16, 1, 0) + stretch(5 / 6, 0, 90)
    assert card_mean(records, NOW, window_us(1000)) == pytest.approx(6)


LATEST = 2**63 - 1
UNEVEN = [(time_us + (number % 3 - 1) * 40_000, 80) for number, (time_us, _) in enumerate(stretch(16, 0, 80))]
TWO_STEPS = stretch(40, 20, 0, rate=1) + stretch(19, 0, 50, rate=1)
OF_A_CARD: dict[str, tuple[float | None, Records, float]] = {  # the mean, of records, over so many seconds
    "at work now, for five of the sixteen seconds that a buffer holds": (25, stretch(5 - 1 / 6, 0, 80), 30),
    "time without records is idle": (25, stretch(9 - 1 / 6, 4, 80), 30),
    "idle for eleven seconds": (25, stretch(16 - 1 / 6, 11, 80), 30),
    "a record after a hole stands for one period": (
        15,  # 90 % of 16/6 of 16 s
        [record for age in (0, 4, 8, 12) for record in stretch(age + 0.5, age, 90)],
        30,
    ),
    "a single record stands for a sixth of a second": (1, [(NOW - 3 * SECOND, 96)], 30),
    "so does one further apart than any period": (6, stretch(15, 0, 96, rate=1 / 3), 30),
    "an older record shows that the buffer reaches back": (
        16,  # six of thirty seconds
        [(NOW - 3600 * SECOND, 100), *stretch(6 - 1 / 6, 0, 80)],
        30,
    ),
    "a full buffer says nothing about the time before": (60, stretch(71 / 6, 0, 60), 30),
    "nor does a larger one": (60, stretch(99 / 6, 0, 60), 30),
    "the window begins at the last tick": (50, TWO_STEPS, 20),
    "a longer window": (33.33, TWO_STEPS, 30),
    "a record that the last tick cuts counts for what is left of it": (50, TWO_STEPS, 19.5),
    "records that come a second late": (70, stretch(18, 0.9, 70), 30),
    "fourteen of sixteen seconds": (61.25, stretch(17, 2, 70), 16),
    "the time of implausible records is unknown": (80, stretch(20, 10, 80) + stretch(10 - 1 / 6, 0, 333_000), 15),
    "all are implausible": (None, stretch(20, 0, 101), 15),
    "uneven gaps lose no time": (80, UNEVEN, 15),
    "before the machine booted it was not idle": (50, [(number * SECOND, 50) for number in range(1, 6)], 30),
    "records given twice": (25, [*stretch(9 - 1 / 6, 4, 80), *stretch(5, 4, 80)], 30),
    "the largest times": (40, [(LATEST - number * SECOND, 40) for number in range(20)], 15),
}


@pytest.mark.parametrize("name", OF_A_CARD)
def test_the_mean_of_a_card(name: str) -> None:
    expected, records, seconds = OF_A_CARD[name]
    newest = max(records)[0]
    assert mean(records, seconds, now=NOW if abs(newest - NOW) < 60 * SECOND else newest) == expected


@given(
    st.lists(st.tuples(st.integers(1, 2**63 - 1) | st.integers(1, 2**25), st.integers(0, 2**32 - 1)), min_size=1),
    st.integers(0, 2**40),
    st.integers(15, 4000),
    st.randoms(use_true_random=False),
)
def test_a_mean_is_a_percentage_in_any_case(records: Records, late: int, seconds: int, random: Random) -> None:
    now = max(records)[0] + late
    percent = card_mean(records, now, seconds * SECOND)
    assert percent is None or 0 <= percent <= 100
    random.shuffle(records)
    assert card_mean(records, now, seconds * SECOND) == percent


# --- the driver's clock ---


@pytest.mark.parametrize("uptime_seconds", [500, 4000])
def test_a_machine_that_was_suspended_has_two_uptimes(monkeypatch: pytest.MonkeyPatch, uptime_seconds: int) -> None:
    seconds = {time.CLOCK_MONOTONIC: 500, time.CLOCK_BOOTTIME: 4000, time.CLOCK_REALTIME: 1_794_916_800}
    monkeypatch.setattr(time, "clock_gettime_ns", lambda clock: seconds[clock] * 1_000_000_000)
    assert driver_now((uptime_seconds - 5) * SECOND, 15 * SECOND) == uptime_seconds * SECOND


def test_a_record_of_a_moment_to_come_is_of_now() -> None:
    newest = time.time_ns() // 1000 + SECOND // 2
    assert driver_now(newest, 15 * SECOND) == newest


@pytest.mark.parametrize("seconds", [16, 3600, -2, -3600])
def test_records_outside_of_the_window_have_no_clock(seconds: int) -> None:
    assert driver_now(time.time_ns() // 1000 - seconds * SECOND, 15 * SECOND) is None


# --- processes ---


FORTY, TWENTY = [(ONE, age, 40) for age in range(16)], [(OTHER, age, 20) for age in range(8)]


@pytest.mark.parametrize(
    ("records", "seconds", "card", "means"),
    [
        ([(ONE, age, 30 + age % 2 * 20) for age in range(30)], 30, None, {ONE: 40}),
        # Each by itself.
        (FORTY + TWENTY, 16, None, {ONE: 40, OTHER: 10}),
        (FORTY + [(pid, age + 0.4, percent) for pid, age, percent in TWENTY], 16, None, {ONE: 40, OTHER: 10}),
        # Who has no record in the window is not listed.
        ([(ONE, 20, 40), (OTHER, 0, 30), (OTHER, 1, 30)], 15, None, {OTHER: 4}),
        # A single record of each process is a mean already, also one that is given twice.
        ([(ONE, 1, 25), (OTHER, 9, 3)], 30, None, {ONE: 25, OTHER: 3}),
        ([(ONE, 1, 25), (ONE, 1, 25)], 30, None, {ONE: 25}),
        ([(ONE, 1, 37_100)], 30, 50, {ONE: None}),
        # With a single record it works no longer than its card.
        ([(ONE, 1, 100), (OTHER, 1, 3)], 30, 6.25, {ONE: 7, OTHER: 3}),
        ([(ONE, 1, 100)], 30, 0, {ONE: 1}),  # but it did work
        ([(ONE, 1, 0)], 30, 50, {ONE: 0}),
    ],
)
def test_the_means_of_processes(
    records: list[tuple[int, float, int]], seconds: float, card: float | None, means: dict[int, int | None]
) -> None:
    rows = [(NOW - round(age * SECOND), pid, percent) for pid, age, percent in records]
    assert process_means(rows, NOW, round(seconds * SECOND), card) == means
