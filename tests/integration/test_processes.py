"""Who is on a card, for real processes with real, and really hostile, names."""

import os
import subprocess
import time
from pathlib import Path

import pytest

from gua_sample.processes import describe, read_boot
from tests.machine import Machine, call
from tests.processes import process_named
from tests.users import SOMEBODY, needs_mounts, needs_root, run_as_somebody, sampler_for_others


def test_a_process_is_described_by_its_owner_start_command_and_cgroup(machine: Machine) -> None:
    before_ms = time.time_ns() // 1_000_000
    with process_named(b"train") as pid:
        machine.scenario.add_card(compute=[(pid, 8192)])
        machine.tick()
        (row,) = machine.processes()
        assert (row["pid"], row["command"], row["uid"]) == (pid, "train", os.getuid())
        name = subprocess.run(["id", "-un"], capture_output=True, text=True, check=False).stdout.strip()
        assert row["user"] == (name or None)
        assert before_ms - 50 <= row["start_time_ms"] <= time.time_ns() // 1_000_000
        paths = {line.split(":", 2)[2] for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines()}
        assert set(row["cgroup"].split(";")) == (paths - {"/"} or {"/"})
        login_uid = int(Path(f"/proc/{pid}/loginuid").read_text())
        assert row["login_uid"] == (None if login_uid == 4294967295 else login_uid)


def test_the_start_of_a_process_does_not_move_when_the_clock_is_set(machine: Machine) -> None:
    machine.scenario.add_card(compute=[(os.getpid(), 8192)])
    machine.tick()
    machine.tick(clock_offset_ms=3_600_000)
    machine.tick(clock_offset_ms=86_400_000)  # and not across midnight either, in whichever direction
    assert "is of a day to come" in machine.sample(clock_offset_ms=-86_400_000).stderr
    assert len(machine.partitions()) == 3
    assert len({row["start_time_ms"] for row in machine.processes()}) == 1


@pytest.mark.parametrize(
    ("name", "stored"),
    [
        (b"two\nlines", r"two\nlines"),
        (b"\x1b[31mred\x07", r"\x1b[31mred\x07"),
        (b"\xff\xfe", r"\xff\xfe"),
        ("käse".encode(), "käse"),
        ("a\u202eb".encode(), r"a\u202eb"),
        (b"a) R 1 (b", "a) R 1 (b"),
        (b"=cmd|'/c x'", "=cmd|'/c x'"),
    ],
)
def test_hostile_command_names_are_stored_as_printable_text(machine: Machine, name: bytes, stored: str) -> None:
    with process_named(name) as pid:
        machine.scenario.add_card(compute=[(pid, 8192)])
        machine.tick()
        (row,) = machine.processes()
    assert row["command"] == stored
    assert row["start_time_ms"] is not None


@pytest.mark.parametrize("name", [b"\rUid:\t54321", b"\nUid:\t54321", b"\x0bUid:\t54321", b")\rUid:\t54321"])
def test_no_name_of_a_process_makes_it_another_users(name: bytes) -> None:
    """The kernel escapes line feeds in /proc/PID/status, and no other ends of lines."""
    with process_named(name) as pid:
        assert describe(pid, read_boot()).uid == os.getuid()


def test_a_process_that_has_ended_is_recorded_as_far_as_known(machine: Machine) -> None:
    with subprocess.Popen(["true"]) as process:
        process.wait()
    machine.scenario.add_card(compute=[(process.pid, 8192)])
    machine.tick()
    (row,) = machine.processes()
    assert (row["pid"], row["memory_mib"], row["type"]) == (process.pid, 8192, "compute")
    unknown = ("start_time_ms", "uid", "login_uid", "user", "login_user", "command", "cgroup")
    assert {row[key] for key in unknown} == {None}


@pytest.fixture
def unprivileged(machine: Machine, open_folder: Path) -> list[str]:
    """The sampler as somebody else runs it, on a card with a process of ours."""
    machine.scenario.add_card(compute=[(os.getpid(), 8192)])
    machine.data_dir.mkdir()
    os.chown(machine.data_dir, SOMEBODY, SOMEBODY)
    return [*sampler_for_others(open_folder), "--data-dir", str(machine.data_dir)]


@needs_root
def test_others_are_described_to_an_unprivileged_sampler(machine: Machine, unprivileged: list[str]) -> None:
    assert run_as_somebody(unprivileged, machine.environment()).returncode == 0
    (row,) = machine.processes()
    assert (row["uid"], row["user"]) == (0, "root")
    assert row["start_time_ms"] is not None
    assert row["cgroup"] is not None


@needs_root
def test_a_user_without_a_passwd_entry_is_recorded_by_number(machine: Machine) -> None:
    with subprocess.Popen(["/bin/sleep", "60"], user=SOMEBODY, cwd="/") as process:
        machine.scenario.add_card(compute=[(process.pid, 8192)])
        machine.tick()
        process.kill()
    (row,) = machine.processes()
    assert (row["uid"], row["user"], row["command"]) == (SOMEBODY, None, "sleep")


@needs_mounts
def test_processes_hidden_by_hidepid_are_recorded_as_the_driver_tells(
    machine: Machine, unprivileged: list[str]
) -> None:
    become = ["setpriv", f"--reuid={SOMEBODY}", f"--regid={SOMEBODY}", "--clear-groups"]
    script = 'mount -t proc -o hidepid=2 proc /proc && exec "$@"'
    command = ["unshare", "--mount", "sh", "-c", script, "sh", *become, *unprivileged]
    done = call(command, env=machine.environment(), cwd="/")
    assert (done.returncode, done.stderr) == (0, "")
    (row,) = machine.processes()
    assert (row["pid"], row["memory_mib"]) == (os.getpid(), 8192)
    assert (row["uid"], row["command"], row["start_time_ms"]) == (None, None, None)


def fake_proc(folder: Path, **files: str | bytes) -> str:
    (folder / "42").mkdir()
    for name, content in files.items():
        (folder / "42" / name).write_bytes(content.encode() if isinstance(content, str) else content)
    return str(folder)


def test_the_login_user_is_told_apart_from_an_unset_one(tmp_path: Path) -> None:
    proc = fake_proc(tmp_path, loginuid="0", status="Name:\tx\nUid:\t1000\t0\t0\t0\n")
    found = describe(42, read_boot(), proc)
    assert (found.uid, found.login_uid) == (1000, 0)
    (tmp_path / "42" / "loginuid").write_text("4294967295")
    assert describe(42, read_boot(), proc).login_uid is None


def test_truncated_proc_files_are_unknown_not_a_crash(tmp_path: Path) -> None:
    proc = fake_proc(tmp_path, stat="42 (x) R 1", loginuid="", status="", comm="", cgroup="0:")
    found = describe(42, read_boot(), proc)
    assert (found.start_time_ms, found.login_uid, found.cgroup) == (None, None, None)
