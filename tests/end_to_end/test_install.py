"""make install, upgrade, uninstall and install-user, on a machine with a booted systemd."""

import os
import re
from pathlib import Path

import pytest

from tests.end_to_end import laboratory
from tests.end_to_end.guest import Guest
from tests.end_to_end.laboratory import NO_INDEX, SOURCE, WHEELS, documented_output, make, without_numbers

pytestmark = pytest.mark.timeout(400)

SPOOL = "/var/spool/gua/notes"
FROM_WHEELS = (f"WHEELS={WHEELS}",)


def test_a_fresh_clone_installs_a_service_that_samples(guest: Guest) -> None:
    assert guest.run("systemctl", "is-enabled", "gua-sample.timer", "gua-rollup.timer").stdout == "enabled\nenabled\n"
    assert re.fullmatch("gua:x:[0-9]+:", guest.run("getent", "group", "gua").stdout.strip())
    assert guest.run("gua-sample", "--version", user="somebody").stdout.startswith("gua-sample ")
    assert laboratory.errors(guest) != []  # the first tick does not wait for the timer
    assert set(laboratory.errors(guest)) == {None}
    left = guest.run("find", SOURCE, "-name", "build", "-o", "-name", "*.egg-info", "-o", "-name", "__pycache__")
    assert left.stdout == ""


def test_the_docs_show_what_make_install_says(guest: Guest) -> None:
    assert documented_output("sudo make install") == without_numbers(guest.read("/root/install.log"))


def test_an_upgrade_loses_no_tick_and_nothing_of_the_administrators(guest: Guest) -> None:
    guest.write("/etc/gua/gua-sample.env", "# mine\n")
    guest.write("/etc/gua/gua.toml", "[policy]\nprocess_memory_mib = 200\n")
    guest.write("/etc/systemd/system/gua-sample.service.d/mine.conf", "[Service]\nNice=3\n")
    guest.write("/etc/systemd/system/gua-sample.timer.d/mine.conf", "[Timer]\nOnCalendar=\nOnCalendar=*:*:*\n")
    guest.run("systemctl", "disable", "--now", "gua-rollup.timer")
    laboratory.make_renamable(guest)
    laboratory.release_timer(guest)
    guest.run("sed", "-i", 's/__version__ = .*/__version__ = "99.0"/', f"{SOURCE}/gua_sample/__init__.py")
    ticks = len(laboratory.errors(guest))
    make(guest, "install", "READERS=group", *FROM_WHEELS, environment=NO_INDEX)
    assert guest.run("gua", "version").stdout == "gua 99.0\n"
    guest.wait_until(lambda: len(laboratory.errors(guest)) > ticks + 10, 60, "ticks")
    assert set(laboratory.errors(guest)) == {None}
    assert "\n".join(guest.journal("gua-sample.service", output="short-precise")) == ""
    assert guest.read("/etc/gua/gua-sample.env") == "# mine\n"
    assert guest.read("/var/lib/gua/idle.state").splitlines()[1] == "10.0\t200.0\t1024.0"
    assert guest.run("systemctl", "show", "--property=Nice", "--value", "gua-sample").stdout == "3\n"
    assert guest.run("systemctl", "is-enabled", "gua-rollup.timer", check=False).stdout == "disabled\n"
    assert guest.run("sh", "-c", "ls -d /opt/gua*").stdout == "/opt/gua\n"
    # The history is now for the group alone.
    assert guest.run("stat", "--format=%a %G", "/var/lib/gua").stdout == "750 gua\n"
    refused = guest.run("gua-report", user="somebody", check=False)
    assert refused.returncode == 1
    assert "/var/lib/gua is closed to this user (group gua, mode 750)" in refused.stderr
    guest.run("usermod", "-aG", "gua", "somebody")
    assert guest.run("gua-report", "--since", "1h", user="somebody").stdout.startswith("GPU use on")


