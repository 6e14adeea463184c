"""gua-sample --textfile as the timer runs it: whole files, ticks that never pay for them, idle time that goes on."""

import os
import re
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from gua_sample import idle_state
from tests.lab import MONDAY_MS
from tests.machine import Machine, one_line

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
    held = {"gua_sample.held_file", "gua_sample.notes"}
    assert imported("--textfile", str(file)) - plain == {"gua_sample.metrics"}
    assert imported("--textfile", str(file), "--held-file", str(file.with_name("held"))) - plain == {
        "gua_sample.metrics",
        *held,
    }


# --- trouble ---


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
    assert idle_state.understand(idle_state.read(str(machine.data_dir))) is not None


# --- idle time ---


def idle_run(machine: Machine, file: Path, number: int, sm_percent: int = 0) -> float:
    """A run so many intervals after five minutes to midnight; returns for how long the process idles."""
    card = machine.scenario.cards[0]
    card.update(process_utilization=[(PID, 1_000_000 * (number + 1), sm_percent)])
    machine.tick("--textfile", str(file), clock_ms=MONDAY_MS - 300_000 + number * EVERY_MS)
    (seconds,) = series(file, "gpu_idle_process_idle_seconds").values()
    return seconds


def test_idle_time_outlives_midnight_and_begins_anew_if_what_was_carried_is_lost(machine: Machine, file: Path) -> None:
    machine.scenario.add_card(compute=[(PID, 8192)], utilization_percent=80)
    assert [idle_run(machine, file, number) for number in range(12)] == [0, *range(0, 330, 30)]
    assert len(machine.partitions()) == 2
    (machine.data_dir / idle_state.NAME).unlink()
    assert [idle_run(machine, file, number) for number in (12, 13, 14)] == [0, 0, 30]
    (machine.data_dir / idle_state.NAME).write_bytes(b"\x00\xff" * 100)
    assert [idle_run(machine, file, number) for number in (15, 16, 17)] == [0, 0, 30]
    assert list(series(file, "gpu_idle_process_idle_memory_bytes").values()) == [8192 << 20]
    assert idle_run(machine, file, 18, sm_percent=1) == 0
    assert [idle_run(machine, file, number) for number in (19, 20, 21)] == [0, 0, 30]


def test_a_folder_in_the_place_of_what_is_carried_is_said_and_nobody_is_called_idle(
    machine: Machine, file: Path
) -> None:
    machine.scenario.add_card(compute=[(PID, 8192)], utilization_percent=80)
    (machine.data_dir / idle_state.NAME).mkdir(parents=True)
    left = file.with_name(".gua.prom.aa.unfinished")  # by a run that was killed long ago
    left.touch()
    os.utime(left, (0, 0))
    for number in range(4):
        machine.scenario.cards[0].update(process_utilization=[(PID, 1_000_000 * (number + 1), 0)])
        done = machine.sample("--textfile", str(file), clock_ms=MONDAY_MS + number * EVERY_MS)
        assert (done.returncode, one_line(done.stderr)) == (0, True)
        assert f"/{idle_state.NAME} can't be written (Is a directory): " in done.stderr
    assert list(series(file, "gpu_idle_process_idle_seconds").values()) == [0]
    assert not left.exists()


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
