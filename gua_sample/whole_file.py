"""Files that are there whole or not at all."""

from __future__ import annotations

import os
import time
from contextlib import suppress

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
