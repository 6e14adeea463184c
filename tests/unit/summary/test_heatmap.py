"""The heatmap: hours are those of the reader's zone, whatever is done to its clocks."""

from pathlib import Path

import pytest

from tests.lab import (
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


def test_clocks_that_are_set_forward_leave_an_hour_out(tmp_path: Path) -> None:
    start_ms, end_ms = at("2026-03-29", "Europe/Berlin"), at("2026-03-30", "Europe/Berlin")
    write(tmp_path, series(start_ms, 23 * 6, busy(), every_ms=10 * MINUTE_MS))
    report = report_of(tmp_path, start_ms, end_ms, "Europe/Berlin")
    seen = [hour for hour in range(24) if cell(report, 6, hour) == 1]
    assert seen == [0, 1, *range(3, 24)]


@pytest.mark.parametrize(
    ("zone", "days"),
    [
        *((zone, [17]) for zone in ("Asia/Kolkata", "Asia/Kathmandu", "America/St_Johns", "Australia/Eucla", "UTC")),
        ("Europe/Berlin", [24, 25]),  # a Saturday, and a Sunday on which clocks are set back
        ("Australia/Lord_Howe", [4, 5]),  # by half an hour
    ],
)
def test_hours_are_those_of_the_readers_zone_whatever_is_done_to_its_clocks(
    tmp_path: Path, zone: str, days: list[int]
) -> None:
    """A card is busy from nine to ten by the clock on the wall."""
    month = {1: "2026-11", 2: "2026-10" if zone == "Europe/Berlin" else "2026-04"}[len(days)]
    nine = [at(f"{month}-{day:02}T09:00", zone) for day in days]
    start_ms, end_ms = at(f"{month}-{days[0]:02}", zone), at(f"{month}-{days[-1] + 1:02}", zone)
    times = range(start_ms, end_ms, 5 * MINUTE_MS)
    works = [any(begin <= ts_ms < begin + HOUR_MS for begin in nine) for ts_ms in times]
    write(tmp_path, [tick(ts_ms, busy() if one else free()) for ts_ms, one in zip(times, works, strict=True)])
    report = report_of(tmp_path, start_ms, end_ms, zone)
    for weekday in (1,) if len(days) == 1 else (5, 6):
        assert [cell(report, weekday, hour) for hour in range(24)] == [float(hour == 9) for hour in range(24)]
    assert report.heatmap["active_share"].notna().sum() == 24 * len(days)
