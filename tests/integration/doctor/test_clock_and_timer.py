"""gua doctor on ticks that stay away, clocks that are wrong and timers that are off."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import pytest

from tests.integration.doctor.examination import doctor, errors, examine, of_check, one
from tests.lab import DAY_MS, HOUR_MS
from tests.machine import Machine
from tests.systemctl import install

# Ticks and the clock


def test_a_tick_that_is_too_old_is_an_error(healthy: Machine) -> None:
    healthy.tick()
    variables = healthy.environment(clock_offset_ms=HOUR_MS)
    document = examine(healthy, variables=variables)
    found = one(document, "newest tick")
    assert (found["status"], found["remedy"]) == ("error", "journalctl -u gua-sample -n 20")
    assert "stale" in found["text"]
    assert document["newest_tick_is_stale"] is True


def test_a_tick_is_not_stale_while_the_timer_is_not_late(healthy: Machine, no_systemctl: Path) -> None:
    def spelled(ts_ms: int) -> str:
        return time.strftime("%a %Y-%m-%d %H:%M:%S UTC", time.gmtime(ts_ms // 1000))

    tick_ms = healthy.ticks()[-1]["ts_ms"]
    late = healthy.environment(clock_offset_ms=HOUR_MS)
    for last_ms, status in (tick_ms, "ok"), (tick_ms + HOUR_MS // 2, "error"):
        following_ms = tick_ms + 2 * HOUR_MS
        install(no_systemctl, "timer", LastTriggerUSec=spelled(last_ms), NextElapseUSecRealtime=spelled(following_ms))
        document = examine(healthy, variables=late)
        assert one(document, "newest tick")["status"] == status
        assert document["newest_tick_is_stale"] is (status == "error")


@pytest.mark.parametrize(
    ("calendar", "age_seconds", "status"),
    [
        ("*-*-* *:*:00/15", 30, "ok"),
        ("*-*-* *:*:00/15", 45, "error"),
        ("*-*-* *:*:00/30", 70, "ok"),
        ("*-*-* *:*:00/30", 90, "error"),
        ("*-*-* *:00/5:00", 700, "ok"),
        ("*-*-* *:00/5:00", 800, "error"),
        ("Mon *-*-* 04:00:00", 70, "ok"),  # of another kind: by the ticks
        ("Mon *-*-* 04:00:00", 90, "error"),
    ],
)
def test_a_tick_is_stale_by_the_interval_of_the_timer(
    healthy: Machine, no_systemctl: Path, calendar: str, age_seconds: int, status: str
) -> None:
    install(no_systemctl, "timer", TimersCalendar=f"{{ OnCalendar={calendar} ; next_elapse=n/a }}")
    clock_ms = healthy.ticks()[-1]["ts_ms"] + age_seconds * 1000
    document = examine(healthy, variables=healthy.environment(clock_ms=clock_ms))
    assert one(document, "newest tick")["status"] == status


def test_a_partition_of_the_future_is_a_warning_with_a_way_out(healthy: Machine) -> None:
    healthy.tick(clock_offset_ms=2 * DAY_MS)
    future = healthy.partitions()[-1]
    document = examine(healthy)
    assert document["ok"]
    found = one(document, "clock")
    assert found["status"] == "warning"
    assert str(future) in found["text"]
    subprocess.run(["sh", "-c", found["remedy"].split("; sudo ")[1]], check=True)
    assert one(examine(healthy), "clock")["status"] == "ok"
    assert len(healthy.partitions()) == 1


def test_a_clock_that_was_set_back_within_the_day_is_noticed(machine: Machine) -> None:
    machine.scenario.add_card()
    noon_ms = int(time.time() * 1000) // DAY_MS * DAY_MS + DAY_MS // 2
    machine.tick(clock_ms=noon_ms)
    machine.tick(clock_ms=noon_ms - HOUR_MS)
    document = examine(machine, variables=machine.environment(clock_ms=noon_ms - HOUR_MS + 5000))
    assert "1 tick of today in the future" in one(document, "clock")["text"]
    assert document["newest_tick_ms"] == noon_ms - HOUR_MS


def test_a_clock_that_was_never_set_is_an_error(healthy: Machine) -> None:
    document = examine(healthy, variables=healthy.environment(clock_ms=1000))
    found = one(document, "clock")
    assert (found["status"], found["remedy"]) == ("error", "timedatectl")
    assert "1970-01-01" in found["text"]
    assert errors(document) == {"clock"}


# The timer


def test_a_timer_that_is_off_is_an_error_once_ticks_stay_away(healthy: Machine, no_systemctl: Path) -> None:
    install(no_systemctl, "timer", ActiveState="inactive", UnitFileState="disabled")
    enable = "sudo systemctl enable --now gua-sample.timer"
    found = one(examine(healthy), "timer")
    assert (found["status"], found["remedy"]) == ("warning", enable)
    late = healthy.environment(clock_offset_ms=HOUR_MS)
    found = one(examine(healthy, variables=late), "timer")
    assert (found["status"], found["remedy"]) == ("error", enable)


def test_a_timer_of_the_user_is_found(healthy: Machine, no_systemctl: Path) -> None:
    for path in no_systemctl.iterdir():
        path.rename(path.with_name(path.name.replace("system-", "user-")))
    document = examine(healthy)
    assert "gua-sample.timer of this user is active" in of_check(document, "timer")[0]["text"]


def test_a_service_that_failed_is_mentioned(healthy: Machine, no_systemctl: Path) -> None:
    install(no_systemctl, "service", ActiveState="failed", Result="exit-code", ExecMainStatus="1", User="0")
    found = one(examine(healthy), "service")
    assert (found["status"], found["remedy"]) == ("warning", "journalctl -u gua-sample -n 20")


def test_a_failed_run_since_the_newest_tick_is_an_error(healthy: Machine, no_systemctl: Path) -> None:
    began = time.strftime("%a %Y-%m-%d %H:%M:%S UTC", time.gmtime(time.time() + 2))
    failed = {"ActiveState": "failed", "Result": "exit-code", "ExecMainStatus": "238", "User": "0"}
    install(no_systemctl, "service", ExecMainStartTimestamp=began, **failed)
    assert errors(examine(healthy)) == {"service"}
    assert doctor(healthy).stdout.splitlines()[-1].endswith("sampling does not work")


def test_a_machine_without_systemctl_is_told_so(healthy: Machine, open_folder: Path) -> None:
    variables = healthy.environment() | {"PATH": str(open_folder)}
    found = one(examine(healthy, variables=variables), "timer")
    assert (found["status"], found["text"].partition(";")[0]) == ("warning", "there is no systemctl here")
    healthy.partitions()[0].unlink()
    assert one(examine(healthy, variables=variables), "timer")["status"] == "error"
