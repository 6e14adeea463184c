"""What the unit keeps the sampler from, and what it must not keep from it."""

import re
import subprocess

import pytest

from tests.driver import Scenario
from tests.end_to_end import laboratory
from tests.end_to_end.guest import Guest
from tests.repository import ROOT

EPERM = "Operation not permitted"


def test_the_unit_can_do_nothing_but_its_work(guest: Guest) -> None:
    found = laboratory.probe(guest, "gua-sample.service")
    assert found.pop("home") != "done"
    assert found.pop("inet") != "done"
    assert found.pop("netlink") != "done"
    assert found == {
        "writes": ["/var/lib/gua", "/run/gua"],
        "unix": "done",  # sssd and nscd answer there
        **dict.fromkeys(("device", "become root", "mount", "namespace", "clock"), EPERM),
        "of pid 1": True,
        "capabilities": [0, 0, 0, 0],
        "no new privileges": "1",
    }
    outside = guest.run("head", "-c1", "/opt/probe-node", user="gua", check=False)
    assert "No such device or address" in outside.stderr  # by its mode, the node is open to the unit's user


@pytest.mark.parametrize(
    ("setting", "what_is_lost"),
    [
        ("PrivateUsers=yes", "uid"),
        ("ProtectProc=invisible", "uid"),
        ("ProcSubset=pid", "boot_id"),
    ],
)
def test_settings_that_must_stay_off_take_away_what_the_history_is_for(
    guest: Guest, setting: str, what_is_lost: str
) -> None:
    """If one of them does no harm any more, it can be switched on."""
    guest.run("systemd-run", "--uid=somebody", "--unit=work", "sleep", "infinity")
    pid = int(guest.run("systemctl", "show", "--property=MainPID", "--value", "work").stdout)
    scenario = Scenario()
    scenario.add_card(compute=[(pid, 8192)])
    laboratory.set_scenario(guest, scenario)
    assert laboratory.sample(guest) == 0
    laboratory.drop_in(guest, "gua-sample.service", "Service", setting)
    assert laboratory.sample(guest) == 0
    view = "ticks" if what_is_lost == "boot_id" else "process_ticks"
    good, bad = [row[what_is_lost] for row in laboratory.rows(guest, view)][-2:]
    assert good != bad
    assert bad in (None, 65534, "unknown")


def test_private_devices_would_take_the_cards_away() -> None:
    """There is no card here to lose; that the setting is off, and only NVIDIA's devices are allowed, can be seen."""
    unit = (ROOT / "systemd" / "gua-sample.service").read_text()
    assert not re.search("^PrivateDevices=", unit, re.M)
    assert re.findall("^DeviceAllow=(.*)", unit, re.M) == ["char-nvidia* rw"]
    assert re.findall("^DevicePolicy=(.*)", unit, re.M) == ["closed"]


def test_the_units_verify_without_a_word(guest: Guest) -> None:
    units = ["gua-sample.service", "gua-sample.timer", "gua-rollup.service", "gua-rollup.timer"]
    done = guest.run("systemd-analyze", "verify", *units)
    assert (done.stdout, done.stderr) == ("", "")


@pytest.mark.parametrize(
    ("unit", "most"),
    # The last is root's, and becomes user gua.
    [("gua-sample.service", 1.2), ("gua-rollup.service", 1.2), ("gua-containers.service", 1.4)],
)
def test_the_exposure_of_the_units_is_low(unit: str, most: float) -> None:
    command = ["systemd-analyze", "security", "--offline=true", str(ROOT / "systemd" / unit)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    match = re.search(r"Overall exposure level for .*: ([0-9.]+)", done.stdout)
    assert match
    assert float(match[1]) <= most
