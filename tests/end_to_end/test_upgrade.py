"""An upgrade, from an earlier version, of a machine that goes on sampling."""

import subprocess
from pathlib import Path

import pytest

from tests.end_to_end import laboratory
from tests.end_to_end.guest import Guest
from tests.end_to_end.laboratory import NO_INDEX, SAMPLES, SOURCE, UNIT, WHEELS
from tests.repository import ROOT

EARLIER = "68bfe74"
RUNS = "/root/runs"  # a line for each run that systemd calls a success


def earlier_source(guest: Guest) -> str:
    """A clone of an earlier version, from the project's history."""
    folder = f"{SOURCE}-{EARLIER}"
    archive = subprocess.run(["git", "-C", str(ROOT), "archive", EARLIER], capture_output=True, check=False)
    assert archive.returncode == 0, f"no {EARLIER} in this clone ({archive.stderr!r}): git fetch --unshallow"
    guest.run("mkdir", folder)
    subprocess.run(["tar", "-x", "-C", str(guest.path(folder))], input=archive.stdout, check=True)
    return folder


def count_runs(guest: Guest) -> int:
    return len(guest.run("sh", "-c", f"cat {RUNS} 2>/dev/null || :").stdout.splitlines())


def wait_for_runs(guest: Guest, count: int) -> None:
    guest.wait_until(lambda: count_runs(guest) >= count, 120, f"{count} runs")


def is_at_work(guest: Guest) -> bool:
    state = guest.run("systemctl", "is-active", UNIT, check=False).stdout.strip()
    return state in ("activating", "deactivating", "active")


@pytest.mark.timeout(900)
def test_an_upgrade_from_an_earlier_version_loses_no_tick(guest: Guest) -> None:
    # In a layer below, the old environment could not be renamed; on a disk it can.
    laboratory.make(guest, "uninstall", "PURGE=1")
    guest.run("sh", "-c", f"rm -rf {laboratory.HOLD}")
    laboratory.drop_in(guest, "gua-sample.timer", "Timer", "OnCalendar=", "OnCalendar=*:*:*", name="fast.conf")
    laboratory.drop_in(guest, UNIT, "Service", f"ExecStartPost=+/bin/sh -c 'echo run >>{RUNS}'", name="count.conf")
    for source in (earlier_source(guest), SOURCE):
        install = ("make", "install", f"PYTHON={laboratory.PYTHON}", f"WHEELS={WHEELS}")
        guest.run(*install, cwd=source, environment=NO_INDEX, timeout=300)
        wait_for_runs(guest, count_runs(guest) + 5)
    guest.run("systemctl", "stop", "gua-sample.timer")
    guest.wait_until(lambda: not is_at_work(guest), 30, "the last run to end")
    errors = laboratory.errors(guest)
    assert (len(errors), set(errors)) == (count_runs(guest), {None})
    assert {Path(name).suffix for name in guest.run("ls", SAMPLES).stdout.split()} == {".sqlite"}
    # Each stored tick stands for its time, and each card has all of that time in one state or another.
    document = laboratory.report(guest, "--since", "1d")
    observed = document["coverage"]["observed_seconds"]
    assert observed >= (len(errors) - 1) * 0.9
    hours = sum(share["gpu_hours"] for card in document["gpus"] for share in card["states"].values())
    assert hours == pytest.approx(len(laboratory.busy_scenario().cards) * observed / 3600, abs=0.002)
