"""What systemctl tells of the units: understood, or not waited for."""

from pathlib import Path

import pytest

from gua_report.machine import units as doctor_units
from gua_report.machine.units import Found, Units, find_units
from tests.facts import put, units
from tests.lab import NOON_MS, SECOND_MS
from tests.machine import within

# Timer and service


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Mon 2026-11-16 12:00:00 UTC", NOON_MS),
        ("Mon 2026-11-16 12:00:00.123456 UTC", NOON_MS + 123),
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
def test_a_services_folder_is_found_in_its_unit(service: dict[str, str], of_user: bool, expected: str | None) -> None:
    assert Units({}, service, of_user).folder == expected


def systemctl(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    path = put(folder / "systemctl", f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))


def test_a_systemctl_that_hangs_fails_or_is_not_there_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_units("/data") == Found(None, "there is no systemctl here")
    systemctl(tmp_path, monkeypatch, "echo 'Failed to connect.' >&2; exit 1")
    assert find_units("/data") == Found(None, "systemctl says: Failed to connect")
    systemctl(tmp_path, monkeypatch, "exec /bin/sleep 60")
    with within(10):
        assert find_units("/data", 0.3) == Found(None, "systemctl does not answer within 0.3 s")


def test_units_of_the_user_are_taken_if_they_write_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = (
        'echo LoadState=loaded; echo "LastTriggerUSec=$LC_ALL $TZ"; echo; echo LoadState=loaded; case "$*" in'
        ' *--user*service*) echo "ExecStart={ argv[]=/x --data-dir /data ; }";;'
        " *service*) echo StateDirectory=gua; echo User=gua;; esac"
    )
    systemctl(tmp_path, monkeypatch, script)
    own, of_system = find_units("/data").units, find_units("/var/lib/gua").units
    assert own
    assert of_system
    assert own.timer["LastTriggerUSec"] == "C UTC"  # a language and a zone that are known
    assert (own.of_user, own.user) == (True, None)
    assert (of_system.of_user, of_system.user) == (False, "gua")
    neither = find_units("/elsewhere").units
    assert neither
    assert not neither.feed("/elsewhere")


# The history


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


def test_the_interval_of_the_timer_is_read_from_its_calendar(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of all that make install may write, as systemd spells it."""

    def read(*calendars: str) -> int | None:
        lines = [f"TimersCalendar={{ OnCalendar=*-*-* *:{one} ; next_elapse=n/a }}" for one in calendars]
        timer = "\n".join(["LoadState=loaded", "ActiveState=active", *lines])
        systemctl(tmp_path, monkeypatch, f"echo '{timer}\n\nLoadState=loaded'")
        found = find_units("/data").units
        assert found
        assert doctor_units.interval_ms(found._replace(timer={**found.timer, "ActiveState": "inactive"})) is None
        return doctor_units.interval_ms(found)

    assert read("*:00/15") == 15_000
    assert read("00/5:00") == 300_000
    assert read("00:00") == 3_600_000
    eighths = [f"{at // 60:02}/2:{at % 60:02}" for at in range(0, 120, 8)]
    assert read(*eighths) == read(*reversed(eighths)) == 8000
    assert read("00/3:00", "00/3:45", "01/3:30", "02/3:15") == 45_000
    assert read("00/15:00", "07/15:30") == 450_000
    assert read("00/1:00") == 60_000
    assert read("04:00") is read("15:00") is read() is None
