"""Bad luck: each gives a clear line in the journal, once, a finding of the doctor, and costs no more than its ticks."""

import time
from pathlib import Path

import pytest

from tests.end_to_end import laboratory
from tests.end_to_end.guest import Guest
from tests.end_to_end.laboratory import UNIT, our_lines

HANGING_FILES = Path(__file__).with_name("hanging_files.py")


def test_a_driver_that_comes_after_the_boot_is_used_as_soon_as_it_is_there(guest: Guest) -> None:
    guest.run("mv", laboratory.DRIVER, "/root/driver")
    guest.run("ldconfig")
    before = len(laboratory.errors(guest))
    outcomes = [laboratory.sample(guest) for _ in range(3)]
    assert outcomes == [1, 0, 0]  # an error that goes on fails the unit once an hour
    (line,) = our_lines(guest)
    assert line.startswith("<3>error: NVML failed (library_not_found): libnvidia-ml.so.1 was not found")
    assert "library_not_found" in laboratory.findings(guest)["NVML"]
    guest.run("mv", "/root/driver", laboratory.DRIVER)
    guest.run("ldconfig")
    assert laboratory.sample(guest) == 0
    assert laboratory.errors(guest)[before:] == ["library_not_found"] * 3 + [None]
    assert "NVML" not in laboratory.findings(guest)


def test_a_driver_that_hangs_is_killed_at_the_timeout_and_the_next_tick_works(guest: Guest) -> None:
    laboratory.drop_in(guest, UNIT, "Service", "TimeoutStartSec=3")
    hanging = laboratory.busy_scenario()
    hanging.delay("nvmlInitWithFlags", 600_000)
    laboratory.set_scenario(guest, hanging)
    began_ms = time.time_ns() // 1_000_000
    assert laboratory.sample(guest) == 1
    killed = laboratory.rows(guest, "ticks")[-1]
    assert killed["error"] == "timeout"
    assert 0 <= killed["ts_ms"] - began_ms < 3000
    assert killed["nvml_ms"] > 1000
    assert our_lines(guest) == [
        "<4>warning: a run had to be killed at its start timeout: the driver hangs? see 'gua doctor'"
    ]
    laboratory.set_scenario(guest, laboratory.busy_scenario())
    assert "timeout" in laboratory.findings(guest)["newest tick"]
    assert laboratory.sample(guest) == 0
    assert laboratory.errors(guest)[-1] is None
    document = laboratory.report(guest, "--since", "1h")
    assert "sampler killed (timeout)" in [gap["kind"] for gap in document["coverage"]["gaps"]]


def test_a_run_that_cannot_be_killed_keeps_the_next_ones_from_asking_the_driver(guest: Guest) -> None:
    """The stand-in's log of calls is on a file system that never answers, which holds a process as a driver does."""
    guest.run("mkdir", "/srv/hanging")
    guest.run("systemd-run", "--unit=hanging-files", laboratory.PYTHON, HANGING_FILES, "/srv/hanging")
    guest.wait_until(lambda: "/srv/hanging" in guest.read("/proc/mounts"), 10, "the file system")
    laboratory.drop_in(guest, UNIT, "Service", "TimeoutStartSec=8", "TimeoutStopSec=1")
    scenario = laboratory.busy_scenario()
    scenario.settings["call_log"] = "/srv/hanging/calls"
    laboratory.set_scenario(guest, scenario)
    assert laboratory.sample(guest) == 1
    assert laboratory.errors(guest)[-1] == "timeout"
    started = time.monotonic()
    outcomes = [laboratory.sample(guest) for _ in range(2)]
    assert outcomes == [1, 0], guest.journal(UNIT)
    assert time.monotonic() - started < 8  # they did not wait for the driver
    assert laboratory.errors(guest)[-2:] == ["driver_hangs"] * 2
    assert our_lines(guest)[-1].startswith("<3>error: NVML failed (driver_hangs)")
    laboratory.set_scenario(guest, laboratory.busy_scenario())
    assert "driver_hangs" in laboratory.findings(guest)["newest tick"]
    guest.run("systemctl", "kill", "--signal=KILL", "hanging-files.service")
    guest.wait_until(lambda: laboratory.sample(guest) == 0 and laboratory.errors(guest)[-1] is None, 20, "a good tick")


UNSET_CLOCK = {"LD_PRELOAD": "/usr/local/lib/shift_clock.so", "GUA_TEST_CLOCK_MS": "3600000"}

# How to get into it, the line in the journal, the doctor's finding.
TROUBLE = {
    "files of another user in the state folder": (
        "chown -R somebody: /var/lib/gua/samples",
        "can't be used",
        "data folder",
    ),
    "a full disk": (
        "mount -t tmpfs -o size=128k,mode=755 tmpfs /var/lib/gua && ! head -c 1M /dev/zero > /var/lib/gua/big",
        "no space left",
        "free space",
    ),
    "a read-only mount": (
        "mount --bind /var/lib/gua /var/lib/gua && mount -o remount,bind,ro /var/lib/gua",
        "can't be used (",
        "data folder",
    ),
    "a clock that was never set": (
        "".join(f"echo {name}={value} >> /etc/gua/gua-sample.env;" for name, value in UNSET_CLOCK.items()),
        "the clock says 1970-01-01",
        "clock",
    ),
    "a clock that was set back": (
        "cp -a /var/lib/gua/samples/*.sqlite /var/lib/gua/samples/2199-01-01.sqlite",
        "2199-01-01.sqlite is of a day to come",
        "clock",
    ),
    "an option that does not exist": (
        "echo GUA_SAMPLE_OPTIONS=--interwal > /etc/gua/gua-sample.env",
        "unrecognized arguments: --interwal",
        "service",
    ),
}


@pytest.mark.parametrize("trouble", TROUBLE)
def test_trouble_is_one_line_in_the_journal_and_a_finding(guest: Guest, trouble: str) -> None:
    command, line, finding = TROUBLE[trouble]
    guest.run("sh", "-c", command)
    for _ in range(3):
        laboratory.sample(guest)
    lines = our_lines(guest)
    assert [line in one for one in lines] == [True], lines
    found = laboratory.findings(guest, environment=UNSET_CLOCK if "never set" in trouble else {})
    assert finding in found, found


def test_a_state_folder_of_another_user_is_taken_over(guest: Guest) -> None:
    guest.run("chown", "-R", "somebody:", "/var/lib/gua")
    assert laboratory.sample(guest) == 0
    assert our_lines(guest) == []
    assert guest.run("stat", "--format=%U", laboratory.SAMPLES).stdout == "gua\n"


def test_a_persistence_daemon_is_asked_for_with_the_timer_and_not_with_each_run(guest: Guest) -> None:
    """Whoever stops it must not find it back after 30 s, and one that fails must not fill the journal."""
    guest.write("/etc/systemd/system/nvidia-persistenced.service", "[Service]\nType=oneshot\nExecStart=false\n")
    laboratory.release_timer(guest)
    assert guest.journal("nvidia-persistenced.service") != []
    before = guest.journal("nvidia-persistenced.service")
    assert [laboratory.sample(guest) for _ in range(2)] == [0, 0]
    assert guest.journal("nvidia-persistenced.service") == before


def test_an_installation_that_is_broken_is_said(guest: Guest) -> None:
    guest.run("sh", "-c", "rm -r /opt/gua/lib/python*/site-packages/gua_sample/store.py")
    assert laboratory.sample(guest) == 1
    assert "ImportError" in our_lines(guest)[-1]
