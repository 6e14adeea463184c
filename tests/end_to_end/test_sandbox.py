"""What the unit keeps the sampler from, and what it must not keep from it."""

import re
import subprocess

import pytest

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


def test_settings_that_would_take_away_the_cards_or_what_the_history_is_for_are_off() -> None:
    """Device nodes; uids; other users' processes; the boot id. Only NVIDIA's devices are allowed."""
    unit = (ROOT / "systemd" / "gua-sample.service").read_text()
    assert not re.findall("^(PrivateDevices|PrivateUsers|ProtectProc|ProcSubset)=", unit, re.M)
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
