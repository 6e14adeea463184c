"""Energy and what it costs: what counters rose by, and never a guess."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gua_sample.records import Tick
from tests.lab import CONFIG, HOUR_MS, MINUTE_MS, MONDAY_MS, busy, free, held, report_minutes, report_of, tick, write


def with_energy(*counters: int | None, make: Any = held) -> list[Tick]:
    return [tick(MONDAY_MS + number * MINUTE_MS, make(energy=joules)) for number, joules in enumerate(counters)]


STATES = [busy(energy=0), busy(energy=9000), held(energy=18_000), held(energy=19_000), free(energy=20_000)]


@pytest.mark.parametrize(
    ("ticks", "window", "expected", "known"),
    [
        # It is what the counter rose by, for the state that the card was in, and divided as the time is.
        (with_energy(*range(5_000_000, 5_036_000, 1200), 5_036_000), (0, 30), {"idle-held": 36_000}, 1),
        (
            [tick(MONDAY_MS + number * MINUTE_MS, gpu) for number, gpu in enumerate([*STATES, free(energy=20_100)])],
            (0, 5),
            {"active": 18_000, "idle-held": 2000, "truly-idle": 100},
            1,
        ),
        (
            [tick(MONDAY_MS + number * MINUTE_MS, held(energy=600 * number)) for number in (0, 10, 20)],
            (5, 15),
            {"idle-held": 6000},
            1,
        ),
        # It goes on over midnight,
        (
            [tick(MONDAY_MS + number * MINUTE_MS, held(energy=1000 * (number + 10))) for number in range(-10, 11)],
            (-10, 10),
            {"idle-held": 20_000},
            1,
        ),
        # but is neither negative nor huge where the counter starts again, nor over a hole or a reboot.
        (with_energy(9_000_000, 9_001_000, 9_002_000, 50, 1050, 2050), (0, 5), {"idle-held": 4000}, 4 / 5),
        (
            [
                *with_energy(0, 1000, 2000),
                *(tick(MONDAY_MS + n * MINUTE_MS, held(energy=8_970_000 + 1000 * n)) for n in (30, 31)),
                tick(MONDAY_MS + 32 * MINUTE_MS, held(energy=50_000_000), boot="boot-2"),
            ],
            (0, 60),
            {"idle-held": 3000},
            None,
        ),
        # What is missing is not zero.
        (with_energy(None, None, None), (0, 60), {"idle-held": np.nan}, 0),
        (with_energy(0, 1000, None, 5000, 6000), (0, 5), {"idle-held": 2000}, 2 / 5),
    ],
)
def test_energy(
    tmp_path: Path, ticks: list[Tick], window: tuple[int, int], expected: dict[str, float], known: float | None
) -> None:
    write(tmp_path, ticks)
    report = report_minutes(tmp_path, *window)
    kwh = report.capacity["energy_kwh"][report.capacity["gpu_hours"] > 0]
    assert (kwh * 3.6e6).to_dict() == pytest.approx(expected, nan_ok=True)
    assert known is None or report.energy_known_share == pytest.approx(known)


def test_costs_come_from_hours_and_energy(tmp_path: Path) -> None:
    write(tmp_path, [tick(MONDAY_MS + n * MINUTE_MS, held(energy=60_000 * n)) for n in range(61)])
    config = CONFIG._replace(price_per_gpu_hour=2.0, price_per_kwh=0.5)
    report = report_of(tmp_path, MONDAY_MS, MONDAY_MS + HOUR_MS, config=config)
    assert report.capacity["cost"]["idle-held"] == pytest.approx(2.0 + 0.5)
    assert report.capacity["cost"]["active"] == 0
    assert report_of(tmp_path, MONDAY_MS, MONDAY_MS + HOUR_MS).capacity["cost"].isna().all()
