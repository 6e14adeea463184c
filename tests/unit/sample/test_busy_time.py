"""Means over time of a driver's records, by numbers that can be worked out by hand."""

from __future__ import annotations

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


def of_processes(
    *records: tuple[int, float, int], seconds: float = 30, card: float | None = None
) -> dict[int, int | None]:
    """The means of records that are given as pid, seconds before now, percent."""
    rows = [(NOW - round(age * SECOND), pid, percent) for pid, age, percent in records]
    return process_means(rows, NOW, round(seconds * SECOND), card)


# --- a card ---


@pytest.mark.parametrize(
    ("first", "last"),
    [
        pytest.param(5 - 1 / 6, 0, id="at work now"),
        pytest.param(9 - 1 / 6, 4, id="idle for four seconds"),
        pytest.param(16 - 1 / 6, 11, id="idle for eleven seconds"),
    ],
)
def test_time_without_records_is_idle(first: float, last: float) -> None:
    assert mean(stretch(first, last, 80)) == 25  # five of the sixteen seconds that a buffer holds


def test_each_record_after_a_hole_stands_for_one_period() -> None:
    bursts = [record for age in (0, 4, 8, 12) for record in stretch(age + 0.5, age, 90)]  # four records each
    assert mean(bursts) == 15  # 90 % of 16/6 of 16 s


def test_records_that_are_further_apart_than_any_period_stand_for_a_sixth_of_a_second() -> None:
    assert mean([(NOW - 3 * SECOND, 96)]) == 1
    assert mean(stretch(15, 0, 96, rate=1 / 3)) == 6


def test_an_older_record_shows_that_the_buffer_reaches_back_beyond_the_window() -> None:
    assert mean([(NOW - 3600 * SECOND, 100), *stretch(6 - 1 / 6, 0, 80)]) == 16  # six of thirty seconds


@pytest.mark.parametrize("count", [72, 100])
def test_a_full_buffer_says_nothing_about_the_time_before_its_oldest_record(count: int) -> None:
    assert mean(stretch((count - 1) / 6, 0, 60)) == 60


def test_the_window_begins_at_the_last_tick() -> None:
    records = stretch(40, 20, 0, rate=1) + stretch(19, 0, 50, rate=1)
    assert mean(records, seconds=20) == 50
    assert mean(records, seconds=30) == 33.33
    assert mean(records, seconds=19.5) == 50  # a record that the last tick cuts counts for what is left of it


def test_a_run_right_after_a_tick_is_over_fifteen_seconds() -> None:
    assert [window_us(ms) for ms in (0, 1000, 15_000, 30_000)] == [each * SECOND for each in (15, 15, 15, 30)]
    assert window_us(None) == 16 * SECOND
    records = stretch(16, 1, 0) + stretch(5 / 6, 0, 90)
    assert card_mean(records, NOW, window_us(1000)) == pytest.approx(6)


def test_records_that_come_a_second_late_are_not_taken_for_idle_time() -> None:
    assert mean(stretch(18, 0.9, 70)) == 70
    assert mean(stretch(17, 2, 70), seconds=16) == 61.25  # fourteen of sixteen seconds


def test_the_time_of_implausible_records_is_unknown_not_idle() -> None:
    assert mean(stretch(20, 10, 80) + stretch(10 - 1 / 6, 0, 333_000), seconds=15) == 80
    assert mean(stretch(20, 0, 101), seconds=15) is None


def test_uneven_gaps_between_records_lose_no_time() -> None:
    records = [(time_us + (number % 3 - 1) * 40_000, 80) for number, (time_us, _) in enumerate(stretch(16, 0, 80))]
    assert mean(records, seconds=15) == 80


def test_time_before_the_machine_booted_is_not_idle() -> None:
    assert mean([(number * SECOND, 50) for number in range(1, 6)], now=5 * SECOND) == 50


def test_the_largest_times_are_understood() -> None:
    newest = 2**63 - 1
    assert mean([(newest - number * SECOND, 40) for number in range(20)], now=newest, seconds=15) == 40


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


def test_a_process_that_worked_all_the_time_has_the_mean_of_its_records() -> None:
    assert of_processes(*((ONE, age, 30 + age % 2 * 20) for age in range(30))) == {ONE: 40}


@pytest.mark.parametrize("apart", [0, 0.4])
def test_processes_are_counted_each_by_itself(apart: float) -> None:
    ones = [(ONE, age, 40) for age in range(16)]
    others = [(OTHER, age + apart, 20) for age in range(8)]
    assert of_processes(*ones, *others, seconds=16) == {ONE: 40, OTHER: 10}


def test_a_process_without_a_record_in_the_window_is_not_listed() -> None:
    assert of_processes((ONE, 20, 40), (OTHER, 0, 30), (OTHER, 1, 30), seconds=15) == {OTHER: 4}


def test_a_single_record_of_each_process_is_a_mean_already() -> None:
    assert of_processes((ONE, 1, 25), (OTHER, 9, 3)) == {ONE: 25, OTHER: 3}
    assert of_processes((ONE, 1, 25), (ONE, 1, 25)) == {ONE: 25}  # given twice
    assert of_processes((ONE, 1, 37_100), card=50) == {ONE: None}


def test_a_process_with_a_single_record_works_no_longer_than_its_card() -> None:
    assert of_processes((ONE, 1, 100), (OTHER, 1, 3), card=6.25) == {ONE: 7, OTHER: 3}
    assert of_processes((ONE, 1, 100), card=0) == {ONE: 1}  # but it did work
    assert of_processes((ONE, 1, 0), card=50) == {ONE: 0}
