"""Reads a file that somebody points to, whatever it turns out to be: no more than so many bytes, and never for ever."""

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
    is_whole: bool  # whether the file has no more than was asked for


class NoRegularFile(OSError):
    """A pipe, a device or a socket where only a regular file will do."""


def read_bounded(path: str, most_bytes: int, pipe_seconds: float | None = None) -> Content:
    """The first `most_bytes` of a file; links are followed. Without a time for them, pipes and devices are not opened;
    with one, they may take so long, or a TimeoutError is raised."""
    if pipe_seconds is None:
        _check_regular(os.stat(path))
    # Without O_NONBLOCK, to open a named pipe takes until somebody writes to it.
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
        # A regular file is ready at once. A named pipe that nobody has opened to write is not, though a read would
        # call it empty.
        if not wait.poll(max(0.0, deadline - time.monotonic()) * 1000):
            raise TimeoutError
        try:
            part = os.read(descriptor, min(most_bytes, CHUNK_BYTES))
        except BlockingIOError:  # somebody else took it
            continue
        if not part:
            break
        parts.append(part)
        most_bytes -= len(part)
    return b"".join(parts)
