"""The heatmap: hours are those of the reader's zone, whatever is done to its clocks."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.lab import (
    DAY_MS,
    HOUR_MS,
    MINUTE_MS,
    at,
    busy,
    cell,
    free,
    lost,
    report_hour,
    report_of,
    series,
    tick,
    write,
)


def test_the_heatmap_has_every_hour_of_the_week_and_no_guess_for_those_not_seen(tmp_path: Path) -> None:
    report = report_hour(tmp_path, busy(), free(1))
    assert list(report.heatmap.columns) == ["weekday", "hour", "active_share", "free_gpus"]
    assert len(report.heatmap) == 168
    assert cell(report, 0, 0) == pytest.approx(0.5)
    assert report.heatmap["active_share"].notna().sum() == 1


def test_it_is_not_known_how_many_are_free_if_no_card_tells(tmp_path: Path) -> None:
    assert report_hour(tmp_path, lost(0), lost(1)).heatmap["free_gpus"].isna().all()


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
