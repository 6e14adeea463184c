"""Utilization of cards and processes, as a tick records it: a mean over time, not over records."""

import os
import sqlite3
import time
from contextlib import closing
from typing import Any

import pytest

from tests.driver import ago
from tests.machine import Machine

PID = os.getpid()


def let_pass(machine: Machine, seconds: float) -> None:
    """Make the last tick one of so many seconds earlier, by the clock that windows are measured with."""
    with closing(sqlite3.connect(machine.partitions()[-1])) as connection, connection:
        connection.execute("UPDATE cursor SET uptime_ms = uptime_ms - ?", (round(seconds * 1000),))


def samples(first: float, last: float, percent: int, rate: float = 6) -> list[tuple[str, int]]:
    """Records at a rate a second, the first and the last so many seconds before the driver is asked."""
    count = round((first - last) * rate) + 1
    return [(ago(first - number / rate), percent) for number in range(count)]


def utilization(machine: Machine) -> tuple[Any, Any]:
    """Utilization and source at the newest tick."""
    row = machine.cards()[-1]
    return row["utilization_percent"], row["utilization_source"]


def sm_percents(machine: Machine) -> dict[int, int | None]:
    """The SM utilization of each pid at the newest tick."""
    last = machine.ticks()[-1]["ts_ms"]
    return {row["pid"]: row["sm_percent"] for row in machine.processes(f"ts_ms = {last}")}


# --- a card ---


@pytest.mark.parametrize("clock", [None, "boottime", "monotonic"])
def test_it_is_the_mean_over_time_by_any_clock(machine: Machine, clock: str | None) -> None:
    machine.scenario.settings["clock"] = clock
    records = samples(17, 4, 0) + samples(4 - 1 / 6, 0, 90)
    machine.scenario.add_card(samples=records, utilization_percent=90)
    machine.tick()
    assert utilization(machine) == (22.5, "samples")  # 90 % of four of sixteen seconds


def test_a_card_of_which_idle_time_leaves_no_records_is_not_busy_all_the_time(machine: Machine) -> None:
    card = machine.scenario.add_card(samples=samples(4 - 1 / 6, 0, 90), utilization_percent=90)
    machine.tick()
    assert utilization(machine) == (22.5, "samples")
    card.update(samples=samples(26, 10, 90), utilization_percent=0)
    machine.tick()
    assert utilization(machine) == (pytest.approx(30, abs=1), "samples")  # five of fifteen seconds
    card.update(samples=samples(21, 5, 60), utilization_percent=60)  # the driver's clock is slow
    machine.tick()
    assert utilization(machine) == (60, "samples")


def test_it_is_over_the_time_since_the_last_tick_where_the_buffer_reaches_that_far(machine: Machine) -> None:
    card = machine.scenario.add_card()
    machine.tick()
    let_pass(machine, 30)
    card.update(samples=samples(60, 10, 0, rate=1) + samples(9, 0, 60, rate=1), utilization_percent=60)
    machine.tick()
    assert utilization(machine) == (pytest.approx(20, abs=1.5), "samples")


def test_an_empty_buffer_leaves_the_rate_of_this_moment(machine: Machine) -> None:
    card = machine.scenario.add_card(samples=(), utilization_percent=7)
    for settings in ({}, {"samples": None}, {"samples": [(ago(1), 333_000)]}, {"buffers_answer_success": 1}):
        card.update(**settings)
        machine.tick()
        assert utilization(machine) == (7, "rate")


def test_a_driver_with_a_clock_of_its_own_is_still_understood(machine: Machine) -> None:
    card = machine.scenario.add_card(utilization_percent=7)
    for start_us in (5 * 10**17, 2 * 10**17, 4 * 10**17):
        card.update(samples=[(start_us + number * 166_667, 85) for number in range(100)])
        machine.tick()
        assert utilization(machine) == (85, "samples")
    machine.tick()  # nothing new
    assert utilization(machine) == (7, "rate")


def test_a_change_of_the_driver_begins_anew(machine: Machine) -> None:
    machine.scenario.add_card(samples=[(1000, 10), (2000, 10)], utilization_percent=7)
    machine.tick()
    machine.scenario.settings["driver_version"] = "590.1"
    machine.tick()
    assert [row["utilization_source"] for row in machine.cards()] == ["samples", "samples"]


# --- processes ---


def busy(pid: int, percent: int, *ages: float) -> list[tuple[int, str, int]]:
    """Records of a process, so many seconds before the driver is asked."""
    return [(pid, ago(age), percent) for age in ages]


