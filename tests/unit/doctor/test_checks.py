"""What gua doctor makes of a machine: each check on facts that are given to it."""

from __future__ import annotations

import os
import signal
import sqlite3
import stat
import subprocess
import sys
import time
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from gua_report.commands import doctor
from gua_report.config import load_config
from gua_report.console import terminal
from gua_report.doctor import data as doctor_data
from gua_report.doctor import driver as doctor_driver
from gua_report.doctor import freshness as doctor_history
from gua_report.doctor import host as doctor_host
from gua_report.doctor import partitions as doctor_partitions
from gua_report.doctor import rollups as doctor_rollups
from gua_report.doctor import timer as doctor_timer
from gua_report.doctor import user as doctor_user
from gua_report.doctor.findings import ERROR, OK, WARNING, Finding, as_root, duration, error, ok, shell, size, warning
from gua_report.doctor.user import User
from gua_report.machine import units as doctor_units
from gua_report.machine.child import CRASHED, NO_ANSWER, Answer, ask
from gua_report.machine.units import Found, Units, find_units
from gua_report.rollups import schema
from gua_report.ticks.newest import find_newest, list_history
from gua_report.upkeep.nightly import Upkeep
from gua_sample import pending, store
from gua_sample.partition_names import DAY_MS
from gua_sample.records import Boot, Tick
from tests.lab import NOON_MS, SECOND_MS
from tests.users import SOMEBODY, needs_root

GUA = User(990, 990, (990, 44), "gua")


# Questions in a process of their own


def test_a_question_is_answered_by_a_child() -> None:
    assert ask(lambda: [os.getpid(), "ü"], 10).value[1] == "ü"
    assert ask(os.getpid, 10).value != os.getpid()


def test_a_child_that_hangs_is_killed_and_not_waited_for(tmp_path: Path) -> None:
    def hang() -> None:
        (tmp_path / "pid").write_text(str(os.getpid()))
        time.sleep(60)

    began = time.monotonic()
    assert ask(hang, 1) == Answer(None, NO_ANSWER)
    assert time.monotonic() - began < 5
    pid = int((tmp_path / "pid").read_text())
    with suppress(ChildProcessError):  # it may have ended at once
        assert os.waitpid(pid, 0)[1] == signal.SIGKILL
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


@pytest.mark.parametrize("crash", [lambda: 1 / 0, lambda: os.kill(os.getpid(), signal.SIGKILL), lambda: object()])
def test_a_child_that_crashes_says_so(crash: Any) -> None:
    assert ask(crash, 10) == Answer(None, CRASHED)


def test_a_long_answer_is_read_whole() -> None:
    assert ask(lambda: "x" * 1_000_000, 10).value == "x" * 1_000_000


def test_a_child_has_neither_our_output_nor_our_input() -> None:
    """Or whoever reads our output to its end would wait for a child that hangs."""
    links = ask(lambda: [os.readlink(f"/proc/self/fd/{stream}") for stream in range(3)], 10).value
    assert links == [os.devnull] * 3


def test_a_child_answers_even_if_our_own_streams_are_closed(tmp_path: Path) -> None:
    answer = tmp_path / "answer"
    code = "from gua_report.machine.child import ask; value = ask(lambda: 42, 10).value;"
    code += f"open({str(answer)!r}, 'w').write(str(value))"
    subprocess.run(["sh", "-c", 'exec "$@" <&- >&-', "sh", sys.executable, "-c", code], check=True)
    assert answer.read_text() == "42"


def test_streams_that_are_closed_are_no_terminals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout", None)
    monkeypatch.setattr("sys.stderr", None)
    assert not terminal.use_color()
    assert terminal.progress_bar() is None


# Users and what they may do


@needs_root
def test_root_tries_out_what_another_user_may_do(open_folder: Path) -> None:
    somebody = doctor_user.by_uid(SOMEBODY)
    assert somebody == User(SOMEBODY, SOMEBODY, (SOMEBODY,), None)
    assert doctor_user.may(somebody, str(open_folder), os.R_OK)
    assert not doctor_user.may(somebody, str(open_folder), os.W_OK)
    os.chown(open_folder, SOMEBODY, -1)
    assert doctor_user.may(somebody, str(open_folder), os.W_OK)
    assert os.geteuid() == 0


@pytest.mark.parametrize(
    ("owner", "group", "mode", "expected"),
    [
        (990, 0, 0o600, True),
        (990, 0, 0o466, False),  # its owner's bits count, and no others
        (0, 44, 0o060, True),
        (0, 44, 0o606, False),
        (0, 0, 0o006, True),
        (0, 0, 0o664, False),
    ],
)
def test_access_is_judged_as_the_kernel_does(owner: int, group: int, mode: int, expected: bool) -> None:
    found = os.stat_result((stat.S_IFCHR | mode, 0, 0, 1, owner, group, 0, 0, 0, 0))
    assert doctor_user.allows(found, GUA, os.R_OK | os.W_OK) == expected


