"""A file of rollups that is damaged is set aside, and what can be saved of it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.damage import overwrite_table
from tests.lab import DAY_MS, report_of
from tests.rolling import KEEP_LAST_TWO, assert_same, lab_days, upkeep


def test_a_corrupt_file_of_rollups_is_set_aside_and_made_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, end = lab_days(tmp_path)
    (tmp_path / "rollups.sqlite").write_text("garbage, more than sixteen bytes of it")
    done = upkeep(tmp_path, end + 5 * DAY_MS)
    assert len(done.rolled_up) == 4
    assert "it is set aside as" in capsys.readouterr().out
    assert (tmp_path / "rollups.sqlite.corrupt-1").read_text().startswith("garbage")


def test_an_empty_file_of_rollups_is_said_and_made_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, end = lab_days(tmp_path)
    upkeep(tmp_path, end + 5 * DAY_MS)
    (tmp_path / "rollups.sqlite").write_bytes(b"")
    assert len(upkeep(tmp_path, end + 5 * DAY_MS).rolled_up) == 4
    assert "rollups.sqlite is empty: it is made again" in capsys.readouterr().out


def test_days_without_ticks_survive_a_damaged_file_where_they_can_be_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    start, end = lab_days(tmp_path)
    expected = report_of(tmp_path, start, end)
    upkeep(tmp_path, end + 2 * DAY_MS, KEEP_LAST_TWO)
    rollups = tmp_path / "rollups.sqlite"
    overwrite_table(rollups, "sqlite_autoindex_day_1")  # which no report reads
    before = rollups.read_bytes()
    done = upkeep(tmp_path, end + 2 * DAY_MS, KEEP_LAST_TWO)
    said = capsys.readouterr().out
    assert "it is set aside as" in said
    assert "of 2 days the ticks are gone: they were taken over from it" in said
    assert (done.rolled_up, done.unchanged) == (["2026-11-16"], 1)
    assert (tmp_path / "rollups.sqlite.corrupt-1").read_bytes() == before
    assert_same(expected, report_of(tmp_path, start, end))
