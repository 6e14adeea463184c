"""By SMTP: over TLS with a right certificate or not at all, and whatever the server does costs a bounded time."""

import os
import re
import smtplib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from gua_report.config import Mail
from gua_report.mailing.message import Letter, Unsure, build_message, send
from gua_report.mailing.smtp import Login, read_login
from gua_sample.errors import GuaError
from tests.machine import within
from tests.mail_server import ELSEWHERE, PASSWORD, USER, MailServer, mail_server, scripted
from tests.redis_server import CERTIFICATE, KEY
from tests.users import SOMEBODY, needs_root

ADA, BEN, EVA = "ada@lab.example", "ben@lab.example", "eva@lab.example"

GUA = "gua@lab.example"


@pytest.fixture(scope="module")
def server() -> Iterator[MailServer]:
    """A server that offers STARTTLS and wants no login."""
    with mail_server() as server:
        yield server


def settings(url: str, password_file: Path | None = None, ca_file: Path | None = CERTIFICATE) -> Mail:
    mail = Mail(sender=GUA, smtp=url, ca_file=str(ca_file) if ca_file else None)
    return mail._replace(smtp_user=USER, password_file=str(password_file)) if password_file else mail


def post(mail: Mail, *recipients: str, seconds: float = 20) -> dict[str, str]:
    letter = Letter(recipients or (ADA,), "lab7: 28 % idle-held", "text\n.\n.. and more\n")
    return send(build_message(letter, mail.sender), letter.to, mail, seconds)


@pytest.mark.parametrize("scheme", ["smtp", "smtps"])
def test_a_mail_is_sent_encrypted_and_after_a_login(scheme: str, password_file: Path) -> None:
    with mail_server(scheme, login=True) as server:
        assert post(settings(server.url, password_file), ADA, BEN) == {}
    (got,) = server.received
    assert (got.sender, got.recipients, got.user) == (GUA, [ADA, BEN], USER)
    assert scheme == "smtps" or (got.is_encrypted and server.logins == [(USER, True)])
    assert got.content.endswith(b"text\r\n.\r\n.. and more\r\n")
    assert PASSWORD.encode() not in got.content


def test_a_server_without_starttls_gets_nothing(password_file: Path) -> None:
    with mail_server(starttls=False) as server:
        mail = settings(server.url, password_file)
        assert post(mail) == {ADA: f"{server.url} can't be used (STARTTLS extension not supported by server.)"}
    assert (server.received, server.logins) == ([], [])


@pytest.mark.parametrize("scheme", ["smtp", "smtps"])
@pytest.mark.parametrize(
    ("certificate", "ca_file", "said"),
    [
        ((CERTIFICATE, KEY), None, "self.signed certificate"),
        ((CERTIFICATE, KEY), ELSEWHERE[0], "self.signed certificate"),
        (ELSEWHERE, ELSEWHERE[0], "Hostname mismatch, certificate is not valid for 'localhost'."),
    ],
)
def test_a_wrong_certificate_gets_nothing(
    scheme: str, certificate: tuple[Path, Path], ca_file: Path | None, said: str, password_file: Path
) -> None:
    with mail_server(scheme, certificate=certificate, login=True) as server:
        (why,) = post(settings(server.url, password_file, ca_file)).values()
    assert re.fullmatch(f"{server.url} has a certificate that is not trusted \\({said}\\): nothing was sent", why)
    assert (server.received, server.logins) == ([], [])


def test_a_server_that_takes_back_starttls_gets_nothing(password_file: Path) -> None:
    with scripted(b"220 hi\r\n", b"250-hi\r\n250 STARTTLS\r\n", b"454 not now\r\n") as server:
        mail = settings(f"smtp://localhost:{server.port}", password_file)
        assert post(mail) == {ADA: f"{mail.smtp} refused it (454 not now)"}
    assert server.heard.split(b"\r\n")[1:3] in ([b"STARTTLS", b""], [b"STARTTLS", b"QUIT"])
    assert b"MAIL" not in server.heard


