"""Reminders and the hook on a booted systemd: real timers, users and mailboxes, a real postfix, contrib's units."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.driver import Scenario
from tests.end_to_end import laboratory
from tests.end_to_end.guest import Guest
from tests.mail_server import USER

pytestmark = [pytest.mark.timeout(400), pytest.mark.needs("postfix")]

CONFIG = "/etc/gua/gua.toml"
ALWAYS = '[remind]\nhours = "0-24"\ndays = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"]\n'
MAIL = '[mail]\nadministrator = "root@localhost"\ndomain = "localhost"\n'


@pytest.fixture
def guest(bare: Path, installed: Path, tmp_path: Path) -> Iterator[Guest]:
    with Guest(tmp_path / "guest", layers=[bare, installed]) as guest:
        guest.run("ip", "link", "set", "lo", "up")
        yield guest


def hold(guest: Guest) -> int:
    """Let somebody hold a card, and pid 1 another one; returns somebody's pid."""
    started = guest.run("sh", "-c", "sleep 900 >/dev/null 2>&1 & echo $!", user="somebody")
    pid = int(started.stdout)
    scenario = Scenario()
    scenario.add_card(compute=[(pid, 8192)])
    scenario.add_card(compute=[(1, 4096)])
    laboratory.set_scenario(guest, scenario)
    return pid


def install(guest: Guest, service: str) -> None:
    laboratory.install_units(guest, service)
    laboratory.let_it_last(guest, Path(service).name)


def said(guest: Guest, unit: str) -> list[str]:
    """All that is in the journal of a unit's runs that went well: systemd adds no line of its own."""
    return guest.journal(unit)


def test_the_timer_tells_somebody_once_and_the_administrator_of_the_rest(guest: Guest) -> None:
    pid = hold(guest)
    guest.write(CONFIG, MAIL + ALWAYS)
    install(guest, "contrib/remind/gua-remind.service")
    guest.run("systemctl", "start", "postfix")
    laboratory.drop_in(guest, "gua-remind.timer", "Timer", "OnCalendar=", "OnCalendar=*:*:0/2", "AccuracySec=1ms")
    guest.run("systemctl", "enable", "--now", "gua-remind.timer")
    told_again = "sent 0, held back 1 (told today: somebody)"
    guest.wait_until(lambda: told_again in said(guest, "gua-remind.service"), 120, "a second run")
    guest.run("systemctl", "stop", "gua-remind.timer")
    lines = said(guest, "gua-remind.service")
    assert lines[0] == "sent 2, no person 1 (root)"
    assert set(lines[1:]) == {told_again}
    (message,) = guest.wait_until(lambda: laboratory.read_mailbox(guest, "somebody"), 60, "a mail")
    host = guest.run("uname", "-n").stdout.strip()
    assert message["Subject"] == f"{host}: you hold 8.0 GiB on GPU 0 without work"
    assert (message["To"], message["From"].addresses[0].username) == ("somebody@localhost", "gua")
    text = message.get_content()
    assert f"(pid {pid}, sleep)" in " ".join(text.split())
    assert f"\n    kill {pid}\n" in text
    assert "\nQuestions? Ask root@localhost.\n" in text
    assert "root" not in text.replace("root@localhost", "")  # nobody else is named
    assert max(map(len, text.splitlines())) <= 72
    root = guest.wait_until(lambda: laboratory.read_mailbox(guest, "root"), 60, "a mail to root")
    assert [one["Subject"] for one in root] == [f"{host}: memory held without work, and nobody to tell"]
    assert guest.run("stat", "--format=%U %a", "/var/lib/gua/reminders.sqlite").stdout == "gua 600\n"
    assert "somebody <somebody@localhost>" in guest.run("gua", "remind", "--log").stdout
    assert "remind" not in laboratory.findings(guest)
    # Nobody but the folder's owner, and root, can send any.
    for user in ("somebody", "nobody"):
        refused = guest.run("gua", "remind", "--send", user=user, check=False)
        assert (refused.returncode, refused.stdout) == (1, "")
        assert "reminders.sqlite can't be written (Permission denied)" in refused.stderr
    for command in (["remind"], ["remind", "--log"]):
        refused = guest.run("gua", *command, user="somebody", check=False)
        assert (refused.returncode, refused.stdout) == (1, "")
        assert "can't be read by this user: run this as the folder's owner, or as root" in refused.stderr
    assert len(laboratory.read_mailbox(guest, "somebody")) == 1


