"""The table of what no MIG instance covers, beside versions of gua that don't know it, and when its bits rot."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from gua_report.rollups.digests import UNREADABLE, digest_rows
from gua_report.rollups.index import path_of
from gua_report.upkeep.deep_check import read_everything
from gua_report.window import number_of
from gua_sample.partition_names import day_of
from tests.lab import DAY_MS, HOUR_MS, MINUTE_MS, MONDAY_MS, report_of, series, sliced, unpartitioned, write
from tests.rolling import upkeep

DAYS = [day_of(MONDAY_MS + day * DAY_MS) for day in range(2)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """rollups.sqlite of two days of a card that is divided and one that is not."""
    for day in range(2):
        write(
            tmp_path, series(MONDAY_MS + day * DAY_MS, 144, sliced(0, 0, 3), unpartitioned(1), every_ms=10 * MINUTE_MS)
        )
    upkeep(tmp_path, MONDAY_MS + 3 * DAY_MS)
    return Path(path_of(str(tmp_path)))


def change(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for statement in statements:
            connection.execute(statement)


def query(path: Path, sql: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(sql).fetchall()


def uncovered(path: Path) -> float:
    report = report_of(path.parent, MONDAY_MS, MONDAY_MS + 2 * DAY_MS)
    assert report.from_rollups_seconds > 0
    return float(report.unpartitioned["gpu_hours"].sum())


def test_it_has_a_row_for_each_hour_and_card(path: Path) -> None:
    rows = query(path, f"SELECT hour_ms, gpu_uuid, gpu_hours FROM unpartitioned_hours WHERE day = '{DAYS[1]}'")
    hours = [MONDAY_MS + DAY_MS + hour * HOUR_MS for hour in range(24)]
    assert [row[:2] for row in rows] == [(hour, uuid) for hour in hours for uuid in ("GPU-0", "GPU-1")]
    assert {round(row[2], 4) for row in rows} == {round(4 / 7, 4), 1.0}


def test_the_digest_of_a_day_is_the_one_of_a_gua_without_this_table(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        before = digest_rows(connection, number_of(DAYS[0]))
        connection.execute("DELETE FROM unpartitioned_hour")
        assert digest_rows(connection, number_of(DAYS[0])) == before


@pytest.mark.parametrize("what", ["gpu_ms = gpu_ms - 64", "hour = hour + 24", "gpu_uuid = 'GPU-2'", "crc = crc + 1"])
def test_a_row_that_has_changed_on_disk_is_named(path: Path, what: str) -> None:
    assert read_everything(str(path.parent), None) == (2, [])
    change(path, f"UPDATE unpartitioned_hour SET {what} WHERE day_id = {number_of(DAYS[0])} AND gpu_uuid = 'GPU-1'")
    with closing(sqlite3.connect(path)) as connection:
        assert digest_rows(connection, number_of(DAYS[0])) == UNREADABLE
    _, (trouble,) = read_everything(str(path.parent), None)
    assert f"the rollup of {DAYS[0]}" in trouble


def test_what_an_older_gua_leaves_of_a_day_that_it_removed_is_not_counted(path: Path) -> None:
    (path.parent / "samples" / f"{DAYS[0]}.sqlite").unlink()
    whole = uncovered(path)
    tables = ("day", "card_day", "card_hour", "identity_hour", "hold", "episode", "span", "edge")
    for table in tables:
        change(path, f"DELETE FROM {table} WHERE {'id' if table == 'day' else 'day_id'} = {number_of(DAYS[0])}")
    assert uncovered(path) == pytest.approx(whole / 2)


def test_a_file_of_an_older_gua_has_none(path: Path) -> None:
    change(path, "DROP VIEW unpartitioned_hours", "DROP TABLE unpartitioned_hour")
    assert uncovered(path) == 0
    upkeep(path.parent, MONDAY_MS + 3 * DAY_MS, rebuild=True)
    assert uncovered(path) == pytest.approx(2 * 24 * (1 + 4 / 7), abs=1e-4)


def test_a_figure_that_makes_no_sense_costs_the_rollup_of_its_day_alone(path: Path) -> None:
    change(path, f"UPDATE unpartitioned_hour SET gpu_ms = {2 * HOUR_MS} WHERE day_id = {number_of(DAYS[0])}")
    report = report_of(path.parent, MONDAY_MS, MONDAY_MS + 2 * DAY_MS)
    assert report.unpartitioned["gpu_hours"].sum() == pytest.approx(2 * 24 * (1 + 4 / 7), abs=1e-4)
    assert any(DAYS[0] in note and "not used" in note for note in report.notes)