def test_a_server_that_speaks_no_tls_on_its_tls_port_gets_nothing() -> None:
    with scripted(b"220 hi\r\n", b"250 hi\r\n") as server:
        why = post(settings(f"smtps://localhost:{server.port}"))[ADA]
    assert "does not speak TLS as expected (WRONG_VERSION_NUMBER): nothing was sent" in why
    assert b"MAIL" not in server.heard


@pytest.mark.parametrize("scheme", ["smtp", "smtps"])
def test_a_server_that_says_nothing_costs_a_bounded_time(scheme: str) -> None:
    with scripted() as server, within(5):
        why = post(settings(f"{scheme}://localhost:{server.port}"), ADA, BEN, seconds=0.7)
    assert list(why) == [ADA, BEN]
    assert "timed out" in why[ADA] or "was not done within 1 s" in why[ADA]


def test_a_server_that_never_ends_its_answer_costs_a_bounded_time() -> None:
    """Each line comes in time, which a timeout of the socket would wait for for ever."""
    with scripted(b"220-and another line\r\n", drip_seconds=0.05) as server, within(5):
        why = post(settings(f"smtp://localhost:{server.port}"), seconds=0.7)
    assert why == {ADA: f"smtp://localhost:{server.port} was not done within 1 s"}


def test_one_address_that_is_refused_keeps_nobody_else_from_getting_the_mail() -> None:
    answers = {BEN: "550 no such user"}
    with mail_server(answers=answers) as server:
        assert post(settings(server.url), ADA, BEN, EVA) == {BEN: f"{server.url} refused it (550 no such user)"}
        assert post(settings(server.url), BEN) == {BEN: f"{server.url} refused it (550 no such user)"}
        answers[BEN] = "421 leaving"  # so that it has sent to nobody
        left = f"{server.url} closed the connection"
        refused = f"{server.url} refused it (421 leaving)"
        assert post(settings(server.url), ADA, BEN, EVA) == {ADA: left, BEN: refused, EVA: left}
    assert [got.recipients for got in server.received] == [[ADA, EVA]]
    assert post(settings("smtp://localhost:1")) == {ADA: "smtp://localhost:1 can't be reached (Connection refused)"}


@pytest.mark.parametrize(
    ("verb", "said"),
    [
        ("MAIL", f"refused the sender {GUA} (553 no, no)"),
        ("DATA", "refused it (553 no, no)"),
    ],
)
def test_what_the_server_refuses_is_said_in_one_printable_line(verb: str, said: str) -> None:
    with mail_server(answers={verb: "553 no,\u2028no\x1b[2J"}) as server:
        (why,) = post(settings(server.url)).values()
    assert why == f"{server.url} {said[:-1]}\\x1b[2J)"


@pytest.mark.parametrize(
    ("answer", "is_unsure"),
    [("252 I will try", True), ("taken", True), ("200 taken", True), ("451 try later", False), ("554 spam", False)],
)
def test_a_mail_that_no_refusal_followed_may_have_been_taken(answer: str, is_unsure: bool) -> None:
    with mail_server(answers={"DATA": answer}) as server:
        (why,) = post(settings(server.url)).values()
    assert isinstance(why, Unsure) == is_unsure


def test_a_login_that_is_refused_shows_no_password_even_if_the_server_does(password_file: Path) -> None:
    phrase = "correct horse battery staple"
    # As it is, by AUTH LOGIN, by AUTH PLAIN for the user gua.
    shown = [phrase, "Y29ycmVjdCBob3JzZSBiYXR0ZXJ5IHN0YXBsZQ==", "AGd1YQBjb3JyZWN0IGhvcnNlIGJhdHRlcnkgc3RhcGxl"]
    answers = {"AUTH": f"535 {' and '.join(shown)} are wrong"}
    with mail_server(login=True, answers=answers) as server:
        password_file.write_text(phrase)
        (why,) = post(settings(server.url, password_file)).values()
        assert why == f"{server.url} refused the login (535 ... and ... and ... are wrong)"
        password_file.write_text("s3cret" * 20)  # a long answer is cut, and no half of it is left
        answers["AUTH"] = f"535 {'x' * 200} {'s3cret' * 20}"
        (why,) = post(settings(server.url, password_file)).values()
    assert "s3c" not in why
    assert server.received == []