def test_the_closed_unit_tells_somebody_by_smtp_and_can_do_nothing_else(guest: Guest) -> None:
    hold(guest)
    server = laboratory.start_mail_server(guest)
    guest.write(CONFIG, f'[mail]\n{server}domain = "lab.example"\n[exempt]\nroot = "the init system"\n{ALWAYS}')
    install(guest, "contrib/remind/gua-remind.service")
    laboratory.install_units(guest, "contrib/remind/gua-remind.service", closed=True)
    done = guest.run("systemctl", "start", "gua-remind.service", check=False, timeout=120)
    assert done.returncode == 0, guest.journal("gua-remind.service")
    assert laboratory.read_mail_of_server(guest)[1:4] == [["somebody@lab.example"], USER, True]
    assert said(guest, "gua-remind.service") == ["sent 1, meant 1"]
    expected = {
        "writes": ["/var/lib/gua"],
        "home": "Permission denied",
        "inet": "done",
        "netlink": "Address family not supported by protocol",
        "device": "Operation not permitted",
        "of pid 1": True,
        "capabilities": [0, 0, 0, 0],
        "no new privileges": "1",
    }
    found = laboratory.probe(guest, "gua-remind.service")
    assert {name: found[name] for name in expected} == expected


HOOK = """\
#!/bin/sh
cat >/var/lib/gua/facts.json
env >/var/lib/gua/environment
echo "as $(id -un), $(grep NoNewPrivs /proc/self/status | tr -d '\\t'), $(touch /etc/gua/x 2>&1)"
"""


def test_the_hook_is_run_by_its_timer_as_user_gua_and_once(guest: Guest) -> None:
    pid = hold(guest)
    guest.write(CONFIG, '[hook]\nrun = "/etc/gua/on-idle"\n[exempt]\nroot = "the init system"\n')
    install(guest, "contrib/hooks/gua-hook.service")
    guest.write("/etc/gua/on-idle", HOOK, 0o755)
    laboratory.drop_in(
        guest, "gua-hook.timer", "Timer", "OnCalendar=", "OnCalendar=*:*:0/2", "AccuracySec=1ms", "RandomizedDelaySec=0"
    )
    guest.run("systemctl", "enable", "--now", "gua-hook.timer")
    guest.wait_until(lambda: said(guest, "gua-hook.service"), 120, "a run")
    guest.run("systemctl", "stop", "gua-hook.timer")
    guest.run("systemctl", "start", "gua-hook.service")
    lines = said(guest, "gua-hook.service")
    assert re.fullmatch(
        rf"somebody holds 8.0 GiB on GPU 0 without work since .* \(pid {pid}, sleep\)\. done: .*", lines[0]
    )
    what = "as gua, NoNewPrivs:1, touch: cannot touch '/etc/gua/x': Read-only file system"
    assert lines[0].endswith(f"done: {what}")
    assert lines[1:] == ["ran /etc/gua/on-idle for 1 process"]
    facts = json.loads(guest.read("/var/lib/gua/facts.json"))
    assert (facts["pid"], facts["identity"], facts["gpu"]) == (pid, "somebody", "0")
    assert guest.read("/var/lib/gua/environment").split() == ["PWD=/"]  # which the shell sets itself
    document = json.loads(guest.run("gua", "doctor", "--json", check=False).stdout)
    (finding,) = [one for one in document["findings"] if one["check"] == "hook"]
    assert finding["status"] == "ok"
    assert finding["text"].endswith(f"exit 0: {what}")
    # What somebody else could have written is not run, not even by root.
    guest.run("chown", "somebody", "/etc/gua/on-idle")
    refused = guest.run("gua", "hook", check=False)
    assert refused.returncode == 1
    assert "/etc/gua/on-idle belongs to uid 1001, who could change what is run" in refused.stderr
