"""gua-sample --textfile as the timer runs it: whole files, ticks that never pay for them, idle time that goes on."""

from __future__ import annotations

import os
import re
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gua_sample import idle_state
from gua_sample.whole_file import ABANDONED_SECONDS
from tests.lab import MONDAY_MS
from tests.machine import Machine, one_line
from tests.users import SOMEBODY, needs_root, run_as_somebody, sampler_for_others

PID = os.getpid()
EVERY_MS = 30_000


@pytest.fixture
def folder(machine: Machine) -> Path:
    """Node_exporter's."""
    path = machine.folder / "textfiles"
    path.mkdir()
    return path


@pytest.fixture
def file(folder: Path) -> Path:
    return folder / "gua.prom"


def series(file: Path, name: str) -> dict[str, float]:
    found = re.findall(rf"^{name}(?:{{(.*)}})? (\S+)$", file.read_text(), re.MULTILINE)
    return {labels: float(value) for labels, value in found}


def test_the_file_is_there_for_everybody_whatever_the_umask(machine: Machine, file: Path) -> None:
    machine.scenario.add_card(compute=[(PID, 8192)], temperature_celsius=61)
    old = os.umask(0o077)
    try:
        machine.tick("--textfile", str(file))
    finally:
        os.umask(old)
    assert file.stat().st_mode & 0o777 == 0o644
    assert list(series(file, "gpu_idle_device_temperature_celsius").values()) == [61]
    assert series(file, "gua_last_tick_timestamp_seconds") == {"": machine.ticks()[0]["ts_ms"] / 1000}
    assert os.listdir(file.parent) == ["gua.prom"]
    assert sorted(os.listdir(machine.data_dir)) == [idle_state.NAME, "samples"]


def test_a_simulated_laboratory_has_metrics_too(machine: Machine, file: Path) -> None:
    machine.tick("--simulate", "--textfile", str(file))
    assert len(series(file, "gua_card_status")) == 8


def test_labels_for_all_come_from_the_environment(machine: Machine, file: Path) -> None:
    machine.scenario.add_card()
    machine.tick("--textfile", str(file), variables={"NODE_NAME": "n1", "POD_NAMESPACE": "lab", "POD_NAME": ""})
    assert series(file, "gua_tick_success") == {'node="n1",namespace="lab"': 1}


@pytest.mark.parametrize("value", ["", "metrics", "metrics.txt", "folder.prom"])
def test_what_node_exporter_would_not_read_is_refused(machine: Machine, value: str) -> None:
    (machine.folder / "folder.prom").mkdir()
    done = machine.sample("--textfile", str(machine.folder / value) if value else "")
    assert (done.returncode, done.stdout) == (2, "")
    assert one_line(done.stderr)
    assert "*.prom" in done.stderr
    assert not machine.data_dir.exists()


def test_nothing_of_it_is_imported_unless_it_is_wanted(machine: Machine, file: Path) -> None:
    def imported(*arguments: str) -> set[str]:
        command = [sys.executable, "-X", "importtime", *machine.command(*arguments)]
        done = subprocess.run(command, env=machine.environment(), capture_output=True, text=True, check=True)
        return {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}

    machine.scenario.add_card(compute=[(PID, 100)])
    plain = imported()
    ours = {f"gua_sample.{name}" for name in ("metrics", "carried_state", "idleness", "idle_state", "identity")}
    held = {f"gua_sample.{name}" for name in ("held_file", "held_words")}
    assert not plain & (ours | held)
    # Without what an earlier run left, the history tells; then that need not be read again.
    more = imported("--textfile", str(file)) - plain
    assert {name for name in more if name.startswith("gua")} - ours == {"gua_sample.look_back", "gua_sample.past_ticks"}
    assert imported("--textfile", str(file)) - plain == ours
    assert imported("--textfile", str(file), "--held-file", str(file.with_name("held"))) - plain == ours | held


# --- trouble ---


def test_a_folder_that_is_missing_costs_no_tick_and_is_said(machine: Machine, file: Path) -> None:
    machine.scenario.add_card()
    file.parent.rmdir()
    done = machine.sample("--textfile", str(file))
    assert done.returncode == 1
    assert done.stdout.startswith("1 card")
    assert one_line(done.stderr)
    assert done.stderr.startswith(f"gua-sample: error: {file} can't be written (No such file or directory): ")
    assert len(machine.ticks()) == 1


