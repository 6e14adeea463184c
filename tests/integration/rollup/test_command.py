"""gua rollup as a person types it: what it does, says and refuses."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests import verbs
from tests.integration.rollup import five_days as five
from tests.lab import Report
from tests.machine import GUA, one_line
from tests.rolling import OLD, RECENT, partition
from tests.users import SOMEBODY, needs_root


def test_closed_days_are_rolled_up_once_and_said(data_dir: Path, expected: Report) -> None:
    done = five.rollup(data_dir)
    assert (done.returncode, done.stderr) == (0, "")
    assert f"rolled up 4 days ({five.CLOSED[0]} to {five.CLOSED[-1]}), 1 day not closed yet, 4 CSV files" in done.stdout
    assert five.files(data_dir) == five.whole([*five.CLOSED, five.TODAY], five.CLOSED)
    assert five.assert_report(data_dir, expected).from_ticks_seconds == 0
    before = five.tree(data_dir)
    done = five.rollup(data_dir)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "rolled up 0 days, 4 days done before, 1 day not closed yet\n"
    assert five.tree(data_dir) == before


def test_what_was_done_is_told_as_json(data_dir: Path) -> None:
    first, second = (json.loads(five.here("rollup", data_dir, "--json").stdout) for _ in range(2))
    assert (first["rolled_up"], first["unchanged"], first["open"]) == (five.CLOSED, 0, [five.TODAY])
    assert first["csv"] == [str(data_dir / "csv" / f"{day}.csv") for day in five.CLOSED]
    assert (second["rolled_up"], second["unchanged"], second["open"], second["csv"]) == ([], 4, [five.TODAY], [])
    for found in (first, second):
        assert (found["failed"], found["removed"], found["kept"]) == ([], [], [])


def test_a_rebuild_makes_all_days_anew_and_the_same(rolled_up: Path, expected: Report) -> None:
    before = {day: five.stored(rolled_up, day) for day in five.CLOSED}
    changed_ns = (rolled_up / "rollups.sqlite").stat().st_mtime_ns
    done = five.rollup(rolled_up, "--rebuild")
    assert (done.returncode, done.stderr) == (0, "")
    assert "rolled up 4 days" in done.stdout
    assert (rolled_up / "rollups.sqlite").stat().st_mtime_ns > changed_ns
    assert {day: five.stored(rolled_up, day) for day in five.CLOSED} == before
    five.assert_report(rolled_up, expected)


def test_an_empty_folder_has_nothing_to_do(tmp_path: Path) -> None:
    done = five.here("rollup", tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "rolled up 0 days\n"
    assert five.files(tmp_path) == []


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
    before = five.tree(data_dir)
    done = five.here("rollup", data_dir, *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert one_line(done.stderr)
    assert done.stderr.startswith("gua rollup: error: ")
    assert named in done.stderr
    assert five.tree(data_dir) == before


@pytest.mark.parametrize(
    ("name", "value"),
    [("raw_days", 0), ("raw_days", -1), ("csv_days", '"90"'), ("rollup_days", 1.5), ("raw_days", True), ("days", 90)],
)
def test_bad_values_of_retention_are_named(rolled_up: Path, tmp_path: Path, name: str, value: object) -> None:
    before = five.tree(rolled_up)
    done = five.here("rollup", rolled_up, "--config", five.write_config(tmp_path / "gua.toml", **{name: value}))
    assert (done.returncode, done.stdout) == (2, "")
    assert one_line(done.stderr)
    assert f"'{name}'" in done.stderr
    assert str(tmp_path / "gua.toml") in done.stderr
    assert five.tree(rolled_up) == before


@pytest.mark.parametrize("days", [400_000, 10**7, 10**30])
def test_however_long_history_is_to_be_kept_it_is(rolled_up: Path, tmp_path: Path, days: int) -> None:
    """Before the year 1000 dates are shorter, before the year 1 there are none."""
    before = five.tree(rolled_up)
    path = five.write_config(tmp_path / "gua.toml", raw_days=days, csv_days=days, rollup_days=days)
    done = five.here("rollup", rolled_up, "--config", path)
    assert "removed" not in done.stdout
    assert "this is a bug" not in done.stderr
    assert five.tree(rolled_up) == before


def test_a_dry_run_says_what_would_be_done_and_touches_nothing(data_dir: Path, tmp_path: Path) -> None:
    path = five.write_config(
        tmp_path / "gua.toml", raw_days=five.KEPT_DAYS, csv_days=five.KEPT_DAYS, rollup_days=five.KEPT_DAYS
    )
    before = five.tree(data_dir)
    would = five.rollup(data_dir, "--config", path, "--dry-run", "--json")
    assert (would.returncode, would.stderr) == (0, "")
    text = five.here("rollup", data_dir, "--config", path, "--dry-run").stdout
    assert "would" in text
    assert five.tree(data_dir) == before
    said, done = json.loads(would.stdout), json.loads(five.here("rollup", data_dir, "--config", path, "--json").stdout)
    for name in ("rolled_up", "unchanged", "open", "failed", "csv", "removed", "kept"):
        assert said[name] == done[name], name
    assert [str(partition(data_dir, day)) for day in OLD] == done["removed"]
    assert all(path in text for path in done["removed"])


def test_a_dry_run_on_what_is_rolled_up_touches_nothing(rolled_up: Path, tmp_path: Path) -> None:
    path = five.write_config(tmp_path / "gua.toml", raw_days=five.KEPT_DAYS, csv_days=five.KEPT_DAYS)
    before = five.tree(rolled_up)
    for arguments in ([], ["--rebuild"]):
        done = five.here("rollup", rolled_up, "--config", path, "--dry-run", *arguments)
        assert (done.returncode, done.stderr) == (0, "")
        for day in OLD:
            assert str(partition(rolled_up, day)) in done.stdout
            assert str(rolled_up / "csv" / f"{day}.csv") in done.stdout
        assert five.tree(rolled_up) == before


def as_somebody(data_dir: Path, *arguments: str) -> verbs.Done:
    five.here("rollup", data_dir, *arguments, "--dry-run")  # other users can't import what lies in root's home
    return verbs.run("rollup", "--data-dir", data_dir, *arguments, uid=SOMEBODY)


@needs_root
@pytest.mark.parametrize("exists", [True, False])
def test_without_write_permission_it_says_so(untouched: Path, finished: Path, open_folder: Path, exists: bool) -> None:
    data_dir = five.copy(finished if exists else untouched, open_folder / "data")
    data_dir.chmod(0o755)
    before = five.tree(data_dir)
    done = as_somebody(data_dir, "--rebuild")
    assert done.returncode == 1
    assert one_line(done.stderr)
    assert str(data_dir) in done.stderr
    assert "check its owner" in done.stderr
    dry = as_somebody(data_dir, "--rebuild", "--dry-run")
    assert (dry.returncode, dry.stderr) == (0, "")
    assert five.tree(data_dir) == before


@contextmanager
def owned_by_somebody(folder: Path) -> Iterator[None]:
    for path in [folder, *folder.rglob("*")]:
        os.chown(path, SOMEBODY, SOMEBODY)
    yield
    owners = {(path.stat().st_uid, path.stat().st_gid) for path in [folder, *folder.rglob("*")]}
    assert owners == {(SOMEBODY, SOMEBODY)}


@needs_root
def test_root_by_hand_leaves_the_files_to_the_owner(untouched: Path, open_folder: Path, expected: Report) -> None:
    data_dir = five.copy(untouched, open_folder / "data")
    data_dir.chmod(0o755)
    config = five.write_config(open_folder / "gua.toml", raw_days=five.KEPT_DAYS)
    os.chmod(config, 0o600)
    with owned_by_somebody(data_dir):
        for arguments in ([], ["--config", config]):
            done = five.rollup(data_dir, *arguments)
            assert (done.returncode, done.stderr) == (0, "")
    assert five.files(data_dir) == five.whole([*RECENT, five.TODAY], five.CLOSED)
    five.assert_report(data_dir, expected)


@needs_root
def test_root_on_a_folder_of_its_own_stays_root(data_dir: Path) -> None:
    assert five.here("rollup", data_dir).returncode == 0
    assert {path.stat().st_uid for path in data_dir.rglob("*")} == {0}
