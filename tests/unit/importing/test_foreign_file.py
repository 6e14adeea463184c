"""What can be imported is told by what is in it; what others write to meanwhile is read as it was at one moment."""

import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from gua_report.commands import import_
from gua_report.ticks.open_partition import stamp
from tests.gpu_usage_audit import NOON_MS, PeerDatabase, Seen, times
from tests.import_target import Target, photograph


def test_a_file_that_changes_while_it_is_read_is_not_believed(
    new: PeerDatabase, target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    new.add(times(NOON_MS, 3), Seen(50))
    monkeypatch.setattr("gua_report.importing.opening.stamp", lambda path: (*stamp(path)[:2], os.urandom(8)))
    before = photograph(new.path)
    assert import_.main([str(new.path), "--data-dir", str(target.folder)]) == 1
    assert photograph(new.path) == before
    assert not list(target.folder.rglob("*.sqlite"))


def test_what_is_none_of_these_is_said_in_one_line(tmp_path: Path, new: PeerDatabase, target: Target) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "empty").touch()
    (tmp_path / "letter").write_text("Dear all,\n")
    (tmp_path / "broken").write_bytes(b"SQLite format 3\0" + b"x" * 5000)
    os.mkfifo(tmp_path / "pipe")
    with closing(sqlite3.connect(tmp_path / "else.db")) as connection:
        connection.execute("CREATE TABLE gpu_sample (ts, gpu_uuid)")
    cases = {
        "nowhere": (2, "does not exist: give a gpu-usage-audit database"),
        "folder": (3, "nothing to import in"),
        "empty": (3, "is empty"),
        "letter": (1, "is neither a database nor has it the columns timestamp,user,pid,gpu,usage"),
        "broken": (1, "can't be read as a database (file is not a database)"),
        "pipe": (2, "pipe is no regular file"),
        new.path.name: (3, "nothing to import in"),
        "else.db": (1, "is a database of something else (gpu_sample has no util_pct)"),
    }
    for name, (status, text) in cases.items():
        target.imports(tmp_path / name, status=status)
        assert text in target.errors, name
        assert target.errors.count("\n") == 1
    assert not target.folder.exists()


def test_the_text_fits_a_mail_and_says_it_all(
    new: PeerDatabase, target: Target, capsys: pytest.CaptureFixture[str]
) -> None:
    new.add([*times(NOON_MS, 3), "2999-01-01T00:00:00+00:00", "soon"], Seen(50, ((1, 500),)))
    assert import_.main([str(new.path), "--data-dir", str(target.folder)]) == 0
    text = capsys.readouterr().out
    assert "3 ticks of 1 day (2026-10-05 12:00:00 UTC to 2026-10-05" in text
    assert "left out   1 tick of the future: 2999-01-01 00:00:00 UTC\n" in text
    assert "left out   1 row whose time can't be read: soon\n" in text
    words = [line for line in text.splitlines() if str(target.folder) not in line and str(new.path) not in line]
    assert max(map(len, words)) <= 78
