"""What gua doctor makes of the host: its system, its Python, who sees whose processes, and its timer."""

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from gua_report.commands.doctor import INDENT, wrap_command
from gua_report.doctor import host as doctor_host
from gua_report.doctor.findings import ERROR, OK, WARNING, Finding, ok
from gua_report.doctor.host import add_to_crontab
from gua_report.doctor.user import User
from gua_report.machine.units import Found, Units
from tests.facts import GUA, put, statuses, units
from tests.lab import NOON_MS, SECOND_MS
from tests.machine import Machine


def test_the_distribution_is_told_and_whether_systemd_runs(tmp_path: Path) -> None:
    put(tmp_path / "etc/os-release", 'NAME="X"\nPRETTY_NAME="Ubuntu 24.04\x1b[31m LTS"\n')
    found = doctor_host.check_os(str(tmp_path))
    assert (found.status, found.text.startswith(r"Ubuntu 24.04\x1b[31m LTS, Linux ")) == (WARNING, True)
    (tmp_path / "run/systemd/system").mkdir(parents=True)
    assert doctor_host.check_os(str(tmp_path)).status == OK
    (tmp_path / "etc/os-release").unlink()
    assert "unknown distribution" in doctor_host.check_os(str(tmp_path)).text


def test_an_old_sqlite_is_an_error_and_a_missing_binding_has_a_remedy() -> None:
    assert doctor_host.check_python(None, False, (3, 36, 9)).status == ERROR
    assert doctor_host.check_python(None, False, (3, 37, 0)).status == OK
    missing = str(doctor_host.check_python("No module named pynvml", False).remedy)
    assert missing.endswith(" -m pip install nvidia-ml-py")


def proc(folder: Path, options: str, before: str = "", after: str = "") -> str:
    line = f"67 47 0:40 / /proc rw,relatime shared:5 - proc proc {options}"
    put(folder / "self/mountinfo", "\n".join([before, line, after]))
    return str(folder)


@pytest.mark.parametrize(
    ("options", "status", "remedy"),
    [
        ("rw", OK, None),
        ("rw,hidepid=0", OK, None),
        ("rw,hidepid=off", OK, None),
        ("rw,gid=990,hidepid=2", OK, None),  # gua's own group
        ("rw,gid=44,hidepid=invisible", OK, None),  # one of its groups
        (
            "rw,gid=4242,hidepid=2",
            WARNING,
            "sudo systemctl edit gua-sample   # under [Service]: SupplementaryGroups=4242",
        ),
        ("rw,gid=4242,hidepid=noaccess", WARNING, "SupplementaryGroups=4242"),
        ("rw,hidepid=1", WARNING, "remount,gid=990 /proc"),
        ("rw,gid=990,hidepid=ptraceable", WARNING, "remount,hidepid=0"),  # where no group helps
        ("rw,gid=990,hidepid=4", WARNING, "remount,hidepid=0"),
    ],
)
def test_a_proc_that_hides_processes_from_the_sampler_is_a_warning(
    tmp_path: Path, options: str, status: str, remedy: str | None
) -> None:
    found = doctor_host.check_processes(GUA, units(), proc(tmp_path, options))
    assert found.status == status
    assert (found.remedy is None) if remedy is None else (remedy in str(found.remedy))


def test_what_the_unit_grants_and_forbids_counts_and_the_mount_that_is_seen(tmp_path: Path) -> None:
    hiding = proc(tmp_path, "rw,gid=4242,hidepid=2")
    assert doctor_host.check_processes(GUA, units(SupplementaryGroups="x 4242"), hiding).status == OK
    hidden = "22 27 0:21 / /proc rw,relatime - proc proc rw,hidepid=2"
    elsewhere = "23 27 0:22 / /srv/proc rw,hidepid=2 - proc proc rw,hidepid=2"
    shown = proc(tmp_path / "open", "rw", hidden, elsewhere)
    assert doctor_host.check_processes(GUA, None, shown).status == OK
    found = doctor_host.check_processes(GUA, units(ProtectProc="invisible"), shown)
    assert (found.status, "ProtectProc=default" in str(found.remedy)) == (WARNING, True)
    # Root sees everything, and without a unit it is the user who must be in the group.
    assert doctor_host.check_processes(User(0, 0, (0,), "root"), units(), hiding).status == OK
    assert doctor_host.check_processes(GUA, None, hiding).remedy == "sudo usermod -aG 4242 gua"


