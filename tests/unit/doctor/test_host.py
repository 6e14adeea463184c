"""What gua doctor makes of the host: its system, its Python, and who sees whose processes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gua_report.doctor import host as doctor_host
from gua_report.doctor.findings import ERROR, OK, WARNING
from gua_report.doctor.user import User
from tests.facts import GUA, put, units


def test_the_distribution_is_told_and_whether_systemd_runs(tmp_path: Path) -> None:
    put(tmp_path / "etc/os-release", 'NAME="X"\nPRETTY_NAME="Ubuntu 24.04\x1b[31m LTS"\n')
    found = doctor_host.check_os(str(tmp_path))
    assert (found.status, found.text.startswith(r"Ubuntu 24.04\x1b[31m LTS, Linux ")) == (WARNING, True)
    (tmp_path / "run/systemd/system").mkdir(parents=True)
    assert doctor_host.check_os(str(tmp_path)).status == OK
    (tmp_path / "etc/os-release").unlink()
    assert "unknown distribution" in doctor_host.check_os(str(tmp_path)).text


def test_an_old_sqlite_and_a_missing_binding_are_errors() -> None:
    assert doctor_host.check_python(None, False).status == OK
    assert doctor_host.check_python(None, False, (3, 36, 9)).status == ERROR
    assert doctor_host.check_python(None, False, (3, 37, 0)).status == OK
    missing = doctor_host.check_python("No module named pynvml", False)
    assert missing.status == ERROR
    assert missing.remedy
    assert missing.remedy.endswith("-m pip install nvidia-ml-py")
    # The sampler may have a Python of its own.
    assert doctor_host.check_python("No module named pynvml", True).status == WARNING


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


def test_what_the_unit_grants_and_forbids_counts(tmp_path: Path) -> None:
    hiding = proc(tmp_path, "rw,gid=4242,hidepid=2")
    assert doctor_host.check_processes(GUA, units(SupplementaryGroups="x 4242"), hiding).status == OK
    found = doctor_host.check_processes(GUA, units(ProtectProc="invisible"), proc(tmp_path / "open", "rw"))
    assert found.status == WARNING
    assert "ProtectProc=default" in str(found.remedy)
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


def test_only_the_mount_that_is_seen_counts(tmp_path: Path) -> None:
    hidden = "22 27 0:21 / /proc rw,relatime - proc proc rw,hidepid=2"
    elsewhere = "23 27 0:22 / /srv/proc rw,hidepid=2 - proc proc rw,hidepid=2"
    found = doctor_host.check_processes(GUA, None, proc(tmp_path, "rw", hidden, elsewhere))
    assert found.status == OK
