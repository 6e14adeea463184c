"""An upgrade, from an earlier version, of a machine that goes on sampling."""

import subprocess
from pathlib import Path

import pytest

from tests.end_to_end import laboratory
from tests.end_to_end.guest import Guest
from tests.end_to_end.laboratory import NO_INDEX, SAMPLES, SOURCE, UNIT, WHEELS
from tests.repository import ROOT

pytestmark = pytest.mark.timeout(900)

EARLIER = "68bfe74"
RUNS = "/root/runs"


def earlier_source(guest: Guest) -> str:
    """A clone of an earlier version, from the project's history."""
    folder = f"{SOURCE}-{EARLIER}"
    archive = subprocess.run(["git", "-C", str(ROOT), "archive", EARLIER], capture_output=True, check=False)
    assert archive.returncode == 0, f"no {EARLIER} in this clone ({archive.stderr!r}): git fetch --unshallow"
    guest.run("mkdir", folder)
    subprocess.run(["tar", "-x", "-C", str(guest.path(folder))], input=archive.stdout, check=True)
    return folder


class Machine:
    """A guest whose timer samples every second. Each run that systemd calls a success leaves a line in RUNS."""

    def __init__(self, guest: Guest) -> None:
        self.guest = guest
        laboratory.drop_in(guest, "gua-sample.timer", "Timer", "OnCalendar=", "OnCalendar=*:*:*", name="fast.conf")
        laboratory.drop_in(guest, UNIT, "Service", f"ExecStartPost=+/bin/sh -c 'echo run >>{RUNS}'", name="count.conf")

    def install(self, source: str) -> None:
        options = f"WHEELS={WHEELS}"
        python = f"PYTHON={laboratory.PYTHON}"
        self.guest.run("make", "install", python, options, cwd=source, environment=NO_INDEX, timeout=300)

    def runs(self) -> int:
        return len(self.guest.run("sh", "-c", f"cat {RUNS} 2>/dev/null || :").stdout.splitlines())

    def sample_for_a_while(self) -> None:
        before = self.runs()
        self.guest.wait_until(lambda: self.runs() >= before + 5, 120, "five runs")

    def _is_at_work(self) -> bool:
        state = self.guest.run("systemctl", "is-active", UNIT, check=False).stdout.strip()
        return state in ("activating", "deactivating", "active")

    def assert_nothing_lost(self) -> None:
        """Compare the ticks with the runs of the unit; from now on, nothing is sampled."""
        self.guest.run("systemctl", "stop", "gua-sample.timer")
        self.guest.wait_until(lambda: not self._is_at_work(), 30, "the last run to end")
        ticks = laboratory.rows(self.guest, "ticks")
        assert len(ticks) == self.runs()
        assert {tick["error"] for tick in ticks} == {None}
        assert {Path(name).suffix for name in self.guest.run("ls", SAMPLES).stdout.split()} == {".sqlite"}


def assert_report_counts_all(guest: Guest) -> None:
    """Every stored tick stands for its time, and each card has all of that time in one state or another."""
    document = laboratory.report(guest, "--since", "1d")
    hours = sum(share["gpu_hours"] for card in document["gpus"] for share in card["states"].values())
    observed = document["coverage"]["observed_seconds"]
    assert observed >= (len(laboratory.rows(guest, "ticks")) - 1) * 0.9  # a tick each second
    assert hours == pytest.approx(len(laboratory.busy_scenario().cards) * observed / 3600, abs=0.002)


@pytest.fixture
def machine(guest: Guest) -> Machine:
    """A machine with all wheels, but without gua and its history."""
    # In a layer below, the old environment could not be renamed; on a disk it can.
    laboratory.make(guest, "uninstall", "PURGE=1")
    guest.run("sh", "-c", f"rm -rf {laboratory.HOLD}")
    return Machine(guest)


def test_an_upgrade_from_an_earlier_version_loses_no_tick(machine: Machine) -> None:
    machine.install(earlier_source(machine.guest))
    machine.sample_for_a_while()
    machine.install(SOURCE)
    machine.sample_for_a_while()
    machine.assert_nothing_lost()
    assert_report_counts_all(machine.guest)
