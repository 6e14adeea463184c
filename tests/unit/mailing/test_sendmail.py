"""By the machine's sendmail: what it is given, and what becomes of a program that fails or hangs."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from gua_report.config import Mail
from gua_report.mailing import sendmail
from gua_report.mailing.message import Letter, build_message
from gua_report.mailing.outcome import Unsure
from gua_report.mailing.sending import send

ADA, BEN = "ada@lab.example", "ben@lab.example"
KEEP = 'printf "%s\\n" "$@" >>"$0.arguments"\ncat >"$0.mail"\n'

Install = Callable[[str], Path]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Put a script called sendmail where no other one is found."""
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(sendmail, "FOLDERS", ())

    def write(script: str) -> Path:
        path = tmp_path / "sendmail"
        path.write_text(f"#!/bin/sh\n{script}")
        path.chmod(0o755)
        return path

    return write


def post(*recipients: str, sender: str | None = None, seconds: float = 20) -> dict[str, str]:
    letter = Letter(recipients, "lab7: 28 % idle-held", "text\n.\n-- \n")
    return send(build_message(letter, sender), recipients, Mail(sender=sender), seconds)


def kept(path: Path) -> tuple[list[str], bytes]:
    return path.with_name("sendmail.arguments").read_text().split(), path.with_name("sendmail.mail").read_bytes()


def test_it_is_given_the_mail_and_each_recipient_as_an_argument(install: Install) -> None:
    path = install(KEEP)
    assert post(ADA, BEN) == {}
    arguments, mail = kept(path)
    assert arguments == ["-i", "--", ADA, "-i", "--", BEN]
    assert b"\r" not in mail
    assert b"\nTo: ada@lab.example, ben@lab.example\n" in b"\n" + mail
    assert b"\nFrom:" not in b"\n" + mail


def test_it_is_told_who_sends(install: Install) -> None:
    path = install(KEEP)
    assert post(ADA, sender="gua@lab.example") == {}
    arguments, mail = kept(path)
    assert arguments == ["-i", "-f", "gua@lab.example", "--", ADA]
    assert b"From: gua@lab.example\n" in mail


def test_one_address_that_fails_keeps_nobody_else_from_getting_the_mail(install: Install) -> None:
    path = install(KEEP + f'if [ "$3" = {ADA} ]; then echo "unknown user" >&2; exit 67; fi\n')
    assert post(ADA, BEN) == {ADA: f"{path} failed with status 67: unknown user"}
    assert kept(path)[0][-1] == BEN


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("exit 75", "status 75: it did not say why"),
        ("printf 'queue is full\\n\\ntry later\\n' >&2; exit 75", "status 75: queue is full try later"),
        ("printf '\\033[2Jx\\377\\n' >&2; exit 1", "status 1: \\x1b[2Jx\\xff"),
        ("yes no | head -c 1000000 >&2; exit 1", "status 1: " + "no " * 66 + "no"),
        ("kill -9 $$", "status -9: it did not say why"),
    ],
)
def test_why_it_failed_is_one_printable_line(install: Install, script: str, said: str) -> None:
    path = install(script)
    assert post(ADA) == {ADA: f"{path} failed with {said}"}


def test_what_it_says_when_all_is_well_is_passed_over(install: Install) -> None:
    install("echo all is well; echo all is well >&2")
    assert post(ADA) == {}


def test_a_program_that_hangs_costs_a_bounded_time_and_is_ended(install: Install, tmp_path: Path) -> None:
    path = install(f"echo $$ >{tmp_path}/pid\nsleep 60\n")
    begin = time.monotonic()
    assert post(ADA, BEN, seconds=0.5) == {
        ADA: f"{path} was not done within 0 s",
        BEN: "there was no time left",
    }
    assert time.monotonic() - begin < 5
    pid = int((tmp_path / "pid").read_text())
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_what_goes_on_in_the_background_is_not_waited_for(install: Install) -> None:
    install("sleep 20 &\nexit 0\n")
    begin = time.monotonic()
    assert post(ADA) == {}
    assert time.monotonic() - begin < 5


def test_a_machine_without_the_program_is_told_what_to_install(install: Install) -> None:
    assert post(ADA) == {
        ADA: "there is no sendmail on this machine: install postfix, exim or msmtp-mta, or set [mail] smtp"
    }


def test_a_program_that_can_not_be_run_is_named(install: Install) -> None:
    path = install("")
    path.write_text("neither a script nor a program")
    assert post(ADA) == {ADA: f"{path} can't be run: Exec format error"}


def test_no_program_of_the_working_folder_is_run(
    install: Install, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(KEEP)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", ":.:../" + tmp_path.name)
    assert "there is no sendmail" in post(ADA)[ADA]
    assert not (tmp_path / "sendmail.mail").exists()


def test_it_is_found_where_it_usually_is(monkeypatch: pytest.MonkeyPatch, install: Install, tmp_path: Path) -> None:
    path = install(KEEP)
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.setattr(sendmail, "FOLDERS", (str(tmp_path),))
    assert sendmail.find_sendmail() == str(path)


@pytest.mark.parametrize(
    ("script", "seconds", "is_unsure"),
    [
        ("exit 67", 20, False),
        ("kill -9 $$", 20, True),
        ("sleep 20", 0.2, True),
        ("exit 75", 20, True),  # by which some say that it is queued
    ],
)
def test_what_may_have_been_sent_is_told_from_what_was_refused(
    install: Install, script: str, seconds: float, is_unsure: bool
) -> None:
    install(script)
    assert isinstance(post(ADA, seconds=seconds)[ADA], Unsure) == is_unsure


def test_what_nobody_was_given_was_not_sent_for_certain(install: Install) -> None:
    assert not isinstance(post(ADA)[ADA], Unsure)
    install("").write_text("#!/no/such/shell\n")
    assert not isinstance(post(ADA)[ADA], Unsure)
