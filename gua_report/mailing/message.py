"""Build a mail. Its text, subject and names are hostile: none of them can add a header or a recipient."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from email.headerregistry import Address
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import localtime, make_msgid
from html import escape
from typing import NamedTuple

from gua_report.console.addresses import is_address, is_domain
from gua_report.console.fitting import fit
from gua_sample.processes import printable

LONGEST_SUBJECT = 150  # in columns
# ASCII alone, so that every server takes it; each header is checked to be one when it is written.
POLICY = SMTP.clone(cte_type="7bit")


class Attachment(NamedTuple):
    name: str  # of letters, digits, dots and dashes
    text: str
    subtype: str = "html"


class Letter(NamedTuple):
    """What a mail says, and to whom."""

    to: Sequence[str]
    subject: str
    text: str
    attachments: tuple[Attachment, ...] = ()
    has_tables: bool = False  # which need letters of one width: many mail programs show text in others


def build_message(letter: Letter, sender: str | None) -> EmailMessage:
    """The message. Without a sender it has no From, which the machine's sendmail adds.

    Raises ValueError for an address that is none: who calls has checked it before.
    """
    message = EmailMessage(POLICY)
    if sender is not None:
        message["From"] = _address(sender)
    message["To"] = [_address(recipient) for recipient in letter.to]
    message["Subject"] = one_line(letter.subject)
    message["Date"] = localtime()
    message["Message-ID"] = make_msgid(domain=sender.partition("@")[2] if sender else host_name())
    message["Auto-Submitted"] = "auto-generated"  # so that nobody's absence is answered to us
    text = "\n".join(printable(line) for line in letter.text.split("\n"))
    text = text.rstrip("\n") + "\n"
    message.set_content(text, cte="quoted-printable")
    if letter.has_tables:
        message.add_alternative(f"<pre>{escape(text, quote=False)}</pre>\n", subtype="html", cte="quoted-printable")
    for name, content, subtype in letter.attachments:
        message.add_attachment(_encodable(content), subtype=subtype, filename=name, cte="base64")
    return message


def _address(text: str) -> Address:
    if not is_address(text):
        raise ValueError(f"no address: {text!r}")
    return Address(addr_spec=text)


def _encodable(text: str) -> str:
    return text.encode("utf-8", "replace").decode()  # half a surrogate pair has no encoding


def one_line(text: str) -> str:
    """The text as the value of a header: one line of printable characters, not too long.

    What looks like an encoded word (=?utf-8?q?...?=) is broken up: it would be decoded, with the line breaks in it.
    """
    return fit(printable(text[:LONGEST_SUBJECT]).replace("=?", "= ?"), LONGEST_SUBJECT)


def host_name() -> str:
    """The name of this machine if it may stand in a mail's headers, else localhost."""
    name = socket.gethostname()
    return name if is_domain(name) else "localhost"


def show_message(message: EmailMessage) -> str:
    """The mail for a terminal: headers, text, and what is attached by name and size."""
    headers = [f"{name}: {value}" for name, value in message.items() if not name.startswith(("Content-", "MIME-"))]
    attached = [
        f"[{part.get_filename()}: {part.get_content_type()}, {len(part.get_content()) / 1000:,.0f} kB]"
        for part in message.iter_attachments()
    ]
    return "\n".join([*headers, "", text_of(message), *attached])


def text_of(message: EmailMessage) -> str:
    body = message.get_body(("plain",))
    assert isinstance(body, EmailMessage)
    return str(body.get_content())
