"""Files that are there whole or not at all."""

from __future__ import annotations

import os
import stat
import time
from contextlib import suppress

from gua_sample.errors import StoreError

UNFINISHED_SUFFIX = ".unfinished"
# Nobody takes this long to write a few kilobytes: whoever began it was killed.
ABANDONED_SECONDS = 600


def replace_file(path: str, text: str, mode: int | None = None, durable: bool = False) -> None:
    """Put a file in the place of the one that is there; who reads it sees either. `mode`: whatever the umask is."""
    folder, name = os.path.split(path)
    unfinished = f"{path}.{os.urandom(4).hex()}{UNFINISHED_SUFFIX}"
    try:
        with open(unfinished, "x", encoding="utf-8") as file:
            if mode is not None:
                os.fchmod(file.fileno(), mode)
            file.write(text)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        os.rename(unfinished, path)
        if durable:
            sync_folder(folder)
    except OSError:
        with suppress(OSError):
            os.unlink(unfinished)
        raise
    with suppress(OSError):
        for entry in os.listdir(folder):
            if entry.startswith(name + ".") and entry.endswith(UNFINISHED_SUFFIX):
                remove_abandoned(os.path.join(folder, entry))


def sync_folder(path: str) -> None:
    """Make a name in the folder outlive a power cut, where file systems can do that."""
    with suppress(OSError):
        folder = os.open(path, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def remove_abandoned(path: str) -> None:
    """Take away what a killed run began to write, if nobody is at it."""
    with suppress(OSError):  # gone already, or not ours
        if time.time() - os.stat(path).st_mtime > ABANDONED_SECONDS:
            os.unlink(path)


def check_planted(path: str) -> None:
    """Raise StoreError if somebody else put a file or a link there, in a folder that everybody may write to.

    The kernel's rule for such folders (fs.protected_symlinks and protected_regular, see proc_sys_fs(5)), which does not
    see that we look where a link leads, and hand on a file's owner.
    """
    try:
        folder, found = os.stat(os.path.dirname(os.path.abspath(path))), os.lstat(path)
    except OSError:
        return  # nothing there; or whoever opens it will say so
    shared = stat.S_ISVTX | stat.S_IWOTH
    if folder.st_mode & shared == shared and found.st_uid not in (os.geteuid(), folder.st_uid):
        raise StoreError(f"{path} is uid {found.st_uid}'s, where everybody may write: give another file")