def test_users_are_found_by_name_and_by_number() -> None:
    assert doctor_user.by_name("root").uid == 0
    assert doctor_user.by_name("0").name == "root"
    with pytest.raises(doctor_user.NoSuchUser):
        doctor_user.by_name("nobody-of-this-name")


# The host


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_the_distribution_is_told_and_whether_systemd_runs(tmp_path: Path) -> None:
    write(tmp_path / "etc/os-release", 'NAME="X"\nPRETTY_NAME="Ubuntu 24.04\x1b[31m LTS"\n')
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
    write(folder / "self/mountinfo", "\n".join([before, line, after]))
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


# The driver


def look(**changes: Any) -> doctor_driver.Look:
    return doctor_driver.Look([card()], "580.1", 0.1, None, "", GUA)._replace(**changes)


def card(**changes: Any) -> dict[str, Any]:
    facts = {"uuid": "GPU-1", "gpu_index": 0, "mig_index": None, "persistence_mode": 1, "status": "ok", "missing": None}
    return facts | changes


def check_nvml(seen: doctor_driver.Look, is_sampled: bool = False) -> list[Finding]:
    return doctor_driver.check_nvml(seen, GUA, is_sampled)


def statuses(findings: list[Finding]) -> list[str]:
    return [finding.status for finding in findings]


def test_cards_that_fail_are_named_and_cost_the_others_nothing() -> None:
    lost = card(uuid="GPU-2", gpu_index=1, status="gpu_is_lost")
    first, second = check_nvml(look(cards=[card(), lost]))
    assert (first.status, second.status) == (OK, WARNING)
    assert "card 1 (GPU-2) fails: gpu_is_lost" in second.text
    assert check_nvml(look(cards=[lost]))[0].status == ERROR


def test_what_cards_do_not_tell_is_named() -> None:
    silent = card(missing="energy:not_supported power:not_supported")
    told = check_nvml(look(cards=[silent, card(gpu_index=1, missing="energy:not_supported")]))
    assert statuses(told) == [OK, OK]
    assert told[1].text == "not told: energy (not_supported); power (not_supported) of card 0"
    forbidden = check_nvml(look(cards=[card(missing="sm_percent:no_permission")]))
    assert statuses(forbidden) == [OK, WARNING]


def test_persistence_mode_that_is_off_is_a_warning_with_the_cards() -> None:
    off = [card(gpu_index=index, persistence_mode=0 if index > 8 else 1) for index in range(11)]
    found = check_nvml(look(cards=off))[1]
    assert (found.status, found.remedy) == (WARNING, "sudo systemctl enable --now nvidia-persistenced")
    assert "(card 9, 10)" in found.text
    # A card that does not tell is not one whose mode is off.
    assert len(check_nvml(look(cards=[card(persistence_mode=None)]))) == 1


def test_a_slow_driver_is_a_warning() -> None:
    assert statuses(check_nvml(look(seconds=4.9))) == [OK]
    assert statuses(check_nvml(look(seconds=5.1))) == [WARNING]


def test_errors_of_the_driver_come_with_something_to_type() -> None:
    (found,) = check_nvml(look(cards=[], error="driver_not_loaded", text="NVML failed"))
    assert (found.status, found.remedy) == (ERROR, "sudo modprobe nvidia; nvidia-smi")
    (found,) = check_nvml(look(cards=[], error="irq_issue", text="NVML failed"))
    assert found.remedy == doctor_driver.OTHER_COMMAND


def test_what_fails_only_here_is_no_error() -> None:
    """The sampler may be another user, and its unit may tell it where the library is."""
    somebody = User(1000, 1000, (1000,), "alice")
    for error_name, asked_as, expected in (
        ("no_permission", somebody, WARNING),
        ("no_permission", GUA, ERROR),
        ("library_not_found", GUA, WARNING),
    ):
        seen = look(cards=[], error=error_name, text="NVML failed", asked_as=asked_as)
        assert statuses(check_nvml(seen, is_sampled=True)) == [expected]
        assert statuses(check_nvml(seen, is_sampled=False)) == [ERROR]


def nodes(folder: Path, *names: str, mode: int = 0o666) -> list[str]:
    for name in names:
        (folder / name).touch()
        (folder / name).chmod(mode)
    return doctor_driver.find_nodes(str(folder))


