"""Which days a report takes from rollups, and what it does about those that it can not."""

import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

import pandas as pd
import pytest

from gua_report.summary.plan import DayPlan, make_plan
from gua_report.ticks.history import History
from gua_report.upkeep.nightly import Done
from gua_report.window import number_of
from gua_sample.errors import NothingToReport, StoreError
from gua_sample.policy import DEFAULT, Policy
from tests.damage import overwrite_table
from tests.lab import CONFIG, DAY_MS, HOUR_MS, MINUTE_MS, MONDAY_MS, busy, gap_seconds, held, report_of, series, write
from tests.rolling import (
    KEEP_LAST_TWO,
    assert_same,
    expire,
    lab_days,
    report_of_lab,
    roll_up_days,
    rolled_up_days,
    upkeep,
)


@pytest.mark.parametrize("zone", ["Asia/Kolkata", "Asia/Kathmandu"])
def test_a_zone_off_the_full_hour_goes_back_to_the_ticks(tmp_path: Path, zone: str) -> None:
    start, end = lab_days(tmp_path)
    roll_up_days(str(tmp_path))
    assert report_of(tmp_path, start, end, zone).from_rollups_seconds == 0


def test_other_thresholds_go_back_to_the_ticks(tmp_path: Path) -> None:
    start, end = lab_days(tmp_path)
    strict = CONFIG._replace(policy=DEFAULT._replace(utilization_percent=50.0))
    expected = report_of(tmp_path, start, end, config=strict)
    roll_up_days(str(tmp_path))
    found = report_of(tmp_path, start, end, config=strict)
    assert found.from_rollups_seconds == 0
    assert_same(expected, found)


def test_days_of_other_thresholds_whose_ticks_have_expired_are_left_out_and_said(tmp_path: Path) -> None:
    start, end = lab_days(tmp_path)
    days = roll_up_days(str(tmp_path))
    strict = CONFIG._replace(policy=DEFAULT._replace(utilization_percent=50.0))
    expire(tmp_path, days[1])
    report = report_of(tmp_path, start, end, config=strict)
    assert report.from_rollups_seconds == 0
    assert report.notes == [f"left out: {days[1]}, rolled up under other thresholds, and the ticks have expired"]
    assert gap_seconds(report)["ticks expired"] == pytest.approx(86_400, abs=600)
    expire(tmp_path, days[0])
    report = report_of(tmp_path, start, end, config=strict)
    assert gap_seconds(report)["ticks expired"] == pytest.approx(1.5 * 86_400, abs=600)
    assert report.notes == [
        f"left out: {days[0]} to {days[1]} (2 days), rolled up under other thresholds, and the ticks have expired"
    ]
    with pytest.raises(NothingToReport, match="rolled up under other thresholds"):
        report_of(tmp_path, start, start + DAY_MS, config=strict)


