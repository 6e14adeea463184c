"""What MIG instances weigh, and what of a card none of them covers: from ticks, and from the sums of closed days."""

from pathlib import Path

import pytest

from gua_report.render import Options, renderer
from tests.lab import (
    DAY_MS,
    HOUR_MS,
    MINUTE_MS,
    MONDAY_MS,
    Gpu,
    Job,
    Report,
    busy,
    expect,
    failed,
    free,
    held,
    hours,
    mig,
    report_hour,
    report_of,
    series,
    sliced,
    unpartitioned,
    write,
)
from tests.rolling import KEEP_LAST_TWO, assert_same, days_left, upkeep


def uncovered(report: Report) -> dict[str, float]:
    """Unpartitioned GPU-hours by physical card."""
    return dict(zip(report.unpartitioned["uuid"], report.unpartitioned["gpu_hours"], strict=True))


def second_hour(folder: Path, first: list[Gpu], second: list[Gpu]) -> Report:
    """The report of an hour whose ticks differ from those of the hour before."""
    write(folder, series(MONDAY_MS, 60, *first) + series(MONDAY_MS + HOUR_MS, 60, *second))
    return report_of(folder, MONDAY_MS + HOUR_MS, MONDAY_MS + 2 * HOUR_MS)


QUARTER = mig(0, 1)._replace(total_mib=20_480, parent_mib=81_920)


@pytest.mark.parametrize(
    ("cards", "expected", "rest"),
    [
        # A slice alone on its card weighs a seventh.
        ([sliced(0, 0, 1, 0.0, (Job(),)), busy(index=1)], {"idle_held": 1 / 7, "active": 1}, 6 / 7),
        # Instances weigh by their slices, whatever their memory,
        (
            [sliced(0, 0, 4, 80.0), sliced(0, 1, 3)._replace(total_mib=40_000)],
            {"active": 4 / 7, "truly_idle": 3 / 7},
            None,
        ),
        ([sliced(0, place) for place in range(7)], {"truly_idle": 1}, None),
        # without slices by their memory over the card's; then nothing is claimed of the rest.
        ([QUARTER], {"truly_idle": 0.25}, None),
        ([sliced(0, 0), QUARTER], {"truly_idle": 1 / 7 + 0.25}, None),
        # Slices that make no sense are not believed.
        *(
            ([sliced(0, 0)._replace(slices=slices, most_slices=most, total_mib=20_480)], {"truly_idle": 0.25}, None)
            for slices, most in ((8, 7), (0, 7), (1, 0))
        ),
        # One that never told weighs no more than its siblings leave.
        ([sliced(0, 0, 3), sliced(0, 1, 3), failed(mig(0, 2))], {"truly_idle": 6 / 7, "unknown": 1 / 7}, None),
        ([failed(mig(0, place)) for place in range(7)] + [free(1)], {"unknown": 1, "truly_idle": 1}, None),
    ],
)
def test_what_instances_weigh_and_what_is_unpartitioned(
    tmp_path: Path, cards: list[Gpu], expected: dict[str, float], rest: float | None
) -> None:
    report = report_hour(tmp_path, *cards)
    expect(report, **expected)
    assert uncovered(report) == ({} if rest is None else pytest.approx({"GPU-0": rest}))
    assert report.capacity["gpu_hours"].sum() == pytest.approx(sum(expected.values()))
    assert report.headline["share"].sum() == pytest.approx(1)


def test_an_instance_that_fails_keeps_the_share_it_had_that_day(tmp_path: Path) -> None:
    instances = [sliced(0, 0, 3, 80.0, (Job(),)), sliced(0, 1)]
    report = second_hour(tmp_path, instances, [failed(instances[0]), instances[1]])
    expect(report, unknown=3 / 7, truly_idle=1 / 7)
    assert uncovered(report) == pytest.approx({"GPU-0": 3 / 7})


