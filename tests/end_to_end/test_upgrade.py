"""Upgrades and downgrades of a machine that goes on sampling: from an earlier version, and to two that are made up:
one adds a column, the other raises the versions of partitions and of kept ticks."""

import subprocess

import pytest

from tests.end_to_end import laboratory
from tests.end_to_end.guest import Guest
from tests.end_to_end.laboratory import NO_INDEX, SAMPLES, SOURCE, UNIT, WHEELS
from tests.repository import ROOT

pytestmark = pytest.mark.timeout(900)

EARLIER = "68bfe74"
RUNS = "/root/runs"
# What a version to come appends to a module of this one.
FURTHER_COLUMN = {
    "schema.py": """
ADDED = {**ADDED, "tick": {"weather": "TEXT"}}
VIEWS = tuple(view.replace("t.nvml_ms, t.error", "t.nvml_ms, t.error, t.weather") for view in VIEWS)
VIEWS_BY_NAME = {statement.split()[2]: statement for statement in VIEWS}
"""
}
FURTHER_VERSION = {"schema.py": FURTHER_COLUMN["schema.py"] + "VERSION += 1\n", "pending.py": "\nVERSION += 1\n"}


def source_of(guest: Guest, name: str, appended: dict[str, str]) -> str:
    """A copy of this clone in the guest, with text appended to modules of the sampler."""
    folder = f"{SOURCE}-{name}"
    guest.run("cp", "-a", SOURCE, folder)
    for module, text in appended.items():
        path = f"{folder}/gua_sample/{module}"
        guest.write(path, guest.read(path) + text)
    return folder


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

    def kept(self) -> list[str]:
        return self.guest.run("sh", "-c", f"ls {SAMPLES} | grep pending || :").stdout.split()

    def stop(self) -> None:
        self.guest.run("systemctl", "stop", "gua-sample.timer")
        self.guest.wait_until(lambda: not self._is_at_work(), 30, "the last run to end")

    def start(self) -> None:
        self.guest.run("systemctl", "start", "gua-sample.timer")

    def _is_at_work(self) -> bool:
        state = self.guest.run("systemctl", "is-active", UNIT, check=False).stdout.strip()
        return state in ("activating", "deactivating", "active")

    def assert_nothing_lost(self) -> None:
        """Compare ticks, stored or kept, with the runs of the unit; for a moment, nothing is sampled."""
        self.stop()
        ticks = laboratory.rows(self.guest, "ticks")
        assert len(ticks) + len(self.kept()) == self.runs()
        assert {tick["error"] for tick in ticks} == {None}
        assert self.guest.run("sh", "-c", f"ls {SAMPLES} | grep -c corrupt || :").stdout.strip() == "0"
        self.start()


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
    machine.stop()
    assert_report_counts_all(machine.guest)


def test_versions_with_a_further_column_and_a_further_version_go_back_and_forth(machine: Machine) -> None:
    guest = machine.guest
    column = source_of(guest, "with-column", FURTHER_COLUMN)
    version = source_of(guest, "with-version", FURTHER_VERSION)
    for source in (SOURCE, column, SOURCE, column):
        machine.install(source)
        machine.sample_for_a_while()
        machine.assert_nothing_lost()
        assert machine.kept() == []
    assert "weather" in laboratory.rows(guest, "ticks")[0]
    machine.install(version)
    machine.sample_for_a_while()
    machine.assert_nothing_lost()
    assert laboratory.our_lines(guest) == []

    machine.install(SOURCE)  # back to a version that can't add to today's partition
    machine.sample_for_a_while()
    machine.assert_nothing_lost()
    assert len(machine.kept()) >= 5
    (line,) = laboratory.our_lines(guest)
    assert "version 2" in line
    assert "ticks wait beside it" in line
    refused = guest.run("gua-report", check=False)
    assert refused.returncode == 1
    assert "upgrade gua" in refused.stderr

    machine.install(version)
    machine.sample_for_a_while()
    machine.assert_nothing_lost()
    assert machine.kept() == []
    machine.stop()
    assert_report_counts_all(guest)
