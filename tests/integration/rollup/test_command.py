"""gua rollup as a person types it: what it does, says and refuses."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gua_sample.partition_names import day_of
from tests import verbs
from tests.integration.rollup.five_days import (
    CLOSED,
    END_MS,
    KEPT_DAYS,
    TODAY,
    assert_report,
    files,
    here,
    rollup,
    stored,
    tree,
    whole,
    write_config,
)
from tests.lab import Report
from tests.machine import GUA, one_line
from tests.rolling import OLD, partition


def test_closed_days_are_rolled_up_once_and_said(data_dir: Path, expected: Report) -> None:
    done = rollup(data_dir)
    assert (done.returncode, done.stderr) == (0, "")
    assert f"rolled up 4 days ({CLOSED[0]} to {CLOSED[-1]}), 1 day not closed yet, 4 CSV files" in done.stdout
    assert files(data_dir) == whole([*CLOSED, TODAY], CLOSED)
    assert assert_report(data_dir, expected).from_ticks_seconds == 0
    before = tree(data_dir)
    done = rollup(data_dir)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "rolled up 0 days, 4 days done before, 1 day not closed yet\n"
    assert tree(data_dir) == before


def test_what_was_done_is_told_as_json(data_dir: Path) -> None:
    first, second = (json.loads(here("rollup", data_dir, "--json").stdout) for _ in range(2))
    assert (first["rolled_up"], first["unchanged"], first["open"]) == (CLOSED, 0, [TODAY])
    assert first["csv"] == [str(data_dir / "csv" / f"{day}.csv") for day in CLOSED]
    assert (second["rolled_up"], second["unchanged"], second["open"], second["csv"]) == ([], 4, [TODAY], [])
    for found in (first, second):
        assert (found["failed"], found["removed"], found["kept"]) == ([], [], [])


def test_a_rebuild_makes_all_days_anew_and_the_same(rolled_up: Path, expected: Report) -> None:
    before = {day: stored(rolled_up, day) for day in CLOSED}
    changed_ns = (rolled_up / "rollups.sqlite").stat().st_mtime_ns
    done = rollup(rolled_up, "--rebuild")
    assert (done.returncode, done.stderr) == (0, "")
    assert "rolled up 4 days" in done.stdout
    assert (rolled_up / "rollups.sqlite").stat().st_mtime_ns > changed_ns
    assert {day: stored(rolled_up, day) for day in CLOSED} == before
    assert_report(rolled_up, expected)


def test_the_report_takes_closed_days_from_rollups(untouched: Path, finished: Path) -> None:
    names = ["report", "--json", "--tz", "UTC", "--from", OLD[0], "--to", day_of(END_MS)]
    documents = []
    for folder in (untouched, finished):
        done = verbs.run(*names, "--data-dir", folder)
        assert (done.returncode, done.stderr) == (0, "")
        documents.append(json.loads(done.stdout))
    from_ticks, from_rollups = (document.pop("sources") for document in documents)
    assert from_ticks["from_rollups_seconds"] == from_rollups["from_ticks_seconds"] == 0
    assert from_rollups["from_rollups_seconds"] == from_ticks["from_ticks_seconds"] > 3 * 86_400
    assert documents[0]["headline"] == documents[1]["headline"]
    assert documents[0]["identities"] == documents[1]["identities"]
    assert documents[0]["episodes"] == documents[1]["episodes"]


def test_an_empty_folder_has_nothing_to_do(tmp_path: Path) -> None:
    done = here("rollup", tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "rolled up 0 days\n"
    assert files(tmp_path) == []


def test_help_has_examples_fits_a_narrow_terminal_and_needs_no_pandas() -> None:
    words = [sys.executable, "-X", "importtime", GUA, "rollup", "--help"]
    done = subprocess.run(words, env=os.environ | {"COLUMNS": "80"}, capture_output=True, text=True, check=True)
    assert "examples" in done.stdout
    assert max(len(line) for line in done.stdout.splitlines()) <= 80
    assert "pandas" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--rebuilt"], "--rebuilt"),
        (["--reb"], "--reb"),
        (["now"], "now"),
        (["--data-dir", ""], "--data-dir is empty"),
        (["--config", "/nowhere.toml"], "/nowhere.toml"),
    ],
)
def test_mistakes_exit_2_in_one_line_and_write_nothing(data_dir: Path, arguments: list[str], named: str) -> None:
    before = tree(data_dir)
    done = here("rollup", data_dir, *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert one_line(done.stderr)
    assert done.stderr.startswith("gua rollup: error: ")
    assert named in done.stderr
    assert tree(data_dir) == before


@pytest.mark.parametrize(
    ("name", "value"),
    [("raw_days", 0), ("raw_days", -1), ("csv_days", '"90"'), ("rollup_days", 1.5), ("raw_days", True), ("days", 90)],
)
def test_bad_values_of_retention_are_named_and_remove_nothing(
    rolled_up: Path, tmp_path: Path, name: str, value: object
) -> None:
    before = tree(rolled_up)
    done = here("rollup", rolled_up, "--config", write_config(tmp_path / "gua.toml", **{name: value}))
    assert (done.returncode, done.stdout) == (2, "")
    assert one_line(done.stderr)
    assert f"'{name}'" in done.stderr
    assert str(tmp_path / "gua.toml") in done.stderr
    assert tree(rolled_up) == before


@pytest.mark.parametrize("days", [400_000, 10**7, 10**30])
def test_however_long_history_is_to_be_kept_it_is(rolled_up: Path, tmp_path: Path, days: int) -> None:
    """Before the year 1000 dates are shorter, before the year 1 there are none."""
    before = tree(rolled_up)
    path = write_config(tmp_path / "gua.toml", raw_days=days, csv_days=days, rollup_days=days)
    done = here("rollup", rolled_up, "--config", path)
    assert "removed" not in done.stdout
    assert "this is a bug" not in done.stderr
    assert tree(rolled_up) == before


def test_a_dry_run_says_what_would_be_done_and_touches_nothing(data_dir: Path, tmp_path: Path) -> None:
    path = write_config(tmp_path / "gua.toml", raw_days=KEPT_DAYS, csv_days=KEPT_DAYS, rollup_days=KEPT_DAYS)
    before = tree(data_dir)
    would = rollup(data_dir, "--config", path, "--dry-run", "--json")
    assert (would.returncode, would.stderr) == (0, "")
    text = here("rollup", data_dir, "--config", path, "--dry-run").stdout
    assert "would" in text
    assert tree(data_dir) == before
    said, done = json.loads(would.stdout), json.loads(here("rollup", data_dir, "--config", path, "--json").stdout)
    for name in ("rolled_up", "unchanged", "open", "failed", "csv", "removed", "kept"):
        assert said[name] == done[name], name
    assert [str(partition(data_dir, day)) for day in OLD] == done["removed"]
    assert all(path in text for path in done["removed"])


def test_a_dry_run_on_what_is_rolled_up_touches_nothing(rolled_up: Path, tmp_path: Path) -> None:
    path = write_config(tmp_path / "gua.toml", raw_days=KEPT_DAYS, csv_days=KEPT_DAYS)
    before = tree(rolled_up)
    for arguments in ([], ["--rebuild"]):
        done = here("rollup", rolled_up, "--config", path, "--dry-run", *arguments)
        assert (done.returncode, done.stderr) == (0, "")
        for day in OLD:
            assert str(partition(rolled_up, day)) in done.stdout
            assert str(rolled_up / "csv" / f"{day}.csv") in done.stdout
        assert tree(rolled_up) == before
