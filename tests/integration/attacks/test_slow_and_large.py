"""Small files that would take ages, or become large answers."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from gua_sample import safe_file
from tests import hostile
from tests.integration.attacks.attempts import DAYS, command, execute, partition
from tests.users import needs_root
from tests.verbs import give, run

pytestmark = [needs_root, pytest.mark.real]


# -- what takes time without a step of SQLite's machine, which its time limit counts


SLOW = "length(hex(zeroblob(ts_ms % 3 + 60000000)))"


def with_a_slow_index(path: Path) -> None:
    """Found wrong by nobody: as many entries as rows, of a table that is changed or packed."""
    execute(path, "CREATE INDEX slow ON tick (ts_ms)")
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA writable_schema = ON")
        connection.execute(f"UPDATE sqlite_master SET sql = 'CREATE INDEX slow ON tick ({SLOW})' WHERE name = 'slow'")


def with_a_slow_partial_index(path: Path) -> None:
    execute(path, "CREATE INDEX slow ON tick (ts_ms)")
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA writable_schema = ON")
        sql = f"CREATE INDEX slow ON tick (ts_ms) WHERE {SLOW} > 0"
        connection.execute("UPDATE sqlite_master SET sql = ? WHERE name = 'slow'", (sql,))


def with_a_slow_check(path: Path) -> None:
    execute(path, "CREATE TABLE slow (ts_ms)", "INSERT INTO slow SELECT ts_ms FROM tick, (SELECT 1 UNION SELECT 2)")
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA writable_schema = ON")
        sql = f"CREATE TABLE slow (ts_ms, CHECK ({SLOW} > 0))"
        connection.execute("UPDATE sqlite_master SET sql = ? WHERE name = 'slow'", (sql,))


def with_a_slow_default(path: Path) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        (sql,) = connection.execute("SELECT sql FROM sqlite_master WHERE name = 'tick'").fetchone()
        connection.execute("PRAGMA writable_schema = ON")
        sql = sql.replace("pending_key INTEGER", "pending_key INTEGER, slow TEXT DEFAULT (hex(zeroblob(60000000)))")
        connection.execute("UPDATE sqlite_master SET sql = ? WHERE name = 'tick'", (sql,))


SLOWED = [with_a_slow_index, with_a_slow_partial_index, with_a_slow_check, with_a_slow_default]


@pytest.mark.parametrize("plant", SLOWED)
@pytest.mark.parametrize("name", ["doctor", "rollup", "export", "import"])
def test_no_schema_makes_a_command_slow(folder: Path, plant: Callable[[Path], None], name: str) -> None:
    for day in DAYS:
        plant(partition(folder, day))
    give(folder)
    began = time.monotonic()
    done = command(name, folder)
    assert time.monotonic() - began < 5, done
    assert done.is_calm, done


@pytest.mark.parametrize("plant", SLOWED)
def test_no_schema_makes_an_import_into_a_folder_slow(
    folder: Path, history: Path, plant: Callable[[Path], None]
) -> None:
    for day in DAYS:
        execute(partition(folder, day), "DELETE FROM card_sample", "DELETE FROM process_sample", "DELETE FROM tick")
        plant(partition(folder, day))
    give(folder)
    began = time.monotonic()
    done = run("import", "--data-dir", folder, history)
    assert time.monotonic() - began < 5, done
    assert done.is_calm, done


# -- a small file that becomes a large answer


def with_a_long_name(path: Path) -> None:
    """Half a gigabyte of CSV from a file of three megabytes."""
    execute(
        path, "UPDATE card SET name = hex(zeroblob(1000000))", "UPDATE process SET command = hex(zeroblob(1000000))"
    )


@pytest.mark.parametrize("name", ["export", "export of processes", "report", "rollup", "import"])
def test_a_long_name_is_not_repeated_at_each_tick(folder: Path, name: str) -> None:
    with_a_long_name(partition(folder))
    give(folder)
    done = command(name, folder)
    assert done.is_calm, done.stderr[:500]
    assert len(done.stdout) < 5_000_000
    assert sum(file.stat().st_size for file in folder.rglob("*.csv")) < 5_000_000


@pytest.mark.parametrize("table", [None, "tick"])
@pytest.mark.parametrize("name", ["report", "status", "doctor", "rollup", "import", "sample", "export"])
def test_pages_that_lead_to_the_same_page_again_and_again_end_no_command(
    folder: Path, table: str | None, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(safe_file, "VISIT_SECONDS", 0.3)
    day = time.strftime("%Y-%m-%d", time.gmtime()) if name == "sample" else DAYS[1]
    os.rename(partition(folder), partition(folder, day))
    hostile.make_endless(partition(folder, day), table)
    give(folder)
    began = time.monotonic()
    done = command(name, folder)
    assert done.is_calm, done
    assert time.monotonic() - began < 10
