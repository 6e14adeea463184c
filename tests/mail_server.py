"""Mail servers: aiosmtpd with TLS and logins, and one that speaks from a script, for what no good server does."""

import asyncio
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP, AuthResult, Envelope, LoginPassword, Session

from tests.redis_server import CERTIFICATE, KEY, free_port

# Self-signed, for elsewhere.example, valid for a hundred years.
ELSEWHERE = CERTIFICATE.with_name("elsewhere.pem"), CERTIFICATE.with_name("elsewhere-key.pem")
USER, PASSWORD = "gua", "hunter2 horse"


class Received(NamedTuple):
    sender: str | None
    recipients: list[str]
    content: bytes
    is_encrypted: bool
    user: str | None  # who has logged in


class MailServer:
    """A server that takes mail for everybody but those in `answers`: verb or address -> what it says instead.

    If that is nothing, it closes the connection.
    """

    def __init__(self, port: int, scheme: str, answers: dict[str, str]) -> None:
        self.url = f"{scheme}://localhost:{port}"
        self.port = port
        self.received: list[Received] = []
        self.logins: list[tuple[str, bool]] = []  # user and whether the connection was encrypted
        self._answers = answers

    async def handle_MAIL(  # noqa: N802 - as aiosmtpd calls it
        self, _server: SMTP, _session: Session, envelope: Envelope, address: str, options: list[str]
    ) -> str:
        if "MAIL" in self._answers:
            return self._answers["MAIL"]
        envelope.mail_from, envelope.mail_options = address, options
        return "250 OK"

    async def handle_RCPT(  # noqa: N802
        self, _server: SMTP, _session: Session, envelope: Envelope, address: str, _options: list[str]
    ) -> str:
        if address in self._answers:
            return self._answers[address]
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, _server: SMTP, session: Session, envelope: Envelope) -> str:  # noqa: N802
        if "DATA" in self._answers:
            return self._answers["DATA"]
        assert isinstance(envelope.content, bytes)
        login: bytes | None = session.auth_data
        user = login.decode() if login else None
        encrypted = session.ssl is not None
        self.received.append(
            Received(envelope.mail_from, [str(one) for one in envelope.rcpt_tos], envelope.content, encrypted, user)
        )
        return "250 OK"

    async def handle_QUIT(self, server: SMTP, _session: Session, _envelope: Envelope) -> str:  # noqa: N802
        if self._answers.get("QUIT") == "":
            assert isinstance(server.transport, asyncio.WriteTransport)
            server.transport.abort()
        return self._answers.get("QUIT", "221 Bye")

    def authenticate(
        self, _server: SMTP, session: Session, _envelope: Envelope, _mechanism: str, data: LoginPassword
    ) -> AuthResult:
        user, password = data.login.decode(), data.password.decode()
        self.logins.append((user, session.ssl is not None))
        if (user, password) == (USER, PASSWORD):
            return AuthResult(success=True, auth_data=data.login)
        return AuthResult(success=False, handled=False, message=self._answers.get("AUTH", "535 wrong password"))


def tls(certificate: Path, key: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    return context


@contextmanager
def mail_server(
    scheme: str = "smtp",
    starttls: bool = True,
    login: bool = False,
    answers: dict[str, str] | None = None,
    certificate: tuple[Path, Path] = (CERTIFICATE, KEY),
) -> Iterator[MailServer]:
    """A server on localhost, until the block ends. With `login` it takes no mail without one."""
    server = MailServer(free_port(), scheme, answers or {})
    options: dict[str, Any] = {"decode_data": False, "ident": "a mail server"}
    if scheme == "smtp" and starttls:
        options["tls_context"] = tls(*certificate)
    if login:
        # aiosmtpd does not see that a connection is encrypted from the first byte, and so can't be told to insist.
        is_seen = scheme == "smtp"
        options |= {"authenticator": server.authenticate, "auth_required": is_seen, "auth_require_tls": is_seen}
    context = tls(*certificate) if scheme == "smtps" else None
    controller = Controller(server, "127.0.0.1", server.port, ready_timeout=20, ssl_context=context, **options)
    controller.start()
    try:
        yield server
    finally:
        controller.stop()


class Scripted(NamedTuple):
    port: int
    heard: bytearray


@contextmanager
def scripted(*lines: bytes, drip_seconds: float = 0) -> Iterator[Scripted]:
    """A server that says one line at once and the others after each line that it hears, then nothing any more.

    With `drip_seconds` it repeats the last line for ever, that often.
    """
    listener = socket.create_server(("127.0.0.1", 0))
    server = Scripted(listener.getsockname()[1], bytearray())
    is_over = threading.Event()

    def speak() -> None:
        with suppress(OSError), listener.accept()[0] as connection:
            for number, line in enumerate(lines):
                if number:
                    server.heard.extend(connection.recv(4096))
                connection.sendall(line)
            while drip_seconds and not is_over.wait(drip_seconds):
                connection.sendall(lines[-1])
            connection.settimeout(20)
            while not is_over.is_set() and (heard := connection.recv(4096)):
                server.heard.extend(heard)

    thread = threading.Thread(target=speak, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        is_over.set()
        with suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(20)