def test_in_the_unit_it_is_said_once_an_hour(machine: Machine, file: Path, tmp_path: Path) -> None:
    machine.scenario.add_card()
    file.parent.rmdir()
    runs = [machine.sample("--textfile", str(file), variables={"RUNTIME_DIRECTORY": str(tmp_path)}) for _ in range(2)]
    assert [done.returncode for done in runs] == [1, 75]
    assert runs[1].stderr == ""
    assert len(machine.ticks()) == 2


@needs_root
def test_a_folder_of_somebody_else_costs_no_tick(machine: Machine, file: Path) -> None:
    machine.scenario.add_card()
    machine.data_dir.mkdir()
    os.chown(machine.data_dir, SOMEBODY, SOMEBODY)
    command = [*sampler_for_others(machine.folder), "--data-dir", str(machine.data_dir), "--textfile", str(file)]
    done = run_as_somebody(command, machine.environment())
    assert done.returncode == 1
    assert "(Permission denied)" in done.stderr
    assert len(machine.ticks()) == 1
    os.chown(file.parent, SOMEBODY, SOMEBODY)
    assert run_as_somebody(command, machine.environment()).returncode == 0
    assert file.exists()


def test_a_driver_that_fails_leaves_no_figures_of_cards(machine: Machine, file: Path) -> None:
    machine.scenario.add_card(compute=[(PID, 8192)])
    machine.tick("--textfile", str(file))
    success = series(file, "gua_last_success_timestamp_seconds")
    machine.scenario.error("nvmlInitWithFlags", 9)
    for count in (1, 2):
        done = machine.sample("--textfile", str(file))
        assert done.returncode == 1
        assert "driver_not_loaded" in done.stderr
        assert series(file, "gua_tick_error") == {'error="driver_not_loaded"': 1}
        assert series(file, "gua_tick_errors_total") == {"": count}
    assert series(file, "gua_last_success_timestamp_seconds") == success
    assert series(file, "gua_last_tick_timestamp_seconds") == {"": machine.ticks()[-1]["ts_ms"] / 1000}
    assert "gpu_idle" not in file.read_text()
    assert "gua_card" not in file.read_text()


def test_if_both_fail_the_driver_is_the_error(machine: Machine, file: Path) -> None:
    machine.scenario.error("nvmlInitWithFlags", 9)
    file.parent.rmdir()
    done = machine.sample("--textfile", str(file))
    assert done.returncode == 1
    warning, error = done.stderr.splitlines()
    assert warning.startswith("gua-sample: warning:")
    assert "driver_not_loaded" in error


def test_a_tick_that_cannot_be_stored_does_not_pass_for_the_last_one(machine: Machine, file: Path) -> None:
    machine.scenario.add_card()
    machine.tick("--textfile", str(file))
    before = series(file, "gua_last_tick_timestamp_seconds")
    machine.samples.rename(machine.data_dir / "elsewhere")
    machine.samples.write_text("a file where the folder should be")
    done = machine.sample("--textfile", str(file))
    assert done.returncode == 1
    assert series(file, "gua_tick_error") == {'error="not_stored"': 1}
    assert series(file, "gua_last_tick_timestamp_seconds") == before
    assert "gua_card" not in file.read_text()


def test_a_run_that_was_killed_is_told(machine: Machine, file: Path, tmp_path: Path) -> None:
    """By ExecStopPost, which gets the options of the unit too."""
    machine.scenario.add_card()
    machine.tick("--textfile", str(file))
    options = ["--record-timeout", "--textfile", str(file), "--interval", "30s"]
    assert machine.sample(*options, variables={"RUNTIME_DIRECTORY": str(tmp_path)}).returncode == 0
    assert series(file, "gua_tick_error") == {'error="timeout"': 1}


def test_what_killed_runs_leave_does_not_pile_up(machine: Machine, file: Path) -> None:
    machine.scenario.add_card()
    old, fresh, strange = (
        file.parent / name for name in (".gua.prom.aa.unfinished", ".gua.prom.bb.unfinished", "x.prom")
    )
    for path in (old, fresh, strange):
        path.write_text("half of")
    long_ago = time.time() - ABANDONED_SECONDS - 10
    for path in (old, strange):
        os.utime(path, (long_ago, long_ago))
    machine.tick("--textfile", str(file))
    assert sorted(os.listdir(file.parent)) == [fresh.name, "gua.prom", strange.name]