def test_the_timer_runs_by_the_interval_that_was_chosen(guest: Guest) -> None:
    laboratory.make_renamable(guest)
    laboratory.release_timer(guest)
    make(guest, "install", "INTERVAL=5s", *FROM_WHEELS, environment=NO_INDEX)
    calendar = guest.run("systemctl", "show", "--property=TimersCalendar", "--value", "gua-sample.timer").stdout
    assert calendar.startswith("{ OnCalendar=*-*-* *:*:00/5 ;")
    ticks = len(laboratory.errors(guest))
    guest.wait_until(lambda: len(laboratory.errors(guest)) > ticks + 4, 60, "ticks")
    times = [tick["ts_ms"] // 5000 for tick in laboratory.rows(guest, "ticks")[ticks:]]
    assert times == list(range(times[0], times[0] + len(times)))


def test_uninstall_leaves_only_data(guest: Guest) -> None:
    ticks = laboratory.rows(guest, "ticks")
    guest.run("touch", f"{SPOOL}/1000.0", user="somebody")
    done = make(guest, "uninstall")
    before = set(guest.read("/root/before").splitlines())
    left = laboratory.files(guest) - before - {"/root/before", "/root/install.log"}
    assert {path for path in left if not path.startswith(("/var/lib/gua", "/var/spool/gua", WHEELS))} == set()
    assert before - laboratory.files(guest) == set()
    assert laboratory.rows(guest, "ticks") == ticks
    assert guest.run("getent", "passwd", "gua").returncode == 0  # the owner of the data
    assert "/var/lib/gua" in done.stdout
    assert f"people's notes in {SPOOL}" in done.stdout
    assert guest.run("ls", SPOOL).stdout == "1000.0\n"
    assert "gua-" not in guest.run("systemctl", "list-units", "--all", "gua-*", "--no-legend").stdout
    again = make(guest, "uninstall", "PURGE=0")
    assert "not installed" in again.stdout
    assert laboratory.rows(guest, "ticks") == ticks


def test_uninstall_names_the_timers_of_contrib_that_still_run(guest: Guest) -> None:
    for unit in ("gua-mail.service", "gua-mail.timer"):
        guest.run("install", "-m", "644", f"{SOURCE}/contrib/mail/{unit}", "/etc/systemd/system/")
    guest.run("systemctl", "daemon-reload")
    guest.run("systemctl", "enable", "--now", "gua-mail.timer")
    assert "to stop them: systemctl disable --now gua-mail.timer" in make(guest, "uninstall").stdout


def test_purge_leaves_nothing_at_all(guest: Guest) -> None:
    guest.write("/etc/gua/gua-sample.env", "# mine\n")
    make(guest, "uninstall", "PURGE=1")
    before = set(guest.read("/root/before").splitlines())
    left = laboratory.files(guest) - before - {"/root/before", "/root/install.log"}
    # What other tests write on this machine meanwhile shows through in the guest.
    assert {path for path in left if not path.startswith(WHEELS) and not os.path.lexists(path)} == set()
    assert guest.run("getent", "passwd", "gua", check=False).stdout == ""


def test_an_installation_that_was_cut_short_is_completed_by_the_next(guest: Guest) -> None:
    make(guest, "uninstall", "PURGE=1")
    guest.write("/usr/local/sbin/systemd-sysusers", "#!/bin/sh\nexit 1\n", 0o755)
    assert make(guest, "install", *FROM_WHEELS, environment=NO_INDEX, check=False).returncode != 0
    guest.run("rm", "/usr/local/sbin/systemd-sysusers")
    make(guest, "install", *FROM_WHEELS, environment=NO_INDEX)
    assert guest.run("systemctl", "is-enabled", "gua-sample.timer", "gua-rollup.timer").stdout == "enabled\nenabled\n"


def test_a_person_who_is_called_gua_is_left_alone(bare: Path, tmp_path: Path) -> None:
    with Guest(tmp_path / "guest", layers=[bare]) as new_machine:
        new_machine.run("useradd", "--create-home", "gua")
        done = make(new_machine, "install", check=False)
    assert done.returncode != 0
    assert "there is a user gua already, with the home folder /home/gua" in done.stderr


def test_a_user_without_root_samples_into_a_folder_of_their_own(guest: Guest) -> None:
    """Beside an installation of the system's, which stays as it is."""
    guest.run("loginctl", "enable-linger", "somebody", check=False)
    uid = guest.run("id", "-u", "somebody").stdout.strip()
    guest.run("systemctl", "start", f"user@{uid}.service")
    session = {"XDG_RUNTIME_DIR": f"/run/user/{uid}", "DBUS_SESSION_BUS_ADDRESS": f"unix:path=/run/user/{uid}/bus"}
    guest.run("cp", "-r", SOURCE, "/home/somebody/gua")
    guest.run("chown", "-R", "somebody:", "/home/somebody/gua")
    system_ticks = len(laboratory.errors(guest))
    install = ["make", "install-user", f"PYTHON={laboratory.PYTHON}", *FROM_WHEELS]
    options = {"user": "somebody", "cwd": "/home/somebody/gua", "timeout": 300}
    done = guest.run(*install, environment={**NO_INDEX, **session}, **options)  # type: ignore[arg-type]
    assert "enable-linger" in done.stdout
    listed = guest.run("systemctl", "--user", "list-timers", user="somebody", environment=session).stdout
    assert "gua-sample.timer" in listed
    samples = "/home/somebody/.local/state/gua/samples"
    assert guest.run("find", samples, "-name", "*.sqlite", "-user", "somebody").stdout.count("\n") == 1
    assert len(laboratory.errors(guest)) == system_ticks
    data_dir = "/home/somebody/.local/state/gua"
    shown = guest.run("gua", "status", "--data-dir", data_dir, user="somebody", environment=session).stdout
    assert "Sampling: gua-sample.timer active, newest tick" in shown
    removal = ["make", "uninstall-user", "PURGE=1"]
    guest.run(*removal, environment=session, **options)  # type: ignore[arg-type]
    left = guest.run("find", "/home/somebody", "-name", "*gua*", "-not", "-path", "/home/somebody/gua*").stdout
    assert left == ""
