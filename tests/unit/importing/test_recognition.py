"""What can be imported is told by what is in it, and what can not is said in one line."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from tests.gpu_usage_audit import PeerDatabase
from tests.import_target import Target


def somebody_elses(path: Path) -> Path:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE gpu_sample (ts, gpu_uuid)")
    return path


def test_what_is_none_of_these_is_said_in_one_line(tmp_path: Path, target: Target) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "empty").touch()
    (tmp_path / "letter").write_text("Dear all,\n")
    (tmp_path / "broken").write_bytes(b"SQLite format 3\0" + b"x" * 5000)
    cases = {
        "nowhere": (2, "does not exist: give a gpu-usage-audit database"),
        "folder": (3, "nothing to import in"),
        "empty": (3, "is empty"),
        "letter": (1, "is neither a database nor has it the columns timestamp,user,pid,gpu,usage"),
        "broken": (1, "can't be read as a database (file is not a database)"),
        somebody_elses(tmp_path / "else.db").name: (1, "is a database of something else (gpu_sample has no util_pct)"),
    }
    for name, (status, text) in cases.items():
        target.imports(tmp_path / name, status=status)
        assert text in target.errors, name
        assert target.errors.count("\n") == 1
    assert not target.folder.exists()


def test_a_database_without_samples_is_nothing_to_import(new: PeerDatabase, target: Target) -> None:
    said = target.imports(new.path, status=3)
    assert said["taken"]["ticks"] == 0