@pytest.mark.real
def test_killed_at_any_moment_the_file_is_whole_and_the_next_run_goes_on(machine: Machine) -> None:
    file = machine.data_dir / "gua.prom"  # there, since kills are counted by the folder
    machine.scenario.add_card(compute=[(PID, 8192)])
    machine.tick("--textfile", str(file))
    for moment in range(1, 200):
        before = file.read_text()
        killed = machine.sample("--textfile", str(file), kill_at=moment).returncode == -signal.SIGKILL
        assert before == file.read_text() or re.search(r"\ngua_tick_errors_total 0\n\Z", file.read_text())
        if not killed:
            break
    assert moment > 10
    machine.tick("--textfile", str(file))
    assert len(series(file, "gua_card_status")) == 1
    assert idle_state.load(str(machine.data_dir)) is not None


def test_samplers_at_the_same_time_leave_one_whole_file(machine: Machine, file: Path) -> None:
    machine.scenario.add_card(compute=[(PID, 8192)])
    command, variables = machine.command("--textfile", str(file)), machine.environment()
    samplers = [subprocess.Popen(command, env=variables, stdout=subprocess.DEVNULL) for _ in range(6)]
    assert [sampler.wait() for sampler in samplers] == [0] * 6
    assert file.read_text().endswith("\ngua_tick_errors_total 0\n")
    assert os.listdir(file.parent) == ["gua.prom"]


# --- idle time ---


def idle_run(machine: Machine, file: Path, number: int, sm_percent: int = 0) -> float:
    """A run so many intervals after five minutes to midnight; returns for how long the process idles."""
    card = machine.scenario.cards[0]
    card.update(process_utilization=[(PID, 1_000_000 * (number + 1), sm_percent)])
    machine.tick("--textfile", str(file), clock_ms=MONDAY_MS - 300_000 + number * EVERY_MS)
    (seconds,) = series(file, "gpu_idle_process_idle_seconds").values()
    return seconds


def test_idle_time_outlives_midnight_and_the_loss_of_what_was_carried(machine: Machine, file: Path) -> None:
    machine.scenario.add_card(compute=[(PID, 8192)], utilization_percent=80)
    assert [idle_run(machine, file, number) for number in range(12)] == [0, *range(0, 330, 30)]
    assert len(machine.partitions()) == 2
    (machine.data_dir / idle_state.NAME).unlink()
    assert idle_run(machine, file, 12) == 330
    (machine.data_dir / idle_state.NAME).write_bytes(b"\x00\xff" * 100)
    assert idle_run(machine, file, 13) == 360
    assert list(series(file, "gpu_idle_process_idle_memory_bytes").values()) == [8192 << 20]
    assert idle_run(machine, file, 14, sm_percent=1) == 0
    assert [idle_run(machine, file, number) for number in (15, 16, 17)] == [0, 0, 30]


def test_a_hole_in_the_history_ends_idle_time(machine: Machine, file: Path) -> None:
    machine.scenario.add_card(compute=[(PID, 8192)], utilization_percent=80)
    assert [idle_run(machine, file, number) for number in (0, 1, 2, 4, 5, 9, 10, 11)] == [0, 0, 30, 90, 120, 0, 0, 30]


def test_a_tick_that_a_reader_holds_up_counts_all_the_same(machine: Machine, file: Path) -> None:
    machine.scenario.add_card(compute=[(PID, 8192)], utilization_percent=80)
    for number in range(3):
        idle_run(machine, file, number)
    connection = sqlite3.connect(machine.partitions()[0], isolation_level=None)
    cursor = connection.execute("SELECT * FROM tick")
    cursor.fetchone()
    assert idle_run(machine, file, 3) == 60
    connection.close()
    assert idle_run(machine, file, 4) == 90


def test_what_is_carried_cannot_be_written_is_said_and_looked_up_instead(machine: Machine, file: Path) -> None:
    machine.scenario.add_card(compute=[(PID, 8192)], utilization_percent=80)
    (machine.data_dir / idle_state.NAME).mkdir(parents=True)
    for number in range(4):
        machine.scenario.cards[0].update(process_utilization=[(PID, 1_000_000 * (number + 1), 0)])
        done = machine.sample("--textfile", str(file), clock_ms=MONDAY_MS + number * EVERY_MS)
        assert done.returncode == 0
        assert one_line(done.stderr)
        assert f"/{idle_state.NAME} can't be written (Is a directory): " in done.stderr
    assert list(series(file, "gpu_idle_process_idle_seconds").values()) == [60]
