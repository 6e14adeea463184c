"""What reclaiming would have freed."""

from __future__ import annotations

from pathlib import Path

from gua_sample.records import Tick
from tests.lab import (
    ALICE,
    BOB,
    HIDDEN,
    HOUR_MS,
    MINUTE_MS,
    MONDAY_MS,
    Gpu,
    Job,
    busy,
    held,
    mig,
    report_of,
    series,
    write,
)


def freed(folder: Path, ticks: list[Tick], start: int, end: int, *after: int) -> list[float]:
    """GPU-minutes; all times in minutes."""
    write(folder, ticks)
    rules = tuple(minutes * MINUTE_MS for minutes in after)
    period = MONDAY_MS + start * MINUTE_MS, MONDAY_MS + end * MINUTE_MS
    report = report_of(folder, *period, reclaim_after_ms=rules)
    assert report.reclaim["after_seconds"].tolist() == [60 * minutes for minutes in after]
    return [round(float(hours) * 60, 6) for hours in report.reclaim["freed_gpu_hours"]]


def test_reclaiming_frees_what_is_left_of_an_episode(tmp_path: Path) -> None:
    ticks = series(MONDAY_MS, 100, held()) + series(MONDAY_MS + 100 * MINUTE_MS, 20, busy())
    assert freed(tmp_path, ticks, 0, 120, 30, 60, 120) == [69, 39, 0]


def test_each_episode_waits_anew(tmp_path: Path) -> None:
    ticks = series(MONDAY_MS, 50, held()) + series(MONDAY_MS + 50 * MINUTE_MS, 10, busy())
    assert freed(tmp_path, ticks + series(MONDAY_MS + 60 * MINUTE_MS, 60, held()), 0, 120, 30, 60) == [19 + 30, 0]


def test_the_wait_began_before_the_window_if_the_episode_did(tmp_path: Path) -> None:
    assert freed(tmp_path, series(MONDAY_MS, 120, held()), 40, 100, 30, 60) == [60, 40]


def test_of_two_holders_the_younger_one_counts(tmp_path: Path) -> None:
    young = Job(200, "bob")
    ticks = series(MONDAY_MS, 50, held()) + series(MONDAY_MS + 50 * MINUTE_MS, 70, held(Job(), young))
    # 30 m: freed from 30 to 50 and, when both have waited, from 80 to 120. 1 h: from 110 on.
    assert freed(tmp_path, ticks, 0, 120, 30, 60) == [20 + 40, 10]


def test_a_second_holder_that_leaves_frees_the_card_for_the_first(tmp_path: Path) -> None:
    short = Job(200, "bob")
    ticks = series(MONDAY_MS, 40, held()) + series(MONDAY_MS + 40 * MINUTE_MS, 20, held(Job(), short))
    ticks += series(MONDAY_MS + 60 * MINUTE_MS, 60, held())
    assert freed(tmp_path, ticks, 0, 120, 30) == [10 + 60]


def test_an_idle_process_on_a_busy_card_frees_no_card(tmp_path: Path) -> None:
    assert freed(tmp_path, series(MONDAY_MS, 120, busy(ALICE, BOB)), 0, 120, 30) == [0]


def test_memory_of_nobody_frees_nothing(tmp_path: Path) -> None:
    assert freed(tmp_path, series(MONDAY_MS, 120, HIDDEN), 0, 120, 30) == [0]


def test_a_card_with_memory_of_nobody_beside_a_holder_is_not_freed(tmp_path: Path) -> None:
    both = Gpu(jobs=(Job(),), used_mib=20_000)
    assert freed(tmp_path, series(MONDAY_MS, 120, both), 0, 120, 30) == [0]


def test_a_slice_frees_its_share(tmp_path: Path) -> None:
    slices = [mig(0, 0, jobs=(Job(),)), mig(0, 1, 90.0, (Job(200, "bob"),))]
    assert freed(tmp_path, series(MONDAY_MS, 120, *slices), 0, 120, 60) == [30]


def test_a_slice_that_gets_sisters_frees_its_share_at_each_time(tmp_path: Path) -> None:
    alone, other = mig(0, 0, jobs=(Job(),)), mig(0, 1)
    ticks = series(MONDAY_MS, 60, alone) + series(MONDAY_MS + HOUR_MS, 60, alone, other)
    assert freed(tmp_path, ticks, 0, 120, 30) == [30 + 30]