@pytest.mark.parametrize(
    ("service", "of_user", "linux", "status"),
    [
        ({"ProtectKernelTunables": "yes", "ProtectControlGroups": "no"}, False, "6.8.0-45-generic", OK),
        ({"ProtectKernelTunables": "no", "ProtectControlGroups": "strict"}, False, "5.8", OK),
        ({"ProtectKernelTunables": "no", "ProtectControlGroups": "no"}, False, "6.8.0", WARNING),
        ({"ProtectKernelTunables": "yes"}, True, "6.8.0", WARNING),
        ({"ProtectKernelTunables": "yes"}, False, "5.4.0-200-generic", WARNING),  # shared by all of a PID namespace
    ],
)
def test_a_unit_with_a_proc_of_its_own_is_not_hindered_by_the_hosts(
    tmp_path: Path, service: dict[str, Any], of_user: bool, linux: str, status: str
) -> None:
    hiding = proc(tmp_path, "rw,hidepid=invisible")
    found = doctor_host.check_processes(GUA, units(of_user=of_user, **service), hiding, linux)
    assert found.status == status
    assert ("the unit has its own /proc" in found.text) == (status == OK)


def check_timer(found: Units | None, is_fresh: bool = False, linger: str = "/nowhere", **more: Any) -> list[Finding]:
    return list(doctor_host.check_timer(Found(found, **more), "/data", is_fresh, NOON_MS, GUA, linger))


def test_a_timer_that_runs_tells_its_last_and_next_run_and_what_is_odd() -> None:
    (found,) = check_timer(units())
    assert found == ok("timer", "gua-sample.timer is active, last run 12s ago, next in 18s")
    (found,) = check_timer(units({"LastTriggerUSec": "n/a", "NextElapseUSecRealtime": ""}))
    assert found.text == "gua-sample.timer is active, has not run yet"
    (found,) = check_timer(units(StateDirectory="gua"))
    assert found.text.endswith("; it writes to /var/lib/gua, not to /data")
    for state in ("disabled", "enabled-runtime", ""):  # it will not survive a boot
        (found,) = check_timer(units({"UnitFileState": state}))
        assert (found.status, found.remedy) == (WARNING, "sudo systemctl enable --now gua-sample.timer")


@pytest.mark.parametrize(
    ("properties", "remedy"),
    [
        ({"LoadState": "not-found"}, "sudo make install"),
        (
            {"LoadState": "masked"},
            "sudo systemctl unmask gua-sample.timer && sudo systemctl enable --now gua-sample.timer",
        ),
        ({"LoadState": "bad-setting"}, "systemd-analyze verify gua-sample.timer"),
        ({"ActiveState": "inactive"}, "sudo systemctl enable --now gua-sample.timer"),
        ({"ActiveState": "failed"}, "sudo systemctl enable --now gua-sample.timer"),
    ],
)
def test_a_timer_that_is_off_is_an_error_unless_something_else_samples(properties: dict[str, str], remedy: str) -> None:
    (found,) = check_timer(units(properties))
    assert (found.status, found.remedy) == (ERROR, remedy)
    (found,) = check_timer(units(properties), is_fresh=True)
    assert (found.status, found.remedy) == (WARNING, remedy)
    assert "something else runs gua-sample" in found.text