def driver_proc(folder: Path, *minors: int) -> str:
    for minor in minors:
        write(folder / f"driver/nvidia/gpus/0000:0{minor}:00.0/information", f"Model: \t X\nDevice Minor: \t {minor}\n")
    return str(folder)


def test_nodes_of_cards_are_told_from_others(tmp_path: Path) -> None:
    found = nodes(tmp_path, "nvidia10", "nvidia2", "nvidiactl", "nvidia-uvm", "nvidia-caps", "null")
    assert [os.path.basename(path) for path in found] == ["nvidia2", "nvidia10", "nvidiactl"]
    assert doctor_driver.find_nodes(str(tmp_path / "nowhere")) == []


def test_missing_nodes_are_named_with_who_makes_them(tmp_path: Path) -> None:
    present = nodes(tmp_path, "nvidia0", "nvidiactl")
    expected = doctor_driver.expected_nodes(str(tmp_path), driver_proc(tmp_path, 0, 1))
    assert [os.path.basename(path) for path in expected] == ["nvidia0", "nvidia1", "nvidiactl"]
    found = doctor_driver.check_nodes(present, expected, look(error="unknown"), GUA)
    assert (found.status, found.remedy) == (ERROR, "sudo systemctl enable --now nvidia-persistenced")
    assert f"{tmp_path}/nvidia1 missing" in found.text
    assert doctor_driver.check_nodes(present, expected, look(), GUA).status == WARNING


def test_no_nodes_at_all_matter_only_if_nvml_does_not_work() -> None:
    assert doctor_driver.check_nodes([], [], look(), GUA).status == OK
    found = doctor_driver.check_nodes([], [], look(error="driver_not_loaded"), GUA)
    assert (found.status, found.remedy) == (ERROR, "sudo nvidia-modprobe -u -c 0")
    assert doctor_driver.check_nodes([], [], look(error="library_not_found"), GUA).status == WARNING


@needs_root
def test_nodes_that_are_closed_to_the_sampler_are_an_error(open_folder: Path) -> None:
    somebody = doctor_user.by_uid(SOMEBODY)
    present = nodes(open_folder, "nvidia0", mode=0o666) + nodes(open_folder, "nvidiactl", mode=0o660)[1:]
    found = doctor_driver.check_nodes(present, [], look(error="no_permission"), somebody)
    assert (found.status, found.remedy) == (ERROR, f"sudo chmod a+rw {open_folder}/nvidiactl")
    os.chown(open_folder / "nvidiactl", 0, 4242)
    found = doctor_driver.check_nodes(present, [], look(error="no_permission"), somebody)
    assert found.remedy == f"sudo usermod -aG 4242 {SOMEBODY}"
    # That NVML answered somebody else says nothing; that it answered this user does.
    assert doctor_driver.check_nodes(present, [], look(), somebody).status == ERROR
    assert doctor_driver.check_nodes(present, [], look(asked_as=somebody), somebody).status == WARNING
    (open_folder / "nvidiactl").chmod(0o666)
    assert doctor_driver.check_nodes(present, [], look(), somebody).status == OK


# Timer and service

ACTIVE_TIMER = {
    "LoadState": "loaded",
    "ActiveState": "active",
    "UnitFileState": "enabled",
    "LastTriggerUSec": "Mon 2026-11-16 11:59:48 UTC",
    "NextElapseUSecRealtime": "Mon 2026-11-16 12:00:18 UTC",
}


def units(timer: dict[str, str] | None = None, of_user: bool = False, **service: Any) -> Units:
    return Units(ACTIVE_TIMER | (timer or {}), {"LoadState": "loaded", "User": "gua"} | service, of_user)


def check_timer(found: Units | None, is_fresh: bool = False, linger: str = "/nowhere", **more: Any) -> list[Finding]:
    return doctor_timer.check_timer(Found(found, **more), "/data", is_fresh, NOON_MS, GUA, linger)


def test_a_timer_that_runs_tells_its_last_and_next_run() -> None:
    (found,) = check_timer(units())
    assert found == ok("timer", "gua-sample.timer is active, last run 12 s ago, next in 18 s")
    (found,) = check_timer(units({"LastTriggerUSec": "n/a", "NextElapseUSecRealtime": ""}))
    assert found.text == "gua-sample.timer is active, has not run yet"


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
def test_a_timer_that_does_not_run_is_an_error_unless_something_else_samples(
    properties: dict[str, str], remedy: str
) -> None:
    (found,) = check_timer(units(properties))
    assert (found.status, found.remedy) == (ERROR, remedy)
    (found,) = check_timer(units(properties), is_fresh=True)
    assert (found.status, found.remedy) == (WARNING, remedy)
    assert "something else runs gua-sample" in found.text


