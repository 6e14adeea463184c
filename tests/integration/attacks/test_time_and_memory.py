"""What a folder's owner, or whoever made a source, can ask of root's time and memory: no more than is sane.

Each is tried through the commands, and what is attacked belongs to root.
"""

import json
import os
import re
import signal
import sqlite3
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from datetime import date
from pathlib import Path

import pyarrow
import pytest
from pyarrow import parquet

from gua_report.exporting import parquet as exporting
from gua_sample import pending, safe_file
from tests import hostile, verbs
from tests.integration.attacks.attempts import DAYS, WINDOW, calmly, command, execute, lonely, partition
from tests.machine import query, within
from tests.users import needs_root
from tests.verbs import give, run

pytestmark = [needs_root, pytest.mark.real]

MIB = 1 << 20


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verbs, "SECONDS", 15)


@pytest.fixture
def frugal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half a gigabyte above what this process has already, which a command inherits."""
    (words,) = re.findall(r"VmSize:\s+(\d+) kB", Path("/proc/self/status").read_text())
    monkeypatch.setattr(verbs, "MEMORY_BYTES", int(words) * 1024 + 512 * MIB)


# -- sources
PEER = """
    CREATE TABLE gpu_sample (ts DATETIME NOT NULL, gpu_uuid TEXT NOT NULL, util_pct INTEGER NOT NULL);
    CREATE TABLE proc_sample (ts DATETIME NOT NULL, gpu_uuid TEXT NOT NULL, pid INTEGER NOT NULL,
                              mem_used_mb INTEGER, process_type TEXT NOT NULL DEFAULT 'compute');
    CREATE INDEX idx_gpu_sample_uuid_ts  ON gpu_sample(gpu_uuid, ts);
    CREATE INDEX idx_proc_sample_uuid_ts ON proc_sample(gpu_uuid, ts);
"""

ROWS = """
    INSERT INTO gpu_sample WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2000)
    SELECT '2026-11-10T00:00:' || printf('%02d', i % 60) || '.0000' || i, 'GPU-0', 5 FROM n
