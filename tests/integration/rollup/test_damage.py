"""gua rollup on damaged files: each costs no more than it must, and is named."""

import errno
import json
import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from gua_sample.partition_names import day_of
from tests.integration.rollup import five_days as five
from tests.lab import DAY_MS, Report
from tests.machine import one_line, query
from tests.rolling import OLD, RECENT, TODAY_MS, partition


def overwrite(path: Path) -> None:
    path.write_text("garbage, more than sixteen bytes of it")


def overwrite_pages(path: Path) -> None:
    """The header and the list of days are fine; what is stored of them is not."""
    content = bytearray(path.read_bytes())
    tables = query(path, "SELECT rootpage FROM sqlite_master WHERE name IN ('card_hour', 'identity_hour', 'episode')")
    for table in tables:
        start = (table["rootpage"] - 1) * 4096
        content[start : start + 4096] = b"\xde\xad" * 2048
    path.write_bytes(bytes(content))


def overwrite_middle(path: Path) -> None:
    content = bytearray(path.read_bytes())
    middle = len(content) // 2 // 4096 * 4096
    content[middle : middle + 8192] = b"\xff" * 8192
    path.write_bytes(bytes(content))


def truncate(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2 // 4096 * 4096)


def truncate_to_a_page(path: Path) -> None:
    os.truncate(path, 4096)


def overwrite_a_name(path: Path) -> None:
    """In the schema, with a byte that is not UTF-8."""
    content = path.read_bytes()
    name = b"viewcard_hours"  # as its row has it: type, name
    assert content.count(name) == 1
    path.write_bytes(content.replace(name, b"viewcard\xffhours"))


DAMAGES = [overwrite_a_name, overwrite, overwrite_pages, overwrite_middle, truncate, truncate_to_a_page]


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_rollups_cost_a_report_time_and_are_set_aside_and_made_again(
    rolled_up: Path, expected: Report, damage: Callable[[Path], None]
) -> None:
    path = rolled_up / "rollups.sqlite"
    damage(path)
    before = five.tree(rolled_up)
    shown = five.here("report", rolled_up, "--from", OLD[0], "--to", day_of(five.END_MS))
    assert shown.returncode == 0
    assert "rollups" in shown.stdout
    (note,) = five.assert_report(rolled_up, expected).notes
    assert "rollups" in note
    dry = five.here("rollup", rolled_up, "--dry-run")
    assert dry.returncode == 0
    assert one_line(dry.stderr)
    assert five.tree(rolled_up) == before

    done = five.here("rollup", rolled_up)
    assert done.returncode == 0
    assert one_line(done.stderr)
    assert done.stderr.startswith("gua rollup: warning: ")
    assert f"{path}.corrupt-1" in done.stderr
    assert "rolled up 4 days" in done.stdout
    assert (rolled_up / "rollups.sqlite.corrupt-1").read_bytes() == before["rollups.sqlite"][2]
    assert query(path, "PRAGMA integrity_check") == [{"integrity_check": "ok"}]
    report = five.assert_report(rolled_up, expected)
    assert (report.notes, report.from_ticks_seconds) == ([], 0)
    assert five.here("rollup", rolled_up).stderr == ""
    assert five.files(rolled_up) == sorted(
        [*five.whole([*five.CLOSED, five.TODAY], five.CLOSED), "rollups.sqlite.corrupt-1"]
    )


def test_damaged_rollups_are_set_aside_where_a_file_can_not_have_two_names(
    rolled_up: Path, expected: Report, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on FAT and on some network file systems."""

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    path = rolled_up / "rollups.sqlite"
    overwrite(path)
    content = path.read_bytes()
    monkeypatch.setattr(os, "link", refuse)
    done = five.here("rollup", rolled_up)
    assert done.returncode == 0
    assert one_line(done.stderr)
    assert f"{path}.corrupt-1" in done.stderr
    assert (rolled_up / "rollups.sqlite.corrupt-1").read_bytes() == content
    assert five.files(rolled_up) == sorted(
        [*five.whole([*five.CLOSED, five.TODAY], five.CLOSED), "rollups.sqlite.corrupt-1"]
    )
    assert five.assert_report(rolled_up, expected).from_ticks_seconds == 0


def test_rollups_that_were_only_just_begun_are_begun_again(rolled_up: Path, expected: Report) -> None:
    """As a kill right after its first opening leaves the file."""
    os.truncate(rolled_up / "rollups.sqlite", 0)
    five.assert_report(rolled_up, expected)
    done = five.here("rollup", rolled_up)
    assert (done.returncode, five.but_for_empty(done.stderr)) == (0, "")
    assert one_line(done.stderr)
    assert "rolled up 4 days" in done.stdout
    assert five.assert_report(rolled_up, expected).from_ticks_seconds == 0


@pytest.mark.parametrize("damage", [overwrite_pages, truncate, overwrite_middle])
def test_days_of_which_only_damaged_rollups_are_left_are_taken_over_or_said_to_be_lost(
    rolled_up: Path, config: str, damage: Callable[[Path], None]
) -> None:
    assert five.here("rollup", rolled_up, "--config", config).returncode == 0
    path = rolled_up / "rollups.sqlite"
    damage(path)
    shown = five.here("report", rolled_up, "--from", OLD[0], "--to", day_of(five.END_MS))
    assert shown.returncode == 0  # of the days that have ticks
    assert "rollups" in shown.stdout
    done = five.here("rollup", rolled_up, "--config", config)
    assert "this is a bug" not in done.stderr
    assert f"{path}.corrupt-1" in done.stderr
    kept = set(five.stored_days(rolled_up))
    assert set(RECENT) <= kept
    if not set(OLD) <= kept:
        assert "ticks are gone" in done.stderr
    assert (rolled_up / "rollups.sqlite.corrupt-1").exists()


def make_foreign(path: Path) -> None:
    path.unlink()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE somebody_elses (x)")


def make_newer(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA user_version = 999")


@pytest.mark.parametrize(("change", "remedy"), [(make_foreign, "move it away"), (make_newer, "upgrade gua")])
def test_rollups_of_something_else_or_of_a_newer_gua_are_left_alone(
    rolled_up: Path, expected: Report, config: str, change: Callable[[Path], None], remedy: str
) -> None:
    change(rolled_up / "rollups.sqlite")
    before = five.tree(rolled_up)
    (note,) = five.assert_report(rolled_up, expected).notes
    assert "rollups" in note
    for arguments in ([], ["--dry-run"], ["--config", config], ["--rebuild"]):
        done = five.here("rollup", rolled_up, *arguments)
        assert (done.returncode, done.stdout) == (1, "")
        assert one_line(done.stderr)
        assert f"{rolled_up}/rollups.sqlite" in done.stderr
        assert remedy in done.stderr
    assert five.tree(rolled_up) == before


@pytest.mark.parametrize("damage", [overwrite, overwrite_middle, make_newer])
@pytest.mark.parametrize("was_rolled_up", [True, False])
def test_a_partition_that_can_not_be_read_is_named_kept_and_costs_no_other_day(
    untouched: Path, finished: Path, tmp_path: Path, config: str, damage: Callable[[Path], None], was_rolled_up: bool
) -> None:
    data_dir = five.copy(finished if was_rolled_up else untouched, tmp_path / "data")
    damage(partition(data_dir, OLD[1]))
    before = partition(data_dir, OLD[1]).read_bytes()
    done = five.here("rollup", data_dir, "--config", config)
    assert done.returncode == 1
    assert one_line(done.stderr)
    assert str(partition(data_dir, OLD[1])) in done.stderr
    assert f"kept {OLD[1]}" in done.stdout
    assert partition(data_dir, OLD[1]).read_bytes() == before
    assert not partition(data_dir, OLD[0]).exists()
    assert set(five.stored_days(data_dir)) >= {OLD[0], *RECENT}
    assert [path.stem for path in sorted((data_dir / "csv").glob("*.csv"))] == [
        day for day in five.CLOSED if was_rolled_up or day != OLD[1]
    ]


@pytest.mark.parametrize("damage", [overwrite, overwrite_middle, truncate, truncate_to_a_page])
def test_a_report_uses_what_was_stored_of_a_damaged_day(rolled_up: Path, damage: Callable[[Path], None]) -> None:
    window = ("report", rolled_up, "--from", OLD[0], "--to", day_of(five.END_MS), "--format", "json")
    expected = json.loads(five.here(*window).stdout)
    path = partition(rolled_up, OLD[1])
    damage(path)
    done = five.here(*window)
    found = json.loads(done.stdout)
    assert (done.returncode, found["coverage"], found["headline"]) == (0, expected["coverage"], expected["headline"])
    assert [note for note in found["notes"] if str(path) in note]
    assert found["warnings"] == []


def test_a_partition_that_has_rotted_is_named_and_kept_as_it_is(rolled_up: Path, config: str) -> None:
    """Nothing but reading it tells that it is damaged: it is as long and as old as it was."""
    path = partition(rolled_up, OLD[1])
    changed = path.stat()
    overwrite_middle(path)
    os.utime(path, ns=(changed.st_atime_ns, changed.st_mtime_ns))
    before = path.read_bytes()
    done = five.here("rollup", rolled_up, "--compact", "--json", "--config", config)
    assert one_line(done.stderr)
    assert done.stderr.startswith(f"gua rollup: warning: skipped: {path} changed on disk")
    found = json.loads(done.stdout)
    assert (done.returncode, found["compacted"], found["failed_check"]) == (1, RECENT, [OLD[1]])
    assert path.read_bytes() == before
    again = five.here("rollup", rolled_up, "--rebuild", "--config", config)
    assert (again.returncode, one_line(again.stderr)) == (1, True)
    assert f"kept {OLD[1]}: it failed its check for bit rot\n" in again.stdout
    assert path.read_bytes() == before
    examined = json.loads(five.here("doctor", rolled_up, "--deep", "--json").stdout)["findings"]
    assert [finding["status"] for finding in examined if str(path) in finding["text"]] == ["warning"] * 2


def test_a_partition_that_was_only_just_begun_is_no_failure(data_dir: Path, config: str) -> None:
    """As the kill of a day's only run leaves it. There is nothing in it, and nothing that anybody could mend."""
    partition(data_dir, day_of(TODAY_MS - 30 * DAY_MS)).touch()
    done = five.here("rollup", data_dir, "--config", config)
    assert (done.returncode, done.stderr) == (0, "")
    assert five.stored_days(data_dir) == five.CLOSED
