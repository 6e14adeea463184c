"""What a published copy says of itself, and what is not believed."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from gua_report.rollups.index import CREATE_META, META, Meta, path_of, published_path, read_meta
from gua_report.rollups.writer import RollupWriter
from gua_report.upkeep.outputs import write_copy
from gua_sample.errors import CorruptPartition

META_OF_LAB = Meta("lab7", "0123456789abcdef" * 2, "0.1.0", 1_794_787_200_000, 1_794_787_190_000)


@pytest.fixture
def path(tmp_path: Path) -> str:
    """A published copy without days."""
    with RollupWriter(path_of(str(tmp_path))):
        pass
    write_copy(path_of(str(tmp_path)), str(tmp_path), META_OF_LAB)
    return published_path(str(tmp_path))


def change(path: str, sql: str, *values: Any) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(sql, values)


def test_it_says_what_was_written(path: str) -> None:
    assert read_meta(path) == META_OF_LAB


def test_keys_that_a_newer_gua_adds_are_passed_over(path: str) -> None:
    change(path, f"INSERT INTO {META} VALUES ('later', 'x'), ('much', ?)", "x" * 1_000_000)
    assert read_meta(path) == META_OF_LAB


def test_what_the_host_does_not_know_is_none(path: str) -> None:
    change(path, f"UPDATE {META} SET value = NULL WHERE key IN ('machine', 'newest_tick_ms')")
    assert read_meta(path) == META_OF_LAB._replace(machine=None, newest_tick_ms=None)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *(("host", value) for value in (None, 7, "", " ", "two\nlines", "\x1b[2J", "x" * 300, b"lab7")),
        *(("machine", value) for value in ("x", "0" * 31, "0" * 33, "G" * 32, 5, "0" * 32 + "\n")),
        *(("gua_version", value) for value in (None, 1, "0.1\n")),
        *(("published_ms", value) for value in (None, "soon", 1.5, -1)),
        *(("newest_tick_ms", value) for value in ("soon", 1.5, -1)),
    ],
)
def test_what_no_gua_publishes_is_not_believed(path: str, key: str, value: object) -> None:
    change(path, f"UPDATE {META} SET value = ? WHERE key = ?", value, key)
    with pytest.raises(CorruptPartition, match=key):
        read_meta(path)


@pytest.mark.parametrize(
    "statements",
    [
        ["DROP TABLE meta"],
        ["DROP TABLE meta", "CREATE VIEW meta AS SELECT 'host' AS key, 'x' AS value"],
        ["DROP TABLE meta", CREATE_META.replace("value ANY", "value ANY DEFAULT (randomblob(9))")],
        ["CREATE TRIGGER t AFTER INSERT ON meta BEGIN SELECT 1; END"],
        ["PRAGMA application_id = 7"],
    ],
)
def test_a_file_that_is_no_published_copy_is_refused(path: str, statements: list[str]) -> None:
    for statement in statements:
        change(path, statement)
    with pytest.raises(CorruptPartition):
        read_meta(path)
