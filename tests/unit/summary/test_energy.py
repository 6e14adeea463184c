"""Energy and what it costs: what counters rose by, and never a guess."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gua_sample.records import Tick
from tests.lab import CONFIG, HOUR_MS, MINUTE_MS, MONDAY_MS, busy, free, held, report_of, series, tick, write


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
