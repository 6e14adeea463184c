"""gua export as a person types it, and the daily CSV on a bad day: what arrives is what was recorded, or it is said."""

from __future__ import annotations

import csv
import io
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import gua_report
from gua_report.exporting.rows import CARD_TICKS, PROCESS_TICKS, TABLES, TICKS
from gua_report.upkeep.daily_csv import write_daily_csv
from gua_sample import store
from gua_sample.errors import StoreError
from gua_sample.partition_names import day_of
from gua_sample.simulate import Laboratory
from tests.disks import mounted
from tests.driver import with_clock
from tests.lab import (
    CONFIG,
    DAY_MS,
    HOUR_MS,
    MONDAY_MS,
    Gpu,
    Job,
    busy,
    free,
    held,
    lost,
    mig,
    series,
    tick,
    write,
)
from tests.machine import GUA, SCRIPTS, Machine, one_line, query
from tests.rolling import roll_up_days
from tests.users import SOMEBODY, needs_mounts, needs_root

DAYS = ["2026-11-16", "2026-11-17", "2026-11-18"]
HOSTILE = ["=cmd|' /C calc'!A0", "+1", "-2", "@SUM(A1)", "a,b", 'say "hi"', "one\ntwo", "\x1b[2J", "Zoë 💾", "\x9b2J"]
ALL = ("--from", "2026-11-16", "--to", "2026-11-19", "--tz", "UTC")


@pytest.fixture
def data_dir(open_folder: Path) -> Path:
    """Three days: with states of all kinds, processes, MIG, a lost card and a driver error."""
    folder = open_folder / "data"
    service = Job(3, "root", 300, 0, uid=0, cgroup="/system.slice/ollama.service")
    ticks = []
    for day in range(3):
        start_ms = MONDAY_MS + day * DAY_MS
        ticks += series(start_ms, 30, busy(Job(1, sm_percent=90)), held(service, index=1), free(2), every_ms=1_800_000)
        ticks += series(start_ms + 16 * HOUR_MS, 5, lost(0), mig(1, 0, None, (Job(2, memory_mib=None),)), mig(1, 1))
        ticks += [tick(start_ms + 20 * HOUR_MS, error="driver_not_loaded", driver_version=None)]
    write(folder, ticks)
    return folder


def export(data_dir: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    command = [GUA, "export", "--data-dir", str(data_dir), *arguments]
    return subprocess.run(command, env=os.environ | variables, capture_output=True, text=True, check=False)


def exported(data_dir: Path, *arguments: str) -> str:
    done = export(data_dir, *arguments)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def view(data_dir: Path, name: str, where: str = "1") -> list[dict[str, Any]]:
    order = {"ticks": "ts_ms", "card_ticks": "ts_ms, gpu_index, mig_index", "process_ticks": "ts_ms, gpu_index, pid"}
    rows: list[dict[str, Any]] = []
    for path in sorted((data_dir / "samples").glob("*.sqlite")):
        rows += query(path, f"SELECT * FROM {name} WHERE {where} ORDER BY {order[name]}")
    return rows


def without(rows: list[dict[str, Any]], column: str) -> list[dict[str, Any]]:
    return [{key: value for key, value in row.items() if key != column} for row in rows]


def test_the_columns_are_those_of_the_views(data_dir: Path) -> None:
    with closing(sqlite3.connect(data_dir / "samples" / f"{DAYS[0]}.sqlite")) as connection:
        for name, columns in ("ticks", TICKS), ("card_ticks", CARD_TICKS), ("process_ticks", PROCESS_TICKS):
            assert tuple(row[1] for row in connection.execute(f"PRAGMA table_info({name})")) == columns


def test_json_lines_are_the_rows_of_the_views(data_dir: Path) -> None:
    for name, added in ("ticks", ""), ("card_ticks", "state"), ("process_ticks", "identity"):
        text = exported(data_dir, "--what", name, "--format", "jsonl", *ALL)
        rows = [json.loads(line) for line in text.splitlines()]
        assert without(rows, added) == view(data_dir, name)
        assert all(row[added] for row in rows if added)


def test_csv_is_the_same_with_empty_fields_for_null(data_dir: Path) -> None:
    for name, added in ("ticks", ""), ("card_ticks", "state"), ("process_ticks", "identity"):
        rows = list(csv.DictReader(io.StringIO(exported(data_dir, "--what", name, *ALL))))
        expected = [
            {key: "" if value is None else str(value) for key, value in row.items()} for row in view(data_dir, name)
        ]
        assert without(rows, added) == expected


def test_states_and_identities_are_those_of_the_report(data_dir: Path) -> None:
    frames = gua_report.load(start=DAYS[0], end="2026-11-19", tz="UTC", data_dir=str(data_dir))
    cards = map(json.loads, exported(data_dir, "--format", "jsonl", *ALL).splitlines())
    expected = {(row.ts_ms, row.gpu_uuid, row.state) for row in frames.cards.itertuples()}
    assert {(row["ts_ms"], row["gpu_uuid"], row["state"]) for row in cards} == expected
    assert {state for *_, state in expected} == {"active", "idle-held", "truly-idle", "unknown"}
    processes = map(json.loads, exported(data_dir, "--what", "process_ticks", "--format", "jsonl", *ALL).splitlines())
    expected = {(row.ts_ms, row.pid, row.identity) for row in frames.processes.itertuples()}
    assert {(row["ts_ms"], row["pid"], row["identity"]) for row in processes} == expected


def test_thresholds_and_people_of_the_configuration_apply(data_dir: Path, tmp_path: Path) -> None:
    (tmp_path / "gua.toml").write_text('[policy]\nprocess_memory_mib = 5000\n[people]\nalice = "Ada"\n')
    options = ("--config", str(tmp_path / "gua.toml"), "--format", "jsonl", *ALL)
    assert '"idle-held"' not in exported(data_dir, *options)
    assert '"identity":"Ada"' in exported(data_dir, "--what", "process_ticks", *options)


@pytest.mark.parametrize("name", ["ticks", "card_ticks", "process_ticks"])
def test_a_window_cuts_days_where_it_starts_and_ends(data_dir: Path, name: str) -> None:
    start_ms, end_ms = MONDAY_MS + 9 * HOUR_MS, MONDAY_MS + 2 * DAY_MS + 9 * HOUR_MS
    text = exported(
        data_dir, "--what", name, "--format", "jsonl", "--from", "2026-11-16T09:00Z", "--to", "2026-11-18T09:00Z"
    )
    times = [json.loads(line)["ts_ms"] for line in text.splitlines()]
    expected = [row["ts_ms"] for row in view(data_dir, name, f"ts_ms >= {start_ms} AND ts_ms < {end_ms}")]
    assert times == expected
    assert (times[0], times[-1]) == (start_ms, end_ms - 1_800_000)


def test_the_daily_csv_of_a_window_is_the_daily_csvs_in_a_row(data_dir: Path) -> None:
    files = [Path(str(write_daily_csv(str(data_dir), day, CONFIG))).read_text() for day in DAYS]
    header, _, first = files[0].partition("\n")
    text = exported(data_dir, "--what", "csv", *ALL)
    assert text == header + "\n" + first + "".join(file.partition("\n")[2] for file in files[1:])
    assert text.startswith("timestamp,user,pid,gpu,usage,")


def test_hostile_names_arrive(open_folder: Path) -> None:
    jobs = [Job(number, name, command=name, cgroup=name) for number, name in enumerate(HOSTILE, 1)]
    write(open_folder, [tick(MONDAY_MS, held(*jobs))])
    rows = [
        json.loads(line)
        for line in exported(open_folder, "--what", "process_ticks", "--format", "jsonl", *ALL).splitlines()
    ]
    for column in ("user", "command", "cgroup"):
        assert [row[column] for row in rows] == HOSTILE
    text = exported(open_folder, "--what", "process_ticks", *ALL)
    assert text.count("\n") == len(HOSTILE) + 1
    for row, name in zip(csv.DictReader(io.StringIO(text)), HOSTILE, strict=True):
        printed = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in name)
        assert row["command"] == ("'" if name[0] in "=+-@" else "") + printed


