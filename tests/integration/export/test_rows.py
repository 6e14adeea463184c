"""The rows of gua export: what arrives is what was recorded, or it is said."""

import csv
import io
from pathlib import Path
from typing import Any

import pytest

import gua_report
from gua_report.exporting.rows import TABLES
from gua_report.upkeep.outputs import write_daily_csv
from gua_sample.containers import COLUMNS
from tests.integration.export.exports import ALL, DAYS, export, exported, lines, view, without
from tests.lab import CONFIG, DAY_MS, HOUR_MS, MONDAY_MS, Job, held, tick, write
from tests.machine import complaint
from tests.rolling import roll_up_days, run

HOSTILE = ["=cmd|' /C calc'!A0", "+1", "-2", "@SUM(A1)", "a,b", 'say "hi"', "one\ntwo", "\x1b[2J", "Zoë 💾", "\x9b2J"]

ADDED = {  # to the columns of the views, at the end
    "card_ticks": ["state"],
    "process_ticks": ["identity", *COLUMNS, "slurm_job"],
    "identity_hours": [*COLUMNS],
    "episode_days": [*COLUMNS],
}


@pytest.mark.parametrize("name", [name for name in TABLES if name != "csv"])
def test_every_format_has_the_rows_of_the_view(rolled_up: Path, tmp_path: Path, parquet: Any, name: str) -> None:
    expected = view(rolled_up, name)
    rows = lines(exported(rolled_up, "--what", name, "--format", "jsonl", *ALL))
    assert list(rows[0]) == [*expected[0], *ADDED.get(name, [])]
    assert without(rows, *ADDED.get(name, [])) == expected
    of_csv = csv.DictReader(io.StringIO(exported(rolled_up, "--what", name, *ALL)))
    assert list(of_csv) == [{key: "" if value is None else str(value) for key, value in row.items()} for row in rows]
    exported(rolled_up, "--what", name, "-o", str(tmp_path / "one.parquet"), *ALL)
    table = parquet.read_table(tmp_path / "one.parquet")
    assert table.to_pylist() == rows
    assert {str(kind) for kind in table.schema.types} <= {"int64", "double", "string"}


def test_states_and_identities_are_those_of_the_report(data_dir: Path) -> None:
    frames = gua_report.load(start=DAYS[0], end="2026-11-19", tz="UTC", data_dir=str(data_dir))
    cards = lines(exported(data_dir, "--format", "jsonl", *ALL))
    expected = {(row.ts_ms, row.gpu_uuid, row.state) for row in frames.cards.itertuples()}
    assert {(row["ts_ms"], row["gpu_uuid"], row["state"]) for row in cards} == expected
    assert {state for *_, state in expected} == {"active", "idle-held", "truly-idle", "unknown"}
    processes = lines(exported(data_dir, "--what", "process_ticks", "--format", "jsonl", *ALL))
    expected = {(row.ts_ms, row.pid, row.identity) for row in frames.processes.itertuples()}
    assert {(row["ts_ms"], row["pid"], row["identity"]) for row in processes} == expected


def test_a_process_is_exported_with_its_slurm_job(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    job = Job(100, "ada", cgroup="/system.slice/slurmstepd.scope/job_4711/step_0/user/task_0")
    faked = Job(200, "bob", uid=1001, cgroup="/user.slice/user-1001.slice/user@1001.service/slurmstepd.scope/job_7")
    write(tmp_path, [tick(MONDAY_MS + 30_000 * number, held(job), held(faked, index=1)) for number in range(3)])
    roll_up_days(str(tmp_path))
    for what in ("process_ticks", "csv", "episode_days"):
        run("export", tmp_path, "--what", what, *ALL)
        rows = list(csv.reader(io.StringIO(capfd.readouterr().out)))
        who, where = (rows[0].index(name) for name in ("identity", "slurm_job"))
        assert {(row[who], row[where]) for row in rows[1:]} == {("ada", "4711"), ("bob", "")}


def test_thresholds_and_people_of_the_configuration_apply(data_dir: Path, tmp_path: Path) -> None:
    (tmp_path / "gua.toml").write_text('[policy]\nprocess_memory_mib = 5000\n[people]\nalice = "Ada"\n')
    options = ("--config", str(tmp_path / "gua.toml"), "--format", "jsonl", *ALL)
    assert '"idle-held"' not in exported(data_dir, *options)
    assert '"identity":"Ada"' in exported(data_dir, "--what", "process_ticks", *options)


@pytest.mark.parametrize("name", ["ticks", "card_ticks", "process_ticks"])
def test_a_window_cuts_days_where_it_starts_and_ends(data_dir: Path, name: str) -> None:
    start_ms, end_ms = MONDAY_MS + 9 * HOUR_MS, MONDAY_MS + 2 * DAY_MS + 9 * HOUR_MS
    options = ("--what", name, "--format", "jsonl", "--from", "2026-11-16T09:00Z", "--to", "2026-11-18T09:00Z")
    times = [row["ts_ms"] for row in lines(exported(data_dir, *options))]
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
    rows = lines(exported(open_folder, "--what", "process_ticks", "--format", "jsonl", *ALL))
    for column in ("user", "command", "cgroup"):
        assert [row[column] for row in rows] == HOSTILE
    text = exported(open_folder, "--what", "process_ticks", *ALL)
    assert text.count("\n") == len(HOSTILE) + 1
    for row, name in zip(csv.DictReader(io.StringIO(text)), HOSTILE, strict=True):
        printed = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in name)
        assert row["command"] == ("'" if name[0] in "=+-@" else "") + printed


def test_a_day_that_can_not_be_read_is_named_and_the_others_are_written(data_dir: Path, tmp_path: Path) -> None:
    broken = data_dir / "samples" / f"{DAYS[1]}.sqlite"
    broken.write_text("garbage, more than sixteen bytes of it")
    target = tmp_path / "ticks.jsonl"
    done = export(data_dir, "--what", "ticks", "-o", str(target), *ALL)
    complaint(done, 1)
    assert done.stderr.startswith(f"gua export: warning: skipped: {broken} is not usable")
    days = {row["ts_ms"] // DAY_MS for row in lines(target.read_text())}
    assert days == {MONDAY_MS // DAY_MS, MONDAY_MS // DAY_MS + 2}
    for day in (DAYS[0], DAYS[2]):
        (data_dir / "samples" / f"{day}.sqlite").unlink()
    target.unlink()
    done = export(data_dir, "-o", str(target), *ALL)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.splitlines()[-1] == "gua export: error: nothing was exported"
    assert not target.exists()