def test_a_user_who_does_not_linger_is_told(tmp_path: Path) -> None:
    found = check_timer(units(of_user=True), linger=str(tmp_path))
    assert statuses(found) == [OK, WARNING]
    assert found[1].remedy == "loginctl enable-linger"
    (tmp_path / "gua").touch()
    assert statuses(check_timer(units(of_user=True), linger=str(tmp_path))) == [OK]
    assert check_timer(units({"ActiveState": "inactive"}, of_user=True))[0].remedy == (
        "systemctl --user enable --now gua-sample.timer"
    )


def test_without_systemd_it_is_cron_that_is_named() -> None:
    (found,) = check_timer(None, problem="there is no systemctl here")
    assert (found.status, found.text) == (ERROR, "there is no systemctl here")
    assert found.remedy == add_to_crontab("/data")
    (found,) = check_timer(None, is_fresh=True, problem="there is no systemctl here")
    assert (found.status, found.remedy) == (WARNING, None)


def test_the_line_for_cron_works_as_printed(machine: Machine) -> None:
    machine.scenario.add_card()
    machine.data_dir = machine.folder / "50 % o'data"
    table, programs = machine.folder / "crontab.txt", machine.folder / "bin"
    table.write_text("0 5 * * * backup\n")
    programs.mkdir()
    (programs / "crontab").write_text(f"#!/bin/sh\ncase $1 in -l) cat {table} ;; -) cat >{table}.new ;; esac\n")
    (programs / "crontab").chmod(0o755)
    command = "\n".join(line[len(INDENT) + 3 :] for line in wrap_command(add_to_crontab(str(machine.data_dir))))
    subprocess.run(["sh", "-c", command], env={"PATH": f"{programs}:/usr/bin:/bin"}, check=True)
    before, added = Path(f"{table}.new").read_text().splitlines()
    assert before == "0 5 * * * backup"
    assert re.match(r"[*] [*] [*] [*] [*] '?/", added)
    # As cron does: no PATH of ours, a bare % would end the line.
    line = added.removeprefix("* * * * * ")
    assert not re.search(r"(?<!\\)%", line)
    variables = machine.environment() | {"PATH": "/usr/bin:/bin"}
    ran = subprocess.run(["sh", "-c", line.replace(r"\%", "%")], env=variables, capture_output=True, check=True)
    assert (ran.stdout, ran.stderr) == (b"", b"")
    machine.samples = machine.data_dir / "samples"
    assert len(machine.ticks()) == 1


@pytest.mark.parametrize(
    ("service", "newest_s", "status", "said"),
    [
        ({"Result": "success", "ExecMainStatus": "0"}, None, OK, "ended well"),
        ({"Result": "exit-code", "ExecMainStatus": "1"}, None, WARNING, "exit-code (exit status 1)"),
        ({"Result": "success", "ExecMainStatus": "75"}, None, WARNING, "already logged this hour"),
        ({"Result": "exit-code", "ExecMainStatus": "238"}, -42, ERROR, "and recorded nothing"),
        ({"Result": "exit-code", "ExecMainStatus": "238"}, -11, WARNING, "(exit status 238)"),
        ({"ActiveState": "activating"}, None, OK, "a run is going on"),
        ({"ActiveState": "activating", "began": "11:57:00"}, None, ERROR, "it hangs, most likely in the driver"),
    ],
)
def test_the_last_run_is_judged_by_its_end_and_by_what_it_left(
    service: dict[str, Any], newest_s: int | None, status: str, said: str
) -> None:
    began = service.pop("began", "11:59:48")
    found = Found(units(ExecMainStartTimestamp=f"Mon 2026-11-16 {began} UTC", **service))
    newest_ms = None if newest_s is None else NOON_MS + newest_s * SECOND_MS
    (finding,) = doctor_host.check_service(found, NOON_MS, newest_ms)
    assert (finding.status, said in finding.text) == (status, True)
    assert status == OK or finding.remedy == "journalctl -u gua-sample -n 20" or "hangs" in said


def test_before_the_first_run_nothing_is_said_of_the_last() -> None:
    first = units(Result="success", ExecMainStatus="0", ExecMainStartTimestamp="")
    assert list(doctor_host.check_service(Found(first), NOON_MS)) == []
