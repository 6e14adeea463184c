"""Hand a mail over: to the machine's sendmail as cron does, or to a server by SMTP with TLS."""

from __future__ import annotations

import time
from collections.abc import Sequence
from email.message import EmailMessage

from gua_report.config import Mail
from gua_report.mailing.sendmail import send_by_sendmail

SECONDS = 60.0  # for one mail, to all of its recipients


def send(message: EmailMessage, recipients: Sequence[str], mail: Mail, seconds: float = SECONDS) -> dict[str, str]:
    """Send the message to the recipients, whatever its headers say.

    Returns why not, for each address that it could not be sent to; Unsure if it may have been sent. A program or a
    server that hangs costs no more than `seconds`.
    """
    deadline = time.monotonic() + seconds
    if mail.smtp is None:
        return send_by_sendmail(message, recipients, mail.sender, deadline)
    from gua_report.mailing.smtp import send_by_smtp  # imported here, as most machines do without

    return send_by_smtp(message, recipients, mail, deadline)
