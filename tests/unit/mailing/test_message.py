"""A mail that is put together from hostile parts: who gets it, which headers it has, and what arrives."""

import email
import email.policy
import re
from collections.abc import Callable
from email.message import EmailMessage
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gua_report.config import Mail
from gua_report.mailing import message as sending
from gua_report.mailing.message import Attachment, Letter, Unsure, address_of, build_message, send

TO = ["ada@lab.example", "ben@lab.example"]
HEADERS = ["From", "To", "Subject", "Date", "Message-ID", "Auto-Submitted"]
HOSTILE = [
    "lab7\r\nBcc: eve@evil.example",
    "lab7\nBcc: eve@evil.example\n\nanother body",
    "lab7\rBcc: eve@evil.example",
    "lab7\x0bBcc: eve@evil.example\x0c\x1c\x1d\x1e\x85",
    "lab7\u2028Bcc: eve@evil.example\u2029",
    "lab7\0",
    "=?utf-8?q?lab7=0D=0ABcc:_eve@evil.example?=",
    "=?utf-8?b?bGFiNw0KQmNjOiBldmVAZXZpbC5leGFtcGxl?=",
    "=?utf-8?q?=0A?= =?utf-8?q?Bcc:=20eve=40evil.example?=",
    "==??utf-8?q?=0ABcc:eve@evil.example?=",
    "=\u200b?utf-8?q?=0ABcc:eve@evil.example?=",
    "Ω" * 10**5,
    "a" * 10**5,
    "a " * 10**5,
    "😀=?" * 100,
    "\ud800\udfff",
    "\x1b]0;x\x07",
    "a\u202eb",
    "",
]


def delivered(letter: Letter, sender: str | None = "gua@lab.example") -> EmailMessage:
    """The message as a mail program reads it, after checks that hold for all of them."""
    data = build_message(letter, sender).as_bytes()
    assert data.isascii()
    assert b"\0" not in data
    assert not re.search(rb"\r(?!\n)|(?<!\r)\n", data)  # a lone one may end a line for the next server
    assert max(map(len, data.split(b"\r\n"))) <= 998
    parsed = email.message_from_bytes(data.replace(b"\r\n", b"\n"), policy=email.policy.default)  # as in a mailbox
    assert isinstance(parsed, EmailMessage)
    assert not [defect for part in parsed.walk() for defect in part.defects]
    return parsed


def headers_of(message: EmailMessage) -> list[str]:
    return [name for name in message.keys() if not name.startswith(("Content-", "MIME-"))]  # noqa: SIM118 - not a dict


def check_nothing_was_added(message: EmailMessage) -> None:
    assert headers_of(message) == HEADERS
    assert [address.addr_spec for address in message["To"].addresses] == TO
    assert [address.addr_spec for address in message["From"].addresses] == ["gua@lab.example"]
    subject = str(message["Subject"])
    assert subject.isprintable()
    assert len(subject) <= sending.LONGEST_SUBJECT + 10  # folding may leave a blank


@settings(deadline=None)
@given(st.text(st.characters(codec=None)) | st.lists(st.sampled_from(HOSTILE), max_size=3).map("".join))
@example("=?utf-8?q?a?=\t=?utf-8?q?=0D=0A?=")
def test_no_subject_adds_a_header_or_a_recipient(text: str) -> None:
    check_nothing_was_added(delivered(Letter(TO, text, "text")))


@pytest.mark.parametrize("text", [*HOSTILE, ".\r\nMAIL FROM:<eve@evil.example>\r\n", "\n.\n", "From eve\n"])
def test_no_text_ends_a_mail_or_begins_another(text: str) -> None:
    message = delivered(Letter(TO, "subject", text, (Attachment("page.html", text),)))
    check_nothing_was_added(message)
    body = message.get_body(("plain",))
    assert body is not None
    assert all(line.isprintable() for line in body.get_content().split("\n"))
    assert len(list(message.walk())) == 3  # the whole, the text, the page


@pytest.mark.parametrize("attachments", [(), (Attachment("page.html", "<p>"),)])
def test_tables_are_sent_in_letters_of_one_width_too(attachments: tuple[Attachment, ...]) -> None:
    text = "who  GiB\n<b>  1&lt;\n"
    message = delivered(Letter(TO, "subject", text, attachments, has_tables=True))
    check_nothing_was_added(message)
    plain, html = message.get_body(("plain",)), message.get_body(("html",))
    assert plain is not None
    assert html is not None
    assert plain.get_content() == text
    assert html.get_content() == "<pre>who  GiB\n&lt;b&gt;  1&amp;lt;\n</pre>\n"
    assert [part.get_filename() for part in message.iter_attachments()] == [one.name for one in attachments]


def test_what_is_harmless_arrives_as_it_was() -> None:
    text = "To act on: 3\n  █▓ ada 28.0%\n.\n\n-- \n" + "long " * 400
    page = "<!DOCTYPE html>\n<p>ä</p>\n" + "x" * 5000 + "\n"
    message = delivered(Letter(TO, "läb7: 28 % idle-held, 6 held now", text, (Attachment("gpu-use.html", page),)))
    assert message["Subject"] == "läb7: 28 % idle-held, 6 held now"
    assert message["Auto-Submitted"] == "auto-generated"
    assert message["Date"].datetime.tzinfo is not None
    body = message.get_body(("plain",))
    assert body is not None
    assert body.get_content() == text + "\n"
    (attached,) = message.iter_attachments()
    assert (attached.get_filename(), attached.get_content_type()) == ("gpu-use.html", "text/html")
    assert attached.get_content().replace("\r\n", "\n") == page