def test_a_timer_that_will_not_survive_a_boot_is_a_warning() -> None:
    for state in ("disabled", "enabled-runtime", ""):
        (found,) = check_timer(units({"UnitFileState": state}))
        assert (found.status, found.remedy) == (WARNING, "sudo systemctl enable --now gua-sample.timer")


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
    assert "crontab -e" in str(found.remedy)
    (found,) = check_timer(None, is_fresh=True, problem="there is no systemctl here")
    assert (found.status, found.remedy) == (WARNING, None)


def test_a_timer_that_writes_elsewhere_says_where() -> None:
    (found,) = check_timer(units(StateDirectory="gua"))
    assert found.text.endswith("; it writes to /var/lib/gua, not to /data")


def check_service(newest_ms: int | None = None, **service: Any) -> list[Finding]:
    return doctor_timer.check_service(Found(units(**service)), NOON_MS, newest_ms)


def test_the_result_of_the_last_run_is_told() -> None:
    began: dict[str, Any] = {"ExecMainStartTimestamp": "Mon 2026-11-16 11:59:48 UTC"}
    assert check_service(Result="success", ExecMainStatus="0", ExecMainStartTimestamp="") == []
    assert statuses(check_service(Result="success", ExecMainStatus="0", **began)) == [OK]
    (found,) = check_service(Result="exit-code", ExecMainStatus="1", **began)
    assert (found.status, found.remedy) == (WARNING, "journalctl -u gua-sample -n 20")
    assert "exit-code (exit status 1)" in found.text
    (found,) = check_service(Result="success", ExecMainStatus="75", **began)  # what was logged within the hour
    assert found.status == WARNING


def test_a_failed_run_that_recorded_nothing_is_an_error() -> None:
    began_ms = NOON_MS - 12 * SECOND_MS
    failed: dict[str, Any] = {
        "Result": "exit-code",
        "ExecMainStatus": "238",
        "ExecMainStartTimestamp": "Mon 2026-11-16 11:59:48 UTC",
    }
    (found,) = check_service(began_ms - 30 * SECOND_MS, **failed)
    assert (found.status, found.remedy) == (ERROR, "journalctl -u gua-sample -n 20")
    assert found.text.endswith("and recorded nothing")
    assert statuses(check_service(began_ms + 300, **failed)) == [WARNING]
    assert statuses(check_service(None, **failed)) == [WARNING]  # not for us to see


def test_a_run_that_does_not_end_is_an_error() -> None:
    def running(began: str) -> list[str]:
        return statuses(check_service(ActiveState="activating", ExecMainStartTimestamp=f"Mon 2026-11-16 {began} UTC"))

    assert running("11:59:30") == [OK]
    assert running("11:57:00") == [ERROR]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Mon 2026-11-16 12:00:00 UTC", NOON_MS),
        ("Mon 2026-11-16 12:00:00.123456 UTC", NOON_MS),
        ("Mon 2026-11-16 12:00:00 CET", None),
        ("n/a", None),
        ("", None),
        ("48y 3w 3d 15h", None),  # systemd before 237
    ],
)
def test_times_of_systemctl_are_understood(text: str, expected: int | None) -> None:
    assert doctor_units.parse_time(text) == expected


@pytest.mark.parametrize(
    ("service", "of_user", "expected"),
    [
        ({"StateDirectory": "gua"}, False, "/var/lib/gua"),
        ({"StateDirectory": "gua other"}, False, "/var/lib/gua"),
        ({"StateDirectory": "gua", "Environment": "A=b GUA_DATA_DIR=/srv/gua"}, False, "/srv/gua"),
        ({"ExecStart": "{ path=/x ; argv[]=/x --data-dir /home/a/gua ; ignore_errors=no }"}, True, "/home/a/gua"),
        ({"ExecStart": "{ path=/x ; argv[]=/x ; ignore_errors=no }"}, True, None),
        ({}, False, None),
    ],
)
def test_the_folder_of_a_service_is_found_in_its_unit(
    service: dict[str, str], of_user: bool, expected: str | None
) -> None:
    assert doctor_units.folder_of(service, of_user) == expected


def systemctl(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    path = write(folder / "systemctl", f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))


def test_a_systemctl_that_hangs_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    systemctl(tmp_path, monkeypatch, "exec /bin/sleep 60")
    began = time.monotonic()
    assert find_units("/data", 0.3) == Found(None, "systemctl does not answer within 0.3 s")
    assert time.monotonic() - began < 10


def test_a_systemctl_that_is_not_there_or_fails_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_units("/data") == Found(None, "there is no systemctl here")
    systemctl(tmp_path, monkeypatch, "echo 'Failed to connect.' >&2; exit 1")
    assert find_units("/data") == Found(None, "systemctl says: Failed to connect")


