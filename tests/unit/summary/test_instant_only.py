"""Cards whose utilization was read at instants alone are named, from ticks and from rollups."""

from pathlib import Path

import pytest

from gua_sample.partition_names import DAY_MS
from gua_sample.records import Tick
from tests.lab import HOUR_MS, MONDAY_MS, Gpu, Job, busy, free, held, lost, report_of, series, write
from tests.rolling import expire, roll_up_days

INSTANT = Gpu(0, 60.0, (Job(),), source="rate")
IDLE = free()._replace(source="rate")  # its buffer ran dry
MEAN = busy()


def days(*gpus: Gpu) -> list[Tick]:
    """A day of each, a tick every ten minutes, from Monday on."""
    each = [series(MONDAY_MS + place * DAY_MS, 144, gpu, every_ms=600_000) for place, gpu in enumerate(gpus)]
    return [tick for day in each for tick in day]


def named(folder: Path, start_ms: int, end_ms: int) -> list[str]:
    return report_of(folder, start_ms, end_ms).instant_only


@pytest.mark.parametrize("source", ["ticks", "rollups", "expired"])
@pytest.mark.parametrize(
    ("gpus", "expected"),
    [
        ((INSTANT, INSTANT), ["GPU-0"]),
        ((INSTANT, IDLE), ["GPU-0"]),
        ((INSTANT, lost()), ["GPU-0"]),
        ((IDLE, IDLE), []),
        ((lost(), IDLE), []),
        ((INSTANT, MEAN), []),
        ((MEAN, IDLE), []),
        ((INSTANT, INSTANT._replace(source="gpm")), []),
        ((INSTANT, held()), []),  # a mean of 0 is a mean
    ],
)
def test_a_card_seen_at_work_without_a_single_mean_is_named(
    tmp_path: Path, source: str, gpus: tuple[Gpu, ...], expected: list[str]
) -> None:
    write(tmp_path, days(*gpus))
    stored = [] if source == "ticks" else roll_up_days(str(tmp_path))
    if source == "expired":
        expire(tmp_path, *stored)
    report = report_of(tmp_path, MONDAY_MS, MONDAY_MS + len(gpus) * DAY_MS)
    assert bool(report.from_rollups_seconds) == (source != "ticks")
    assert report.instant_only == expected


def test_only_the_ticks_of_the_window_count(tmp_path: Path) -> None:
    ticks = series(MONDAY_MS, 60, MEAN) + series(MONDAY_MS + HOUR_MS, 60, INSTANT)
    write(tmp_path, ticks)
    assert named(tmp_path, MONDAY_MS, MONDAY_MS + 2 * HOUR_MS) == []
    assert named(tmp_path, MONDAY_MS + HOUR_MS, MONDAY_MS + 2 * HOUR_MS) == ["GPU-0"]