@pytest.mark.parametrize(
    "name", ["lab7", "lab7\nBcc: eve@evil.example", "", "a" * 300, "läb", "=?utf-8?q?=0A?=", "a b"]
)
def test_the_name_of_the_host_makes_an_id_whatever_it_is(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: name)
    message = delivered(Letter(TO, "subject", "text"), None)
    assert headers_of(message) == HEADERS[1:]  # sendmail says from whom
    assert re.fullmatch(r"<[0-9.]+@(lab7|localhost)>", message["Message-ID"])


@pytest.mark.parametrize(
    "address", ["ada", "ada@lab.example\nBcc: eve@evil.example", "a@b,c@d", "Ada <ada@lab.example>"]
)
def test_what_is_no_address_is_no_recipient_and_no_sender(address: str) -> None:
    with pytest.raises(ValueError, match="no address"):
        build_message(Letter([address], "subject", "text"), "gua@lab.example")
    with pytest.raises(ValueError, match="no address"):
        build_message(Letter(TO, "subject", "text"), address)


LAB = Mail(domain="lab.example", addresses={"Bob Müller": "bob@elsewhere.example", "uid:1005": "eva@lab.example"})


@pytest.mark.parametrize(
    ("person", "address"),
    [
        ("ada", "ada@lab.example"),
        ("Bob Müller", "bob@elsewhere.example"),
        ("uid:1005", "eva@lab.example"),
        *((name, None) for name in ("uid:1006", "docker:3f2a9c81d0b7", "unit:x.service", "(unattributed)", "unknown?")),
        *((name, None) for name in ("LAB\\ada", "ada@other.example", "ada,ben", "ada\r\nBcc: ben", "-oQ", "")),
    ],
)
def test_a_person_has_the_address_of_the_map_or_of_the_domain_or_none(person: str, address: str | None) -> None:
    assert address_of(person, LAB) == address
    assert address_of(person, LAB._replace(domain=None)) == LAB.addresses.get(person)


ADA, BEN = "ada@lab.example", "ben@lab.example"

KEEP = 'printf "%s\\n" "$@" >>"$0.arguments"\ncat >"$0.mail"\n'
Install = Callable[[str], Path]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Put a script called sendmail where no other one is found."""
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(sending, "FOLDERS", ())

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


def test_it_is_given_the_mail_and_each_recipient_as_an_argument_and_who_sends(install: Install) -> None:
    path = install(KEEP)
    assert post(ADA, BEN) == {}
    arguments, mail = kept(path)
    assert arguments == ["-i", "--", ADA, "-i", "--", BEN]
    assert b"\r" not in mail
    assert b"\nTo: ada@lab.example, ben@lab.example\n" in b"\n" + mail
    assert b"\nFrom:" not in b"\n" + mail
    assert post(ADA, sender="gua@lab.example") == {}
    arguments, mail = kept(path)
    assert arguments[6:] == ["-i", "-f", "gua@lab.example", "--", ADA]
    assert b"From: gua@lab.example\n" in mail
    path.write_text("neither a script nor a program")
    failed = post(ADA)
    assert failed == {ADA: f"{path} can't be run: Exec format error"}
    assert not isinstance(failed[ADA], Unsure)


@pytest.mark.parametrize(
    ("script", "said", "is_unsure"),
    [
        ("exit 67", "status 67: it did not say why", False),
        ("exit 75", "status 75: it did not say why", True),  # by which some say that it is queued
        ("printf 'queue is full\\n\\ntry later\\n' >&2; exit 75", "status 75: queue is full try later", True),
        ("printf '\\033[2Jx\\377\\n' >&2; exit 1", "status 1: \\x1b[2Jx\\xff", False),
        ("yes no | head -c 1000000 >&2; exit 1", "status 1: " + "no " * 66 + "no", False),
        ("kill -9 $$", "status -9: it did not say why", True),
        ("echo all is well >&2; sleep 20 & exit 1", "status 1: all is well", False),
    ],
)
def test_why_it_failed_is_one_printable_line_and_what_may_have_been_sent_is_told_from_the_rest(
    install: Install, script: str, said: str, is_unsure: bool
) -> None:
    path = install(script)
    failed = post(ADA)
    assert failed == {ADA: f"{path} failed with {said}"}
    assert isinstance(failed[ADA], Unsure) == is_unsure


def test_a_mail_that_took_too_long_may_have_been_sent_but_not_one_that_was_given_to_nobody(install: Install) -> None:
    install("sleep 20")
    assert isinstance(post(ADA, seconds=0.2)[ADA], Unsure)
    assert not isinstance(post(ADA, seconds=0)[ADA], Unsure)


def test_it_is_found_where_it_usually_is_and_never_in_the_working_folder(
    install: Install, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = install(KEEP)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", ":.:../" + tmp_path.name)
    missing = "there is no sendmail on this machine: install postfix, exim or msmtp-mta, or set [mail] smtp"
    assert post(ADA) == {ADA: missing}
    assert not (tmp_path / "sendmail.mail").exists()
    monkeypatch.setattr(sending, "FOLDERS", (str(tmp_path),))
    assert sending.find_sendmail() == str(path)
