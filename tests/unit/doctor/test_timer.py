"""What gua doctor makes of the timer and the service."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from gua_report.commands.doctor import INDENT, wrap_command
from gua_report.doctor import timer as doctor_timer
from gua_report.doctor.findings import ERROR, OK, WARNING, Finding, ok
from gua_report.doctor.timer import add_to_crontab
from gua_report.machine.units import Found, Units
from tests.facts import GUA, statuses, units
from tests.lab import NOON_MS, SECOND_MS
from tests.machine import Machine


def check_timer(found: Units | None, is_fresh: bool = False, linger: str = "/nowhere", **more: Any) -> list[Finding]:
    return list(doctor_timer.check_timer(Found(found, **more), "/data", is_fresh, NOON_MS, GUA, linger))


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


def test_a_timer_that_writes_elsewhere_says_where() -> None:
    (found,) = check_timer(units(StateDirectory="gua"))
    assert found.text.endswith("; it writes to /var/lib/gua, not to /data")


def check_service(newest_ms: int | None = None, **service: Any) -> list[Finding]:
    return list(doctor_timer.check_service(Found(units(**service)), NOON_MS, newest_ms))


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
