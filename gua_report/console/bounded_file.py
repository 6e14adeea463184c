"""Read a file that a user names, whatever kind it turns out to be, with a limit of bytes and a timeout."""

from __future__ import annotations

import errno
import os
import select
import stat
import time
from typing import NamedTuple

CHUNK_BYTES = 1 << 18


class Content(NamedTuple):
    data: bytes
    is_whole: bool  # whether the data is the complete file


class NoRegularFile(OSError):
    """A pipe, a device or a socket where only a regular file will do."""


def read_bounded(path: str, most_bytes: int, pipe_seconds: float | None = None) -> Content:
    """The first `most_bytes` of a file; links are followed.

    Without `pipe_seconds`, pipes and devices are refused unopened; with it, it is their timeout (raises TimeoutError).
    """
    if pipe_seconds is None:
        _check_regular(os.stat(path))
    # Without O_NONBLOCK, opening a named pipe blocks until somebody writes to it.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    try:
        if pipe_seconds is None:
            _check_regular(os.fstat(descriptor))
        data = _read(descriptor, most_bytes + 1, time.monotonic() + (pipe_seconds or 0))
    finally:
        os.close(descriptor)
    return Content(data[:most_bytes], len(data) <= most_bytes)


def _check_regular(found: os.stat_result) -> None:
    if stat.S_ISDIR(found.st_mode):
        raise NoRegularFile(errno.EINVAL, "it is a directory")
    if not stat.S_ISREG(found.st_mode):
        raise NoRegularFile(errno.EINVAL, "it is no regular file")


def _read(descriptor: int, most_bytes: int, deadline: float) -> bytes:
    parts: list[bytes] = []
    wait = select.poll()
    wait.register(descriptor, select.POLLIN)
    while most_bytes > 0:
        # A regular file is ready at once. A named pipe without a writer is not, though a read would find it empty.
        if not wait.poll(max(0.0, deadline - time.monotonic()) * 1000):
            raise TimeoutError
        try:
            part = os.read(descriptor, min(most_bytes, CHUNK_BYTES))
        except BlockingIOError:  # another reader took the data
            continue
        if not part:
            break
        parts.append(part)
        most_bytes -= len(part)
    return b"".join(parts)
