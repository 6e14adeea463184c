"""The units of contrib/mail on a booted systemd: a real postfix delivers to a mailbox, or a server by SMTP with TLS."""

import email
import email.policy
import re
from collections.abc import Iterator
from email.message import EmailMessage
from pathlib import Path

import pytest

from tests.end_to_end import laboratory
from tests.end_to_end.guest import Guest, prepare_layer
from tests.mail_server import PASSWORD, USER
from tests.repository import ROOT
from tests.svg import Page

pytestmark = [pytest.mark.timeout(400), pytest.mark.needs("postfix")]

UNIT = "gua-mail.service"
CONFIG = "/etc/gua/gua.toml"


@pytest.fixture(scope="session")
def with_history(bare: Path, installed: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The installed machine with two days of a laboratory, and the units installed as they say themselves."""

    def prepare(guest: Guest) -> None:
        guest.run("gua", "demo", "--now", "--days", "2", "--keep", "/root/lab", timeout=120)
        guest.run(
            "sh", "-c", "rm -r /var/lib/gua/samples; cp -r /root/lab/samples /var/lib/gua; chown -R gua: /var/lib/gua"
        )
        laboratory.install_units(guest, f"contrib/mail/{UNIT}")
        guest.write(CONFIG, '[mail]\nadministrator = "somebody@localhost"\n')

    return prepare_layer("with_history", tmp_path_factory, prepare, layers=[bare, installed])


@pytest.fixture
def guest(bare: Path, installed: Path, with_history: Path, tmp_path: Path) -> Iterator[Guest]:
    with Guest(tmp_path / "guest", layers=[bare, installed, with_history]) as guest:
        guest.run("ip", "link", "set", "lo", "up")
        yield guest


def check_is_the_report(message: EmailMessage, host: str) -> None:
    assert re.fullmatch(rf"{host}: \d+ % idle-held, \d+ held now", message["Subject"])
    body = message.get_body(("plain",))
    assert body is not None
    text = body.get_content()
    assert text.startswith("To act on: ")
    assert "Held right now, without work" in text
    assert f"gua mail on {host}. The page attached has all of it, with pictures." in text
    assert max(map(len, text.splitlines())) <= 72
    (page,) = message.iter_attachments()
    assert re.fullmatch(rf"gpu-use-{host}-\d{{4}}-\d\d-\d\d\.html", str(page.get_filename()))
    assert len(Page(page.get_content()).pictures) == 7


def test_the_timer_mails_the_report_to_a_mailbox(guest: Guest) -> None:
    guest.run("systemctl", "start", "postfix")
    host = guest.run("uname", "-n").stdout.strip()
    laboratory.drop_in(guest, "gua-mail.timer", "Timer", "OnCalendar=", "OnCalendar=*:*:0/2", "AccuracySec=1ms")
    guest.run("systemctl", "enable", "--now", "gua-mail.timer")
    message = guest.wait_until(lambda: laboratory.read_mailbox(guest), 120, "a mail")[0]
    guest.run("systemctl", "stop", "gua-mail.timer")
    check_is_the_report(message, host)
    assert message["To"] == "somebody@localhost"
    assert message["From"].addresses[0].username == "gua"
    assert message["Auto-Submitted"] == "auto-generated"
    assert guest.run("systemctl", "show", "--property=Result", "--value", UNIT).stdout == "success\n"
    said = [line for line in guest.journal(UNIT) if not line.startswith(("Start", "Finish", "gua-mail.service:"))]
    assert said == []


def test_a_failure_is_mailed_and_the_unit_fails(guest: Guest) -> None:
    guest.run("systemctl", "start", "postfix")
    guest.run("rm", "-r", "/var/lib/gua/samples")
    assert guest.run("systemctl", "start", UNIT, check=False).returncode == 1
    (message,) = guest.wait_until(lambda: laboratory.read_mailbox(guest), 60, "a mail")
    assert message["Subject"] == f"{guest.run('uname', '-n').stdout.strip()}: GPU report failed"
    assert message.get_content().startswith("There is no report: no ticks from ")
    assert guest.run("systemctl", "show", "--property=ExecMainStatus", "--value", UNIT).stdout == "3\n"
    assert any(line.startswith("error: no ticks from ") for line in guest.journal(UNIT))


def test_what_can_not_be_mailed_is_in_the_journal(guest: Guest) -> None:
    guest.run("chmod", "0", "/usr/sbin/postdrop")
    assert guest.run("systemctl", "start", UNIT, check=False).returncode == 1
    lines = guest.journal(UNIT)
    assert any(line.startswith("To act on: ") for line in lines)
    (error,) = [line for line in lines if line.startswith("error: not sent to ")]
    assert re.match(r"error: not sent to somebody@localhost: /usr/sbin/sendmail failed with status \d+: ", error)
    assert "postdrop" in error


ALLOWED_TO_MAIL_PROGRAMS = sum(1 << number for number in (0, 1, 3, 4, 6, 7))  # as in linux/capability.h


@pytest.mark.parametrize("is_closed", [False, True], ids=["sendmail", "smtp"])
def test_the_unit_can_do_nothing_but_its_work(guest: Guest, is_closed: bool) -> None:
    guest.run("chmod", "777", "/var/lib/gua")
    if is_closed:
        guest.write(f"/etc/systemd/system/{UNIT}.d/smtp.conf", (ROOT / "contrib/mail/smtp.conf").read_text())
        guest.run("systemctl", "daemon-reload")
    found = laboratory.probe(guest, UNIT)
    expected = {
        "writes": ["/var/spool/probe"],
        "home": "done",
        "inet": "done",
        "netlink": "done",
        "device": "Operation not permitted",
        "of pid 1": False,
        "capabilities": [0, 0, ALLOWED_TO_MAIL_PROGRAMS, 0],
        "no new privileges": "0",
    }
    if is_closed:
        expected |= {"writes": [], "home": "Permission denied", "capabilities": [0, 0, 0, 0], "no new privileges": "1"}
        expected |= {"netlink": "Address family not supported by protocol"}
    assert {name: found[name] for name in expected} == expected


def test_the_closed_unit_mails_to_a_server_by_smtp(guest: Guest) -> None:
    server = laboratory.start_mail_server(guest)
    guest.write(CONFIG, f'[mail]\nadministrator = "somebody@lab.example"\n{server}')
    laboratory.install_units(guest, f"contrib/mail/{UNIT}", closed=True)
    done = guest.run("systemctl", "start", UNIT, check=False, timeout=120)
    assert done.returncode == 0, guest.journal(UNIT)
    sender, recipients, user, is_encrypted, content = laboratory.read_mail_of_server(guest)
    assert (sender, recipients, user, is_encrypted) == ("gua@lab.example", ["somebody@lab.example"], USER, True)
    message = email.message_from_string(content.replace("\r\n", "\n"), policy=email.policy.default)
    assert isinstance(message, EmailMessage)
    check_is_the_report(message, guest.run("uname", "-n").stdout.strip())
    # Somebody else may neither read the password nor send with it.
    refused = guest.run("gua", "mail", user="somebody", check=False)
    assert refused.returncode == 1
    assert "/etc/gua/smtp-password can't be read (Permission denied)" in refused.stderr
    assert PASSWORD not in refused.stdout + refused.stderr
