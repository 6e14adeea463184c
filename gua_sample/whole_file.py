"""Atomic writing of files."""

from __future__ import annotations

import os
import time
from contextlib import suppress

UNFINISHED_SUFFIX = ".unfinished"
# Writing a few kilobytes never takes this long: the writer was killed.
ABANDONED_SECONDS = 600


def replace_file(path: str, text: str, mode: int | None = None, durable: bool = False) -> None:
    """Replace a file atomically: readers see the old or the new content. `mode` overrides the umask."""
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
    """Make new names in the folder survive a power cut, on file systems that support it."""
    with suppress(OSError):
        folder = os.open(path, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def remove_abandoned(path: str) -> None:
    """Remove an unfinished file of a killed run, if it is old enough."""
    with suppress(OSError):  # already removed, or not ours
        if time.time() - os.stat(path).st_mtime > ABANDONED_SECONDS:
            os.unlink(path)