def test_a_password_file_that_is_not_fit_is_an_error_and_no_mail(server: MailServer, tmp_path: Path) -> None:
    before = len(server.received)
    mail = settings(server.url, tmp_path / "missing")
    (why,) = post(mail).values()
    assert why.startswith(f"{tmp_path}/missing can't be read (No such file or directory)")
    assert len(server.received) == before


@pytest.mark.parametrize("ca_file", [Path("/nowhere/ca.pem"), KEY, Path("/etc")])
def test_a_ca_file_without_certificates_is_named(server: MailServer, ca_file: Path) -> None:
    (why,) = post(settings(server.url, ca_file=ca_file)).values()
    assert f"no certificates in [mail] ca_file {ca_file}: " in why


@pytest.mark.parametrize("challenge", [b"334 abc\r\n", b"334 \xff\r\n", b"nonsense\r\n"])
def test_a_server_that_talks_nonsense_is_an_error(challenge: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a conversation that is not encrypted, which no other test could have with such a server."""
    monkeypatch.setattr(smtplib.SMTP, "starttls", lambda *_, **__: None)
    monkeypatch.setattr("gua_report.mailing.smtp.read_login", lambda _: Login(USER, PASSWORD))
    with scripted(b"220 hi\r\n", b"250-hi\r\n250 AUTH CRAM-MD5\r\n", challenge) as server:
        (why,) = post(settings(f"smtp://localhost:{server.port}"), seconds=1).values()
    assert why.startswith(f"smtp://localhost:{server.port} ")
    assert why.isprintable()
    assert PASSWORD not in why


WORD = "hunter2"


@pytest.fixture
def password_file(tmp_path: Path) -> Path:
    path = tmp_path / "smtp-password"
    path.write_text(f"{PASSWORD}\nwhat comes after the first line is no part of it\n")
    path.chmod(0o640)
    return path


@pytest.fixture
def path(password_file: Path) -> Path:
    password_file.write_text(WORD + "\n")
    return password_file


def read(path: Path) -> Login | None:
    return read_login(Mail(smtp="smtp://h", sender="gua@h", smtp_user="gua", password_file=str(path)))


@pytest.mark.parametrize("text", ["{}\n", "{}", "{}\r\n", "{}\n# of the lab's server\n"])
def test_the_first_line_is_the_password(path: Path, text: str) -> None:
    for mode, word in ((0o640, WORD), (0o600, WORD), (0o660, "  a b  ")):
        path.write_text(text.format(word))
        path.chmod(mode)
        assert read(path) == Login("gua", word)


def link(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))
    path.symlink_to("elsewhere")


def pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path, 0o600)


def folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


NO_PASSWORDS = (b"", b"\n", b"\nhunter2\n", b"hunt\xc3\xa4r2\n", b"hunter2\0\n", b"hunt\ter2\n", b"\xff\n")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (link, "is a link, which is not followed"),
        (pipe, "is no regular file"),
        (folder, "is no regular file"),
        (lambda path: path.write_text(WORD + "\n" * 5000), "is too large"),
        (os.unlink, "can't be read (No such file or directory)"),
        *((partial(os.chmod, mode=mode), f"is open to everybody (mode 0{mode:o})") for mode in (0o644, 0o602, 0o641)),
        *((partial(Path.write_bytes, data=data), "has no password in its first line") for data in NO_PASSWORDS),
        pytest.param(
            lambda path: os.chown(path, SOMEBODY, 0),
            f"belongs to uid {SOMEBODY}, who could exchange the password",
            marks=needs_root,
        ),
    ],
)
def test_a_file_that_is_not_fit_is_refused_and_not_shown(
    path: Path, change: Callable[[Path], object], said: str
) -> None:
    change(path)
    with pytest.raises(GuaError) as caught:
        read(path)
    assert str(caught.value).startswith(f"{path} {said}")
    assert "hunt" not in str(caught.value)


def test_no_text_shows_the_password() -> None:
    login = Login("gua", WORD)
    assert WORD not in f"{login} {login!r}"
    assert login.hide("a hunter2 aHVudGVyMg== AGd1YQBodW50ZXIy b") == "a ... ... ... b"
