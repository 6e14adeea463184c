"""Earlier and newer files are written to as well, also those without the table of what no MIG instance covers."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from gua_report.rollups import schema
from gua_report.rollups.index import path_of, read_index
from gua_report.rollups.writer import RollupWriter
from gua_report.window import number_of
from gua_sample.partition_names import day_of
from tests.lab import DAY_MS, HOUR_MS, MINUTE_MS, MONDAY_MS, report_of, series, sliced, unpartitioned, write
from tests.machine import query
from tests.rolling import change, lab_days, upkeep

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


def uncovered(path: Path) -> float:
    report = report_of(path.parent, MONDAY_MS, MONDAY_MS + 2 * DAY_MS)
    assert report.from_rollups_seconds > 0
    return float(report.unpartitioned["gpu_hours"].sum())


def test_it_has_a_row_for_each_hour_and_card(path: Path) -> None:
    found = query(path, f"SELECT hour_ms, gpu_uuid, gpu_hours FROM unpartitioned_hours WHERE day = '{DAYS[1]}'")
    rows = [tuple(row.values()) for row in found]
    hours = [MONDAY_MS + DAY_MS + hour * HOUR_MS for hour in range(24)]
    assert [row[:2] for row in rows] == [(hour, uuid) for hour in hours for uuid in ("GPU-0", "GPU-1")]
    assert {round(row[2], 4) for row in rows} == {round(4 / 7, 4), 1.0}


def test_a_figure_that_makes_no_sense_costs_the_rollup_of_its_day_alone(path: Path) -> None:
    change(path, f"UPDATE unpartitioned_hour SET gpu_ms = {2 * HOUR_MS} WHERE day_id = {number_of(DAYS[0])}")
    report = report_of(path.parent, MONDAY_MS, MONDAY_MS + 2 * DAY_MS)
    assert report.unpartitioned["gpu_hours"].sum() == pytest.approx(2 * 24 * (1 + 4 / 7), abs=1e-4)
    assert any(DAYS[0] in note and "not used" in note for note in report.notes)


def test_days_with_new_cards_are_written_to_a_file_that_a_newer_gua_has_added_to(tmp_path: Path) -> None:
    _, end = lab_days(tmp_path, days=1)
    path = tmp_path / "rollups.sqlite"
    RollupWriter(str(path)).__exit__(None, None, None)
    with closing(sqlite3.connect(path)) as connection:
        for table in schema.TABLES:
            connection.execute(f"ALTER TABLE {table} ADD COLUMN later INTEGER")
    assert len(upkeep(tmp_path, end + DAY_MS).rolled_up) == 2


def test_an_earlier_file_gets_the_columns_and_views_of_this_one_and_can_be_written(tmp_path: Path) -> None:
    _, end = lab_days(tmp_path, days=1)
    path = tmp_path / "rollups.sqlite"
    RollupWriter(str(path)).__exit__(None, None, None)
    with closing(sqlite3.connect(path)) as connection:
        for statement in schema.VIEWS:
            connection.execute(f"DROP VIEW {statement.split()[2]}")
        connection.execute("CREATE VIEW days AS SELECT day FROM day")
        for column in schema.ADDED["day"]:
            connection.execute(f"ALTER TABLE day DROP COLUMN {column}")
        (sql,) = connection.execute("SELECT sql FROM sqlite_master WHERE name = 'unpartitioned_hour'").fetchone()
        connection.execute("DROP TABLE unpartitioned_hour")
        connection.execute(sql.replace("PRIMARY", "crc INTEGER NOT NULL, PRIMARY"))
    assert read_index(str(path)) == {}
    assert len(upkeep(tmp_path, end + DAY_MS).rolled_up) == 2
    assert {row["name"] for row in query(path, "PRAGMA table_info(days)")} >= set(schema.ADDED["day"])
    for table in ("day", "unpartitioned_hour"):
        types = {row["name"]: row["type"] for row in query(path, f"PRAGMA table_info({table})")}
        with closing(sqlite3.connect(":memory:")) as connection:
            connection.execute(schema.TABLES[table])
            assert types == {row[1]: row[2] for row in connection.execute(f"PRAGMA table_info({table})")}
