"""Send by SMTP."""

import os
import smtplib
import socket
import ssl
from base64 import b64encode
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from email.message import EmailMessage
from typing import NamedTuple

from gua_report.config import Mail
from gua_report.console.addresses import Server, parse_server
from gua_report.machine.child import Silent, answer_of
from gua_report.mailing.message import Unsure, host_name
from gua_sample.errors import GuaError, StoreError
from gua_sample.processes import printable
from gua_sample.safe_file import open_regular

MOST_BYTES = 4096
LONGEST_REASON = 300
LEFT = "closed the connection"


class Login(NamedTuple):
    user: str
    password: str

    def __repr__(self) -> str:
        return f"Login({self.user!r}, ...)"

    def hide(self, text: str) -> str:
        """The text without the password, in clear or as it is sent: a server may repeat it in its answer."""
        sent = (f"\0{self.user}\0{self.password}", self.password)  # by AUTH PLAIN, by AUTH LOGIN
        for secret in (*(b64encode(one.encode()).decode() for one in sent), self.password):
            text = text.replace(secret, "...")
        return text


def read_login(mail: Mail) -> Login | None:
    if mail.smtp_user is None or mail.password_file is None:
        return None
    path = mail.password_file
    try:
        with open(open_regular(path, MOST_BYTES), "rb", buffering=0) as file:
            found, first = os.fstat(file.fileno()), file.read(MOST_BYTES).split(b"\n")[0].removesuffix(b"\r")
    except OSError as error:
        raise GuaError(f"{path} can't be read ({error.strerror}): sudo chown root:gua it, and chmod 640") from error
    if found.st_uid not in (0, os.geteuid()):
        raise GuaError(f"{path} belongs to uid {found.st_uid}, who could exchange the password: sudo chown root:gua it")
    if found.st_mode & 0o007:
        raise GuaError(f"{path} is open to everybody (mode {found.st_mode & 0o7777:04o}): sudo chmod 640 it")
    password = first.decode("ascii", "replace")
    if not password or not password.isascii() or not password.isprintable():
        raise GuaError(f"{path} has no password in its first line: expected one of printable ASCII characters")
    return Login(mail.smtp_user, password)


def send_by_smtp(message: EmailMessage, recipients: Sequence[str], mail: Mail, seconds: float) -> dict[str, str]:
    """Send it in one conversation. What that does not answer once the mail is begun is Unsure."""
    server = parse_server(mail.smtp or "")
    assert server  # checked when the configuration is read, as is that there is a sender
    try:
        login = read_login(mail)
    except GuaError as error:
        return dict.fromkeys(recipients, str(error))
    content = message.as_bytes()

    def converse() -> dict[str, tuple[str, bool]]:
        is_begun = False
        try:
            with connect(server, mail.ca_file, max(0.01, seconds)) as client:
                if login:
                    client.login(login.user, login.password)
                is_begun = True
                refused = client.sendmail(mail.sender or "", recipients, content)
        except smtplib.SMTPRecipientsRefused as error:  # nobody got it, though some may have been accepted
            refused = dict.fromkeys(recipients, (0, b"")) | error.recipients
        except (smtplib.SMTPException, OSError, ValueError) as error:  # ValueError: a challenge that is no base64
            return dict.fromkeys(recipients, (explain(error), not is_begun or is_refusal(error)))
        whys = {one: f"refused it ({_quote(*answer)})" if answer[0] else LEFT for one, answer in refused.items()}
        return {one: (why, True) for one, why in whys.items()}

    found: dict[str, tuple[str, bool]]
    try:
        found = answer_of(converse, None, max(0.01, seconds), range(3))
    except StoreError as error:
        why = f"was not done within {seconds:.0f} s" if isinstance(error, Silent) else "ended the conversation"
        found = dict.fromkeys(recipients, (why, False))
    # Shortened last: of half a password, nothing could be hidden any more.
    shown = {one: f"{server} {login.hide(why) if login else why}" for one, (why, _) in found.items()}
    short = {one: printable(" ".join(why.split()))[:LONGEST_REASON] for one, why in shown.items()}
    return {one: why if found[one][1] else Unsure(why) for one, why in short.items()}


@contextmanager
def connect(server: Server, ca_file: str | None, seconds: float) -> Iterator[smtplib.SMTP]:
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
    match error:
        case ssl.SSLCertVerificationError():
            return f"has a certificate that is not trusted ({error.verify_message}): nothing was sent"
        case ssl.SSLError():
            return f"does not speak TLS as expected ({error.reason or error}): nothing was sent"
        case smtplib.SMTPResponseException(smtp_code=code, smtp_error=answer):
            what = "refused it" if is_refusal(error) else "gave an odd answer"
            what = "refused the login" if isinstance(error, smtplib.SMTPAuthenticationError) else what
            what = f"refused the sender {error.sender}" if isinstance(error, smtplib.SMTPSenderRefused) else what
            return f"{what} ({_quote(code, answer)})"
        case socket.gaierror():
            return f"is not known here ({error.strerror})"
        case OSError() if not isinstance(error, smtplib.SMTPException):
            return f"can't be reached ({error.strerror or error})"
    return f"can't be used ({error})"


def _quote(code: int, answer: bytes | str) -> str:
    text = answer.decode("utf-8", "backslashreplace") if isinstance(answer, bytes) else answer
    return f"{code} {text}".strip()
