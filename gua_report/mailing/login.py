"""Name and password for a mail server. No message, error or traceback shows the password."""

from __future__ import annotations

import os
import stat
from base64 import b64encode
from typing import NamedTuple

from gua_report.config import Mail
from gua_sample.errors import CorruptPartition
from gua_sample.safe_file import open_regular

MOST_BYTES = 4096


class NoLogin(Exception):
    """A password file that is not used; the text says why, and what to do."""


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
    """The login of the configuration; None if it has none. Raises NoLogin if the password file must not be used."""
    if mail.smtp_user is None or mail.password_file is None:
        return None
    path = mail.password_file
    try:
        descriptor = open_regular(path, MOST_BYTES)
        try:
            _check(os.fstat(descriptor), path)
            first = os.read(descriptor, MOST_BYTES).split(b"\n")[0].removesuffix(b"\r")
        finally:
            os.close(descriptor)
    except CorruptPartition as error:  # it is a link, or no regular file
        raise NoLogin(str(error)) from error
    except OSError as error:
        raise NoLogin(f"{path} can't be read ({error.strerror}): sudo chown root:gua it, and chmod 640") from error
    password = first.decode("ascii", "replace")
    if not password or not password.isascii() or not password.isprintable():
        raise NoLogin(f"{path} has no password in its first line: expected one of printable ASCII characters")
    return Login(mail.smtp_user, password)


def _check(found: os.stat_result, path: str) -> None:
    if found.st_uid not in (0, os.geteuid()):
        raise NoLogin(f"{path} belongs to uid {found.st_uid}, who could exchange the password: sudo chown root:gua it")
    if stat.S_IMODE(found.st_mode) & 0o007:
        raise NoLogin(f"{path} is open to everybody (mode {stat.S_IMODE(found.st_mode):04o}): sudo chmod 640 it")
