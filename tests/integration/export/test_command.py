"""gua export as a person types it: beside a sampler, with mistakes, with nothing to export, by another user."""

import json
import os
import shutil
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

from gua_sample import store
from gua_sample.partition_names import day_of
from gua_sample.simulate import Laboratory
from tests.integration.export.exports import ALL, DAYS, export, exported
from tests.lab import DAY_MS, HOUR_MS, MONDAY_MS, busy, series, write
from tests.machine import GUA, Machine, complaint
from tests.users import SOMEBODY, needs_root


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


def test_a_partition_that_has_only_just_been_created_is_no_error(data_dir: Path) -> None:
    before = exported(data_dir, "--what", "ticks", *ALL[:2], "--to", "2026-11-20", "--tz", "UTC")
    (data_dir / "samples" / "2026-11-19.sqlite").touch()
    assert exported(data_dir, "--what", "ticks", *ALL[:2], "--to", "2026-11-20", "--tz", "UTC") == before


def test_nothing_to_export_is_said_and_leaves_an_older_file_alone(data_dir: Path, tmp_path: Path) -> None:
    target = tmp_path / "cards.csv"
    target.write_text("of last week")
    for arguments in (["-o", str(target)], []):
        done = export(data_dir, "--from", "2026-12-01", "--to", "2026-12-02", *arguments)
        complaint(done, 3)
    assert target.read_text() == "of last week"
    assert os.listdir(tmp_path) == ["cards.csv"]
    done = export(tmp_path / "nowhere")
    assert done.returncode == 3
    assert not (tmp_path / "nowhere").exists()


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
    assert expected in complaint(done, 2)


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
    for closed, expected in (
        (data_dir / "samples", f"{data_dir / 'samples'} is closed to this user (group root, mode 700)"),
        (data_dir, f"{data_dir} is closed to this user (group root, mode 700)"),
        (data_dir.parent, f"{data_dir} is out of reach of uid "),
    ):
        closed.chmod(0o700)
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert expected in complaint(done, 1)


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
