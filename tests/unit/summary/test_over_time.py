"""What happened when: the timeline, the trend and the days of each person."""

import json
import os
from pathlib import Path

import pandas as pd
import pytest

from gua_report.config import Config
from gua_report.render import Options, renderer
from gua_sample.policy import DEFAULT, STATES
from tests.lab import (
    ALICE,
    BOB,
    DAY_MS,
    HOUR_MS,
    MINUTE_MS,
    MONDAY_MS,
    Report,
    busy,
    free,
    held,
    hour,
    hours,
    lost,
    mig,
    minutes,
    report_minutes,
    report_of,
    row,
    series,
    write,
)
from tests.rolling import TODAY_MS, roll_up, write_week

SECONDS = [f"{state.replace('-', '_')}_seconds" for state in STATES]
HOURS = [f"{state.replace('-', '_')}_gpu_hours" for state in STATES]


def cells(report: Report) -> list[tuple[float, ...]]:
    """Of the timeline's cells: index, start and end in minutes since Monday, seconds by state."""
    frame = report.timeline
    times = ((frame[name] - MONDAY_MS) / MINUTE_MS for name in ("start_ms", "end_ms"))
    return list(zip(frame["gpu_index"], *times, *(frame[name] for name in SECONDS), strict=True))


def test_a_cell_tells_its_states_and_what_was_not_seen_is_in_none(tmp_path: Path) -> None:
    write(tmp_path, minutes(0, 90, busy(), lost(1)) + minutes(150, 180, held(), free(1)))
    found = cells(report_of(tmp_path, MONDAY_MS, MONDAY_MS + 40 * HOUR_MS))
    quarter = 15 * 60.0
    assert found[:2] == [(0, 0, 15, quarter, 0, 0, 0), (0, 15, 30, quarter, 0, 0, 0)]
    assert (0, 150, 165, 0, quarter, 0, 0) in found
    assert (1, 0, 15, 0, 0, 0, quarter) in found
    assert (1, 150, 165, 0, 0, quarter, 0) in found
    assert not [cell for cell in found if cell[1] >= 180]


def test_everyone_on_a_card_is_named_in_its_cell(tmp_path: Path) -> None:
    write(tmp_path, hour(busy(ALICE, BOB)))
    report = report_minutes(tmp_path, 0, 60)
    assert report.timeline_cell_seconds == 60
    found = report.timeline_holders[report.timeline_holders["start_ms"] == MONDAY_MS + 7 * MINUTE_MS]
    assert row(found, "identity", "alice")["idle_held_seconds"] == 60
    assert row(found, "identity", "bob")["active_seconds"] == 60


def test_seconds_are_those_of_a_mig_instance_itself(tmp_path: Path) -> None:
    write(tmp_path, hour(mig(0, 0, 50.0), mig(0, 1)))
    report = report_minutes(tmp_path, 0, 60)
    assert report.timeline.groupby("mig_index")["active_seconds"].sum().tolist() == [3600, 0]


@pytest.mark.parametrize(("days", "cell_ms"), [(1.9, 15 * MINUTE_MS), (2, HOUR_MS), (31, HOUR_MS), (32, DAY_MS)])
def test_cells_are_fine_in_short_windows_and_days_past_a_month(tmp_path: Path, days: float, cell_ms: int) -> None:
    write(tmp_path, series(MONDAY_MS, 33 * 24, held(), every_ms=HOUR_MS, interval_ms=HOUR_MS))
    report = report_of(tmp_path, MONDAY_MS, MONDAY_MS + round(days * DAY_MS))
    assert report.timeline_cell_seconds * 1000 == cell_ms
    document = json.loads(renderer("json")(report, Options(("timeline",))))
    assert document["timeline"]["cell_seconds"] * 1000 == cell_ms
    lengths = report.timeline["end_ms"] - report.timeline["start_ms"]
    assert lengths.max() == cell_ms
    assert report.timeline["idle_held_seconds"].sum() == pytest.approx(days * DAY_MS / 1000)


def test_the_timeline_and_the_trend_come_to_the_headline(tmp_path: Path) -> None:
    write_week(tmp_path)
    for days in (1, 6):
        report = report_of(tmp_path, TODAY_MS - days * DAY_MS + 1_234_567, TODAY_MS, "Asia/Kathmandu")
        expected = list(hours(report).values())
        assert (report.timeline[SECONDS].sum() / 3600).tolist() == pytest.approx(expected)
        assert report.trend[HOURS].sum().tolist() == pytest.approx(expected)
        assert report.trend["observed_seconds"].sum() == pytest.approx(report.observed_seconds)
        for frame, unit in ((report.timeline_holders, 3600), (report.identity_days, 1)):
            name = "idle_held_seconds" if unit > 1 else "idle_held_gpu_hours"
            held_by = (frame.groupby("identity")[name].sum() / unit).sort_index()
            people = report.identities.set_index("identity")["idle_held_gpu_hours"].sort_index()
            pd.testing.assert_series_equal(
                held_by, people, check_names=False, check_dtype=False, check_index_type=False
            )


