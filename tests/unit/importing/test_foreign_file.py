"""A database that others write to meanwhile: read as it was at one moment, or not believed."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from gua_report.commands import import_
from gua_report.ticks.private_copy import stamp
from tests.gpu_usage_audit import NOON_MS, PeerDatabase, Seen, times
from tests.import_target import Target, photograph


@pytest.fixture
def daemon(new: PeerDatabase) -> Iterator[sqlite3.Connection]:
    """The daemon's connection: while it is open, what it writes stays in the log."""
    connection = sqlite3.connect(new.path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    yield connection
    connection.close()


def test_what_a_running_daemon_has_in_its_log_is_read(
    new: PeerDatabase, daemon: sqlite3.Connection, target: Target
) -> None:
    daemon.execute("PRAGMA wal_autocheckpoint = 0")
    new.add(times(NOON_MS, 3), Seen(50))
    assert Path(f"{new.path}-wal").stat().st_size > 0
    assert target.imports(new.path)["taken"]["ticks"] == 3


def test_a_file_that_changes_while_it_is_read_is_not_believed(
    new: PeerDatabase, target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    new.add(times(NOON_MS, 3), Seen(50))
    monkeypatch.setattr("gua_report.importing.foreign_file.stamp", lambda path: (*stamp(path)[:2], os.urandom(8)))
    before = photograph(new.path)
    assert import_.main([str(new.path), "--data-dir", str(target.folder)]) == 1
    assert photograph(new.path) == before
    assert not list(target.folder.rglob("*.sqlite"))
