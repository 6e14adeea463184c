import os
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.end_to_end.guest import Guest
from tests.repository import ROOT

BOOT_ID = "/proc/sys/kernel/random/boot_id"
NOTE = "/etc/gua-test-note"


@pytest.fixture(scope="module")
def guest(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guest]:
    with Guest(tmp_path_factory.mktemp("guest")) as guest:
        yield guest


def test_a_guest_boots_with_all_of_its_units_well(guest: Guest) -> None:
    assert guest.run("systemctl", "--failed", "--plain", "--no-legend").stdout == ""
    assert guest.run("systemctl", "is-system-running").stdout == "running\n"


def test_there_is_no_network_but_the_loopback_unless_asked_for(guest: Guest, tmp_path: Path) -> None:
    assert guest.run("ls", "/sys/class/net").stdout == "lo\n"
    with Guest(tmp_path, network=True) as other:
        assert other.run("readlink", "/proc/self/ns/net").stdout.strip() == os.readlink("/proc/self/ns/net")


def test_the_clock_of_the_host_is_out_of_reach(guest: Guest) -> None:
    with pytest.raises(AssertionError, match="Operation not permitted"):
        guest.run("date", "--set=@0")


def test_a_second_boot_on_a_folder_is_a_reboot_of_the_same_machine(tmp_path: Path) -> None:
    with Guest(tmp_path) as guest:
        guest.write(NOTE, "kept")
        guest.write("/etc/systemd/system/farewell.service", FAREWELL)
        guest.run("systemctl", "enable", "--now", "farewell")
        first = guest.read(BOOT_ID), guest.read("/etc/machine-id")
        guest.shutdown()
        assert not guest.is_running()
    assert not Path(NOTE).exists()
    with Guest(tmp_path) as guest:
        second = guest.read(BOOT_ID), guest.read("/etc/machine-id")
        assert guest.read(NOTE) == "kept"
        assert guest.run("systemctl", "is-active", "farewell").stdout == "active\n"
        assert "farewell" in guest.journal("farewell", "--boot=-1")
        assert len(guest.run("journalctl", "--list-boots", "--quiet").stdout.splitlines()) >= 2
    assert first[1] == second[1] != Path("/etc/machine-id").read_text()
    assert len({first[0], second[0], Path(BOOT_ID).read_text()}) == 3


FAREWELL = """
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=true
ExecStop=echo farewell
[Install]
WantedBy=multi-user.target
"""


def test_guests_on_a_layer_run_at_the_same_time_and_leave_it_as_it_is(tmp_path: Path) -> None:
    layer = tmp_path / "layer"
    with Guest(layer) as guest:
        guest.write(NOTE, "layer")
        guest.write("/opt/gua-test/removed", "layer")
        guest.shutdown()
    before = snapshot(layer)
    with Guest(tmp_path / "one", layers=[layer]) as one, Guest(tmp_path / "two", layers=[layer]) as two:
        one.run("rm", "-r", "/opt/gua-test")
        one.write(NOTE, "one")
        assert (two.read(NOTE), two.read("/opt/gua-test/removed")) == ("layer", "layer")
        assert one.read("/etc/machine-id") != two.read("/etc/machine-id")
        one.shutdown()
    with Guest(tmp_path / "top", layers=[layer, tmp_path / "one"]) as top:
        assert top.read(NOTE) == "one"
        assert top.run("test", "-e", "/opt/gua-test", check=False).returncode == 1
    assert snapshot(layer) == before


def snapshot(folder: Path) -> dict[Path, tuple[int, int, int]]:
    states = {path: path.lstat() for path in folder.rglob("*")}
    return {path: (state.st_mode, state.st_size, state.st_mtime_ns) for path, state in states.items()}


def test_a_boot_that_fails_says_why(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=r"(?s)did not start.*mount: .*root"), Guest(tmp_path, [tmp_path / "none"]):
        pass


def test_nothing_is_left_of_a_guest(tmp_path: Path) -> None:
    mounts = Path("/proc/self/mountinfo").read_text()
    with Guest(tmp_path) as guest:
        guest.run("systemd-run", *SLEEP)
        cgroups = cgroups_of(guest.pid)
        assert all(cgroup.exists() for cgroup in cgroups)
        guest.wait_until(lambda: len(sleepers()) == 1, 30, "the sleeper")  # systemd-run may end before it has its name
        guest.kill()
        assert not guest.is_running()
        with pytest.raises(AssertionError, match="has ended"):
            guest.run("true")
    assert Path("/proc/self/mountinfo").read_text() == mounts
    assert not any(cgroup.exists() for cgroup in cgroups)
    assert sleepers() == []


def test_nothing_is_left_of_a_guest_whose_tests_were_killed(tmp_path: Path) -> None:
    code = """
        import sys, time
        from pathlib import Path
        from tests.end_to_end.guest import Guest
        with Guest(Path(sys.argv[1])) as guest:
            guest.run("systemd-run", *sys.argv[2:])
            print(guest.pid, flush=True)
            time.sleep(100)
    """
    command = [sys.executable, "-c", textwrap.dedent(code), str(tmp_path), *SLEEP]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as tests:
        assert tests.stdout
        pid = int(tests.stdout.readline())
        cgroups = cgroups_of(pid)
        tests.kill()
    deadline = time.monotonic() + 20
    while sleepers() or Path(f"/proc/{pid}").exists() or any(cgroup.exists() for cgroup in cgroups):
        assert time.monotonic() < deadline
        time.sleep(0.02)


SLEEP = ("sleep", f"1{os.getpid()}")


def sleepers() -> list[str]:
    done = subprocess.run(["pgrep", "--full", f"{' '.join(SLEEP)}$"], capture_output=True, text=True, check=False)
    return done.stdout.split()


def cgroups_of(pid: int) -> list[Path]:
    """The guest's cgroup, wherever the host has mounted the hierarchy."""
    path = next(line for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines() if line.startswith("0::/"))
    name = path.removeprefix("0::/").split("/")[0]
    mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    return [Path(place) / name for _, place, kind, *_ in mounts if kind == "cgroup2"]
