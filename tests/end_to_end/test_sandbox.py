"""What the unit keeps the sampler from, and what it must not keep from it."""

import json
import re
import subprocess
from pathlib import Path

import pytest

from tests.driver import Scenario
from tests.end_to_end import laboratory
from tests.end_to_end.guest import Guest
from tests.repository import ROOT

# Everybody may open it, and no machine has a driver for it: major 60 is for experiments (the kernel's devices.txt). So
# whoever is told more than that there is none was stopped by the unit's device policy, which is asked first.
NODE = "/opt/probe-node"
NODE_NUMBERS = ("60", "0")

# Runs in the place of the sampler, and says what it could do.
PROBE = (
    laboratory.PROBE
    + """
import ctypes

def connect(family):
    return lambda: socket.socket(family, socket.SOCK_STREAM).close()

libc = ctypes.CDLL(None, use_errno=True)

def call(name, *arguments):
    def action():
        if getattr(libc, name)(*arguments) == -1:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return action

found = {f"write {folder}": attempt(write(folder)) for folder in
         ("/", "/etc", "/etc/gua", "/opt/gua", "/usr/local/bin", "/var", "/var/lib", "/home", "/root", "/dev",
          "/var/tmp", "/dev/shm", "/run", "/sys/fs/cgroup", "/var/lib/gua", "/run/gua")}
found["home"] = attempt(lambda: os.listdir("/home/somebody"))
found["AF_INET"] = attempt(connect(socket.AF_INET))
found["AF_NETLINK"] = attempt(lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW).close())
found["AF_UNIX"] = attempt(connect(socket.AF_UNIX))
found["/dev/null"] = attempt(lambda: open("/dev/null", "w").close())
found["other device"] = attempt(lambda: open("/opt/probe-node", "rb").close())
found["become root"] = attempt(lambda: os.setuid(0))
found["mount"] = attempt(call("mount", b"none", b"/mnt", b"tmpfs", 0, None))
found["namespace"] = attempt(call("unshare", 0x10000000))
found["clock"] = attempt(lambda: __import__("time").clock_settime(0, 0))
found["capabilities"] = capabilities
found["no new privileges"] = status["NoNewPrivs"].strip()
found["of pid 1"] = open("/proc/1/comm").read().strip(), os.stat("/proc/1").st_uid
found["boot id"] = open("/proc/sys/kernel/random/boot_id").read().strip()
json.dump(found, open(os.environ["STATE_DIRECTORY"] + "/probe.json", "w"))
"""
)


def test_the_unit_can_do_nothing_but_its_work(guest: Guest) -> None:
    guest.write("/opt/probe.py", PROBE)
    guest.run("mknod", "--mode=666", NODE, "c", *NODE_NUMBERS)
    laboratory.drop_in(
        guest, "gua-sample.service", "Service", "ExecStart=", "ExecStart=/opt/gua/bin/python /opt/probe.py"
    )
    assert laboratory.sample(guest) == 0, guest.journal("gua-sample.service")
    found = json.loads(guest.read("/var/lib/gua/probe.json"))
    writes = {name.removeprefix("write "): outcome for name, outcome in found.items() if name.startswith("write ")}
    assert [folder for folder, outcome in writes.items() if outcome == "done"] == [
        "/var/tmp",  # its own, which goes away with the run
        "/var/lib/gua",
        "/run/gua",
    ]
    assert not Path(f"/proc/{guest.pid}/root/var/tmp/probe").exists()
    assert found["home"] != "done"
    assert found["AF_INET"] != "done"
    assert found["AF_NETLINK"] != "done"
    assert found["AF_UNIX"] == "done"  # sssd and nscd answer there
    assert found["/dev/null"] == "done"
    assert found["other device"] == "Operation not permitted"
    outside = guest.run("head", "-c1", NODE, user="gua", check=False)
    assert "No such device or address" in outside.stderr  # by its mode, the node is open to the unit's user
    for forbidden in ("become root", "mount", "namespace", "clock"):
        assert found[forbidden] == "Operation not permitted"
    assert found["capabilities"] == [0, 0, 0, 0]
    assert found["no new privileges"] == "1"
    assert found["of pid 1"] == ["systemd", 0]
    # The kernel's: the unit has a fresh /proc, without what a guest mounts over the boot id.
    assert found["boot id"] == Path("/proc/sys/kernel/random/boot_id").read_text().strip()


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
