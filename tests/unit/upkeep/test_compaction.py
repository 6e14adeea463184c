"""Closed days are packed, and are the same afterwards."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from gua_report.upkeep.nightly import Done, Upkeep
from tests.lab import CONFIG, DAY_MS, report_of
from tests.rolling import assert_same, lab_days, upkeep


def test_compacted_days_are_the_same_and_not_rolled_up_again(tmp_path: Path) -> None:
    start, end = lab_days(tmp_path)
    expected = report_of(tmp_path, start, end)
    sizes = [path.stat().st_size for path in sorted((tmp_path / "samples").iterdir())]
    upkeep(tmp_path, end + 2 * DAY_MS)
    done = Upkeep(str(tmp_path), CONFIG, end + 2 * DAY_MS, False, print).run(False, True, None)
    assert len(done.compacted) == 4
    assert sum(path.stat().st_size for path in (tmp_path / "samples").iterdir()) < sum(sizes)
    again = Upkeep(str(tmp_path), CONFIG, end + 2 * DAY_MS, False, print).run(False, True, None)
    assert again == Done([], 4, [], [], [], [], [], [], [])
    assert report_of(tmp_path, start, end).from_ticks_seconds < 3600, "of the hour in which the history begins"
    assert_same(expected, report_of(tmp_path, start, end))
    (tmp_path / "rollups.sqlite").unlink()
    assert_same(expected, report_of(tmp_path, start, end))


def test_a_partition_that_is_in_use_is_compacted_another_time(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gua_report.upkeep.compaction.BUSY_SECONDS", 0.1)
    _, end = lab_days(tmp_path)
    with closing(sqlite3.connect(tmp_path / "samples/2026-11-14.sqlite", isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM tick").fetchone()
        done = Upkeep(str(tmp_path), CONFIG, end + 2 * DAY_MS, False, print).run(False, True, None)
    assert done.compacted == ["2026-11-13", "2026-11-15", "2026-11-16"]
    assert "not compacted: " in capsys.readouterr().out
    done = Upkeep(str(tmp_path), CONFIG, end + 2 * DAY_MS, False, print).run(False, True, None)
    assert done.compacted == ["2026-11-14"]
