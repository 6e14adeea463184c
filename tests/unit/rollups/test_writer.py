"""Files of an older and of a newer gua are written to as well."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from gua_report.rollups import schema
from gua_report.rollups.writer import RollupWriter
from tests.lab import DAY_MS
from tests.machine import query
from tests.rolling import lab_days, upkeep


def test_days_with_new_cards_are_written_to_a_file_that_a_newer_gua_has_added_to(tmp_path: Path) -> None:
    _, end = lab_days(tmp_path, days=1)
    path = tmp_path / "rollups.sqlite"
    RollupWriter(str(path)).__exit__(None, None, None)
    with closing(sqlite3.connect(path)) as connection:
        for table in schema.TABLES:
            connection.execute(f"ALTER TABLE {table} ADD COLUMN later INTEGER")
    assert len(upkeep(tmp_path, end + DAY_MS).rolled_up) == 2


def test_a_file_of_an_older_gua_gets_the_columns_and_views_of_this_one(tmp_path: Path) -> None:
    path = tmp_path / "rollups.sqlite"
    RollupWriter(str(path)).__exit__(None, None, None)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("DROP VIEW days")
        connection.execute("CREATE VIEW days AS SELECT day FROM day")
        connection.execute("DROP TABLE edge")
        for column in schema.ADDED["day"]:
            connection.execute(f"ALTER TABLE day DROP COLUMN {column}")
    RollupWriter(str(path)).__exit__(None, None, None)
    assert {row["name"] for row in query(path, "PRAGMA table_info(days)")} >= set(schema.ADDED["day"])
    types = {row["name"]: row["type"] for row in query(path, "PRAGMA table_info(day)")}
    assert types == schema.columns_of("day")
    assert query(path, "SELECT * FROM edge") == []