def test_the_format_follows_from_the_name_of_the_file(data_dir: Path, tmp_path: Path) -> None:
    for name, start in ("x.NDJSON", '{"ts_ms":'), ("x", "ts_ms,"):
        assert exported(data_dir, "-o", str(tmp_path / name), *ALL) == ""
        assert (tmp_path / name).read_text().startswith(start)
    exported(data_dir, "-o", str(tmp_path / "x.csv"), "--format", "jsonl", *ALL)
    assert (tmp_path / "x.csv").read_text().startswith("{")


def test_a_file_is_written_whole_gets_the_umask_and_keeps_its_mode(data_dir: Path, tmp_path: Path) -> None:
    target = tmp_path / "cards.csv"
    mask = os.umask(0o027)
    try:
        exported(data_dir, "-o", str(target), *ALL)
    finally:
        os.umask(mask)
    assert target.read_text() == exported(data_dir, *ALL)
    assert target.stat().st_mode & 0o777 == 0o640
    assert os.listdir(tmp_path) == ["cards.csv"]
    target.chmod(0o600)
    (tmp_path / "link").symlink_to("cards.csv")
    exported(data_dir, "-o", str(tmp_path / "link"), "--what", "ticks", *ALL)
    assert target.read_text() == exported(data_dir, "--what", "ticks", *ALL)
    assert target.stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "link").is_symlink()


@needs_root
def test_a_file_of_somebody_else_stays_theirs(data_dir: Path, tmp_path: Path) -> None:
    target = tmp_path / "cards.csv"
    target.touch()
    os.chown(target, SOMEBODY, SOMEBODY)
    exported(data_dir, "-o", str(target), *ALL)
    assert target.read_text().startswith("ts_ms,")
    assert (target.stat().st_uid, target.stat().st_gid) == (SOMEBODY, SOMEBODY)


def test_a_database_is_not_replaced(data_dir: Path) -> None:
    partition = data_dir / "samples" / f"{DAYS[0]}.sqlite"
    before = partition.read_bytes()
    done = export(data_dir, "-o", str(partition), *ALL)
    assert (done.returncode, done.stdout) == (2, "")
    assert one_line(done.stderr)
    assert f"{partition} is a database" in done.stderr
    assert partition.read_bytes() == before


@pytest.mark.parametrize("name", ["-", "/dev/stdout"])
def test_standard_output_may_be_given_by_its_name(data_dir: Path, tmp_path: Path, name: str) -> None:
    command = [GUA, "export", "--data-dir", str(data_dir), "-o", name, *ALL]
    expected = exported(data_dir, *ALL)
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, expected, "")
    (tmp_path / "rows").write_text("of before\n")
    with (tmp_path / "rows").open("a") as file:
        subprocess.run(command, stdout=file, check=True, timeout=60)
    assert (tmp_path / "rows").read_text() == "of before\n" + expected


