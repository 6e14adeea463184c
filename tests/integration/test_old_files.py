"""Files of every version that ever was, and of one to come, in every command; and going back and forth between them."""

import json
import os
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from gua_sample import idle_state, pending, schema, store
from gua_sample.idleness import runs_now
from gua_sample.partition_names import DAY_MS
from gua_sample.policy import DEFAULT
from gua_sample.records import Tick
from gua_sample.simulate import Laboratory
from gua_sample.simulate_plan import EXAMPLE_END_MS
from tests.rolling import change
from tests.verbs import run

FILES = Path(__file__).parents[1] / "files"
VERSIONS = sorted(path.name for path in FILES.iterdir() if path.is_dir())
lacks_columns = pytest.mark.parametrize("old", ["4a1b2a7"], indirect=True)  # those of what a MIG instance weighs
LAST_DAY = "2026-11-11"
WINDOW = ("--from", "2026-11-09", "--to", "2026-11-12", "--tz", "UTC")
TICKS = 118  # and one that waits
COMMANDS = {
    "report": ("report", *WINDOW),
    "report as JSON": ("report", *WINDOW, "--json"),
    "status": ("status", "--simulate"),
    "free": ("free", "--simulate"),
    "doctor": ("doctor",),
    "export of cards": ("export", *WINDOW, "--what", "card_ticks"),
    "export of processes": ("export", *WINDOW, "--what", "process_ticks"),
    "export of sums": ("export", "--from", "2026-11-09", "--to", LAST_DAY, "--tz", "UTC", "--what", "card_hours"),
    "rollup --dry-run": ("rollup", "--dry-run"),
    "rollup": ("rollup",),
    "rollup --rebuild --compact": ("rollup", "--rebuild", "--compact"),
    "sample": ("gua-sample", "--simulate", "7"),
}