def add_card(machine: Machine, *records: Any, **settings: Any) -> Any:
    """A card that two processes hold, with records of their SM utilization."""
    processes = [(PID, 8192), (PID + 1, 500)]
    return machine.scenario.add_card(compute=processes, process_utilization=records, **settings)


def test_sm_utilization_is_over_the_time_since_the_last_tick(machine: Machine) -> None:
    card = add_card(machine)
    machine.tick()
    let_pass(machine, 30)
    card.update(process_utilization=busy(PID, 60, 25, 26, 27) + busy(PID + 1, 100, *range(16)))
    machine.tick()
    percents = sm_percents(machine)
    assert percents[PID] in (6, 7)  # 60 % of 3 of 28 s
    assert percents[PID + 1] in (57, 58)


def test_sm_utilization_right_after_a_tick_is_not_decided_by_a_moment(machine: Machine) -> None:
    now_us = time.time_ns() // 1000
    seconds = [(PID, now_us - age * 1_000_000, 90) for age in (9, 8, 7)]
    card = add_card(machine, *seconds)
    machine.tick()
    card.update(process_utilization=[*seconds, (PID, now_us, 90)])
    machine.tick()
    assert sm_percents(machine)[PID] == 24  # 90 % of 4 of 15 s


def test_no_record_right_after_a_tick_is_unknown_and_later_idle(machine: Machine) -> None:
    add_card(machine)
    machine.tick()
    machine.tick()  # records come about once a second
    assert sm_percents(machine) == {PID: None, PID + 1: None}
    let_pass(machine, 2)
    machine.tick()
    assert sm_percents(machine) == {PID: 0, PID + 1: 0}


def test_records_that_the_last_tick_has_seen_are_not_counted_again(machine: Machine) -> None:
    now_us = time.time_ns() // 1000
    add_card(machine, (PID, now_us - 40_000_000, 80), (PID, now_us - 41_000_000, 80))
    machine.tick()
    let_pass(machine, 30)
    machine.tick()
    assert sm_percents(machine) == {PID: 0, PID + 1: 0}


def test_a_process_with_a_single_record_works_no_longer_than_its_card(machine: Machine) -> None:
    card = add_card(
        machine, *busy(PID, 84, 1), *busy(PID + 1, 3, 1), samples=samples(16, 0, 12), utilization_percent=12
    )
    machine.tick()
    assert sm_percents(machine) == {PID: 12, PID + 1: 3}
    card.update(samples=None)  # a rate says nothing about the time before
    machine.tick()
    assert sm_percents(machine) == {PID: 84, PID + 1: 3}


def test_absurd_records_and_those_of_nobody_on_the_card_are_left_out(machine: Machine) -> None:
    others = busy(0, 50, 0, 1, 2) + busy(999_999, 50, 1)
    add_card(machine, *busy(PID, 37_100, 1), *busy(PID + 1, 60, 1), *others, utilization_percent=80)
    machine.tick()
    assert sm_percents(machine) == {PID: None, PID + 1: 60}


def test_times_that_no_file_could_hold_are_left_out(machine: Machine) -> None:
    add_card(machine, (PID, 2**63, 50), (PID, None, 30), samples=[(2**63, 10), *samples(17, 0, 60)])
    machine.tick()
    assert utilization(machine) == (60, "samples")
    assert sm_percents(machine) == {PID: 30, PID + 1: 0}


def test_a_driver_whose_clock_was_set_back_still_tells_of_processes(machine: Machine) -> None:
    card = add_card(machine, utilization_percent=90)
    for time_us, percent in ((5 * 10**17, 85), (2 * 10**17, 90), (4 * 10**17, 70)):
        card.update(process_utilization=[(PID, time_us, percent)])
        machine.tick()
        assert sm_percents(machine)[PID] == percent


@pytest.mark.parametrize(
    ("settings", "percents", "missing"),
    [
        ({"buffers_answer_success": 1}, {PID: 0, PID + 1: 0}, None),  # success without records means none
        ({"process_utilization": None}, {PID: None, PID + 1: None}, "sm_percent:not_supported"),
    ],
)
def test_no_record_of_any_process_is_no_error(
    machine: Machine, settings: dict[str, int | None], percents: dict[int, int | None], missing: str | None
) -> None:
    card = add_card(machine, *busy(PID, 50, 1), utilization_percent=7)
    card.update(graphics=(), mps=(), samples=None, **settings)
    machine.tick()
    assert sm_percents(machine) == percents
    assert utilization(machine) == (7, "rate")
    assert (machine.cards()[0]["missing"], machine.cards()[0]["status"]) == (missing, "ok")