"""

NUMBERS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)"
ENDLESS = f"""{NUMBERS} SELECT '2026-11-10T00:00:00' AS ts, printf('%.*c', 1000000, 'x') || i AS gpu_uuid,
    5 AS util_pct, 1 AS pid, 1 AS mem_used_mb FROM n"""


def with_endless_views(path: Path) -> None:
    execute(path, f"CREATE VIEW gpu_sample AS {ENDLESS}", f"CREATE VIEW proc_sample AS {ENDLESS}")


def with_an_endless_view_of_runs(path: Path) -> None:
    with_peer_tables(path)
    execute(path, f"CREATE VIEW daemon_run AS {NUMBERS} SELECT i AS id, hex(zeroblob(1000000)) || i AS started_at,"
                  " 30 AS interval_seconds FROM n")  # fmt: skip


def with_a_computed_column(path: Path) -> None:
    with_peer_tables(path)
    execute(path, "ALTER TABLE gpu_sample ADD COLUMN usage_state TEXT AS (hex(zeroblob(100000000)))")


def with_a_large_default(path: Path) -> None:
    with_peer_tables(path)
    execute(path, "ALTER TABLE proc_sample ADD COLUMN process_name TEXT DEFAULT (hex(zeroblob(100000000)))")


def with_a_virtual_table(path: Path) -> None:
    execute(path, "CREATE VIRTUAL TABLE gpu_sample USING fts5(ts, gpu_uuid, util_pct)")
    execute(path, "CREATE VIRTUAL TABLE proc_sample USING fts5(ts, gpu_uuid, pid, mem_used_mb)")


def with_pages_without_end(path: Path) -> None:
    with_peer_tables(path)
    execute(path, "DROP INDEX idx_gpu_sample_uuid_ts")
    hostile.make_endless(path, "gpu_sample")


def with_peer_tables(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(PEER)
        connection.execute(ROWS)
        connection.commit()


CRAFTED = [
    with_endless_views,
    with_an_endless_view_of_runs,
    with_a_computed_column,
    with_a_large_default,
    with_a_virtual_table,
    with_pages_without_end,
]


@pytest.mark.parametrize("craft", CRAFTED)
@pytest.mark.usefixtures("impatient", "frugal")
def test_no_database_to_import_takes_time_or_memory(
    open_folder: Path, craft: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(safe_file, "VISIT_SECONDS", 1.0)  # of CPU time, and others are at work here
    path = open_folder / "gua.db"
    craft(path)
    give(path, lonely())
    with within(10):
        done = calmly(run("import", "--dry-run", "--data-dir", open_folder / "other", path))
        assert "memory" not in done.stderr.lower()


def test_a_database_of_the_peers_is_imported_as_root(open_folder: Path) -> None:
    path = open_folder / "gua.db"
    with_peer_tables(path)
    give(path, lonely())
    done = run("import", "--dry-run", "--json", "--data-dir", open_folder / "other", path)
    assert (done.returncode, json.loads(done.stdout)["taken"]["cards"]) == (0, 1), done


@pytest.mark.parametrize("size", [1 << 30, 1 << 40])
@pytest.mark.usefixtures("impatient")
def test_a_csv_of_holes_does_not_hang_an_import(open_folder: Path, size: int) -> None:
    source = open_folder / "csv"
    source.mkdir()
    for number in range(10):
        path = source / f"{number}.csv"
        path.write_text("timestamp,user,pid,gpu,usage\n")
        hostile.make_sparse(path, size)
    (source / "good.csv").write_text("timestamp,user,pid,gpu,usage\n1794268800,anna,7,0,50\n")
    give(source, lonely())
    with within(5):
        done = run("import", "--dry-run", "--data-dir", open_folder / "other", source)
        assert (done.returncode, "0.csv" in done.stderr, "1 tick" in done.stdout) == (1, True, True), done


def test_why_a_source_is_refused_is_said_to_root_too(open_folder: Path) -> None:
    path = open_folder / "stats.csv"
    path.write_text("timestamp,user,pid,gpu,usage\n")
    hostile.make_sparse(path, 1 << 40)
    give(path, lonely())
    done = run("import", "--dry-run", "--data-dir", open_folder / "other", path)
    assert (done.returncode, "stats.csv" in done.stderr) == (1, True), done


# -- folders of Parquet files
def planted(archive: Path) -> Path:
    day = archive / "host=x" / f"day={DAYS[1]}"
    day.mkdir(parents=True)
    return day / "part.parquet"


@pytest.mark.usefixtures("impatient")
def test_a_pipe_in_a_folder_of_parquet_files_hangs_nothing(folder: Path, open_folder: Path) -> None:
    os.mkfifo(planted(open_folder / "archive"))
    give(open_folder / "archive")
    calmly(run("export", *WINDOW, "--format", "parquet", "-o", open_folder / "archive", "--data-dir", folder))


def test_a_parquet_file_of_a_strange_table_is_named_without_trouble(folder: Path, open_folder: Path) -> None:
    schema = pyarrow.schema([pyarrow.field("a", pyarrow.int64())], metadata={b"gua.table": b"\xff\x1b[2J"})
    parquet.write_table(pyarrow.table({"a": [1]}, schema=schema), planted(open_folder / "archive"))
    give(open_folder / "archive")
    done = run("export", *WINDOW, "--format", "parquet", "-o", open_folder / "archive", "--data-dir", folder)
    assert (done.returncode, "not card_ticks" in done.stderr) == (2, True), done


def test_parquet_is_parsed_with_its_owners_rights(
    folder: Path, open_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = planted(open_folder / "archive")
    parquet.write_table(pyarrow.table({"a": [1]}), path)
    give(open_folder / "archive", lonely())
    seen, read_schema = open_folder / "uids", parquet.read_schema
    seen.touch()
    seen.chmod(0o666)

    def look(file: object) -> object:
        seen.write_text(f"{os.getresuid()}")
        return read_schema(file)

    monkeypatch.setattr(parquet, "read_schema", look)
    done = run("export", *WINDOW, "--format", "parquet", "-o", open_folder / "archive", "--data-dir", folder)
    assert (done.returncode, "something else, not card_ticks" in done.stderr) == (2, True), done
    assert seen.read_text() == str((lonely(),) * 3)


def test_parquet_files_that_stop_their_reader_are_not_waited_for(
    folder: Path, open_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(40):
        day = open_folder / "archive" / "host=x" / f"day={number}"
        day.mkdir(parents=True)
        (day / "part.parquet").touch()
    give(open_folder / "archive", lonely())

    def look(_: object) -> None:
        os.kill(os.getpid(), signal.SIGSTOP)

    monkeypatch.setattr(parquet, "read_schema", look)
    monkeypatch.setattr(exporting, "PATIENCE_SECONDS", 1.0)
    with within(20):
        done = run("export", *WINDOW, "--format", "parquet", "-o", open_folder / "archive", "--data-dir", folder)
    assert (done.returncode, done.stderr) == (0, ""), done


# -- long names
def long_name(length: int) -> str:
    """In SQL: a name of so many characters, each of which takes ten to spell."""
    return f"replace(hex(zeroblob({length})), '00', char(917505))"


LONG = long_name(1600)


def with_long_names(path: Path) -> None:
    execute(
        path,
        f"UPDATE process SET command = {LONG}, user = {LONG}, login_user = {LONG}, cgroup = {LONG}",
        f"UPDATE card SET name = {LONG}, parent_uuid = {LONG}, missing = {LONG}",
        "INSERT OR IGNORE INTO process_sample SELECT t.id, c.id, p.id, 5, 0 FROM tick t, card c, process p"
        " WHERE p.id <= 3",
    )


@pytest.mark.parametrize("form", ["csv", "jsonl", "parquet", "one.parquet"])
@pytest.mark.usefixtures("frugal")
def test_long_names_at_each_tick_do_not_fill_the_memory(folder: Path, open_folder: Path, form: str) -> None:
    with_long_names(partition(folder))
    give(folder)
    output = open_folder / form
    words = ("--format", form.rpartition(".")[2], "-o", output, "--data-dir", folder)
    done = run("export", *WINDOW, "--what", "process_ticks", *words)
    assert done.returncode == 0, done
    assert output.exists()


@pytest.mark.usefixtures("frugal")
def test_long_names_at_each_tick_do_not_fill_the_memory_of_a_rollup(folder: Path) -> None:
    with_long_names(partition(folder))
    give(folder)
    done = command("rollup", folder)
    assert done.returncode == 0, done
    assert sorted(path.name for path in (folder / "csv").iterdir()) == [f"{day}.csv" for day in DAYS]


def test_a_name_may_not_be_longer_when_it_is_spelled(folder: Path) -> None:
    execute(partition(folder), f"UPDATE card SET name = {long_name(3000)}")
    give(folder)
    done = command("export", folder)
    assert (done.returncode, "holds a name of over" in done.stderr) == (1, True), done.stderr


# -- days that expire
@pytest.mark.usefixtures("frugal")
def test_a_large_day_that_expires_is_not_read_into_memory(folder: Path, open_folder: Path) -> None:
    path = partition(folder, DAYS[0])
    hostile.make_sparse(path, 1 << 30)
    with path.open("r+b") as file:  # in the header: so many pages
        file.seek(28)
        file.write(((1 << 30) // hostile.PAGE).to_bytes(4, "big"))
    config = open_folder / "gua.toml"
    config.write_text(f"[retention]\nraw_days = {(date.today() - date.fromisoformat(DAYS[1])).days}\n")
    give(folder)
    done = run("rollup", "--config", config, "--data-dir", folder)
    assert (done.returncode, done.stderr) == (0, ""), done
    assert [path.exists(), partition(folder).exists()] == [False, True]


# -- kept ticks
@pytest.mark.usefixtures("frugal")
def test_kept_ticks_are_taken_in_a_few_megabytes_at_a_time(folder: Path) -> None:
    count = 30
    card = [["GPU-0", 0, *[None] * 6, "ok", None], *[None] * 6, [[pid, "compute", 5, None] for pid in range(20_000)]]
    people = {str(pid): [pid, *[None] * 7] for pid in range(20_000)}
    text = json.dumps({"version": 1, "key": "KEY", "tick": ["TIME", None, ["b", 5], None, 1, None, [card], people, []]})
    for number in range(count):
        one = text.replace('"KEY"', str(number), 1).replace('"TIME"', str(1794268800000 + number), 1)
        (folder / "samples" / f"{DAYS[1]}.{number:014x}.pending").write_text(one)
    give(folder)
    assert (folder / "samples" / f"{DAYS[1]}.{0:014x}.pending").stat().st_size < pending.MOST_BYTES
    done = command("sample", folder)
    assert (done.returncode, done.stderr) == (0, ""), done
    left = list((folder / "samples").glob("*.pending"))
    assert 0 < len(left) < count
    assert command("sample", folder).returncode == 0
    assert len(list((folder / "samples").glob("*.pending"))) < len(left)


# -- locks
@pytest.mark.parametrize("has_journal", [False, True])
def test_files_that_are_held_are_waited_for_less_and_less(
    folder: Path, open_folder: Path, has_journal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gua_report.ticks.open_partition.BUSY_SECONDS", 1.0)
    for number in range(1, 9):
        (folder / "samples" / f"2026-11-{number:02}.sqlite").write_bytes(partition(folder).read_bytes())
    give(folder)
    with ExitStack() as stack:
        for path in sorted((folder / "samples").glob("*.sqlite")):
            connection = stack.enter_context(closing(sqlite3.connect(path, isolation_level=None)))
            if has_journal:
                connection.execute("PRAGMA journal_mode = PERSIST")
                connection.execute("UPDATE tick SET error = 'x'")
            connection.execute("BEGIN EXCLUSIVE")
        began = time.monotonic()
        done = run("export", "--from", "2026-11-01", *WINDOW[2:], "--data-dir", folder)
    assert done.is_calm, done
    assert time.monotonic() - began < 4


# -- what is no text
BLOBS = {
    "an error": "UPDATE tick SET error = x'ff00'",
    "a boot": "UPDATE session SET boot_id = x'ff00'",
    "a driver": "UPDATE session SET driver_version = x'ff00'",
    "a command": "UPDATE process SET command = x'ff00', user = x'ff00'",
    "a card": "UPDATE card SET parent_uuid = x'ff00'",
    "an index": "UPDATE card SET mig_index = x'ff00'",
    "a start": "UPDATE process SET start_time_ms = x'ff00'",
    "a number for a cgroup": "UPDATE process SET cgroup = 9e999",
}


@pytest.mark.parametrize("blob", BLOBS)
@pytest.mark.parametrize("name", ["status", "free", "doctor", "export of processes"])
def test_a_blob_in_one_day_costs_root_not_the_whole_command(folder: Path, name: str, blob: str) -> None:
    hostile.change(partition(folder, DAYS[2]), BLOBS[blob])
    give(folder)
    done = calmly(command(name, folder))
    assert done.stdout or "available 0" in done.stderr


# -- what takes time without a step of SQLite's machine, which its time limit counts
SLOW = "length(hex(zeroblob(ts_ms % 3 + 60000000)))"


def with_a_slow_index(path: Path) -> None:
    """Found wrong by nobody: as many entries as rows, of a table that is changed or packed."""
    execute(path, "CREATE INDEX slow ON tick (ts_ms)")
    hostile.redefine(path, "slow", "index", f"CREATE INDEX slow ON tick ({SLOW})")


def with_a_slow_partial_index(path: Path) -> None:
    execute(path, "CREATE INDEX slow ON tick (ts_ms)")
    hostile.redefine(path, "slow", "index", f"CREATE INDEX slow ON tick (ts_ms) WHERE {SLOW} > 0")


def with_a_slow_check(path: Path) -> None:
    execute(path, "CREATE TABLE slow (ts_ms)", "INSERT INTO slow SELECT ts_ms FROM tick, (SELECT 1 UNION SELECT 2)")
    hostile.redefine(path, "slow", "table", f"CREATE TABLE slow (ts_ms, CHECK ({SLOW} > 0))")


def with_a_slow_default(path: Path) -> None:
    (tick,) = query(path, "SELECT sql FROM sqlite_master WHERE name = 'tick'")
    column = "pending_key INTEGER"
    sql = tick["sql"].replace(column, f"{column}, slow TEXT DEFAULT (hex(zeroblob(60000000)))")
    hostile.redefine(path, "tick", "table", sql)


SLOWED = [with_a_slow_index, with_a_slow_partial_index, with_a_slow_check, with_a_slow_default]


@pytest.mark.parametrize("plant", SLOWED)
@pytest.mark.parametrize("name", ["doctor", "rollup", "export", "import"])
def test_no_schema_makes_a_command_slow(folder: Path, plant: Callable[[Path], None], name: str) -> None:
    for day in DAYS:
        plant(partition(folder, day))
    give(folder)
    with within(5):
        done = command(name, folder)
    assert done.is_calm, done


@pytest.mark.parametrize("plant", SLOWED)
def test_no_schema_makes_an_import_into_one_slow(folder: Path, history: Path, plant: Callable[[Path], None]) -> None:
    for day in DAYS:
        execute(partition(folder, day), "DELETE FROM card_sample", "DELETE FROM process_sample", "DELETE FROM tick")
        plant(partition(folder, day))
    give(folder)
    with within(5):
        done = run("import", "--data-dir", folder, history)
    assert done.is_calm, done


# -- a small file that becomes a large answer
def with_a_long_name(path: Path) -> None:
    """Half a gigabyte of CSV from a file of three megabytes."""
    execute(
        path, "UPDATE card SET name = hex(zeroblob(1000000))", "UPDATE process SET command = hex(zeroblob(1000000))"
    )


def with_a_long_value(path: Path) -> None:
    """What complains of it quotes all of it."""
    hostile.change(path, "UPDATE card SET memory_total_mib = zeroblob(5000000) WHERE id = 1")


@pytest.mark.parametrize("plant", [with_a_long_name, with_a_long_value])
@pytest.mark.parametrize("name", ["export", "export of processes", "report", "rollup", "import"])
def test_what_is_long_is_not_repeated(folder: Path, plant: Callable[[Path], None], name: str) -> None:
    plant(partition(folder))
    give(folder)
    done = calmly(command(name, folder))
    assert (len(done.stdout) < 5_000_000, len(done.stderr) < 5_000) == (True, True)
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
    with within(10):
        calmly(command(name, folder))
