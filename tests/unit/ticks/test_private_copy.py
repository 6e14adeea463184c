"""A private copy of a database that others write to: as it was at one moment, or none."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from gua_report.ticks import private_copy
from gua_sample.errors import CorruptPartition, PartitionBusy


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return tmp_path / "any.db"


@pytest.fixture
def writer(database: Path) -> Iterator[sqlite3.Connection]:
    """A writer whose rows stay in the log while it has the database open."""
    with closing(sqlite3.connect(database, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA wal_autocheckpoint = 0")
        connection.execute("CREATE TABLE row (number)")
        yield connection


def meanwhile(monkeypatch: pytest.MonkeyPatch, writer: sqlite3.Connection, statement: str) -> None:
    """Have the writer do something each time that the files are copied."""
    copy = private_copy._copy

    def copy_and_write(path: str, to: str) -> None:
        copy(path, to)
        writer.execute(statement)

    monkeypatch.setattr(private_copy, "_copy", copy_and_write)


def rows_of_copy(database: Path) -> int:
    with private_copy.private_copy(str(database)) as copy, closing(sqlite3.connect(copy)) as connection:
        found: int = connection.execute("SELECT count(*) FROM row").fetchone()[0]
    assert not Path(copy).exists()
    return found


def test_a_log_that_grows_while_it_is_copied_is_as_good(
    database: Path, writer: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer.execute("INSERT INTO row VALUES (1)")
    meanwhile(monkeypatch, writer, "INSERT INTO row VALUES (2)")
    assert rows_of_copy(database) == 1


def test_a_database_that_keeps_changing_is_given_up(
    database: Path, writer: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer.execute("PRAGMA journal_mode = DELETE")
    meanwhile(monkeypatch, writer, "INSERT INTO row VALUES (zeroblob(5000))")
    with pytest.raises(PartitionBusy, match="keeps changing while it is copied: try again"):
        rows_of_copy(database)


def test_a_link_in_place_of_the_log_is_not_followed(database: Path, tmp_path: Path) -> None:
    database.touch()
    (tmp_path / "any.db-wal").symlink_to("/etc/hostname")
    with pytest.raises(CorruptPartition, match="is a link"):
        rows_of_copy(database)
