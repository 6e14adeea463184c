"""The note in which the sampler asks for names of containers. Its folder is the sampler's, not root's."""

from __future__ import annotations

import errno
import os
import stat

from gua_report.machine.as_owner import ask_as_owner
from gua_sample.container_note import MOST_WANTED
from gua_sample.containers import ID
from gua_sample.errors import StoreError

MOST_BYTES = 64 << 10
TAKE_SECONDS = 10.0


def take_note(path: str) -> list[str]:
    """Remove the note, and return the ids in it: none if there is no note, or if it is no regular file.

    With the rights of the folder's owner, who could put a link there, or a file of somebody else's.
    """
    found = ask_as_owner(os.path.dirname(os.path.abspath(path)), lambda: _take(path), TAKE_SECONDS)
    lines = found if isinstance(found, list) else []
    return list(dict.fromkeys(line for line in lines if isinstance(line, str) and ID.fullmatch(line)))[:MOST_WANTED]


def _take(path: str) -> list[str]:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    except FileNotFoundError:
        return []
    except OSError:  # a link, a socket, or a file that its owner may not read
        descriptor = None
    try:
        _remove(path)
        if descriptor is None or not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return []
        return os.read(descriptor, MOST_BYTES).decode("ascii", "replace").split("\n")
    finally:
        if descriptor is not None:
            os.close(descriptor)


def _remove(path: str) -> None:
    """Remove whatever lies there: as long as something does, the path unit starts gua-containers again."""
    try:
        try:
            os.unlink(path)
        except IsADirectoryError:
            os.rmdir(path)
    except FileNotFoundError:  # somebody else has taken it
        return
    except OSError as error:
        reason = "it is a folder" if error.errno == errno.ENOTEMPTY else error.strerror
        raise StoreError(f"{path} can't be removed ({reason}): remove it, so that names are asked for again") from error