def test_units_of_the_user_are_taken_if_they_write_to_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = (
        'echo LoadState=loaded; echo; echo LoadState=loaded; case "$*" in'
        ' *--user*service*) echo "ExecStart={ argv[]=/x --data-dir /data ; }";;'
        " *service*) echo StateDirectory=gua; echo User=gua;; esac"
    )
    systemctl(tmp_path, monkeypatch, script)
    own, of_system = find_units("/data").units, find_units("/var/lib/gua").units
    assert own
    assert of_system
    assert (own.of_user, own.user) == (True, None)
    assert (of_system.of_user, of_system.user) == (False, "gua")
    neither = find_units("/elsewhere").units
    assert neither
    assert not neither.feed("/elsewhere")


def test_systemctl_is_asked_in_a_language_and_a_zone_that_are_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    systemctl(tmp_path, monkeypatch, 'echo LoadState=loaded; echo "LastTriggerUSec=$LC_ALL $TZ"')
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
    found = find_units("/data").units
    assert found
    assert found.timer["LastTriggerUSec"] == "C UTC"


# The history


def history(folder: Path, *times_ms: int, interval_ms: int | None = None, problem: str | None = None) -> str:
    samples = store.prepare(str(folder / "data"))
    boot = Boot("boot", 5)
    store.append_history(samples, [Tick(ts, interval_ms, boot, None, 1, problem, [], {}, []) for ts in times_ms])
    return samples


def newest(samples: str, now_ms: int = NOON_MS) -> Finding:
    found = list_history(samples)
    tick = find_newest(found, now_ms)
    return doctor_history.check_newest(found, tick, now_ms, "START", "JOURNAL")


@pytest.mark.parametrize(
    ("timer", "age_seconds", "due"),
    [
        ({}, 12, True),
        ({}, 15, True),  # recorded by a run that systemctl says began a little later
        ({}, 42, False),  # the last run left none
        ({"ActiveState": "inactive"}, 12, False),
        ({"NextElapseUSecRealtime": "Mon 2026-11-16 12:00:00 UTC"}, 12, False),
        ({"NextElapseUSecRealtime": ""}, 12, False),
        ({"LastTriggerUSec": "n/a"}, 12, False),
    ],
)
def test_a_timer_is_not_late_until_its_next_run(timer: dict[str, str], age_seconds: int, due: bool) -> None:
    found = doctor_units.next_run_ms(units(timer), NOON_MS - age_seconds * SECOND_MS, NOON_MS)
    assert found == (NOON_MS + 18 * SECOND_MS if due else None)


def test_a_tick_is_not_stale_before_the_next_one_is_due(tmp_path: Path) -> None:
    found = list_history(history(tmp_path, *every(30, 30, NOON_MS - 18 * 60 * SECOND_MS)))
    tick = find_newest(found, NOON_MS)
    assert tick
    assert tick.is_stale(NOON_MS)
    tick = tick._replace(due_ms=NOON_MS + 12 * 60 * SECOND_MS)
    judged = doctor_history.check_newest(found, tick, NOON_MS, "START", "JOURNAL")
    assert judged.status == OK
    assert judged.text.endswith("18 min ago; the timer's next run is in 12 min")


def every(seconds: int, count: int, end_ms: int) -> list[int]:
    return [end_ms - seconds * SECOND_MS * place for place in reversed(range(count))]


@pytest.mark.parametrize(
    ("seconds", "age_seconds", "status"),
    [(30, 75, OK), (30, 76, ERROR), (60, 150, OK), (60, 151, ERROR), (1, 75, OK), (1, 76, ERROR)],
)
def test_a_tick_is_stale_after_two_and_a_half_intervals(
    tmp_path: Path, seconds: int, age_seconds: int, status: str
) -> None:
    samples = history(tmp_path, *every(seconds, 30, NOON_MS - age_seconds * SECOND_MS))
    found = newest(samples)
    assert found.status == status
    assert found.remedy == (None if status == OK else "JOURNAL")


def test_the_interval_is_measured_across_midnight(tmp_path: Path) -> None:
    midnight_ms = NOON_MS - DAY_MS // 2
    samples = history(tmp_path, *every(300, 30, midnight_ms))
    assert len(os.listdir(samples)) == 2
    assert newest(samples, midnight_ms + 740 * SECOND_MS).status == OK
    assert newest(samples, midnight_ms + 760 * SECOND_MS).status == ERROR


