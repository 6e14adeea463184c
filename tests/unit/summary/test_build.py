"""The report as a whole: right where others are wrong, and any division of time adds up."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gua_report
from gua_report.ticks.history import History
from gua_sample.errors import NothingToReport, UsageError
from gua_sample.partition_names import day_of
from gua_sample.policy import STATES
from gua_sample.records import Tick
from tests.histories import Moment, histories, many, part, span, ticks_of
from tests.lab import (
    ALICE,
    BOB,
    CONFIG,
    DAY_MS,
    HIDDEN,
    HOUR_MS,
    MINUTE_MS,
    MONDAY_MS,
    SECOND_MS,
    Gpu,
    Job,
    Naive,
    Report,
    at,
    build_report,
    busy,
    cell,
    free,
    gap_seconds,
    held,
    hours,
    hours_by,
    lost,
    mig,
    report_of,
    row,
    same,
    series,
    tick,
    window,
    write,
    written,
)


def hour(*gpus: Gpu, start_ms: int = MONDAY_MS) -> list[Tick]:
    return series(start_ms, 60, *gpus)


def report_hour(folder: Path, *gpus: Gpu) -> Report:
    write(folder, hour(*gpus))
    return report_of(folder, MONDAY_MS, MONDAY_MS + HOUR_MS)


def expect(report: Report, **states: float) -> None:
    """GPU-hours by state; those not named are 0."""
    names = {name.replace("_", "-"): value for name, value in states.items()}
    assert hours(report) == pytest.approx({state: names.get(state, 0.0) for state in STATES})


# --- right where others are wrong ---


def test_one_lost_card_does_not_hide_the_others(tmp_path: Path) -> None:
    report = report_hour(tmp_path, busy(index=0), lost(1), held(index=2), free(3))
    expect(report, active=1, idle_held=1, truly_idle=1, unknown=1)
    assert report.gpus["index"].tolist() == [0, 1, 2, 3]
    assert report.coverage_share == 1


def test_one_mig_card_does_not_hide_the_others(tmp_path: Path) -> None:
    report = report_hour(tmp_path, busy(index=0), mig(1, 0, jobs=(Job(7),)), mig(1, 1, 50.0), free(2))
    expect(report, active=1.5, idle_held=0.5, truly_idle=1)


def test_a_card_that_was_lost_keeps_its_name_and_is_not_two(tmp_path: Path) -> None:
    write(tmp_path, series(MONDAY_MS, 30, held()) + series(MONDAY_MS + 30 * MINUTE_MS, 30, lost()))
    report = report_of(tmp_path, MONDAY_MS, MONDAY_MS + HOUR_MS)
    found = row(report.gpus, "uuid", "GPU-0")
    assert found["name"] == "A100"
    assert found["idle_held_share"] == pytest.approx(0.5)
    assert found["unknown_share"] == pytest.approx(0.5)


@pytest.mark.parametrize(
    "gpu",
    [
        lost(),
        Gpu(utilization=None, jobs=(Job(),)),
        Gpu(jobs=(Job(memory_mib=None),), used_mib=None),
        Gpu(utilization=0.0, status="no_permission"),
    ],
    ids=["lost", "held but not measurable", "no memory known", "no process list"],
)
def test_unknown_is_its_own_column_and_never_idle(tmp_path: Path, gpu: Gpu) -> None:
    report = report_hour(tmp_path, gpu)
    expect(report, unknown=1)
    assert hours_by(report.gpus, "uuid") == pytest.approx({("GPU-0", "unknown"): 1.0})
    assert report.episodes.empty
    assert report.reclaim["freed_gpu_hours"].tolist() == [0, 0, 0]
    assert report.heatmap["active_share"].isna().all()
    assert (report.identities["idle_held_gpu_hours"] == 0).all()


def test_one_who_idles_on_a_card_that_somebody_else_keeps_busy_is_found(tmp_path: Path) -> None:
    report = report_hour(tmp_path, busy(ALICE, BOB))
    expect(report, active=1)
    # The first tick has none before it.
    assert hours_by(report.identities, "identity") == pytest.approx(
        {("alice", "active"): 1 / 60, ("alice", "idle-held"): 59 / 60, ("bob", "active"): 1.0}
    )
    assert report.episodes["identity"].tolist() == ["alice"]


def test_one_who_idles_on_a_busy_card_is_found_from_the_first_moment_of_the_window(tmp_path: Path) -> None:
    write(tmp_path, series(MONDAY_MS - HOUR_MS, 120, busy(ALICE, BOB)))
    report = report_of(tmp_path, MONDAY_MS, MONDAY_MS + HOUR_MS)
    assert hours_by(report.identities, "identity") == pytest.approx({("alice", "idle-held"): 1, ("bob", "active"): 1})


def test_memory_that_no_process_shows_is_held_by_unattributed(tmp_path: Path) -> None:
    report = report_hour(tmp_path, HIDDEN)
    expect(report, idle_held=1)
    found = row(report.identities, "identity", "(unattributed)")
    assert found["idle_held_gpu_hours"] == pytest.approx(1)
    assert found["idle_held_share"] == 1
    assert report.reclaim["freed_gpu_hours"].tolist() == [0, 0, 0]


def test_a_little_memory_that_no_process_shows_is_not_held(tmp_path: Path) -> None:
    expect(report_hour(tmp_path, Gpu(used_mib=1024)), truly_idle=1)


def test_hidden_memory_beside_a_holder_is_held_by_both(tmp_path: Path) -> None:
    report = report_hour(tmp_path, Gpu(jobs=(Job(),), used_mib=20_000))
    expect(report, idle_held=1)
    assert hours_by(report.identities, "identity") == pytest.approx(
        {("alice", "idle-held"): 1, ("(unattributed)", "idle-held"): 1}
    )


def test_a_mig_card_in_seven_slices_weighs_one_gpu(tmp_path: Path) -> None:
    slices = [mig(0, place, jobs=(Job(10 + place, f"user{place}"),)) for place in range(7)]
    report = report_hour(tmp_path, *slices)
    expect(report, idle_held=1)
    assert len(report.gpus) == 7
    assert report.gpus["gpu_hours"].tolist() == pytest.approx([1 / 7] * 7)
    assert report.gpus["mig_index"].tolist() == list(range(7))
    assert report.identities["gpu_hours"].tolist() == pytest.approx([1 / 7] * 7)
    assert report.capacity["equivalent_gpus"].sum() == pytest.approx(1)


def test_slices_weigh_by_their_memory(tmp_path: Path) -> None:
    large = mig(0, 0, 80.0, (Job(),))._replace(total_mib=40_000)
    small = mig(0, 1)._replace(total_mib=10_000)
    expect(report_hour(tmp_path, large, small), active=0.8, truly_idle=0.2)


def test_a_card_that_becomes_mig_in_between_weighs_one_gpu_all_the_time(tmp_path: Path) -> None:
    half = 30 * MINUTE_MS
    slices = [mig(0, place) for place in range(7)]
    write(tmp_path, series(MONDAY_MS, 30, free()) + series(MONDAY_MS + half, 30, *slices))
    expect(report_of(tmp_path, MONDAY_MS, MONDAY_MS + HOUR_MS), truly_idle=1)


def test_slices_that_are_lost_still_weigh_one_gpu_together(tmp_path: Path) -> None:
    gone = [mig(0, place, None)._replace(status="gpu_is_lost", total_mib=None, used_mib=None) for place in range(7)]
    expect(report_hour(tmp_path, *gone, free(1)), unknown=1, truly_idle=1)


def test_the_first_user_of_a_container_is_not_the_hosts_first_administrator(tmp_path: Path) -> None:
    container = "/system.slice/docker-3f2a9c81d0b7" + "0" * 52 + ".scope"
    report = report_hour(tmp_path, held(Job(100, "admin", uid=1000, cgroup=container), Job(101, "admin", uid=1000)))
    assert set(report.identities["identity"]) == {"admin", "docker:3f2a9c81d0b7"}
    assert set(report.episodes["identity"]) == {"admin", "docker:3f2a9c81d0b7"}


def test_a_desktop_is_not_a_holder(tmp_path: Path) -> None:
    report = report_hour(tmp_path, held(Job(300, "root", 60, type="graphics", uid=0)))
    expect(report, truly_idle=1)
    assert report.identities.empty
    assert report.episodes.empty


def test_a_desktop_beside_a_holder_is_not_one(tmp_path: Path) -> None:
    report = report_hour(tmp_path, held(Job(), Job(300, "root", 60, type="graphics", uid=0)))
    assert report.identities["identity"].tolist() == ["alice"]
    assert report.episodes["identity"].tolist() == ["alice"]


def test_a_desktop_on_a_card_with_hidden_memory_is_not_its_holder(tmp_path: Path) -> None:
    desktop = Job(300, "root", 60, type="graphics", uid=0)
    report = report_hour(tmp_path, Gpu(jobs=(desktop,), used_mib=20_000))
    assert report.identities["identity"].tolist() == ["(unattributed)"]


def test_an_identity_counts_once_however_many_processes(tmp_path: Path) -> None:
    many = tuple(Job(100 + number) for number in range(5))
    report = report_hour(tmp_path, held(*many), held(*many, index=1))
    assert hours_by(report.identities, "identity") == pytest.approx({("alice", "idle-held"): 2})


def test_an_identity_with_an_active_and_an_idle_process_on_a_card_is_active_there(tmp_path: Path) -> None:
    both = busy(ALICE, Job(101, "alice", sm_percent=90))
    write(tmp_path, series(MONDAY_MS - HOUR_MS, 120, both, held(ALICE, index=1)))
    report = report_of(tmp_path, MONDAY_MS, MONDAY_MS + HOUR_MS)
    assert hours_by(report.identities, "identity") == pytest.approx({("alice", "active"): 1, ("alice", "idle-held"): 1})


def test_a_person_with_several_identities_counts_once_on_a_card(tmp_path: Path) -> None:
    container = "/system.slice/docker-3f2a9c81d0b7" + "0" * 52 + ".scope"
    write(tmp_path, hour(held(Job(), Job(101, "x", cgroup=container))))
    config = CONFIG._replace(people={"docker:3f2a9c81d0b7": "alice"})
    report = report_of(tmp_path, MONDAY_MS, MONDAY_MS + HOUR_MS, config=config)
    assert hours_by(report.identities, "identity") == pytest.approx({("alice", "idle-held"): 1})


def test_a_process_on_a_busy_card_whose_memory_is_not_told_is_there(tmp_path: Path) -> None:
    report = report_hour(tmp_path, Gpu(0, 90.0, (Job(memory_mib=None),), used_mib=4000))
    assert hours_by(report.identities, "identity") == pytest.approx({("alice", "active"): 1})


# --- missed ticks and mixed intervals ---


def at_intervals(*stretches: tuple[int, int, bool]) -> list[Tick]:
    """Stretches of (interval in seconds, length in minutes, told or not) of a card that idles, then works."""
    ticks, ts_ms = [], MONDAY_MS
    total = sum(length for _, length, _ in stretches) * MINUTE_MS
    for seconds, length, told in stretches:
        until = ts_ms + length * MINUTE_MS
        while ts_ms < until:
            gpu = held() if ts_ms < MONDAY_MS + total // 2 else busy()
            ticks.append(tick(ts_ms, gpu, interval_ms=seconds * SECOND_MS if told else None))
            ts_ms += seconds * SECOND_MS
    return ticks


@pytest.mark.parametrize(
    "stretches",
    [
        [(60, 120, True)],
        [(10, 120, False)],
        [(10, 60, True), (60, 60, True)],
        [(60, 60, True), (10, 60, True)],
        [(10, 60, False), (60, 60, False)],
        [(60, 60, False), (10, 60, False)],
        [(10, 60, True), (60, 60, False)],
        [(10, 60, False), (60, 60, True)],
        [(30, 40, False), (10, 40, True), (60, 40, False)],
    ],
)
def test_intervals_do_not_change_gpu_hours(tmp_path: Path, stretches: list[tuple[int, int, bool]]) -> None:
    write(tmp_path, at_intervals(*stretches))
    report = report_of(tmp_path, MONDAY_MS, MONDAY_MS + 2 * HOUR_MS)
    expect(report, idle_held=1, active=1)
    assert report.coverage_share == 1


def test_missed_ticks_do_not_change_gpu_hours(tmp_path: Path) -> None:
    ticks = at_intervals((30, 120, False))
    missed = [one for number, one in enumerate(ticks) if number % 7 != 3]
    write(tmp_path, missed)
    expect(report_of(tmp_path, MONDAY_MS, MONDAY_MS + 2 * HOUR_MS), idle_held=1, active=1)


def test_manual_runs_do_not_change_gpu_hours(tmp_path: Path) -> None:
    ticks = at_intervals((60, 120, True))
    manual = [one._replace(ts_ms=one.ts_ms + 7000 + 10 * number, interval_ms=None) for number, one in enumerate(ticks)]
    write(tmp_path, sorted(ticks + manual[20:40], key=lambda one: one.ts_ms))
    expect(report_of(tmp_path, MONDAY_MS, MONDAY_MS + 2 * HOUR_MS), idle_held=1, active=1)


# --- the heatmap ---


def test_the_heatmap_has_every_hour_of_the_week_and_no_guess_for_those_not_seen(tmp_path: Path) -> None:
    report = report_hour(tmp_path, busy(), free(1))
    assert list(report.heatmap.columns) == ["weekday", "hour", "active_share"]
    assert len(report.heatmap) == 168
    assert cell(report, 0, 0) == pytest.approx(0.5)
    assert report.heatmap["active_share"].notna().sum() == 1


def test_a_heatmap_leaves_the_unknown_out(tmp_path: Path) -> None:
    assert cell(report_hour(tmp_path, busy(), lost(1)), 0, 0) == 1


def test_clocks_that_are_set_back_do_not_shift_the_heatmap(tmp_path: Path) -> None:
    # Busy from nine to ten by the clock on the wall, on the Saturday before and the Sunday after.
    ticks = []
    start_ms, end_ms = at("2026-10-24", "Europe/Berlin"), at("2026-10-26", "Europe/Berlin")
    nine = [at(f"2026-10-{day}T09:00", "Europe/Berlin") for day in (24, 25)]
    for ts_ms in range(start_ms, end_ms, 10 * MINUTE_MS):
        works = any(begin <= ts_ms < begin + HOUR_MS for begin in nine)
        ticks.append(tick(ts_ms, busy() if works else free()))
    assert end_ms - start_ms == 49 * HOUR_MS
    write(tmp_path, ticks)
    report = report_of(tmp_path, start_ms, end_ms, "Europe/Berlin")
    for weekday in (5, 6):
        assert [cell(report, weekday, hour) for hour in range(24)] == [float(hour == 9) for hour in range(24)]


def test_clocks_that_are_set_forward_leave_an_hour_out(tmp_path: Path) -> None:
    start_ms, end_ms = at("2026-03-29", "Europe/Berlin"), at("2026-03-30", "Europe/Berlin")
    write(tmp_path, series(start_ms, 23 * 6, busy(), every_ms=10 * MINUTE_MS))
    report = report_of(tmp_path, start_ms, end_ms, "Europe/Berlin")
    seen = [hour for hour in range(24) if cell(report, 6, hour) == 1]
    assert seen == [0, 1, *range(3, 24)]


@pytest.mark.parametrize("zone", ["Asia/Kolkata", "Asia/Kathmandu", "America/St_Johns", "Australia/Eucla", "UTC"])
def test_hours_are_those_of_the_readers_zone(tmp_path: Path, zone: str) -> None:
    # Busy from nine to ten by the clock on the wall.
    start_ms, nine = at("2026-11-17", zone), at("2026-11-17T09:00", zone)
    times = range(start_ms, start_ms + DAY_MS, 5 * MINUTE_MS)
    write(tmp_path, [tick(ts_ms, busy() if nine <= ts_ms < nine + HOUR_MS else free()) for ts_ms in times])
    report = report_of(tmp_path, start_ms, start_ms + DAY_MS, zone)
    assert [cell(report, 1, hour) for hour in range(24)] == [float(hour == 9) for hour in range(24)]
    assert report.heatmap["active_share"].notna().sum() == 24


def test_a_zone_that_is_set_back_by_half_an_hour_does_not_shift_the_heatmap(tmp_path: Path) -> None:
    zone = "Australia/Lord_Howe"  # from +11 to +10:30 on the first Sunday in April
    start_ms, end_ms = at("2026-04-04", zone), at("2026-04-06", zone)
    nine = [at(f"2026-04-0{day}T09:00", zone) for day in (4, 5)]
    times = range(start_ms, end_ms, 5 * MINUTE_MS)
    works = [any(begin <= ts_ms < begin + HOUR_MS for begin in nine) for ts_ms in times]
    write(tmp_path, [tick(ts_ms, busy() if one else free()) for ts_ms, one in zip(times, works, strict=True)])
    report = report_of(tmp_path, start_ms, end_ms, zone)
    for weekday in (5, 6):
        assert [cell(report, weekday, hour) for hour in range(24)] == [float(hour == 9) for hour in range(24)]


# --- energy ---


def with_energy(*counters: int | None, make: Any = held) -> list[Tick]:
    return [tick(MONDAY_MS + number * MINUTE_MS, make(energy=joules)) for number, joules in enumerate(counters)]


def energy(folder: Path, ticks: list[Tick], start: int = 0, end: int = 60) -> dict[str, float]:
    write(folder, ticks)
    report = report_of(folder, MONDAY_MS + start * MINUTE_MS, MONDAY_MS + end * MINUTE_MS)
    kwh = report.capacity["energy_kwh"][report.capacity["gpu_hours"] > 0]
    return {str(state): float(value) * 3.6e6 for state, value in kwh.items()}


def test_energy_is_what_the_counter_rose_by(tmp_path: Path) -> None:
    ticks = with_energy(*range(5_000_000, 5_036_000, 1200), 5_036_000)
    assert energy(tmp_path, ticks)["idle-held"] == pytest.approx(36_000)


def test_energy_goes_to_the_state_the_card_was_in(tmp_path: Path) -> None:
    gpus = [busy(energy=0), busy(energy=9000), held(energy=18_000), held(energy=19_000), free(energy=20_000)]
    ticks = [tick(MONDAY_MS + number * MINUTE_MS, gpu) for number, gpu in enumerate([*gpus, free(energy=20_100)])]
    found = energy(tmp_path, ticks)
    assert found["active"] == pytest.approx(18_000)
    assert found["idle-held"] == pytest.approx(2000)
    assert found["truly-idle"] == pytest.approx(100)


def test_energy_is_divided_as_the_time_is(tmp_path: Path) -> None:
    ticks = with_energy(0, 6000, 12_000)
    ticks = [one._replace(ts_ms=MONDAY_MS + 10 * number * MINUTE_MS) for number, one in enumerate(ticks)]
    assert energy(tmp_path, ticks, 5, 15)["idle-held"] == pytest.approx(6000)


def test_energy_over_midnight_is_counted(tmp_path: Path) -> None:
    ticks = [tick(MONDAY_MS + number * MINUTE_MS, held(energy=1000 * (number + 10))) for number in range(-10, 11)]
    assert energy(tmp_path, ticks, -10, 10)["idle-held"] == pytest.approx(20_000)


def test_a_counter_that_starts_again_gives_neither_negative_nor_huge_energy(tmp_path: Path) -> None:
    ticks = with_energy(9_000_000, 9_001_000, 9_002_000, 50, 1050, 2050)
    assert energy(tmp_path, ticks)["idle-held"] == pytest.approx(4000)


def test_a_counter_is_not_followed_over_a_hole_or_a_reboot(tmp_path: Path) -> None:
    ticks = with_energy(0, 1000, 2000)
    ticks += series(MONDAY_MS + 30 * MINUTE_MS, 1, held(energy=9_000_000))
    ticks += [tick(MONDAY_MS + 31 * MINUTE_MS, held(energy=9_001_000))]
    ticks += [tick(MONDAY_MS + 32 * MINUTE_MS, held(energy=50_000_000), boot="boot-2")]
    assert energy(tmp_path, ticks)["idle-held"] == pytest.approx(3000)


def test_a_counter_that_is_missing_is_not_zero(tmp_path: Path) -> None:
    assert np.isnan(energy(tmp_path, with_energy(None, None, None))["idle-held"])
    report = report_of(tmp_path, MONDAY_MS, MONDAY_MS + HOUR_MS)
    assert report.energy_known_share == 0


def test_a_counter_that_is_missing_at_times_is_known_for_the_rest(tmp_path: Path) -> None:
    assert energy(tmp_path, with_energy(0, 1000, None, 5000, 6000))["idle-held"] == pytest.approx(2000)
    report = report_of(tmp_path, MONDAY_MS, MONDAY_MS + 5 * MINUTE_MS)
    assert report.energy_known_share == pytest.approx(2 / 5)


def test_costs_come_from_hours_and_energy(tmp_path: Path) -> None:
    write(tmp_path, [tick(MONDAY_MS + n * MINUTE_MS, held(energy=60_000 * n)) for n in range(61)])
    config = CONFIG._replace(price_per_gpu_hour=2.0, price_per_kwh=0.5)
    report = report_of(tmp_path, MONDAY_MS, MONDAY_MS + HOUR_MS, config=config)
    assert report.capacity["cost"]["idle-held"] == pytest.approx(2.0 + 0.5)
    assert report.capacity["cost"]["active"] == 0
    assert report_of(tmp_path, MONDAY_MS, MONDAY_MS + HOUR_MS).capacity["cost"].isna().all()


# --- what reclaiming would have freed ---


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
    assert freed(tmp_path, ticks, 0, 120, 30, 60, 120) == [70, 40, 0]


def test_each_episode_waits_anew(tmp_path: Path) -> None:
    ticks = series(MONDAY_MS, 50, held()) + series(MONDAY_MS + 50 * MINUTE_MS, 10, busy())
    assert freed(tmp_path, ticks + series(MONDAY_MS + 60 * MINUTE_MS, 60, held()), 0, 120, 30, 60) == [20 + 30, 0]


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


# --- the change against the window before ---


def test_the_window_before_is_compared(tmp_path: Path) -> None:
    write(tmp_path, hour(busy()) + hour(held(), start_ms=MONDAY_MS + HOUR_MS))
    report = report_of(tmp_path, MONDAY_MS + HOUR_MS, MONDAY_MS + 2 * HOUR_MS)
    expect(report, idle_held=1)
    assert report.before is not None
    assert report.before["share"].to_dict() == {"active": 1, "idle-held": 0, "truly-idle": 0, "unknown": 0}
    assert report.before["gpu_hours"]["active"] == pytest.approx(1)


def test_the_window_before_may_be_known_in_part(tmp_path: Path) -> None:
    write(tmp_path, series(MONDAY_MS + 50 * MINUTE_MS, 10, busy()) + hour(held(), start_ms=MONDAY_MS + HOUR_MS))
    report = report_of(tmp_path, MONDAY_MS + HOUR_MS, MONDAY_MS + 2 * HOUR_MS)
    assert report.before is not None
    assert report.before["gpu_hours"]["active"] == pytest.approx(1 / 6)


@pytest.mark.parametrize("error", [None, "unknown"])
def test_without_data_before_there_is_no_change(tmp_path: Path, error: str | None) -> None:
    earlier = hour() if error is None else series(MONDAY_MS - HOUR_MS, 60, error=error)
    write(tmp_path, (earlier if error else []) + hour(held()))
    assert report_of(tmp_path, MONDAY_MS, MONDAY_MS + HOUR_MS).before is None
    if error is None:
        assert report_of(tmp_path, MONDAY_MS - 9 * HOUR_MS, MONDAY_MS + HOUR_MS).before is None


def test_a_hole_before_the_window_is_no_data(tmp_path: Path) -> None:
    write(tmp_path, hour(busy(), start_ms=MONDAY_MS - 30 * HOUR_MS) + hour(held()))
    assert report_of(tmp_path, MONDAY_MS, MONDAY_MS + HOUR_MS).before is None


# --- thresholds and the header ---


def test_thresholds_decide(tmp_path: Path) -> None:
    write(tmp_path, hour(Gpu(0, 9.99, (Job(memory_mib=150),))))
    period = MONDAY_MS, MONDAY_MS + HOUR_MS
    expect(report_of(tmp_path, *period), idle_held=1)
    lower = CONFIG._replace(policy=CONFIG.policy._replace(utilization_percent=5.0))
    expect(report_of(tmp_path, *period, config=lower), active=1)
    higher = CONFIG._replace(policy=CONFIG.policy._replace(process_memory_mib=200.0))
    report = report_of(tmp_path, *period, config=higher)
    expect(report, truly_idle=1)
    assert report.episodes.empty
    assert report.identities.empty


def test_a_utilization_of_just_ten_percent_is_active_and_memory_of_just_100_mib_is_not_held(tmp_path: Path) -> None:
    gpus = [Gpu(0, 10.0), Gpu(1, 0.0, (Job(1, memory_mib=100),)), Gpu(2, 0.0, (Job(2, memory_mib=101),))]
    expect(report_hour(tmp_path, *gpus), active=1, truly_idle=1, idle_held=1)


def test_many_small_processes_hold_a_card_together(tmp_path: Path) -> None:
    report = report_hour(tmp_path, held(Job(1, "alice", 60), Job(2, "bob", 60)))
    expect(report, idle_held=1)
    assert set(report.identities["identity"]) == {"alice", "bob"}


def test_the_header_names_the_drivers_of_the_window(tmp_path: Path) -> None:
    ticks = [one._replace(driver_version="1") for one in hour(held())]
    ticks += [one._replace(driver_version="2") for one in hour(held(), start_ms=MONDAY_MS + HOUR_MS)]
    write(tmp_path, ticks)
    assert report_of(tmp_path, MONDAY_MS, MONDAY_MS + HOUR_MS).driver_versions == ["1"]
    assert report_of(tmp_path, MONDAY_MS, MONDAY_MS + 2 * HOUR_MS).driver_versions == ["1", "2"]


def test_progress_is_told_up_to_the_end(tmp_path: Path) -> None:
    write(tmp_path, series(MONDAY_MS, 24 * 9, held(), every_ms=HOUR_MS))
    told: list[tuple[int, int]] = []
    build_report(
        str(tmp_path),
        window(MONDAY_MS, MONDAY_MS + 9 * DAY_MS),
        CONFIG,
        progress=lambda done, total: told.append((done, total)),
    )
    assert told == sorted(told)
    assert told[-1][0] == told[-1][1]


# --- any history: adding up, and counting again without pandas ---


ZONES = st.sampled_from(["UTC", "Asia/Kolkata", "America/New_York", "Asia/Kathmandu"])


@many
@given(histories(), part, ZONES, part, part)
def test_a_report_is_what_counting_tick_by_tick_gives(
    moments: list[Moment], midnight: float, zone: str, one: float, two: float
) -> None:
    ticks = ticks_of(moments, midnight)
    first, last = span(ticks)
    start, end = sorted(first + round(place * (last - first)) for place in (one, two))
    naive = Naive(ticks)
    with written(ticks) as folder:
        try:
            report = report_of(folder, start, end + 1, zone)
        except NothingToReport:
            assert not list(naive.pieces(start, end + 1, DAY_MS))
            return
    same(hours_by(report.gpus, "uuid"), naive.gpus(start, end + 1))
    same(hours_by(report.identities, "identity"), _without_truly_idle(naive.identities(start, end + 1)))
    assert report.observed_seconds * 1000 == pytest.approx(naive.observed_ms(start, end + 1))
    assert gap_seconds(report) == pytest.approx(naive.gaps(start, end + 1))
    expected = naive.heatmap(start, end + 1, zone)
    found = {
        (weekday, hour): share for weekday, hour, share in report.heatmap.itertuples(index=False) if not np.isnan(share)
    }
    assert found == pytest.approx(expected)
    # Shares sum to 1, hours to the time of the cards, and gaps to what was not observed.
    assert sum(hours(report).values()) == pytest.approx(sum(naive.gpus(start, end + 1).values()))
    if sum(hours(report).values()):
        assert report.headline["share"].sum() == pytest.approx(1)
        shares = report.gpus[[f"{state.replace('-', '_')}_share" for state in STATES]]
        assert shares.sum(axis=1).tolist() == pytest.approx([1] * len(shares))
    window_seconds = (end + 1 - start) / 1000
    assert report.observed_seconds + sum(gap_seconds(report).values()) == pytest.approx(window_seconds)
    # Nobody frees more than is held.
    assert report.reclaim["freed_gpu_hours"].max() <= hours(report)["idle-held"] + 1e-9
    assert report.reclaim["freed_gpu_hours"].is_monotonic_decreasing


def _without_truly_idle(sums: dict[tuple[str, str], float]) -> dict[tuple[str, str], float]:
    return {key: value for key, value in sums.items() if key[1] != "truly-idle"}


def _parts(folder: str, start: int, end: int) -> dict[tuple[str, str], float]:
    """Everything of a report that adds up."""
    try:
        report = report_of(folder, start, end)
    except NothingToReport:
        return {("gaps", "all"): float("nan")}
    sums = {("headline", state): value for state, value in hours(report).items()}
    sums |= {(f"gpu {name}", state): value for (name, state), value in hours_by(report.gpus, "uuid").items()}
    sums |= {(f"who {name}", state): value for (name, state), value in hours_by(report.identities, "identity").items()}
    sums |= {("energy", str(state)): float(value) for state, value in report.capacity["energy_kwh"].fillna(0).items()}
    sums["gaps", "all"] = sum(gap_seconds(report).values())
    sums["observed", "all"] = report.observed_seconds
    return sums


@many
@given(histories(), part, part, part, part)
def test_a_window_cut_in_two_adds_up_to_the_whole(
    moments: list[Moment], midnight: float, one: float, two: float, three: float
) -> None:
    ticks = ticks_of(moments, midnight)
    first, last = span(ticks)
    start, middle, end = sorted(first + round(place * (last - first)) for place in (one, two, three))
    middle, end = middle + 1, end + 2
    with written(ticks) as folder:
        whole, left, right = (_parts(folder, *period) for period in [(start, end), (start, middle), (middle, end)])
    for sums, length in ((whole, end - start), (left, middle - start), (right, end - middle)):
        if np.isnan(sums["gaps", "all"]):
            sums["gaps", "all"] = length / 1000
    added = {key: left.get(key, 0.0) + right.get(key, 0.0) for key in {*left, *right, *whole}}
    for key, value in added.items():
        assert whole.get(key, 0.0) == pytest.approx(value, abs=1e-9), key


# --- notebooks ---


@pytest.fixture
def notebook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    write(tmp_path, series(MONDAY_MS - HOUR_MS, 120, busy(ALICE, BOB), held(index=1), lost(2), free(3)))
    return tmp_path


WINDOW = {"start": "2026-11-15T23:30Z", "end": "2026-11-16T00:30Z", "tz": "UTC"}


def test_a_notebook_gets_a_report_of_frames(notebook: Path) -> None:
    report = gua_report.report(**WINDOW, data_dir=str(notebook))
    expect(report, active=1, idle_held=1, unknown=1, truly_idle=1)
    assert report.gpus["uuid"].tolist() == [f"GPU-{index}" for index in range(4)]
    assert report.timezone == "UTC"
    for frame in (report.gpus, report.identities, report.episodes, report.heatmap, report.headline, report.gaps):
        assert isinstance(frame, pd.DataFrame)
    html = report._repr_html_()
    assert "<table" in html
    assert "alice" in html


def test_a_notebook_may_ask_again(notebook: Path) -> None:
    """Modules must not take the place of the functions once they are imported."""
    ask = "gua.report('1d', end='2026-11-17', tz='UTC'); gua.load('1d', end='2026-11-17', tz='UTC')"
    program = f"import gua_report as gua; {ask}; {ask}"
    environment = {**os.environ, "GUA_DATA_DIR": str(notebook)}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr


def test_a_notebook_gets_the_rows_with_states_and_weights(notebook: Path) -> None:
    rows = gua_report.load(**WINDOW, data_dir=str(notebook))
    assert len(rows.ticks) == 60
    assert len(rows.cards) == 240
    assert len(rows.processes) == 180
    states = rows.cards.groupby("gpu_uuid")["state"].agg(set).to_dict()
    assert states == {"GPU-0": {"active"}, "GPU-1": {"idle-held"}, "GPU-2": {"unknown"}, "GPU-3": {"truly-idle"}}
    mine = rows.processes[(rows.processes["gpu_uuid"] == "GPU-0") & (rows.processes["identity"] == "alice")]
    assert set(mine["state"]) == {"idle-held"}
    assert set(rows.ticks["weight_ms"]) == {MINUTE_MS}


def test_the_frames_of_a_notebook_have_types(notebook: Path) -> None:
    rows = gua_report.load(**{**WINDOW, "tz": "Asia/Kolkata"}, data_dir=str(notebook))
    for frame in rows:
        assert str(frame["time"].dt.tz) == "Asia/Kolkata"
        assert frame["ts_ms"].dtype == "int64"
        assert frame["weight_ms"].dtype == "int64"
        assert frame["ts_ms"].is_monotonic_increasing
        assert frame.index.tolist() == list(range(len(frame)))
    assert rows.ticks["interval_ms"].dtype == "float64"
    for name in ("utilization_percent", "memory_used_mib", "energy_joules", "memory_total_mib", "gpu_share"):
        assert rows.cards[name].dtype == "float64", name
    for name in ("memory_mib", "sm_percent", "start_time_ms", "uid"):
        assert rows.processes[name].dtype == "float64", name
    assert rows.processes["pid"].dtype == "int64"
    assert rows.cards["gpu_index"].dtype == "int64"
    assert set(rows.processes["user"]) == {"alice", "bob"}


def test_the_types_are_the_same_in_a_window_with_nobody_on_the_cards(tmp_path: Path, notebook: Path) -> None:
    empty = tmp_path / "empty"
    write(empty, series(MONDAY_MS - HOUR_MS, 120, free(), free(1)))
    rows = gua_report.load(**WINDOW, data_dir=str(notebook))
    none = gua_report.load(**WINDOW, data_dir=str(empty))
    assert len(none.processes) == 0
    for one, other in zip(rows, none, strict=True):
        assert list(one.columns) == list(other.columns)
        assert {name: str(kind) for name, kind in one.dtypes.items()} == {
            name: str(kind) for name, kind in other.dtypes.items()
        }


def test_the_rows_of_a_notebook_add_up_to_its_report(notebook: Path) -> None:
    rows = gua_report.load(**WINDOW, data_dir=str(notebook))
    report = gua_report.report(**WINDOW, data_dir=str(notebook))
    weighed = (rows.cards["weight_ms"] * rows.cards["gpu_share"]).groupby(rows.cards["state"]).sum() / HOUR_MS
    assert weighed.to_dict() == pytest.approx(hours(report))


def test_rows_are_given_in_the_same_order_whatever_the_partitions(notebook: Path) -> None:
    rows = gua_report.load(**WINDOW, data_dir=str(notebook))
    assert rows.cards["gpu_uuid"].tolist()[:4] == [f"GPU-{index}" for index in range(4)]


def test_a_notebook_without_data_is_told_so(tmp_path: Path) -> None:
    for call in (gua_report.load, gua_report.report):
        with pytest.raises(NothingToReport, match="no ticks"):
            call(since="1h", data_dir=str(tmp_path))


def test_a_notebook_with_a_bad_duration_is_told_so(tmp_path: Path) -> None:
    for call in (gua_report.load, gua_report.report):
        with pytest.raises(UsageError, match="7 days"):
            call(since="7 days", data_dir=str(tmp_path))


def test_a_window_of_driver_errors_alone_gives_rows_without_cards(tmp_path: Path) -> None:
    write(tmp_path, series(MONDAY_MS, 10, error="unknown"))
    rows = gua_report.load(start="2026-11-16", end="2026-11-17", tz="UTC", data_dir=str(tmp_path))
    assert rows.ticks["error"].tolist() == ["unknown"] * 10
    assert rows.cards.empty
    assert rows.processes.empty


def test_the_configuration_decides_in_a_notebook_too(notebook: Path) -> None:
    config = notebook / "gua.toml"
    config.write_text('[policy]\nutilization_percent = 95\n[people]\nbob = "Robert"\n')
    report = gua_report.report(**WINDOW, data_dir=str(notebook), config=str(config))
    expect(report, idle_held=2, unknown=1, truly_idle=1)
    assert set(report.identities["identity"]) == {"alice", "Robert"}


def test_days_with_a_tick_each_are_not_read_again_and_again_as_the_context_of_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    days = 100
    write(tmp_path, [tick(MONDAY_MS + day * DAY_MS + HOUR_MS, held(ALICE)) for day in range(days)])
    read: list[str] = []
    read_partition = History._read_partition

    def count(history: History, day: str, *rest: Any) -> Any:
        read.append(day)
        return read_partition(history, day, *rest)

    monkeypatch.setattr(History, "_read_partition", count)
    report = report_of(tmp_path, MONDAY_MS, MONDAY_MS + days * DAY_MS)
    assert len(report.episodes) > 0
    assert set(read) == {day_of(MONDAY_MS + day * DAY_MS) for day in range(days)}
    assert len(read) < 2 * days