def test_short_windows_have_fine_cells_where_a_day_is_rolled_up_too_until_its_ticks_expire(tmp_path: Path) -> None:
    write_week(tmp_path)
    start_ms = TODAY_MS - 5 * DAY_MS
    from_ticks = report_of(tmp_path, start_ms, start_ms + DAY_MS)
    roll_up(tmp_path)
    rolled_up = report_of(tmp_path, start_ms, start_ms + DAY_MS)
    assert rolled_up.from_rollups_seconds > 0
    pd.testing.assert_frame_equal(rolled_up.timeline, from_ticks.timeline)
    roll_up(tmp_path, raw_days=2)
    expired = report_of(tmp_path, start_ms, start_ms + DAY_MS)
    assert (from_ticks.timeline_cell_seconds, expired.timeline_cell_seconds) == (600, 3600)
    hour_ms = from_ticks.timeline["start_ms"] // HOUR_MS * HOUR_MS
    by_hour = from_ticks.timeline.groupby(["gpu_uuid", hour_ms])[SECONDS].sum()
    pd.testing.assert_frame_equal(by_hour, expired.timeline.groupby(["gpu_uuid", "start_ms"])[SECONDS].sum())


def test_a_rolled_up_day_with_a_damaged_partition_is_told_by_the_hour(tmp_path: Path) -> None:
    write_week(tmp_path)
    roll_up(tmp_path)
    start_ms = TODAY_MS - 5 * DAY_MS
    before = report_of(tmp_path, start_ms, start_ms + DAY_MS)
    path = sorted((tmp_path / "samples").glob("*.sqlite"))[2]
    status, content = path.stat(), bytearray(path.read_bytes())
    content[4096:] = b"x" * (len(content) - 4096)
    path.write_bytes(content)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    report = report_of(tmp_path, start_ms, start_ms + DAY_MS)
    assert (before.timeline_cell_seconds, report.timeline_cell_seconds) == (600, 3600)
    assert report.timeline[SECONDS].sum().tolist() == pytest.approx(before.timeline[SECONDS].sum().tolist())


def test_a_trend_has_days_that_nobody_observed(tmp_path: Path) -> None:
    write(tmp_path, minutes(0, 60, held()) + minutes(3 * 1440, 3 * 1440 + 60, held()))
    report = report_of(tmp_path, MONDAY_MS, MONDAY_MS + 4 * DAY_MS)
    assert report.trend["observed_seconds"].tolist() == [3600, 0, 0, 3600]
    assert report.trend["idle_held_gpu_hours"].tolist() == [1, 0, 0, 1]


def test_gpus_are_free_by_the_hour_of_the_week(tmp_path: Path) -> None:
    write(tmp_path, minutes(0, 60, free(), free(1), busy(index=2)) + minutes(60, 90, held(), free(1), lost(2)))
    heatmap = report_minutes(tmp_path, 0, 240).heatmap
    assert heatmap["free_gpus"][:2].tolist() == [2, 1]
    assert heatmap["free_gpus"][2:].isna().all()


def test_holding_costs_by_the_hour_and_for_cards_by_energy_too(tmp_path: Path) -> None:
    joules = 3_600_000 // 60
    ticks = [
        minutes(minute, minute + 1, held(ALICE, energy=minute * joules), busy(BOB, index=1)) for minute in range(61)
    ]
    write(tmp_path, [one for some in ticks for one in some])

    def costs(per_gpu_hour: float | None, per_kwh: float | None) -> list[object]:
        config = Config(DEFAULT, per_gpu_hour, per_kwh, "EUR", {})
        report = report_of(tmp_path, MONDAY_MS, MONDAY_MS + HOUR_MS, config=config)
        found = [*report.identities["idle_held_cost"], *report.gpus["idle_held_cost"]]
        return [None if cost != cost else round(cost, 6) for cost in found]

    assert costs(2.0, 0.5) == [2.0, 0.0, 2.5, 0.0]
    assert costs(2.0, None) == [2.0, 0.0, 2.0, 0.0]
    assert costs(None, 0.5) == [None, None, 0.5, 0.0]
    assert costs(None, None) == [None] * 4
