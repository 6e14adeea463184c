"""Send by SMTP: over TLS with a checked certificate, or not at all.

The conversation runs in a child process, which is ended at the deadline, whatever the server does meanwhile.
"""

from __future__ import annotations

import smtplib
import socket
import ssl
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from email.message import EmailMessage

from gua_report.config import Mail
from gua_report.console.addresses import Server, parse_server
from gua_report.machine.child import Silent, answer_of
from gua_report.mailing.login import NoLogin, read_login
from gua_report.mailing.message import host_name
from gua_report.mailing.outcome import Unsure
from gua_sample.errors import StoreError
from gua_sample.processes import printable

LONGEST_REASON = 300


def send_by_smtp(message: EmailMessage, recipients: Sequence[str], mail: Mail, deadline: float) -> dict[str, str]:
    """Send the message in one conversation. Returns why not, for each address that it was not sent to.

    It is Unsure if the conversation ended without an answer after the mail was begun.
    """
    server = parse_server(mail.smtp or "")
    assert server  # checked when the configuration is read, as is that there is a sender
    try:
        login = read_login(mail)
    except NoLogin as error:
        return dict.fromkeys(recipients, str(error))
    content, seconds = message.as_bytes(), max(0.01, deadline - time.monotonic())

    def converse() -> dict[str, tuple[str, bool]]:
        """Why not, and whether that is certain, by address."""
        refused: dict[str, tuple[int, bytes]] = {}
        is_begun = False
        try:
            with connect(server, mail.ca_file, seconds) as client:
                if login:
                    client.login(login.user, login.password)
                is_begun = True
                refused = client.sendmail(mail.sender or "", recipients, content)
            return {address: (f"{server} refused it ({_quote(*answer)})", True) for address, answer in refused.items()}
        except smtplib.SMTPRecipientsRefused as error:  # nobody got it, though some may have been accepted
            answers = {address: f"refused it ({_quote(*answer)})" for address, answer in error.recipients.items()}
            return {
                address: (f"{server} {answers.get(address, 'closed the connection')}", True) for address in recipients
            }
        except (smtplib.SMTPException, OSError, ValueError) as error:  # ValueError: a challenge that is no base64
            is_certain = not is_begun or is_refusal(error)
            return dict.fromkeys(recipients, (f"{server} {explain(error)}", is_certain))

    found: dict[str, tuple[str, bool]]
    try:
        found = answer_of(converse, None, seconds, range(3))
    except StoreError as error:
        why = f"was not done within {seconds:.0f} s" if isinstance(error, Silent) else "ended the conversation"
        found = dict.fromkeys(recipients, (f"{server} {why}", False))
    # Shortened last: of half a password, nothing could be hidden any more.
    shown = {address: _shorten(login.hide(why) if login else why) for address, (why, _) in found.items()}
    return {address: why if found[address][1] else Unsure(why) for address, why in shown.items()}


@contextmanager
def connect(server: Server, ca_file: str | None, seconds: float) -> Iterator[smtplib.SMTP]:
    """A connection that is encrypted and whose certificate was found right. Raises SMTPException or OSError."""
    try:
        context = ssl.create_default_context(cafile=ca_file)
    except OSError as error:
        raise smtplib.SMTPException(
            f"no certificates in [mail] ca_file {ca_file}: {error.strerror or error}"
        ) from error
    host, port, us = server.host, server.port, host_name()
    client: smtplib.SMTP
    if server.scheme == "smtps":
        client = smtplib.SMTP_SSL(host, port, us, timeout=seconds, context=context)
    else:
        client = smtplib.SMTP(host, port, us, timeout=seconds)
    try:
        if server.scheme != "smtps":
            client.starttls(context=context)  # raises SMTPException if the server does not offer it
        yield client
        with suppress(smtplib.SMTPException, OSError):  # whatever the server says now, it has taken the mail
            client.quit()
    finally:
        client.close()


def is_refusal(error: Exception) -> bool:
    """Whether a server has said no. One that has taken the mail may say so by any other number, or by nonsense."""
    return isinstance(error, smtplib.SMTPResponseException) and 400 <= error.smtp_code < 600


def explain(error: Exception) -> str:
    """Why nobody got the mail, to be read after the name of the server."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"has a certificate that is not trusted ({error.verify_message}): nothing was sent"
    if isinstance(error, ssl.SSLError):
        return f"does not speak TLS as expected ({error.reason or error}): nothing was sent"
    if isinstance(error, smtplib.SMTPAuthenticationError):
        return f"refused the login ({_quote(error.smtp_code, error.smtp_error)})"
    if isinstance(error, smtplib.SMTPSenderRefused):
        return f"refused the sender {error.sender} ({_quote(error.smtp_code, error.smtp_error)})"
    if isinstance(error, smtplib.SMTPResponseException):
        what = "refused it" if is_refusal(error) else "gave an odd answer"
        return f"{what} ({_quote(error.smtp_code, error.smtp_error)})"
    if isinstance(error, smtplib.SMTPException | ValueError):
        return f"can't be used ({error})"
    if isinstance(error, socket.gaierror):
        return f"is not known here ({error.strerror})"
    return f"can't be reached ({error.strerror or error})" if isinstance(error, OSError) else str(error)


def _quote(code: int, answer: bytes | str) -> str:
    text = answer.decode("utf-8", "backslashreplace") if isinstance(answer, bytes) else answer
    return f"{code} {text}".strip()


def _shorten(text: str) -> str:
    return printable(" ".join(text.split()))[:LONGEST_REASON]