def test_a_pipe_with_a_name_is_written_to(data_dir: Path, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with subprocess.Popen(["cat", tmp_path / "pipe"], stdout=subprocess.PIPE, text=True) as reader:
        subprocess.run([SCRIPTS / "gua", "export", "--data-dir", data_dir, "-o", tmp_path / "pipe", *ALL], check=True)
        assert reader.communicate(timeout=60)[0] == exported(data_dir, *ALL)


def test_two_at_once_leave_one_whole_file(data_dir: Path, tmp_path: Path) -> None:
    target = tmp_path / "cards.csv"
    command = [GUA, "export", "--data-dir", str(data_dir), "-o", str(target), *ALL]
    running = [subprocess.Popen(command) for _ in range(3)]
    assert [one.wait() for one in running] == [0] * 3
    assert target.read_text() == exported(data_dir, *ALL)
    assert os.listdir(tmp_path) == ["cards.csv"]


def test_a_standard_output_that_is_closed_is_said(data_dir: Path) -> None:
    command = f"{SCRIPTS / 'gua'} export --data-dir {data_dir} {' '.join(ALL)} >&-"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert one_line(done.stderr)
    assert "standard output can't be written" in done.stderr


def test_a_place_that_can_not_be_written_is_said_in_one_line(data_dir: Path, tmp_path: Path) -> None:
    for place in (str(tmp_path / "nowhere" / "x.csv"), "/dev/full"):
        done = export(data_dir, "-o", place, *ALL)
        assert (done.returncode, done.stdout) == (1, "")
        assert one_line(done.stderr)
        assert place in done.stderr
    with open("/dev/full", "w") as full:
        command = [GUA, "export", "--data-dir", str(data_dir), *ALL]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 1
    assert one_line(done.stderr)
    assert "standard output can't be written (No space left on device)" in done.stderr


@pytest.fixture
def small_disk(open_folder: Path) -> Iterator[Path]:
    with mounted(open_folder / "small", "size=16k") as folder:
        yield folder


@needs_mounts
@pytest.mark.parametrize("form", ["csv", "jsonl"])
def test_a_full_disk_leaves_the_older_file_and_nothing_else(data_dir: Path, small_disk: Path, form: str) -> None:
    target = small_disk / "cards"
    target.write_text("of last week")
    done = export(data_dir, "--format", form, "-o", str(target), *ALL)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"gua export: error: {target} can't be written (No space left on device): it is as it was\n"
    assert os.listdir(small_disk) == ["cards"]
    assert target.read_text() == "of last week"


@needs_mounts
def test_a_full_disk_leaves_no_half_daily_csv(small_disk: Path) -> None:
    write(small_disk.parent / "data", series(MONDAY_MS, 200, busy()))
    (small_disk / "csv").mkdir()
    (small_disk / "samples").symlink_to(small_disk.parent / "data" / "samples")
    with pytest.raises(StoreError, match="No space left"):
        write_daily_csv(str(small_disk), DAYS[0], CONFIG)
    assert os.listdir(small_disk / "csv") == []


@pytest.mark.real
def test_killed_at_any_moment_the_daily_csv_is_the_old_one_or_the_new_one(machine: Machine) -> None:
    write(machine.data_dir, series(MONDAY_MS, 20, busy()))
    path = Path(str(write_daily_csv(str(machine.data_dir), DAYS[0], CONFIG)))
    old = path.read_bytes()
    write(machine.data_dir, series(MONDAY_MS + HOUR_MS, 20, busy()))
    data_dir = str(machine.data_dir)
    code = f"from gua_report.upkeep.daily_csv import write_daily_csv; write_daily_csv({data_dir!r}, {DAYS[0]!r})"
    seen, status, kills = set(), -9, 0
    while status == -9:
        variables = machine.environment(kill_at=kills + 1)
        status = subprocess.run([sys.executable, "-c", code], env=variables, check=False).returncode
        seen.add(path.read_bytes())
        kills += 1
    assert status == 0
    assert kills > 3
    assert seen == {old, path.read_bytes()}
    assert_leftovers_go(path, lambda: write_daily_csv(str(machine.data_dir), DAYS[0], CONFIG))


def assert_leftovers_go(path: Path, write_again: Callable[[], object]) -> None:
    """What killed runs left is hidden, and gone once it is certain that nobody is at work on it."""
    assert {name.startswith(f".{path.name}.") for name in os.listdir(path.parent) if name != path.name} == {True}
    before = os.listdir(path.parent)
    write_again()
    assert os.listdir(path.parent) == before
    for name in before:
        os.utime(path.parent / name, (0, time.time() - 2 * 3600))
    write_again()
    assert os.listdir(path.parent) == [path.name]


@pytest.mark.real
@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_killed_at_any_moment_an_export_leaves_the_old_file_or_the_new_one(
    machine: Machine, tmp_path: Path, form: str
) -> None:
    if form == "parquet":
        pytest.importorskip("pyarrow")
    write(tmp_path, series(MONDAY_MS, 20, busy()))
    path = machine.data_dir / f"cards.{form}"
    path.parent.mkdir()
    path.write_bytes(b"of last week")
    seen, status, kills = set(), -9, 0
    while status == -9:
        variables = machine.environment(kill_at=kills + 1)
        status = export(tmp_path, "-o", str(path), *ALL, **variables).returncode
        seen.add(path.read_bytes())
        kills += 1
    assert status == 0
    assert kills > 2
    assert seen == {b"of last week", path.read_bytes()}
    assert_leftovers_go(path, lambda: exported(tmp_path, "-o", str(path), *ALL))


def test_a_closed_pipe_is_no_error(data_dir: Path) -> None:
    write(data_dir, series(MONDAY_MS + 3 * DAY_MS, 2000, *(busy(index=index) for index in range(4)), every_ms=30_000))
    command = f"{SCRIPTS / 'gua'} export --data-dir {data_dir} --from 2026-11-16 --to 2026-11-20 | head -n 1"
    done = subprocess.run(["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("ts_ms,")


def test_a_reader_that_takes_its_time_costs_no_tick(machine: Machine) -> None:
    """More rows than a pipe holds, and nobody takes them: the partition is not held meanwhile."""
    write(machine.data_dir, series(MONDAY_MS, 1000, *(busy(index=index) for index in range(4)), every_ms=30_000))
    command = [GUA, "export", "--data-dir", str(machine.data_dir), *ALL]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as slow:
        assert slow.stdout is not None
        assert slow.stdout.read(1)  # it has begun to write, and soon waits
        time.sleep(0.2)
        machine.scenario.add_card()
        machine.tick(clock_ms=MONDAY_MS + 12 * HOUR_MS)
        assert machine.files() == [f"{DAYS[0]}.sqlite"]  # no tick had to be kept beside it
        slow.stdout.read()
    assert slow.returncode == 0


def test_exports_beside_a_sampler_are_whole_and_cost_no_tick(machine: Machine) -> None:
    for _ in range(4):
        machine.scenario.add_card(compute=[(os.getpid(), 8192)])
    machine.tick()
    variables = machine.environment()
    for _ in range(3):
        samplers = [subprocess.Popen(machine.command(), env=variables, stdout=subprocess.DEVNULL) for _ in range(3)]
        text = exported(machine.data_dir, "--what", "process_ticks", "--format", "jsonl", "--since", "1d")
        assert [sampler.wait() for sampler in samplers] == [0] * 3
        times = [json.loads(line)["ts_ms"] for line in text.splitlines()]
        assert {times.count(ts_ms) for ts_ms in times} == {4}
    assert len(machine.ticks()) == 10


def test_a_day_that_can_not_be_read_is_named_and_the_others_are_written(data_dir: Path, tmp_path: Path) -> None:
    broken = data_dir / "samples" / f"{DAYS[1]}.sqlite"
    broken.write_text("garbage, more than sixteen bytes of it")
    target = tmp_path / "ticks.jsonl"
    done = export(data_dir, "--what", "ticks", "-o", str(target), *ALL)
    assert (done.returncode, done.stdout) == (1, "")
    assert one_line(done.stderr)
    assert done.stderr.startswith(f"gua export: warning: skipped: {broken} is not usable")
    days = {json.loads(line)["ts_ms"] // DAY_MS for line in target.read_text().splitlines()}
    assert days == {MONDAY_MS // DAY_MS, MONDAY_MS // DAY_MS + 2}
    for day in (DAYS[0], DAYS[2]):
        (data_dir / "samples" / f"{day}.sqlite").unlink()
    target.unlink()
    done = export(data_dir, "-o", str(target), *ALL)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.splitlines()[-1] == "gua export: error: nothing was exported"
    assert not target.exists()


def test_a_partition_that_has_only_just_been_created_is_no_error(data_dir: Path) -> None:
    before = exported(data_dir, "--what", "ticks", *ALL[:2], "--to", "2026-11-20", "--tz", "UTC")
    (data_dir / "samples" / "2026-11-19.sqlite").touch()
    assert exported(data_dir, "--what", "ticks", *ALL[:2], "--to", "2026-11-20", "--tz", "UTC") == before


def test_nothing_to_export_is_said_and_leaves_an_older_file_alone(data_dir: Path, tmp_path: Path) -> None:
    target = tmp_path / "cards.csv"
    target.write_text("of last week")
    for arguments in (["-o", str(target)], []):
        done = export(data_dir, "--from", "2026-12-01", "--to", "2026-12-02", *arguments)
        assert (done.returncode, done.stdout) == (3, "")
        assert one_line(done.stderr)
    assert target.read_text() == "of last week"
    assert os.listdir(tmp_path) == ["cards.csv"]
    done = export(tmp_path / "nowhere")
    assert done.returncode == 3
    assert not (tmp_path / "nowhere").exists()


def test_ticks_without_what_was_asked_for_are_not_taken_for_no_ticks(open_folder: Path) -> None:
    write(open_folder, series(MONDAY_MS, 3, free()))
    done = export(open_folder, "--what", "process_ticks", *ALL)
    assert (done.returncode, done.stdout) == (3, "")
    period = "from 2026-11-16 00:00 to 2026-11-19 00:00 UTC"
    assert done.stderr == f"gua export: error: no process_ticks {period}, though there are ticks\n"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--what", "card_tick"], "did you mean card_ticks?"),
        (["--format", "json"], "did you mean jsonl?"),
        (["--what", "csv", "--format", "jsonl"], "the table csv can't be written as jsonl"),
        (["--what", "csv", "-o", "x.parquet"], "the table csv can't be written as parquet"),
        (["-o", ""], "--output is empty"),
        (["-o", "."], ". is a folder"),
        (["-o", "nowhere/"], "nowhere/ is a folder"),
        (["--what", "episodes"], "did you mean episode_days?"),
        (["--format", "parquet", "-o", "pyproject.toml"], "pyproject.toml is not a folder"),
        (["--host", "lab7"], "--host"),
        (["--host", "", "--format", "parquet", "-o", "nowhere"], "--host"),
        (["--since", "soon"], "'soon'"),
        (["--since", "1d", "--from", "2026-01-01"], "--since and --from"),
        (["--config", "/nowhere.toml"], "/nowhere.toml"),
        (["now"], "now"),
    ],
)
def test_mistakes_are_named_with_what_was_expected(data_dir: Path, arguments: list[str], expected: str) -> None:
    done = export(data_dir, *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert one_line(done.stderr)
    assert expected in done.stderr


def test_help_has_examples_fits_a_narrow_terminal_and_needs_no_pandas() -> None:
    command = [sys.executable, "-X", "importtime", GUA, "export", "--help"]
    done = subprocess.run(command, env=os.environ | {"COLUMNS": "80"}, capture_output=True, text=True, check=True)
    assert "examples" in done.stdout
    assert max(len(line) for line in done.stdout.splitlines()) <= 80
    assert "pandas" not in done.stderr
    assert "pyarrow" not in done.stderr


AS_SOMEBODY = """
import os, sys
from gua_report.commands.export import main
arguments = sys.argv[1:]
main([*arguments, "-o", "/dev/null"])  # other users can't import what lies in root's home
os.setgroups([]), os.setgid({user}), os.setuid({user})
sys.exit(main(arguments))
"""


@needs_root
def test_another_user_without_write_access_may_export(data_dir: Path) -> None:
    expected = exported(data_dir, *ALL)
    command = [sys.executable, "-c", AS_SOMEBODY.format(user=SOMEBODY), "--data-dir", str(data_dir), *ALL]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, expected, "")
    (data_dir / "samples").chmod(0o700)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert one_line(done.stderr)
    assert "is closed to this user" in done.stderr


MEASURE = """
import resource, subprocess, sys
written = subprocess.run(sys.argv[1:], check=True, stdout=subprocess.PIPE).stdout
print(len(written), 1024 * resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""


def test_more_days_take_no_more_memory(tmp_path: Path) -> None:
    """The same day again and again. The first few cost a block or two more, as memory is handed out; then none does."""
    history = Laboratory(1, 8).history(MONDAY_MS, MONDAY_MS + DAY_MS, 90_000)
    samples = Path(store.prepare(str(tmp_path)))
    store.append_history(str(samples), history)
    for day in range(1, 18):
        copy = samples / f"{day_of(MONDAY_MS + day * DAY_MS)}.sqlite"
        shutil.copy(samples / f"{DAYS[0]}.sqlite", copy)
        with closing(sqlite3.connect(copy)) as connection, connection:
            connection.execute("UPDATE tick SET ts_ms = ts_ms + ?", (day * DAY_MS,))
    command = [GUA, "export", "--data-dir", str(tmp_path), "--format", "jsonl", "--tz", "UTC"]
    sizes, peaks = [], []
    for end in ("2026-11-22", "2026-12-04"):
        arguments = [sys.executable, "-c", MEASURE, *command, "--from", DAYS[0], "--to", end]
        done = subprocess.run(arguments, capture_output=True, text=True, check=True)
        size, peak = map(int, done.stdout.split())
        sizes.append(size)
        peaks.append(peak)
    assert sizes[1] == 3 * sizes[0]
    assert peaks[1] - peaks[0] < (sizes[1] - sizes[0]) / 8, (sizes, peaks)


@pytest.mark.skipif(not shutil.which("script"), reason="there is no script(1) here to make a terminal")
def test_a_terminal_gets_no_parquet(data_dir: Path) -> None:
    command = f"{SCRIPTS / 'gua'} export --data-dir {data_dir} --format parquet"
    done = subprocess.run(["script", "-qec", command, "/dev/null"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "parquet is not for a terminal" in done.stdout


def test_parquet_without_pyarrow_says_what_to_install(data_dir: Path, tmp_path: Path) -> None:
    (tmp_path / "library").mkdir()
    (tmp_path / "library" / "pyarrow.py").write_text("raise ImportError('No module named pyarrow')")
    done = export(
        data_dir, "--format", "parquet", "-o", str(tmp_path / "x"), *ALL, PYTHONPATH=str(tmp_path / "library")
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert one_line(done.stderr)
    assert "sudo make install EXTRAS=parquet, or python3 -m pip --python " in done.stderr
    assert os.listdir(tmp_path) == ["library"]


@pytest.fixture
def parquet() -> Any:
    """pyarrow's own reader: a reader of gua's would not show what others see."""
    return pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed: make venv")


def read_folder(parquet: Any, folder: Path) -> list[dict[str, Any]]:
    """All rows, with host and day from the names of the folders."""
    rows: list[dict[str, Any]] = parquet.read_table(folder).to_pylist()
    return sorted(rows, key=lambda row: (row["host"], row["ts_ms"]))


def files_in(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


@pytest.mark.parametrize("name", ["ticks", "card_ticks", "process_ticks"])
def test_a_folder_of_parquet_files_holds_the_rows_of_the_view(
    data_dir: Path, tmp_path: Path, parquet: Any, name: str
) -> None:
    folder = tmp_path / "archive"
    assert exported(data_dir, "--what", name, "--format", "parquet", "--host", "lab7", "-o", str(folder), *ALL) == ""
    assert files_in(folder) == [f"host=lab7/day={day}/part.parquet" for day in DAYS]
    rows = read_folder(parquet, folder)
    assert {(row["host"], row["day"]) for row in rows} == {("lab7", day) for day in DAYS}
    expected = view(data_dir, name)
    assert [{key: row[key] for key in expected[0]} for row in rows] == expected
    added = {"ticks": set(), "card_ticks": {"state"}, "process_ticks": {"identity"}}[name]
    assert set(rows[0]) == {*expected[0], *added, "host", "day"}


def test_pandas_reads_the_folder_as_one_table(data_dir: Path, tmp_path: Path, parquet: Any) -> None:
    import pandas as pd

    exported(data_dir, "--format", "parquet", "-o", str(tmp_path), *ALL)
    frame = pd.read_parquet(tmp_path)
    assert len(frame) == len(view(data_dir, "card_ticks"))
    assert {"host", "day", "state", *CARD_TICKS} == set(frame.columns)
    assert frame["memory_used_mib"].isna().sum() == 15  # the lost card


def test_a_folder_has_whole_days_so_that_a_later_export_takes_nothing_away(
    data_dir: Path, tmp_path: Path, parquet: Any
) -> None:
    options = ("--what", "ticks", "--format", "parquet", "--host", "lab7", "-o", str(tmp_path), "--tz", "UTC")
    exported(data_dir, *options, "--from", "2026-11-16T15:00", "--to", "2026-11-17T01:00")
    rows = read_folder(parquet, tmp_path)
    assert [row["ts_ms"] for row in rows] == [
        row["ts_ms"] for row in view(data_dir, "ticks") if row["ts_ms"] < MONDAY_MS + 2 * DAY_MS
    ]
    # And has what came since; another host's days lie beside it.
    write(data_dir, [tick(MONDAY_MS + DAY_MS + 23 * HOUR_MS, free())])
    exported(data_dir, *options, "--from", "2026-11-17T22:00", "--to", "2026-11-18T00:00")
    assert len(read_folder(parquet, tmp_path)) == len(rows) + 1
    exported(data_dir, *options[:5], "a/b=c", *options[6:], "--from", "2026-11-16", "--to", "2026-11-17")
    assert {row["host"] for row in read_folder(parquet, tmp_path)} == {"lab7", "a/b=c"}
    assert len(list(tmp_path.iterdir())) == 2


def test_days_have_the_same_types_whatever_their_values_are(open_folder: Path, tmp_path: Path, parquet: Any) -> None:
    """A day without any figure, and one that begins without; more rows than are put into columns at a time."""
    nothing, something = Gpu(0, None, (Job(memory_mib=None),), None, total_mib=None), busy(Job(sm_percent=5), energy=7)
    ticks = series(MONDAY_MS, 3, nothing)
    ticks += series(MONDAY_MS + DAY_MS, 11_000, nothing, every_ms=5000)
    ticks += series(MONDAY_MS + DAY_MS + 20 * HOUR_MS, 3, something)
    write(open_folder / "data", ticks)
    for name in ("card_ticks", "process_ticks"):
        exported(open_folder / "data", "--what", name, "--format", "parquet", "-o", str(tmp_path / name), *ALL)
        one, other = (parquet.read_schema(path) for path in sorted((tmp_path / name).rglob("*.parquet")))
        assert one.equals(other)
        assert "null" not in {str(kind) for kind in one.types}
        rows = read_folder(parquet, tmp_path / name)
        assert len(rows) == 11_006
        assert rows[-1]["memory_used_mib" if name == "card_ticks" else "memory_mib"] == 2000


def test_a_folder_is_of_one_table(data_dir: Path, tmp_path: Path, parquet: Any) -> None:
    exported(data_dir, "--format", "parquet", "-o", str(tmp_path), *ALL)
    before = files_in(tmp_path)
    done = export(data_dir, "--what", "ticks", "--format", "parquet", "-o", str(tmp_path), *ALL)
    assert (done.returncode, done.stdout) == (2, "")
    assert one_line(done.stderr)
    assert f"{tmp_path} holds card_ticks, not ticks" in done.stderr
    assert files_in(tmp_path) == before
    for path in tmp_path.rglob("*.parquet"):
        path.write_bytes(b"PAR1")  # damaged: may be replaced
    exported(data_dir, "--what", "ticks", "--format", "parquet", "-o", str(tmp_path), *ALL)
    assert len(read_folder(parquet, tmp_path)) == len(view(data_dir, "ticks"))


def test_one_parquet_file_can_be_written_and_redirected(data_dir: Path, tmp_path: Path, parquet: Any) -> None:
    expected = [json.loads(line) for line in exported(data_dir, "--format", "jsonl", *ALL).splitlines()]
    exported(data_dir, "-o", str(tmp_path / "cards.parquet"), *ALL)
    assert parquet.read_table(tmp_path / "cards.parquet").to_pylist() == expected
    command = (
        f"{SCRIPTS / 'gua'} export --data-dir {data_dir} --format parquet {' '.join(ALL)} | cat > {tmp_path}/piped"
    )
    subprocess.run(["bash", "-o", "pipefail", "-c", command], check=True)
    assert parquet.read_table(tmp_path / "piped").to_pylist() == expected
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command.replace("cat >", "true >")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    done = export(data_dir, "--format", "parquet", "--since", "1s", "--to", "2026-12-01")
    assert (done.returncode, done.stdout) == (3, "")


@needs_mounts
@pytest.mark.parametrize("name", ["folder", "file.parquet"])
def test_a_full_disk_leaves_no_half_parquet_file(data_dir: Path, small_disk: Path, parquet: Any, name: str) -> None:
    write(data_dir, series(MONDAY_MS, 2000, *(busy(Job(pid)) for pid in range(1, 2)), every_ms=7001))
    (small_disk / "ballast").write_bytes(b"x" * 12_000)
    done = export(data_dir, "--format", "parquet", "-o", str(small_disk / name), *ALL)
    assert (done.returncode, done.stdout) == (1, "")
    assert one_line(done.stderr)
    assert "No space left on device" in done.stderr
    assert [path for path in files_in(small_disk) if path != "ballast"] == []


def test_two_exports_at_once_into_one_folder(data_dir: Path, tmp_path: Path, parquet: Any) -> None:
    command = [GUA, "export", "--data-dir", str(data_dir), "--format", "parquet"]
    command += ["-o", str(tmp_path), *ALL]
    running = [subprocess.Popen([*command, "--host", host]) for host in ("lab7", "lab7", "lab8")]
    assert [one.wait() for one in running] == [0] * 3
    assert files_in(tmp_path) == [f"host={host}/day={day}/part.parquet" for host in ("lab7", "lab8") for day in DAYS]
    assert len(read_folder(parquet, tmp_path)) == 2 * len(view(data_dir, "card_ticks"))


# Closed days, from rollups.sqlite.

ROLLUPS = [name for name, table in TABLES.items() if table.is_of_rollups]


def rollup_view(data_dir: Path, name: str, where: str = "1") -> list[dict[str, Any]]:
    order = "start_ms, gpu_index, pid" if name == "episode_days" else "start_ms"
    if name.endswith("_hours"):
        order = "hour_ms, gpu_index, mig_index" + (", identity" if name == "identity_hours" else "") + ", state"
    return without(query(data_dir / "rollups.sqlite", f"SELECT * FROM {name} WHERE {where} ORDER BY {order}"), "day")


def lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


@pytest.fixture
def rolled_up(data_dir: Path) -> Path:
    assert roll_up_days(str(data_dir)) == DAYS
    return data_dir


@pytest.fixture
def later(driver: Path) -> dict[str, str]:
    """Variables of a process for which all these days are long over."""
    moved = with_clock(os.environ, driver, frozen_ms=MONDAY_MS + 9 * DAY_MS)
    return {name: value for name, value in moved.items() if name not in os.environ or os.environ[name] != value}


@pytest.mark.parametrize("name", ROLLUPS)
def test_tables_of_closed_days_are_the_rows_of_the_views(rolled_up: Path, name: str) -> None:
    expected = rollup_view(rolled_up, name)
    assert expected
    assert lines(exported(rolled_up, "--what", name, "--format", "jsonl", *ALL)) == expected
    rows = list(csv.DictReader(io.StringIO(exported(rolled_up, "--what", name, *ALL))))
    assert rows == [{key: "" if value is None else str(value) for key, value in row.items()} for row in expected]


def test_rollups_are_card_hours(rolled_up: Path) -> None:
    assert exported(rolled_up, "--what", "rollups", *ALL) == exported(rolled_up, "--what", "card_hours", *ALL)


def test_an_hour_belongs_to_the_window_in_which_it_begins(rolled_up: Path) -> None:
    window = ("--from", "2026-11-16T09:30Z", "--to", "2026-11-18T09:30Z")
    start_ms, end_ms = MONDAY_MS + 9.5 * HOUR_MS, MONDAY_MS + 2 * DAY_MS + 9.5 * HOUR_MS
    found = lines(exported(rolled_up, "--what", "card_hours", "--format", "jsonl", *window))
    assert found == rollup_view(rolled_up, "card_hours", f"hour_ms >= {start_ms} AND hour_ms < {end_ms}")
    assert found[0]["hour_ms"] == MONDAY_MS + 10 * HOUR_MS


def test_identities_of_closed_days_are_people_and_hostile_ones_no_formulas(rolled_up: Path, tmp_path: Path) -> None:
    (tmp_path / "gua.toml").write_text('[people]\nalice = "=Ada"\n')
    for name in ("identity_hours", "episode_days"):
        options = ("--what", name, "--config", str(tmp_path / "gua.toml"), *ALL)
        before = [row["identity"] for row in rollup_view(rolled_up, name)]
        mapped = ["=Ada" if identity == "alice" else identity for identity in before]
        assert [row["identity"] for row in lines(exported(rolled_up, *options, "--format", "jsonl"))] == mapped
        rows = csv.DictReader(io.StringIO(exported(rolled_up, *options)))
        assert [row["identity"] for row in rows] == [identity.replace("=Ada", "'=Ada") for identity in mapped]
    assert "alice" in {row["identity"] for row in rollup_view(rolled_up, "identity_hours")}


@pytest.mark.parametrize("name", ROLLUPS)
def test_closed_days_go_into_a_folder_of_parquet_files(
    rolled_up: Path, tmp_path: Path, parquet: Any, name: str
) -> None:
    options = ("--what", name, "--format", "parquet", "--host", "lab7", "-o", str(tmp_path))
    exported(rolled_up, *options, "--from", "2026-11-16T23:00Z", "--to", "2026-11-18T01:00Z")
    found = files_in(tmp_path)
    assert set(found) <= {f"host=lab7/day={day}/part.parquet" for day in DAYS}
    rows: list[dict[str, Any]] = []
    for path in found:
        rows += parquet.read_table(tmp_path / path, partitioning=None).to_pylist()
        assert "null" not in {str(kind) for kind in parquet.read_schema(tmp_path / path).types}
    assert rows == rollup_view(rolled_up, name)
    assert {"host", "day", *rows[0]} == set(parquet.read_table(tmp_path).column_names)


def test_closed_days_that_are_not_rolled_up_are_named_with_what_to_do(
    data_dir: Path, later: dict[str, str], tmp_path: Path
) -> None:
    options = ("--what", "card_hours", "--format", "jsonl", *ALL)
    todo = f"not rolled up yet, or ticks or thresholds have changed since; run gua rollup --data-dir {data_dir}\n"
    done = export(data_dir, *options, **later)
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr == f"gua export: error: no card_hours of {DAYS[0]} to {DAYS[2]} (3 days): {todo}"
    roll_up_days(str(data_dir), {0, 1})
    done = export(data_dir, *options, **later)
    assert (done.returncode, done.stderr) == (1, f"gua export: warning: {DAYS[2]}: {todo}")
    assert lines(done.stdout) == rollup_view(data_dir, "card_hours")
    # The command that is named does it.
    subprocess.run([GUA, "rollup", "--data-dir", str(data_dir)], env=os.environ | later, check=True)
    done = export(data_dir, *options, **later)
    assert (done.returncode, done.stderr) == (0, "")
    assert {row["hour_ms"] // DAY_MS for row in lines(done.stdout)} == {MONDAY_MS // DAY_MS + day for day in range(3)}
    # Thresholds that changed, and ticks that came, make days due again.
    (tmp_path / "gua.toml").write_text("[policy]\nprocess_memory_mib = 5000\n")
    done = export(data_dir, *options, "--config", str(tmp_path / "gua.toml"), **later)
    assert (done.returncode, done.stderr) == (1, f"gua export: warning: {DAYS[0]} to {DAYS[2]} (3 days): {todo}")
    write(data_dir, [tick(MONDAY_MS + DAY_MS + 22 * HOUR_MS, free())])
    done = export(data_dir, *options, **later)
    assert (done.returncode, done.stderr) == (1, f"gua export: warning: {DAYS[1]}: {todo}")


def test_a_day_that_is_not_over_is_not_missed(data_dir: Path, driver: Path) -> None:
    roll_up_days(str(data_dir), {0, 1})
    now = with_clock(os.environ, driver, frozen_ms=MONDAY_MS + 2 * DAY_MS + 12 * HOUR_MS)
    done = export(data_dir, "--what", "spans", *ALL, **now)
    assert (done.returncode, done.stderr) == (0, "")
    done = export(data_dir, "--what", "spans", "--from", DAYS[2], "--to", "2026-11-19", "--tz", "UTC", **now)
    assert (done.returncode, done.stdout) == (3, "")
    assert one_line(done.stderr)
    assert "though there are ticks: a day is rolled up when it is over" in done.stderr


def test_days_whose_ticks_have_expired_are_exported(rolled_up: Path, later: dict[str, str]) -> None:
    expected = exported(rolled_up, "--what", "card_hours", *ALL)
    for day in DAYS:
        (rolled_up / "samples" / f"{day}.sqlite").unlink()
    done = export(rolled_up, "--what", "card_hours", *ALL, **later)
    assert (done.returncode, done.stdout, done.stderr) == (0, expected, "")


def test_ticks_that_have_expired_are_named_and_where_their_sums_are(rolled_up: Path, later: dict[str, str]) -> None:
    (rolled_up / "samples" / f"{DAYS[0]}.sqlite").unlink()
    done = export(rolled_up, "--what", "ticks", *ALL, **later)
    assert (done.returncode, len(done.stdout.splitlines())) == (0, 1 + len(view(rolled_up, "ticks")))
    sums = "have expired; --what card_hours has their sums\n"
    assert done.stderr == f"gua export: warning: the ticks of {DAYS[0]} {sums}"
    for day in DAYS[1:]:
        (rolled_up / "samples" / f"{day}.sqlite").unlink()
    done = export(rolled_up, "--what", "ticks", *ALL, **later)
    assert (done.returncode, done.stdout) == (3, "")
    gone = f"the ticks of {DAYS[0]} to {DAYS[-1]} (3 days) {sums}"
    assert done.stderr == f"gua export: error: no ticks from {DAYS[0]} 00:00 to 2026-11-19 00:00 UTC: {gone}"


def test_ticks_that_came_when_those_of_their_day_had_expired_are_left_out_and_named(
    data_dir: Path, later: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "gua.toml").write_text("[retention]\nraw_days = 7\n")  # the first two days go
    rollup = [GUA, "rollup", "--data-dir", str(data_dir), "--config", str(tmp_path / "gua.toml")]
    subprocess.run(rollup, env=os.environ | later, capture_output=True, check=True)
    last_day = view(data_dir, "ticks")
    assert {row["ts_ms"] // DAY_MS for row in last_day} == {MONDAY_MS // DAY_MS + 2}
    write(data_dir, [tick(MONDAY_MS + DAY_MS + 22 * HOUR_MS, free())])
    late = data_dir / "samples" / f"{DAYS[1]}.sqlite"
    for name, expected in ("card_hours", rollup_view(data_dir, "card_hours")), ("ticks", last_day):
        done = export(data_dir, "--what", name, "--format", "jsonl", *ALL, **later)
        said = done.stderr.splitlines()
        assert said[0] == f"gua export: warning: left out: {late}, as the ticks of its day have expired"
        assert len(said) == (2 if name == "ticks" else 1)
        assert (done.returncode, lines(done.stdout)) == (1, expected)
    assert {row["hour_ms"] // DAY_MS for row in rollup_view(data_dir, "card_hours")} == {
        MONDAY_MS // DAY_MS + day for day in range(3)
    }


def test_closed_days_without_what_was_asked_for(open_folder: Path) -> None:
    write(open_folder, series(MONDAY_MS, 3, free()))
    roll_up_days(str(open_folder))
    done = export(open_folder, "--what", "episode_days", *ALL)
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr == "gua export: error: no episode_days from 2026-11-16 00:00 to 2026-11-19 00:00 UTC\n"


def test_rollups_that_can_not_be_read_are_said(rolled_up: Path) -> None:
    (rolled_up / "rollups.sqlite").write_text("garbage, more than sixteen bytes of it")
    done = export(rolled_up, "--what", "card_hours", *ALL)
    assert (done.returncode, done.stdout) == (1, "")
    assert one_line(done.stderr)
    assert "rollups.sqlite is not usable" in done.stderr
    assert "gua rollup makes it anew" in done.stderr
    (rolled_up / "rollups.sqlite").write_bytes(b"")  # it is just being begun
    assert export(rolled_up, "--what", "card_hours", *ALL).returncode == 3