def test_a_report_begins_again_if_what_it_was_about_to_read_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by a run of gua rollup that marks the days right after the report has looked which of them are left."""
    start, end = rolled_up_days(tmp_path)
    expected = report_of(tmp_path, start, end)
    runs: list[Done] = []

    def delayed(history: History, policy: Policy, unreadable: Mapping[str, StoreError]) -> DayPlan:
        plan = make_plan(history, policy, unreadable=unreadable)
        if runs:
            return plan
        runs.append(upkeep(tmp_path, end + 2 * DAY_MS, KEEP_LAST_TWO))
        return plan.without(plan.days)  # it has to read the ticks of all of them

    monkeypatch.setattr("gua_report.summary.build.make_plan", delayed)
    found = report_of(tmp_path, start, end)
    assert len(runs[0].removed) == 2
    assert found.warnings == []
    assert_same(expected, found)


@pytest.mark.parametrize("table", ["day", "card", "word", "card_hour", "episode", "span"])
def test_a_report_does_without_rollups_that_are_damaged(
    tmp_path: Path, table: str, capsys: pytest.CaptureFixture[str]
) -> None:
    start, end = rolled_up_days(tmp_path)
    expected = report_of_lab()
    overwrite_table(tmp_path / "rollups.sqlite", table)
    found = report_of(tmp_path, start, end)
    assert_same(expected, found)
    (note,) = found.notes
    assert note.startswith("rollups are not used: ")
    assert len(upkeep(tmp_path, end + 2 * DAY_MS).rolled_up) == 4
    assert "it is set aside as" in capsys.readouterr().out
    assert report_of(tmp_path, start, end).notes == []


@pytest.mark.parametrize("expired", [False, True])
def test_a_stored_day_that_can_not_be_read_costs_that_day_alone(tmp_path: Path, expired: bool) -> None:
    start, end = rolled_up_days(tmp_path, KEEP_LAST_TWO if expired else CONFIG)
    expected = report_of_lab()
    with closing(sqlite3.connect(tmp_path / "rollups.sqlite", isolation_level=None)) as connection:
        number = number_of("2026-11-14")
        connection.execute("UPDATE card_hour SET card_id = card_id + 999 WHERE day_id = ?", (number,))  # no such cards
    found = report_of(tmp_path, start, end)
    assert found.notes[0].startswith("rollups of 2026-11-14 are not used: ")
    if expired:
        assert "left out: 2026-11-14, in rollups that can't be read, and the ticks have expired" in found.notes
        assert gap_seconds(found)["ticks expired"] == pytest.approx(86_400, abs=600)
    else:
        assert_same(expected, found)
        assert found.from_rollups_seconds > 1.9 * 86_400


def test_days_that_only_damaged_rollups_knew_are_a_gap_with_a_reason(tmp_path: Path) -> None:
    start, end = rolled_up_days(tmp_path, KEEP_LAST_TWO)
    overwrite_table(tmp_path / "rollups.sqlite", "card_hour")
    report = report_of(tmp_path, start, end)
    assert "rollups are not used" in report.notes[0]
    assert (
        report.notes[1] == "left out: 2026-11-13 to 2026-11-14 (2 days), in rollups that can't be read, and the"
        " ticks have expired"
    )
    assert gap_seconds(report)["ticks expired"] == pytest.approx(1.5 * 86_400, abs=600)


@pytest.mark.parametrize("zone", ["Asia/Kolkata", "Asia/Kathmandu"])
def test_a_zone_off_the_full_hour_has_expired_days_too(tmp_path: Path, zone: str) -> None:
    start, end = rolled_up_days(tmp_path, KEEP_LAST_TWO)
    expected = report_of_lab(zone)
    found = report_of(tmp_path, start, end, zone)
    pd.testing.assert_frame_equal(expected.headline, found.headline, atol=1e-4)
    pd.testing.assert_frame_equal(expected.gaps, found.gaps)
    assert found.notes == ["ticks have expired: by hour of day, older days are as UTC's full hours cut them"]


def test_one_person_with_two_identities_on_a_day_that_expired_is_said(tmp_path: Path) -> None:
    start, end = rolled_up_days(tmp_path, KEEP_LAST_TWO)
    people = dict.fromkeys(report_of_lab().identities["identity"], "x")
    report = report_of(tmp_path, start, end, config=CONFIG._replace(people=people))
    assert report.notes == ["ticks have expired: where one person had two identities at a time, both count"]


@pytest.mark.parametrize("minutes", [(30, 90), (30, 105), (15, 45), (0, 61), (59, 181)])
def test_hours_that_a_window_cuts_count_by_their_share_once_ticks_have_expired(
    tmp_path: Path, minutes: tuple[int, int]
) -> None:
    """On a card that idles from one hour on, a share of either hour is right to the minute."""
    busy_ = series(MONDAY_MS, 60, busy(), every_ms=MINUTE_MS, interval_ms=MINUTE_MS)
    idle = series(MONDAY_MS + HOUR_MS, 300, held(), every_ms=MINUTE_MS, interval_ms=MINUTE_MS)
    write(tmp_path, busy_ + idle)
    start, end = (MONDAY_MS + minute * MINUTE_MS for minute in minutes)
    expected = report_of(tmp_path, start, end)
    expire(tmp_path, *roll_up_days(str(tmp_path)))
    found = report_of(tmp_path, start, end)
    pd.testing.assert_frame_equal(expected.headline, found.headline, atol=1e-6)
    (note,) = found.notes
    assert note.startswith("ticks have expired: of the hour of ")


def test_the_first_hour_of_a_history_is_not_taken_for_one_that_is_cut(tmp_path: Path) -> None:
    write(tmp_path, series(MONDAY_MS + 40 * MINUTE_MS, 80, busy(), every_ms=MINUTE_MS, interval_ms=MINUTE_MS))
    expected = report_of(tmp_path, MONDAY_MS, MONDAY_MS + 2 * HOUR_MS)
    expire(tmp_path, *roll_up_days(str(tmp_path)))
    found = report_of(tmp_path, MONDAY_MS, MONDAY_MS + 2 * HOUR_MS)
    pd.testing.assert_frame_equal(expected.headline, found.headline, atol=1e-6)
    pd.testing.assert_frame_equal(expected.capacity, found.capacity, atol=1e-6)
    assert found.notes == []


def test_who_is_held_at_the_end_of_an_expired_history_is_told_by_its_last_tick(tmp_path: Path) -> None:
    start, end = lab_days(tmp_path)
    expected = report_of_lab()
    expire(tmp_path, *roll_up_days(str(tmp_path)))
    found = report_of(tmp_path, start, end)
    assert found.episodes["ongoing"].sum() == expected.episodes["ongoing"].sum()
    assert 0 <= found.newest_ms - expected.newest_ms < 5 * MINUTE_MS
