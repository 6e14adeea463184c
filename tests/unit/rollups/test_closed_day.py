"""Reports from rollups are the reports from ticks, whatever the window."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gua_sample.errors import NothingToReport
from tests.histories import Moment, histories, many, part, span, ticks_of
from tests.lab import CONFIG, DAY_MS, HOUR_MS, MINUTE_MS, MONDAY_MS, Job, busy, held, report_of, series, write, written
from tests.rolling import KEEP_LAST_TWO, assert_same, lab_days, roll_up_days, upkeep


@many
@given(
    histories(), part, part, part, st.sets(st.integers(0, 3)), st.booleans(), st.sampled_from(["UTC", "Asia/Kolkata"])
)
def test_a_report_from_rollups_is_the_report_from_ticks(
    moments: list[Moment], midnight: float, one: float, two: float, days: set[int], on_the_hour: bool, zone: str
) -> None:
    ticks = ticks_of(moments, midnight)
    first, last = span(ticks)
    start, end = sorted(first + round(place * (last - first)) for place in (one, two))
    if on_the_hour:
        start = start // HOUR_MS * HOUR_MS
        end = max(end // HOUR_MS * HOUR_MS, start + HOUR_MS)
    with written(ticks) as folder:
        try:
            from_ticks = report_of(folder, start, end + 1 - on_the_hour, zone)
        except NothingToReport:
            roll_up_days(folder, days)
            with pytest.raises(NothingToReport):
                report_of(folder, start, end + 1 - on_the_hour, zone)
            return
        roll_up_days(folder, days)
        from_rollups = report_of(folder, start, end + 1 - on_the_hour, zone)
    assert_same(from_ticks, from_rollups)


@pytest.mark.parametrize(
    "people", [{}, {"kim": "kira"}, {"kim": "x", "rosa": "x", "emil": "x", "ivo": "x", "ben": "x"}]
)
def test_the_laboratory_is_the_same_from_rollups(tmp_path: Path, people: dict[str, str]) -> None:
    start, end = lab_days(tmp_path)
    config = CONFIG._replace(people=people)
    windows = [(start + 7 * HOUR_MS + 123, end), (start + DAY_MS, end - DAY_MS), (end - 30 * HOUR_MS, end - 1)]
    from_ticks = [report_of(tmp_path, *window, config=config) for window in windows]
    assert len(roll_up_days(str(tmp_path))) == 4
    for window, expected in zip(windows, from_ticks, strict=True):
        found = report_of(tmp_path, *window, config=config)
        assert_same(expected, found)
        assert found.from_rollups_seconds > 0 or len(people) > 1
        assert found.notes == []


@pytest.mark.parametrize("people", [{}, {"alice": "x", "bob": "x"}])
def test_episodes_keep_their_start_if_only_the_day_before_is_stored(tmp_path: Path, people: dict[str, str]) -> None:
    """Neither cut at the window, nor joined to an episode of the day before that ended in between."""
    both = held(Job(100, "alice"), Job(200, "bob"))
    ticks = series(MONDAY_MS - 6 * HOUR_MS, 36, both, every_ms=10 * MINUTE_MS)
    ticks += series(MONDAY_MS, 18, both, every_ms=10 * MINUTE_MS)
    ticks += series(
        MONDAY_MS + 3 * HOUR_MS,
        6,
        busy(Job(100, "alice", sm_percent=50), Job(200, "bob", sm_percent=50)),
        every_ms=10 * MINUTE_MS,
    )
    write(tmp_path, ticks + series(MONDAY_MS + 4 * HOUR_MS, 48, both, every_ms=10 * MINUTE_MS))
    config = CONFIG._replace(people=people)
    window = MONDAY_MS + 8 * HOUR_MS, MONDAY_MS + 11 * HOUR_MS
    expected = report_of(tmp_path, *window, config=config)
    assert expected.episodes["seconds"].tolist() == [7 * 3600] * 2
    # All days, of which Monday can't be used as one person has two identities; or Sunday alone.
    roll_up_days(str(tmp_path), None if people else {0})
    assert_same(expected, report_of(tmp_path, *window, config=config))


def test_a_report_takes_whole_hours_from_rollups_and_the_rest_from_ticks(tmp_path: Path) -> None:
    start, end = lab_days(tmp_path)
    roll_up_days(str(tmp_path))
    report = report_of(tmp_path, start + DAY_MS + 10 * MINUTE_MS, end - DAY_MS)
    assert report.from_ticks_seconds == pytest.approx(50 * 60)
    assert report.from_rollups_seconds == pytest.approx(23 * 3600)


@pytest.mark.parametrize("again", [False, True])
def test_episodes_go_on_from_a_day_whose_ticks_have_expired(tmp_path: Path, again: bool) -> None:
    start, end = lab_days(tmp_path)
    expected = report_of(tmp_path, start, end)
    upkeep(tmp_path, end + 2 * DAY_MS, KEEP_LAST_TWO)
    os.utime(tmp_path / "samples/2026-11-15.sqlite")  # as a copy without times does
    if again:
        assert "2026-11-15" in upkeep(tmp_path, end + 2 * DAY_MS, KEEP_LAST_TWO).rolled_up
    found = report_of(tmp_path, start, end)
    assert len(found.episodes) == len(expected.episodes)
    assert found.episodes["seconds"].sum() == pytest.approx(expected.episodes["seconds"].sum(), rel=0.001)