def test_an_interval_that_was_told_counts(tmp_path: Path) -> None:
    samples = history(tmp_path, *every(30, 5, NOON_MS), interval_ms=600_000)
    assert newest(samples, NOON_MS + 1_500_000).status == OK
    assert newest(samples, NOON_MS + 1_501_000).status == ERROR


def test_a_single_tick_is_given_75_seconds(tmp_path: Path) -> None:
    samples = history(tmp_path, NOON_MS)
    assert newest(samples, NOON_MS + 75_000).status == OK
    assert newest(samples, NOON_MS + 75_001).status == ERROR


@pytest.mark.parametrize(
    ("problem", "words", "remedy"),
    [
        ("driver_not_loaded", "not loaded", "sudo modprobe nvidia; nvidia-smi"),
        ("driver_hangs", "reboot", "sudo reboot"),
        ("timeout", "killed", "sudo dmesg | grep -i nvrm"),
        ("something_new", "something_new", doctor_driver.OTHER_COMMAND),
    ],
)
def test_a_recorded_error_is_explained(tmp_path: Path, problem: str, words: str, remedy: str) -> None:
    found = newest(history(tmp_path, NOON_MS, problem=problem))
    assert (found.status, found.remedy) == (ERROR, remedy)
    assert words in found.text


def test_no_tick_is_an_error(tmp_path: Path) -> None:
    found = newest(str(tmp_path / "nowhere"))
    assert (found.status, found.remedy) == (ERROR, "START")


def test_ticks_of_the_future_do_not_hide_that_the_newest_is_stale(tmp_path: Path) -> None:
    samples = history(tmp_path, NOON_MS - 3_600_000, NOON_MS + 3_600_000, NOON_MS + 3 * DAY_MS)
    assert newest(samples).status == ERROR
    first, second = doctor_history.check_clock(list_history(samples), NOON_MS)
    future = f"{samples}/2026-11-19.sqlite"
    assert first == warning(
        "clock",
        f"{future} is of a day to come: was the clock set back, or wrong?",
        f"timedatectl; sudo mv {future} {future}.future",
    )
    assert (second.status, second.text[:6]) == (WARNING, "1 tick")


def test_a_clock_before_gua_existed_is_an_error_and_judges_nothing(tmp_path: Path) -> None:
    samples = history(tmp_path, NOON_MS)
    found = list_history(samples)
    assert statuses(doctor_history.check_clock(found, 0)) == [ERROR]
    assert newest(samples, 0).status == WARNING
    assert statuses(doctor_history.check_clock(found, NOON_MS)) == [OK]


def test_a_tick_that_waits_beside_its_partition_is_the_newest(tmp_path: Path) -> None:
    samples = history(tmp_path, NOON_MS - 3_600_000)
    pending.keep(samples, Tick(NOON_MS, None, Boot("boot", 5), None, 1, None, [], {}, []))
    found = newest(samples)
    assert found.status == OK
    assert "waits" in found.text
    for kept in Path(samples).glob("*.pending"):
        kept.write_text("no kept tick")
    assert newest(samples).status == ERROR


def check_partitions(samples: str) -> list[Finding]:
    return doctor_partitions.check_partitions(list_history(samples), NOON_MS, "START")


def test_partitions_are_counted_and_progress_is_told(tmp_path: Path) -> None:
    samples = history(tmp_path, *(NOON_MS - DAY_MS * age for age in (9, 2, 1, 0)))
    steps: list[tuple[int, int]] = []
    found = list_history(samples)
    (summary,) = doctor_partitions.check_partitions(found, NOON_MS, "START", lambda *step: steps.append(step))
    assert summary.text.startswith("4 days, 2026-11-07 to 2026-11-16, ")
    assert steps == [(0, 4), (1, 4), (2, 4), (3, 4), (1, 1)]
    assert check_partitions(str(tmp_path / "nowhere")) == [ok("partitions", "none")]


def test_many_damaged_partitions_do_not_fill_the_screen(tmp_path: Path) -> None:
    samples = history(tmp_path, *(NOON_MS - DAY_MS * age for age in range(15, 0, -1)))
    for path in Path(samples).iterdir():
        path.write_bytes(b"not a database at all, " * 100)
    found = check_partitions(samples)
    assert len(found) == 12
    assert "5 more" in found[-1].text


def test_what_lies_beside_the_partitions_is_mentioned(tmp_path: Path) -> None:
    folder = Path(history(tmp_path, NOON_MS))
    for name in ("2026-11-15.sqlite.corrupt-1", "2026-11-15.sqlite.corrupt-1-journal", "2026-11-14.0a.pending"):
        (folder / name).touch()
    (folder / "2026-11-13.sqlite-journal").touch()
    found = check_partitions(str(folder))[1:]
    assert [one.text.split(":")[0] for one in found] == [
        "1 file set aside as corrupt",
        "1 tick waiting, as somebody holds 2026-11-14.sqlite",
    ]
    assert statuses(found) == [WARNING, WARNING]
    os.utime(folder / "2026-11-13.sqlite-journal", (0, 0))  # no run is going on any more
    left = check_partitions(str(folder))[-1]
    assert (left.status, left.remedy) == (WARNING, "START")
    assert left.text.startswith("2026-11-13.sqlite-journal was left")


