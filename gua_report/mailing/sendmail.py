"""Send by the machine's own mail program, as cron does: postfix, exim, msmtp and others come with a `sendmail`."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from email.message import EmailMessage

from gua_report.mailing.outcome import Unsure
from gua_sample.processes import printable

FOLDERS = ("/usr/sbin", "/usr/lib")  # not on every user's PATH
LONGEST_REASON = 200


def send_by_sendmail(
    message: EmailMessage, recipients: Sequence[str], sender: str | None, deadline: float
) -> dict[str, str]:
    """Call sendmail for each recipient, since its exit status does not tell which one it refused.

    Returns why not, for each address that it was not sent to; Unsure if it may have been.
    """
    program = find_sendmail()
    if program is None:
        text = "there is no sendmail on this machine: install postfix, exim or msmtp-mta, or set [mail] smtp"
        return dict.fromkeys(recipients, text)
    content = message.as_bytes(policy=message.policy.clone(linesep="\n"))  # lines as files on this machine have them
    options = ["-i", *(["-f", sender] if sender else [])]
    failed = {}
    for recipient in recipients:
        if problem := _call([program, *options, "--", recipient], content, deadline):
            failed[recipient] = problem
    return failed


def find_sendmail() -> str | None:
    places = [*os.environ.get("PATH", os.defpath).split(os.pathsep), *FOLDERS]
    return shutil.which("sendmail", path=os.pathsep.join(filter(os.path.isabs, places)))


def _call(command: list[str], content: bytes, deadline: float) -> str | None:
    """Run the command and return why it failed; None if it did not.

    Files in memory instead of pipes: whatever the program leaves running in the background can't keep us waiting.
    """
    seconds = deadline - time.monotonic()
    if seconds <= 0:
        return "there was no time left"
    with open(os.memfd_create("mail"), "w+b") as mail, open(os.memfd_create("errors"), "w+b") as errors:
        mail.write(content)
        mail.seek(0)
        try:
            process = subprocess.Popen(
                command, stdin=mail, stdout=subprocess.DEVNULL, stderr=errors, start_new_session=True
            )
        except OSError as error:
            return f"{command[0]} can't be run: {error.strerror}"
        try:
            status = process.wait(seconds)
        except subprocess.TimeoutExpired:
            _kill(process)
            return Unsure(f"{command[0]} was not done within {seconds:.0f} s")
        errors.seek(0)
        said = errors.read(LONGEST_REASON * 4).decode("utf-8", "backslashreplace")
    reason = printable(" ".join(said.split()))[:LONGEST_REASON] or "it did not say why"
    failure = f"{command[0]} failed with status {status}: {reason}"
    if status < 0 or status == os.EX_TEMPFAIL:  # killed, before or after it took the mail; or it is tried again later
        return Unsure(failure)
    return failure if status else None


def _kill(process: subprocess.Popen[bytes]) -> None:
    with suppress(PermissionError, subprocess.TimeoutExpired):  # it may have become another user
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(1)
