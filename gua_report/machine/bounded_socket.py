"""Read from a socket whose other end is not trusted: with a deadline and a limit of bytes for the conversation."""

from __future__ import annotations

import io
import socket
import time
from typing import Any


class BoundedReader(io.RawIOBase):
    """The bytes from a socket. Raises TimeoutError after the deadline, and OSError beyond the limit."""

    def __init__(self, source: socket.socket, deadline: float, most_bytes: int) -> None:
        self._source, self._deadline, self._most, self._left = source, deadline, most_bytes, most_bytes

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if self._left <= 0:
            raise OSError(f"it answered with more than {self._most >> 20} MiB")
        self._source.settimeout(remaining(self._deadline))
        count = self._source.recv_into(buffer)
        self._left -= count
        return count


def remaining(deadline: float) -> float:
    """The seconds until the deadline, by the monotonic clock. Raises TimeoutError if it has passed."""
    seconds = deadline - time.monotonic()
    if seconds <= 0:
        raise TimeoutError
    return seconds
