"""Opening partitions to read them."""

import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from gua_report.ticks import open_partition as opening
from gua_report.ticks.open_partition import open_partition, private_copy
from gua_sample import schema, store
from gua_sample.errors import CorruptPartition, EmptyPartition, NewerPartition, PartitionBusy, StoreError
from gua_sample.records import Boot, Tick
from tests.lab import MONDAY_MS


@pytest.fixture
def partition(tmp_path: Path) -> Path:
    folder = store.prepare(str(tmp_path / "50% #1? ü"))
    tick = Tick(MONDAY_MS, None, Boot("boot", 5), None, None, "x", [], {}, [])
    return Path(store.append(folder, tick, pytest.fail).path)


def change(partition: Path, statement: str) -> None:
    with closing(sqlite3.connect(partition)) as connection:
        connection.execute(statement)
        connection.commit()


def count(partition: Path) -> int:
    with open_partition(str(partition)) as connection:
        found: int = connection.execute("SELECT count(*) FROM ticks").fetchone()[0]
    return found


def test_a_partition_is_read_whatever_its_path(partition: Path) -> None:
    assert count(partition) == 1


def test_nothing_can_be_written_through_it(partition: Path) -> None:
    with pytest.raises(StoreError), open_partition(str(partition)) as connection:
        connection.execute("DELETE FROM tick")
    assert count(partition) == 1


def test_a_newer_one_gets_a_clear_error(partition: Path) -> None:
    change(partition, f"PRAGMA user_version = {schema.VERSION + 1}")
    with pytest.raises(NewerPartition, match="upgrade gua"):
        count(partition)


def test_a_database_of_something_else_is_refused(partition: Path) -> None:
    change(partition, "PRAGMA application_id = 7")
    with pytest.raises(CorruptPartition, match="not a partition"):
        count(partition)


def test_one_that_has_only_just_been_created_is_empty(tmp_path: Path) -> None:
    (tmp_path / "2026-11-16.sqlite").touch()
    with pytest.raises(EmptyPartition):
        count(tmp_path / "2026-11-16.sqlite")


def test_a_missing_one_is_a_store_error_and_is_not_created(tmp_path: Path) -> None:
    with pytest.raises(StoreError):
        count(tmp_path / "2026-11-16.sqlite")
    assert list(tmp_path.iterdir()) == []


def test_a_reader_waits_for_a_writer_that_is_about_to_finish(partition: Path) -> None:
    with closing(sqlite3.connect(partition, isolation_level=None, check_same_thread=False)) as writer:
        writer.execute("BEGIN EXCLUSIVE")

        def finish() -> None:
            time.sleep(1)
            writer.execute("ROLLBACK")

        thread = threading.Thread(target=finish)
        thread.start()
        assert count(partition) == 1
        thread.join()


def test_a_visit_sees_one_state_of_the_file(partition: Path) -> None:
    with open_partition(str(partition)) as connection:
        tick = Tick(MONDAY_MS + 1, None, Boot("boot", 5), None, None, "x", [], {}, [])
        outcome = store.append(str(partition.parent), tick, pytest.fail)
        assert outcome.kept  # a reader does not cost the tick
        assert connection.execute("SELECT count(*) FROM ticks").fetchone()[0] == 1


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
    copy = opening._copy

    def copy_and_write(path: str, to: str) -> None:
        copy(path, to)
        writer.execute(statement)

    monkeypatch.setattr(opening, "_copy", copy_and_write)


def rows_of_copy(database: Path) -> int:
    with private_copy(str(database)) as copy, closing(sqlite3.connect(copy)) as connection:
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
