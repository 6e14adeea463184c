"""What is old enough to go: never sooner than was asked for, and ticks never before their day is safe."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gua_report.config import Retention
from gua_report.upkeep.daily_csv import list_csvs
from gua_report.upkeep.retention import find_expired, is_old, remove
from gua_sample.errors import StoreError
from gua_sample.partition_names import day_of
from tests.lab import DAY_MS, MONDAY_MS, NOON_MS

numbers = st.integers(0, 40)
lengths = st.none() | st.integers(1, 30)


def day(number: int) -> str:
    """So many days before the Monday."""
    return day_of(MONDAY_MS - number * DAY_MS)


def expired_of(
    partitions: set[int], csvs: set[int], stored: set[int], current: set[int], retention: Retention
) -> tuple[set[str], set[str], set[str], set[str]]:
    names = {day(number) for number in partitions}
    found = find_expired(
        {name: f"{name}.sqlite" for name in names},
        {day(number): day(number) for number in csvs},
        {day(number) for number in stored},
        {day(number) for number in current},
        retention,
        NOON_MS,
    )
    return set(found.days), set(found.csvs), set(found.rollups), set(found.kept)


@given(st.integers(0, 3000), st.integers(0, 3000), st.integers(0, DAY_MS - 1))
def test_a_day_is_old_once_its_last_tick_is(ago: int, days: int, time_ms: int) -> None:
    now_ms = MONDAY_MS + time_ms
    end_ms = MONDAY_MS - (ago - 1) * DAY_MS
    assert is_old(day(ago), days, now_ms) == (now_ms - end_ms >= days * DAY_MS)


def test_without_a_limit_nothing_is_old() -> None:
    assert not is_old("1970-01-01", None, NOON_MS)


@pytest.mark.parametrize("days", [20_774, 20_775, 378_000, 400_000, 739_000, 740_000, 800_000, 10**7, 10**12, 10**30])
def test_a_limit_of_ages_is_none(days: int) -> None:
    """Before 1970 times are negative, before the year 1000 dates are shorter, and before the year 1 there are none."""
    assert not is_old("2026-01-01", days, NOON_MS)


def test_a_day_to_come_is_not_old() -> None:
    assert not is_old("2027-11-16", 1, NOON_MS)


@given(st.sets(numbers), st.sets(numbers), st.sets(numbers), st.sets(numbers), lengths, lengths, lengths)
def test_ticks_go_only_if_their_rollup_fits_and_rollups_only_without_ticks(
    partitions: set[int],
    csvs: set[int],
    stored: set[int],
    current: set[int],
    raw_days: int | None,
    csv_days: int | None,
    rollup_days: int | None,
) -> None:
    current &= partitions & stored
    retention = Retention(raw_days, csv_days, rollup_days)
    raw, text, sums, kept = expired_of(partitions, csvs, stored, current, retention)

    def old(days: int | None, candidates: set[int]) -> set[str]:
        return {day(number) for number in candidates if days is not None and number > days}

    assert raw == old(raw_days, current)
    assert kept == old(raw_days, partitions - current)
    assert text == old(csv_days, csvs)
    assert sums == old(rollup_days, stored - partitions)


def test_what_goes_is_in_the_order_of_time() -> None:
    everything = {day(number): f"{day(number)}.csv" for number in (12, 30, 11, 29)}
    found = find_expired(everything, everything, set(everything), set(everything), Retention(1, 1, 1), NOON_MS)
    assert found.days == sorted(everything)
    assert found.csvs == sorted(everything.values())


def test_only_daily_files_are_listed(tmp_path: Path) -> None:
    assert list_csvs(str(tmp_path / "nowhere")) == {}
    names = ["2026-11-16.csv", "2026-11-15.csv"]
    others = ["2026-13-45.csv", "2026-11-16.csv.gz", ".2026-11-16.csv.0123abcd", "2026-11-16.txt", "notes.csv", "x"]
    folder = tmp_path / "csv"
    folder.mkdir()
    for name in [*names, *others]:
        (folder / name).touch()
    assert list_csvs(str(tmp_path)) == {name[:10]: str(folder / name) for name in names}


def test_removing_takes_the_journal_along_and_minds_nothing_that_is_gone(tmp_path: Path) -> None:
    for name in ("a.sqlite", "a.sqlite-journal", "b.sqlite", "other"):
        (tmp_path / name).touch()
    remove([str(tmp_path / name) for name in ("a.sqlite", "gone.sqlite", "b.sqlite")])
    assert os.listdir(tmp_path) == ["other"]


def test_what_can_not_be_removed_is_named(tmp_path: Path) -> None:
    (tmp_path / "2026-11-16.sqlite").mkdir()
    with pytest.raises(StoreError, match=r"2026-11-16\.sqlite can't be used"):
        remove([str(tmp_path / "2026-11-16.sqlite")])
