"""Build a mail, and hand it over to the machine's sendmail, as cron does, or to a server.

Its text, subject and names are hostile: none of them can add a header or a recipient.
"""

import os
import shutil
import socket
import textwrap
import time
from collections.abc import Sequence
from email.headerregistry import Address
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import localtime, make_msgid
from html import escape
from typing import NamedTuple

from gua_report.config import Mail
from gua_report.console.addresses import is_address, is_domain
from gua_report.console.fitting import fit
from gua_report.machine.program import run_program
from gua_sample.processes import printable

LONGEST_SUBJECT = 150  # in columns
WIDTH = 72
# ASCII alone, so that every server takes it; each header is checked to be one when it is written.
POLICY = SMTP.clone(cte_type="7bit")
SECONDS = 60.0  # for one mail, to all of its recipients
FOLDERS = ("/usr/sbin", "/usr/lib")  # not on every user's PATH
LONGEST_REASON = 200
NO_SENDMAIL = "there is no sendmail on this machine: install postfix, exim or msmtp-mta, or set [mail] smtp"


def address_of(person: str, mail: Mail) -> str | None:
    if person in mail.addresses:
        return mail.addresses[person]
    address = f"{person}@{mail.domain}" if mail.domain else ""
    return address if is_address(address) else None


class Attachment(NamedTuple):
    name: str  # of letters, digits, dots and dashes
    text: str  # HTML


class Letter(NamedTuple):
    to: Sequence[str]
    subject: str
    text: str
    attachments: tuple[Attachment, ...] = ()
    has_tables: bool = False  # which need letters of one width: many mail programs show text in others


def build_message(letter: Letter, sender: str | None) -> EmailMessage:
    for address in (*letter.to, *([sender] if sender is not None else [])):
        if not is_address(address):
            raise ValueError(f"no address: {address!r}")
    message = EmailMessage(POLICY)
    if sender is not None:
        message["From"] = Address(addr_spec=sender)
    if letter.to:
        message["To"] = [Address(addr_spec=recipient) for recipient in letter.to]
    # What looks like an encoded word (=?utf-8?q?...?=) is broken up: it would be decoded, with its line breaks.
    subject = printable(letter.subject[:LONGEST_SUBJECT]).replace("=?", "= ?")
    message["Subject"] = fit(subject, LONGEST_SUBJECT)
    message["Date"] = localtime()
    message["Message-ID"] = make_msgid(domain=sender.partition("@")[2] if sender else host_name())
    message["Auto-Submitted"] = "auto-generated"  # so that nobody's absence is answered to us
    text = "\n".join(printable(line) for line in letter.text.split("\n")).rstrip("\n") + "\n"
    message.set_content(text, cte="quoted-printable")
    if letter.has_tables:
        message.add_alternative(f"<pre>{escape(text, quote=False)}</pre>\n", subtype="html", cte="quoted-printable")
    for name, content in letter.attachments:
        encodable = content.encode("utf-8", "replace").decode()  # half a surrogate pair has no encoding
        message.add_attachment(encodable, subtype="html", filename=name, cte="base64")
    return message


def host_name() -> str:
    name = socket.gethostname()
    return name if is_domain(name) else "localhost"


def paragraph(text: str, indent: str = "") -> str:
    lines = textwrap.TextWrapper(WIDTH, indent, indent * 2, break_long_words=False, break_on_hyphens=False)
    return lines.fill(printable(text))


def sign(prog: str) -> str:
    return f"\n-- \n{prog} on {host_name()}"


def show_message(message: EmailMessage) -> str:
    headers = [f"{name}: {value}" for name, value in message.items() if not name.startswith(("Content-", "MIME-"))]
    if "To" not in message:
        headers.insert(0, "To: (nobody yet)")
    attached = [
        f"[{part.get_filename()}: {part.get_content_type()}, {len(part.get_content()) / 1000:,.0f} kB]"
        for part in message.iter_attachments()
    ]
    return "\n".join([*headers, "", text_of(message), *attached])


def text_of(message: EmailMessage) -> str:
    body = message.get_body(("plain",))
    assert isinstance(body, EmailMessage)
    return str(body.get_content())


class Unsure(str):
    """Why it is not known whether a mail was sent; a plain text says why it was not, for certain."""


def send(message: EmailMessage, recipients: Sequence[str], mail: Mail, seconds: float = SECONDS) -> dict[str, str]:
    if mail.smtp is not None:
        from gua_report.mailing.smtp import send_by_smtp  # imported here, as most machines do without

        return send_by_smtp(message, recipients, mail, seconds)
    deadline, program = time.monotonic() + seconds, find_sendmail()
    if program is None:
        return dict.fromkeys(recipients, NO_SENDMAIL)
    content = message.as_bytes(policy=message.policy.clone(linesep="\n"))  # lines as files on this machine have them
    command = [program, "-i", *(["-f", mail.sender] if mail.sender else []), "--"]
    # One by one, since the exit status does not tell which of them it refused.
    answers = {one: _call([*command, one], content, deadline - time.monotonic()) for one in recipients}
    return {address: why for address, why in answers.items() if why is not None}


def find_sendmail() -> str | None:
    places = [*os.environ.get("PATH", os.defpath).split(os.pathsep), *FOLDERS]
    return shutil.which("sendmail", path=os.pathsep.join(filter(os.path.isabs, places)))


def _call(command: list[str], content: bytes, seconds: float) -> str | None:
    if seconds <= 0:
        return "there was no time left"
    try:
        status, _, errors = run_program(command, seconds, content)
    except OSError as error:
        return f"{command[0]} can't be run: {error.strerror}"
    if status is None:
        return Unsure(f"{command[0]} was not done within {seconds:.0f} s")
    said = " ".join(errors.decode("utf-8", "backslashreplace").split())
    failure = f"{command[0]} failed with status {status}: {printable(said)[:LONGEST_REASON] or 'it did not say why'}"
    if status < 0 or status == os.EX_TEMPFAIL:  # killed, before or after it took the mail; or it is tried again later
        return Unsure(failure)
    return failure if status else None
