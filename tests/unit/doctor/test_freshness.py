"""What gua doctor makes of the newest tick and of the clock."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gua_report.doctor import driver as doctor_driver
from gua_report.doctor import freshness as doctor_freshness
from gua_report.doctor.findings import ERROR, OK, WARNING, warning
from gua_report.ticks.newest import find_newest, list_history
from gua_sample import pending
from gua_sample.partition_names import DAY_MS
from gua_sample.records import Boot, Tick
from tests.facts import history, newest, statuses
from tests.lab import NOON_MS, SECOND_MS


def every(seconds: int, count: int, end_ms: int) -> list[int]:
    """Times that far apart, up to the last one."""
    return [end_ms - seconds * SECOND_MS * place for place in reversed(range(count))]


def test_a_tick_is_not_stale_before_the_next_one_is_due(tmp_path: Path) -> None:
    found = list_history(history(tmp_path, *every(30, 30, NOON_MS - 18 * 60 * SECOND_MS)))
    tick = find_newest(found, NOON_MS)
    assert tick
    assert tick.is_stale(NOON_MS)
    tick = tick._replace(due_ms=NOON_MS + 12 * 60 * SECOND_MS)
    judged = doctor_freshness.check_newest(found, tick, NOON_MS, "START", "JOURNAL")
    assert judged.status == OK
    assert judged.text.endswith("18 min ago; the timer's next run is in 12 min")


@pytest.mark.parametrize(
    ("seconds", "age_seconds", "status"),
    [(30, 75, OK), (30, 76, ERROR), (60, 150, OK), (60, 151, ERROR), (1, 75, OK), (1, 76, ERROR)],
)
def test_a_tick_is_stale_after_two_and_a_half_intervals(
    tmp_path: Path, seconds: int, age_seconds: int, status: str
) -> None:
    samples = history(tmp_path, *every(seconds, 30, NOON_MS - age_seconds * SECOND_MS))
    found = newest(samples)
    assert found.status == status
    assert found.remedy == (None if status == OK else "JOURNAL")


def test_the_interval_is_measured_across_midnight(tmp_path: Path) -> None:
    midnight_ms = NOON_MS - DAY_MS // 2
    samples = history(tmp_path, *every(300, 30, midnight_ms))
    assert len(os.listdir(samples)) == 2
    assert newest(samples, midnight_ms + 740 * SECOND_MS).status == OK
    assert newest(samples, midnight_ms + 760 * SECOND_MS).status == ERROR


def test_an_interval_that_was_told_counts(tmp_path: Path) -> None:
    samples = history(tmp_path, *every(30, 5, NOON_MS), interval_ms=600_000)
    assert newest(samples, NOON_MS + 1_500_000).status == OK
    assert newest(samples, NOON_MS + 1_501_000).status == ERROR


def test_a_single_tick_is_given_75_seconds(tmp_path: Path) -> None:
    samples = history(tmp_path, NOON_MS)
    assert newest(samples, NOON_MS + 75_000).status == OK
    assert newest(samples, NOON_MS + 75_001).status == ERROR


@pytest.mark.parametrize(
    ("problem", "words", "remedy"),
    [
        ("driver_not_loaded", "not loaded", "sudo modprobe nvidia; nvidia-smi"),
        ("driver_hangs", "reboot", "sudo reboot"),
        ("timeout", "killed", "sudo dmesg | grep -i nvrm"),
        ("something_new", "something_new", doctor_driver.OTHER_COMMAND),
    ],
)
def test_a_recorded_error_is_explained(tmp_path: Path, problem: str, words: str, remedy: str) -> None:
    found = newest(history(tmp_path, NOON_MS, problem=problem))
    assert (found.status, found.remedy) == (ERROR, remedy)
    assert words in found.text


def test_no_tick_is_an_error(tmp_path: Path) -> None:
    found = newest(str(tmp_path / "nowhere"))
    assert (found.status, found.remedy) == (ERROR, "START")


def test_ticks_of_the_future_do_not_hide_that_the_newest_is_stale(tmp_path: Path) -> None:
    samples = history(tmp_path, NOON_MS - 3_600_000, NOON_MS + 3_600_000, NOON_MS + 3 * DAY_MS)
    assert newest(samples).status == ERROR
    first, second = doctor_freshness.check_clock(list_history(samples), NOON_MS)
    future = f"{samples}/2026-11-19.sqlite"
    assert first == warning(
        "clock",
        f"{future} is of a day to come: was the clock set back, or wrong?",
        f"timedatectl; sudo mv -T {future} {future}.future",
    )
    assert (second.status, second.text[:6]) == (WARNING, "1 tick")


def test_a_clock_before_gua_existed_is_an_error_and_judges_nothing(tmp_path: Path) -> None:
    samples = history(tmp_path, NOON_MS)
    found = list_history(samples)
    assert statuses(doctor_freshness.check_clock(found, 0)) == [ERROR]
    assert newest(samples, 0).status == WARNING
    assert statuses(doctor_freshness.check_clock(found, NOON_MS)) == [OK]


def test_a_tick_that_waits_beside_its_partition_is_the_newest(tmp_path: Path) -> None:
    samples = history(tmp_path, NOON_MS - 3_600_000)
    pending.keep(samples, Tick(NOON_MS, None, Boot("boot", 5), None, 1, None, [], {}, []))
    found = newest(samples)
    assert found.status == OK
    assert "waits" in found.text
    for kept in Path(samples).glob("*.pending"):
        kept.write_text("no kept tick")
    assert newest(samples).status == ERROR
