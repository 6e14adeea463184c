"""What the sampler does for its unit: quiet journals, killed and hanging runs, directories of users that hang."""

import os
import socket
import subprocess
import time
from pathlib import Path

import pytest

from gua_sample import service
from tests.machine import Machine, complaint, one_line
from tests.users import SOMEBODY, needs_root


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """The folder in memory that systemd gives to the unit."""
    return tmp_path


def in_unit(machine: Machine, runs: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return machine.sample(*arguments, variables={"RUNTIME_DIRECTORY": str(runs)})


def test_an_unchanged_error_is_logged_once_an_hour(machine: Machine, runs: Path) -> None:
    machine.scenario.error("nvmlInitWithFlags", 9)
    complaint(in_unit(machine, runs), 1)
    for again in (in_unit(machine, runs), in_unit(machine, runs)):
        assert (again.returncode, again.stderr) == (75, "")
    assert [tick["error"] for tick in machine.ticks()] == ["driver_not_loaded"] * 3
    machine.scenario.error("nvmlInitWithFlags", 18)  # another one is logged at once, and does not bring the first back
    assert "lib_rm_version_mismatch" in in_unit(machine, runs).stderr
    machine.scenario.error("nvmlInitWithFlags", 9)
    assert in_unit(machine, runs).returncode == 75
    noted_ms, _, text = (runs / "said").read_text().partition(" ")
    (runs / "said").write_text(f"{int(noted_ms) - service.HOUR_MS} {text}")
    assert in_unit(machine, runs).returncode == 1
    # Whatever it is.
    assert [in_unit(machine, runs, "--no-such-option").returncode for _ in range(2)] == [2, 75]
    machine.samples.rename(machine.folder / "elsewhere")
    machine.samples.write_text("a file where the folder should be")
    assert [in_unit(machine, runs).returncode for _ in range(2)] == [1, 75]


def test_warnings_are_logged_once_an_hour_and_do_not_fail_the_run(machine: Machine, runs: Path) -> None:
    machine.scenario.add_card()
    machine.tick()
    machine.partitions()[0].rename(machine.samples / "2199-01-01.sqlite")
    done = [in_unit(machine, runs) for _ in range(2)]
    assert [one.returncode for one in done] == [0, 0]
    assert "2199-01-01.sqlite is of a day to come" in done[0].stderr
    assert done[1].stderr == ""


@pytest.mark.parametrize(
    "content", [b"", b"\xff\xfe\n12", b"99999999999999999 x\n", b"9" * 5000, b"no number\n", "² x\n".encode(), None]
)
def test_damaged_notes_of_what_was_said_silence_and_stop_nothing(
    machine: Machine, runs: Path, content: bytes | None
) -> None:
    os.mkfifo(runs / "said") if content is None else (runs / "said").write_bytes(content)
    machine.scenario.error("nvmlInitWithFlags", 9)
    assert [in_unit(machine, runs).returncode for _ in range(2)] == [1, 75]


@pytest.mark.parametrize("variables", [{}, {"RUNTIME_DIRECTORY": "/nowhere/at/all"}])
def test_by_hand_or_if_nothing_can_be_noted_every_error_is_said(machine: Machine, variables: dict[str, str]) -> None:
    machine.scenario.error("nvmlInitWithFlags", 9)
    assert [machine.sample(variables=variables).returncode for _ in range(2)] == [1, 1]


def test_in_the_journal_errors_carry_their_priority_instead_of_the_name(machine: Machine) -> None:
    machine.scenario.error("nvmlInitWithFlags", 9)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        stream = os.fstat(theirs.fileno())
        variables = machine.environment() | {"JOURNAL_STREAM": f"{stream.st_dev}:{stream.st_ino}"}
        subprocess.run(machine.command(), env=variables, stderr=theirs.fileno(), stdout=subprocess.DEVNULL, check=False)
        text = ours.recv(4096).decode()
    assert text.startswith("<3>error: NVML failed (driver_not_loaded)")
    # The variable alone says little: stderr may have been redirected since.
    redirected = machine.sample(variables={"JOURNAL_STREAM": f"{stream.st_dev}:{stream.st_ino}"})
    assert redirected.stderr.startswith("gua-sample: error: ")


def test_a_run_that_was_killed_is_recorded_at_its_start_with_how_long_it_hung(machine: Machine, runs: Path) -> None:
    machine.scenario.add_card()
    machine.scenario.delay("nvmlInitWithFlags", 60_000)
    before_ms = time.time_ns() // 1_000_000
    variables = machine.environment() | {"RUNTIME_DIRECTORY": str(runs)}
    hanging = subprocess.Popen(machine.command(), env=variables)
    while not (runs / "started").exists():
        time.sleep(0.01)
    time.sleep(0.5)
    hanging.terminate()
    hanging.wait()
    done = in_unit(machine, runs, "--record-timeout")
    after_ms = time.time_ns() // 1_000_000
    assert (done.returncode, done.stdout) == (0, "")
    assert "had to be killed" in done.stderr
    (tick,) = machine.ticks()
    assert tick["error"] == "timeout"
    assert before_ms <= tick["ts_ms"] <= after_ms - 500
    assert 500 <= tick["nvml_ms"] <= after_ms - before_ms
    assert machine.cards() == []


def test_a_killed_run_whose_start_is_not_known_is_recorded_as_of_now(machine: Machine, runs: Path) -> None:
    (runs / "started").touch()
    os.utime(runs / "started", (1, 1))
    before_ms = time.time_ns() // 1_000_000
    assert in_unit(machine, runs, "--record-timeout").returncode == 0
    (tick,) = machine.ticks()
    assert tick["ts_ms"] >= before_ms
    assert tick["nvml_ms"] == 0


def test_only_the_unit_may_record_that_its_run_was_killed(machine: Machine) -> None:
    assert machine.sample("--record-timeout").returncode == 2
    assert not machine.data_dir.exists()


@pytest.mark.parametrize(
    ("pending", "shared", "name", "is_found"),
    [
        (0x100, 0, None, True),
        (0, 0x100, None, True),
        (0, 0, None, False),
        (0x4000, 0, None, False),  # another signal
        (0x100, 0, "another", False),
    ],
)
def test_an_earlier_run_that_survives_being_killed_is_found(
    tmp_path: Path, pending: int, shared: int, name: str | None, is_found: bool
) -> None:
    (tmp_path / "comm").write_text(f"{name}\n" if name else Path("/proc/self/comm").read_text())
    (tmp_path / "status").write_text(f"Name:\tx\nSigPnd:\t{pending:016x}\nShdPnd:\t{shared:016x}\n")
    assert service.is_hanging(str(tmp_path)) is is_found


def test_the_note_of_a_run_that_hangs_stays_until_it_ends(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUNTIME_DIRECTORY", str(runs))
    (runs / "started").write_text("nonsense")
    monkeypatch.setattr(service, "is_hanging", lambda process: process == "/proc/4711")
    assert service.mark_start() is None
    assert (runs / "started").read_text() == str(os.getpid())
    (runs / "started").write_text("4711")
    assert service.mark_start() == 4711
    assert (runs / "started").read_text() == "4711"


@needs_root
def test_a_directory_of_users_that_hangs_does_not_hang_the_tick(machine: Machine) -> None:
    """uid 0 is answered, the other one not: its name comes from an earlier tick if there is one."""
    sleeper = subprocess.Popen(["sleep", "60"], user=SOMEBODY)
    machine.scenario.add_card(compute=[(os.getpid(), 8192), (sleeper.pid, 8192)])
    hang = {"LD_PRELOAD": str(machine.driver / "slow_names.so"), "GUA_TEST_SLOW_FROM_UID": str(SOMEBODY)}
    try:
        started = time.monotonic()
        done = machine.sample(variables=hang)
        assert time.monotonic() - started < 10
    finally:
        sleeper.kill()
        sleeper.wait()
    assert done.returncode == 0
    assert one_line(done.stderr)
    assert "directory of users does not answer" in done.stderr
    assert {row["uid"]: row["user"] for row in machine.processes()} == {0: "root", SOMEBODY: None}


def test_a_name_that_was_known_stands_in_while_the_directory_hangs(machine: Machine) -> None:
    machine.scenario.add_card(compute=[(os.getpid(), 8192)])
    machine.tick(clock_offset_ms=-86_400_000)
    (known,) = machine.processes()
    assert known["user"] is not None
    hang = {"LD_PRELOAD": str(machine.driver / "slow_names.so"), "GUA_TEST_SLOW_FROM_UID": "0"}
    for _ in range(2):  # from the day before, then from today
        assert machine.sample(variables=hang).returncode == 0
    assert {row["user"] for row in machine.processes()} == {known["user"]}
    assert len(machine.processes()) == 3


def test_a_clock_that_was_never_set_gives_a_line_and_no_tick(machine: Machine) -> None:
    machine.scenario.add_card()
    assert "the clock says 1970-01-01" in complaint(machine.sample(clock_ms=3_600_000), 1)
    assert not machine.data_dir.exists()