@pytest.fixture(params=VERSIONS)
def old(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return copy_old(request.param, tmp_path / "data")


def copy_old(version: str, folder: Path) -> Path:
    """A copy of a data folder, with the times of its partitions as its rollups know them."""
    shutil.copytree(FILES / version, folder)
    for day, changed_ns in query(folder / "rollups.sqlite", "SELECT day, partition_changed_ns FROM day"):
        os.utime(folder / "samples" / f"{day}.sqlite", ns=(changed_ns, changed_ns))
    return folder


def query(path: Path, sql: str) -> list[Any]:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(sql).fetchall()


def partitions(folder: Path) -> list[Path]:
    return sorted((folder / "samples").glob("*.sqlite"))


def count_ticks(folder: Path) -> int:
    return sum(query(path, "SELECT count(*) FROM tick")[0][0] for path in partitions(folder))


def columns(path: Path, table: str = "card") -> list[str]:
    return [row[1] for row in query(path, f"PRAGMA table_info({table})")]


def next_tick(number: int = 1) -> Tick:
    """A tick after those that are there, in the same laboratory."""
    start_ms = EXAMPLE_END_MS + (number - 1) * 1_800_000
    return next(iter(Laboratory(0, 4).history(start_ms, start_ms + DAY_MS, 1_800_000)))


def append(folder: Path, tick: Tick) -> store.Outcome:
    warnings: list[str] = []
    outcome = store.append(store.prepare(str(folder)), tick, warnings.append)
    assert warnings == []
    return outcome


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_works_on_files_of_that_version(old: Path, name: str) -> None:
    verb, *options = COMMANDS[name]
    done = run(verb, *options, "--data-dir", old)
    assert done.is_calm, done
    # Sums of days that are to be made anew, by today's rule, are exported with a word about it.
    assert done.returncode in ((0, 1) if name in ("doctor", "free", "export of sums") else (0,)), done
    assert "warning" not in done.stderr or name == "export of sums"


def test_its_rollups_are_by_an_older_rule_and_made_anew(old: Path) -> None:
    document = json.loads(run("report", *WINDOW, "--json", "--data-dir", old).stdout)
    assert document["sources"]["from_rollups_seconds"] == 0
    assert run("rollup", "--data-dir", old).returncode == 0
    document = json.loads(run("report", *WINDOW, "--json", "--data-dir", old).stdout)
    assert document["sources"]["from_rollups_seconds"] > DAY_MS / 1000
    assert document["notes"] == []


def test_its_rollups_are_used_where_ticks_have_expired(old: Path) -> None:
    change(old / "rollups.sqlite", "UPDATE day SET is_expired = 1")
    for path in partitions(old)[:-1]:
        path.unlink()
    document = json.loads(run("report", *WINDOW, "--json", "--data-dir", old).stdout)
    assert document["sources"]["from_rollups_seconds"] > DAY_MS / 1000
    (note,) = [note for note in document["notes"] if "rule" in note]
    assert note == "ticks have expired: states of 2026-11-09 to 2026-11-10 (2 days) are by an older rule"


def test_it_can_be_imported(old: Path, tmp_path: Path) -> None:
    assert run("import", "--data-dir", tmp_path / "new", old).returncode == 0
    assert count_ticks(tmp_path / "new") == TICKS
    assert {"compute_slices", "parent_memory_mib"} <= set(columns(partitions(tmp_path / "new")[0]))


def test_since_when_somebody_idles_begins_anew_after_an_idle_state_of_another_version(old: Path) -> None:
    assert idle_state.read(str(old))
    assert idle_state.understand(idle_state.read(str(old))) is None
    carried = idle_state.carry_on(str(old), DEFAULT, next_tick(), None, pytest.fail)
    assert {run.since_ms for run in runs_now(carried).values()} == {carried.unbroken_ms}


@lacks_columns
def test_readers_see_null_for_what_a_file_lacks_and_change_nothing(old: Path) -> None:
    before = {path: path.read_bytes() for path in partitions(old)}
    export = run("export", *WINDOW, "--what", "card_ticks", "--format", "jsonl", "--data-dir", old).stdout
    rows = [json.loads(line) for line in export.splitlines()]
    assert len(rows) == 4 * TICKS
    assert all(row["compute_slices"] is None and row["parent_memory_mib"] is None for row in rows)
    assert {path: path.read_bytes() for path in partitions(old)} == before


@lacks_columns
def test_a_tick_brings_its_partition_up_to_date_and_takes_in_what_waited(old: Path) -> None:
    closed, today = partitions(old)[0], partitions(old)[-1]
    assert "compute_slices" not in columns(today)
    assert append(old, next_tick()).path == str(today)
    assert count_ticks(old) == TICKS + 2
    assert list((old / "samples").glob("*.pending")) == []
    for path, has_it in ((closed, False), (today, True)):
        assert ("compute_slices" in columns(path)) is has_it
        assert ("compute_slices" in columns(path, "card_ticks")) is has_it


def make_newer(folder: Path) -> None:
    """Add to all files what a version to come may add: columns, a table, and views that show them."""
    for path in partitions(folder):
        change(
            path,
            "ALTER TABLE tick ADD COLUMN weather TEXT",
            "ALTER TABLE card ADD COLUMN colour INTEGER",
            "ALTER TABLE card_sample ADD COLUMN fan_percent INTEGER",
            "ALTER TABLE process ADD COLUMN job INTEGER",
            "ALTER TABLE process_sample ADD COLUMN threads INTEGER",
            "ALTER TABLE session ADD COLUMN kernel TEXT",
            "ALTER TABLE cursor ADD COLUMN more INTEGER",
            "CREATE TABLE container (id INTEGER PRIMARY KEY, name TEXT) STRICT",
            "DROP VIEW ticks",
            schema.VIEWS_BY_NAME["ticks"].replace("t.error", "t.error, t.weather"),
        )
    rollups = folder / "rollups.sqlite"
    for (name,) in query(rollups, "SELECT name FROM sqlite_master WHERE type = 'table'"):
        change(rollups, f"ALTER TABLE {name} ADD COLUMN later INTEGER")
    change(rollups, "CREATE TABLE more (day_id INTEGER PRIMARY KEY) STRICT")


@pytest.fixture(scope="module", params=VERSIONS)
def made_newer(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Not to be changed."""
    folder = copy_old(request.param, tmp_path_factory.mktemp("newer") / "data")
    append(folder, next_tick())
    make_newer(folder)
    assert run("rollup", "--data-dir", folder).returncode == 0  # which makes anew what has changed
    return folder


@pytest.fixture
def newer(made_newer: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made_newer, tmp_path / "data"))


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_works_on_files_that_a_newer_gua_has_added_to(newer: Path, name: str) -> None:
    verb, *options = COMMANDS[name]
    done = run(verb, *options, "--data-dir", newer)
    assert done.is_calm, done
    assert done.returncode in ((0, 1) if name in ("doctor", "free") else (0,)), done
    assert "warning" not in done.stderr


def test_ticks_go_on_into_a_partition_that_a_newer_gua_has_added_to(newer: Path) -> None:
    count, today = count_ticks(newer), partitions(newer)[-1]
    for number in (2, 3):
        append(newer, next_tick(number))
    assert count_ticks(newer) == count + 2
    assert query(today, "SELECT count(*) FROM ticks WHERE weather IS NULL") == query(today, "SELECT count(*) FROM tick")
    assert list((newer / "samples").glob("*.corrupt*")) == []


def test_what_a_newer_gua_adds_to_a_kept_tick_is_passed_over(tmp_path: Path) -> None:
    folder = store.prepare(str(tmp_path))
    path = Path(pending.keep(folder, next_tick()))
    document = json.loads(path.read_text())
    document["tick"]["weather"] = "rain"
    document["tick"]["cards"][0]["facts"]["colour"] = "green"
    del document["tick"]["cards"][0]["facts"]["compute_slices"]  # as an older one leaves it out
    path.write_text(json.dumps(document))
    (kept,) = pending.load(folder, pytest.fail)
    assert kept.tick == next_tick()._replace(cursors=[])
