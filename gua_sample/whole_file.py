"""Atomic writing of files: each is there whole or not at all."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import BinaryIO

UNFINISHED_SUFFIX = ".unfinished"
# A file that is being written changes more often than this: the writer of an older one was killed.
ABANDONED_SECONDS = 3600


@contextmanager
def replacing(path: str, durable: bool = True, within: int | None = None) -> Iterator[BinaryIO]:
    """Open `path` for an atomic write: replaced when the block succeeds, unchanged when it raises.

    Until then the new file lies hidden beside the old one. A link is replaced, not followed. `within` is the open
    folder that a relative path begins at.
    """
    folder, name = os.path.split(path)
    unfinished = os.path.join(folder, f".{name}.{os.urandom(4).hex()}{UNFINISHED_SUFFIX}")
    if within is not None:
        folder = f"/proc/self/fd/{within}/{folder}"
    remove_unfinished(folder, name + ".")
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        with open(os.open(unfinished, flags, 0o666, dir_fd=within), "wb") as file:
            yield file
            if durable:
                file.flush()
                os.fsync(file.fileno())
        os.rename(unfinished, path, src_dir_fd=within, dst_dir_fd=within)
    except BaseException:
        with suppress(OSError):
            os.unlink(unfinished, dir_fd=within)
        raise
    if durable:
        sync_folder(folder)


def replace_file(path: str, text: str, mode: int | None = None, durable: bool = False) -> None:
    """Replace the content of a file atomically. `mode` overrides the umask."""
    with replacing(path, durable) as file:
        if mode is not None:
            os.fchmod(file.fileno(), mode)
        file.write(text.encode("utf-8", "backslashreplace"))


def sync_folder(path: str) -> None:
    """Make new names in the folder survive a power cut, on file systems that support it."""
    with suppress(OSError):
        folder = os.open(path, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def remove_unfinished(folder: str, begin: str = "", seconds: float = ABANDONED_SECONDS) -> None:
    """Remove the files of killed writers whose final names begin so, if they have not changed for so long."""
    with suppress(OSError):  # a folder may be writable, but not readable
        for name in os.listdir(folder):
            if name.startswith(f".{begin}") and name.endswith(UNFINISHED_SUFFIX):
                remove_abandoned(os.path.join(folder, name), seconds)


def remove_abandoned(path: str, seconds: float = ABANDONED_SECONDS) -> None:
    """Remove the file of a killed writer, if it has not changed for so long."""
    with suppress(OSError):  # already removed, or not ours
        if time.time() - os.lstat(path).st_mtime >= seconds:
            os.unlink(path)