def test_the_share_of_an_instance_that_fails_does_not_depend_on_where_a_window_begins(tmp_path: Path) -> None:
    instances = [sliced(0, 0, 3), sliced(0, 1)]
    broken = [failed(instances[0]), instances[1]]
    write(tmp_path, series(MONDAY_MS, 10, *instances) + series(MONDAY_MS + 10 * MINUTE_MS, 170, *broken))
    whole = report_of(tmp_path, MONDAY_MS, MONDAY_MS + 3 * HOUR_MS)
    parts = [report_of(tmp_path, MONDAY_MS + n * HOUR_MS, MONDAY_MS + (n + 1) * HOUR_MS) for n in range(3)]
    for state, value in hours(whole).items():
        assert sum(hours(part)[state] for part in parts) == pytest.approx(value)
    assert uncovered(whole) == pytest.approx({"GPU-0": 3 * 3 / 7})


def test_a_card_without_instances_is_in_no_state_and_all_of_it_is_unpartitioned(tmp_path: Path) -> None:
    report = report_hour(tmp_path, unpartitioned(0), busy(index=1))
    expect(report, active=1)
    assert report.gpus["uuid"].tolist() == ["GPU-1"]
    (row,) = report.unpartitioned.to_dict("records")
    assert row == {"uuid": "GPU-0", "index": 0, "gpu_hours": pytest.approx(1), "equivalent_gpus": pytest.approx(1)}
    text = " ".join(renderer("text")(report, Options()).split())
    assert "2 GPUs, driver" in text
    assert "unpartitioned: of cards with MIG on, what no instance covers, so that nothing can use it." in text
    assert "unpartitioned GPU-hours GPUs GPU 0 1.0 1.0 " in text
    assert report.coverage_share == 1


def test_a_machine_whose_only_card_has_no_instance_is_not_said_to_have_no_card(tmp_path: Path) -> None:
    text = renderer("text")(report_hour(tmp_path, unpartitioned(0)), Options())
    assert text.count("No card could be used: MIG is on, without an instance.") == 2
    assert "No card was seen" not in text


def test_an_idle_episode_ends_when_its_card_is_not_usable_any_more(tmp_path: Path) -> None:
    ticks = series(MONDAY_MS, 30, held()) + series(MONDAY_MS + 30 * MINUTE_MS, 30, unpartitioned())
    write(tmp_path, ticks)
    report = report_of(tmp_path, MONDAY_MS, MONDAY_MS + HOUR_MS)
    expect(report, idle_held=0.5)
    assert uncovered(report) == pytest.approx({"GPU-0": 0.5})
    assert report.episodes["ongoing"].tolist() == [False]


def test_closed_days_tell_the_same_without_their_ticks(tmp_path: Path) -> None:
    instances = [sliced(0, 0, 3, 0.0, (Job(),)), sliced(0, 1)]
    broken = [failed(instances[0]), instances[1], free(2)]
    ticks = []
    for day in range(4):
        start = MONDAY_MS + day * DAY_MS
        ticks += series(start, 24, *instances, unpartitioned(1), every_ms=20 * MINUTE_MS)
        ticks += series(start + 8 * HOUR_MS, 48, *broken, every_ms=20 * MINUTE_MS)
    write(tmp_path, ticks)
    window = MONDAY_MS + 90 * MINUTE_MS, MONDAY_MS + 4 * DAY_MS
    from_ticks = report_of(tmp_path, *window)
    assert set(uncovered(from_ticks)) == {"GPU-0", "GPU-1"}
    upkeep(tmp_path, MONDAY_MS + 4 * DAY_MS + HOUR_MS)
    from_rollups = report_of(tmp_path, *window)
    assert from_rollups.from_rollups_seconds > 3.8 * 86_400
    assert_same(from_rollups, from_ticks)
    upkeep(tmp_path, MONDAY_MS + 5 * DAY_MS, KEEP_LAST_TWO)
    assert len(days_left(tmp_path)) == 2
    whole_hours = MONDAY_MS + 2 * HOUR_MS, window[1]
    assert uncovered(report_of(tmp_path, *whole_hours)) == pytest.approx(
        {"GPU-0": 94 * 3 / 7, "GPU-1": 6 + 3 * 8}, abs=1e-4
    )