def check_rollups(samples: str) -> list[Finding]:
    return doctor_rollups.check_rollups(list_history(samples), NOON_MS, "ROLL UP")


def test_closed_days_that_are_not_rolled_up_are_a_warning(tmp_path: Path) -> None:
    samples = history(tmp_path, *(NOON_MS - DAY_MS * age for age in (2, 1, 0)))
    assert check_rollups(samples) == []  # yesterday may still wait for the timer
    store.append(samples, Tick(NOON_MS - 3 * DAY_MS, None, Boot("boot", 5), None, 1, None, [], {}, []), pytest.fail)
    (finding,) = check_rollups(samples)
    assert (finding.status, finding.remedy) == (WARNING, "ROLL UP")
    assert finding.text.startswith("1 closed day not rolled up, 2026-11-13 for one")
    Upkeep(str(tmp_path / "data"), load_config(None), NOON_MS, False, print).run(False, False, None)
    (finding,) = check_rollups(samples)
    assert finding.status == OK
    assert finding.text.startswith("3 days, 2026-11-13 to 2026-11-15, ")


def test_rollups_that_are_damaged_or_newer_are_a_warning(tmp_path: Path) -> None:
    samples = history(tmp_path, NOON_MS)
    rollups = tmp_path / "data" / "rollups.sqlite"
    rollups.write_text("garbage, and more than sixteen bytes of it")
    (finding,) = check_rollups(samples)
    assert (finding.status, finding.remedy) == (WARNING, "ROLL UP")
    assert finding.text.endswith("reports do without it")
    rollups.unlink()
    with closing(sqlite3.connect(rollups)) as connection:
        for statement in (*schema.TABLES, f"PRAGMA application_id = {schema.APPLICATION_ID}"):
            connection.execute(statement)
        connection.execute("PRAGMA user_version = 99")
    (finding,) = check_rollups(samples)
    assert "upgrade gua" in finding.text


@pytest.mark.parametrize("name", ["2026-11-15.sqlite", "2026-11-15.sqlite-journal", "2026-11-15.sqlite-wal"])
def test_a_pipe_among_the_partitions_is_named_and_not_opened(tmp_path: Path, name: str) -> None:
    samples = Path(history(tmp_path, NOON_MS - DAY_MS, NOON_MS))
    (samples / name).unlink(missing_ok=True)
    os.mkfifo(samples / name)
    recorded = list_history(str(samples))
    assert recorded.partitions == [f"{samples}/2026-11-16.sqlite"]
    found = check_partitions(str(samples))[1]
    assert (found.status, found.text) == (WARNING, f"{name} is no regular file, and was not looked into")
    assert found.remedy == f"sudo mv {samples}/{name} {samples}/{name}.strange"


def test_what_can_not_be_todays_partition_is_an_error(tmp_path: Path) -> None:
    samples = Path(history(tmp_path, NOON_MS - DAY_MS))
    today = samples / "2026-11-16.sqlite"
    today.mkdir()
    assert statuses(check_partitions(str(samples))) == [OK, ERROR]
    today.rmdir()
    today.symlink_to("2026-11-15.sqlite")  # the sampler can write through it
    assert statuses(check_partitions(str(samples))) == [OK, WARNING]


def test_a_kept_tick_is_read_only_if_it_is_a_small_file(tmp_path: Path) -> None:
    samples = Path(history(tmp_path, NOON_MS - 3_600_000))
    kept = Path(pending.keep(str(samples), Tick(NOON_MS, None, Boot("boot", 5), None, 1, None, [], {}, [])))
    assert "waits" in newest(str(samples)).text
    text = kept.read_text()
    kept.write_text(text[0] + " " * pending.MOST_BYTES + text[1:])  # the same to a reader of JSON
    assert newest(str(samples)).status == ERROR
    kept.rename(tmp_path / "elsewhere")
    kept.symlink_to(tmp_path / "elsewhere")
    recorded = list_history(str(samples))
    assert (recorded.strange, recorded.others) == ((kept.name,), [])
    assert check_partitions(str(samples))[1].text.startswith(f"{kept.name} is no regular file")


# The data folder


def us() -> User:
    return doctor_user.by_uid(os.geteuid(), os.getegid())


def test_a_state_folder_that_is_a_link_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    link = tmp_path / "gua"
    link.symlink_to(tmp_path / "real")
    found = doctor_data.check_folder(str(link), us(), units(StateDirectory=str(link)))
    assert found.status == ERROR
    assert "238/STATE_DIRECTORY" in found.text
    typed, _, comment = str(found.remedy).partition("   # ")
    assert typed == f"sudo rm {link} && sudo mkdir {link} && sudo mount --bind {tmp_path}/real {link}"
    assert comment.endswith('docs/operations.md "Moving the data"')
    # Without systemd's refusal it is a folder like any other; and for DynamicUser= systemd makes a link itself.
    assert doctor_data.check_folder(str(link), us(), units()).status == OK
    assert doctor_data.check_folder(str(link), us(), None).status == OK
    link.unlink()
    (tmp_path / "real").rename(tmp_path / "private")
    (tmp_path / "private/gua").mkdir()
    link.symlink_to("private/gua")
    assert doctor_data.check_folder(str(link), us(), units(StateDirectory=str(link))).status == OK


def test_a_folder_below_a_file_or_a_circle_of_links_is_an_error(tmp_path: Path) -> None:
    file = write(tmp_path / "file", "")
    found = doctor_data.check_folder(f"{file}/x/y", us(), None)
    assert (found.status, found.text) == (ERROR, f"{file} is no folder")
    assert newest(f"{file}/x/y/samples").status == ERROR
    (tmp_path / "circle").symlink_to("circle")
    assert doctor_data.check_folder(f"{tmp_path}/circle", us(), None).status == ERROR


# Words


def test_the_command_for_root_names_the_folder_unless_root_would_find_it() -> None:
    assert as_root("/var/lib/gua") == "sudo gua doctor"
    assert as_root("/srv/my gua") == "sudo gua doctor --data-dir '/srv/my gua'"


def test_findings_can_not_steer_a_terminal() -> None:
    found = error("x", "a\x1b[31mb\nc", shell("rm", "a\x1b[31m b"))
    assert (found.text, found.remedy) == (r"a\x1b[31mb\nc", r"rm 'a\x1b[31m b'")


def test_every_line_fits_and_commands_can_be_pasted() -> None:
    path = "/srv/50% #1? '/samples/2026-11-16.sqlite"
    remedy = (
        f"{shell('sqlite3', '-readonly', path, '.recover')} | sqlite3 -safe recovered.sqlite; sudo {shell('rm', path)}"
    )
    text = doctor.to_text(
        [
            error("partitions", f"{path} " * 5 + "x" * 200, remedy),
            warning(
                "processes", "short", "sudo systemctl edit gua-sample   # under [Service]: SupplementaryGroups=proc"
            ),
            ok("newest tick", "now"),
        ]
    )
    lines = text.splitlines()
    assert max(map(len, lines)) <= 78
    start = next(number for number, line in enumerate(lines) if "-> sqlite3" in line)
    end = next(number for number, line in enumerate(lines) if line.startswith("!"))
    pasted = "\n".join(line.replace("->", "  ", 1) for line in lines[start:end])
    assert " ".join(pasted.replace("\\\n", " ").split()) == " ".join(remedy.split())
    assert lines[end + 1].strip() == "-> sudo systemctl edit gua-sample"
    assert lines[end + 2].strip() == "# under [Service]: SupplementaryGroups=proc"


@pytest.mark.parametrize(
    ("findings", "expected"),
    [
        ([ok("newest tick", "12 s ago")], "all is well: newest tick 12 s ago"),
        ([ok("newest tick", "x"), warning("a", "x")], "1 warning: sampling works"),
        ([warning("newest tick", "x"), warning("a", "x")], "2 warnings: nothing seen that would hinder sampling"),
        ([error("newest tick", "x"), warning("a", "x")], "1 error, 1 warning: sampling does not work"),
        ([error("newest tick", "x"), error("a", "x")], "2 errors: sampling does not work"),
    ],
)
def test_the_last_line_sums_up(findings: list[Finding], expected: str) -> None:
    assert doctor.to_text(findings).splitlines()[-1] == expected


def test_sizes_and_durations_are_spelled_for_people() -> None:
    assert [size(count) for count in (0, 1023, 1536, 20 * 1024**2, 3 * 1024**5)] == [
        "0 bytes",
        "1023 bytes",
        "1.5 KiB",
        "20 MiB",
        "3072 TiB",
    ]
    assert [duration(seconds * 1000) for seconds in (0, 119, 120, 7200, 172_800)] == [
        "0 s",
        "119 s",
        "2 min",
        "2 h",
        "2 days",
    ]
