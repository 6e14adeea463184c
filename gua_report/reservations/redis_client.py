"""A Redis client for a short, limited conversation with an untrusted server.

The limits apply to the conversation as a whole: the time from the first look-up of the name to the last answer, and
the bytes of all answers together. An answer is a value or a flat list of values; nothing here needs more.
"""

from __future__ import annotations

import io
import socket
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from gua_report.machine.bounded_socket import BoundedReader, remaining
from gua_report.reservations.redis_url import Address
from gua_report.reservations.reservation import abandon_after
from gua_sample.processes import printable

CONVERSATION_SECONDS = 2.0
MOST_BYTES = 16 << 20
MOST_VALUES = 100_000  # in one list
LONGEST_LINE = 4096  # a kind and a length, or the text of an error
LONGEST_ERROR = 200

Value = bytes | int | None


class NoConversation(Exception):
    """A conversation that failed because of the server; the text says why."""


class ErrorAnswer(Exception):
    """An error that the server sent instead of a value."""


@contextmanager
def converse(address: Address) -> Iterator[Conversation]:
    """Connect, log in and, at the end, disconnect: `with converse(address) as server: server.ask("GET", "key")`."""
    deadline = time.monotonic() + CONVERSATION_SECONDS
    with _connect(address, deadline) as plain, _secure(plain, address, deadline) as connection:
        server = Conversation(connection, deadline)
        if address.user or address.password:
            server.ask("AUTH", *filter(None, [address.user]), address.password)
        if address.database:
            server.ask("SELECT", address.database)
        yield server


class Conversation:
    """A conversation with one server, within the limits."""

    def __init__(self, connection: socket.socket, deadline: float) -> None:
        self._socket, self._deadline = connection, deadline
        self._answers = io.BufferedReader(BoundedReader(connection, deadline, MOST_BYTES), 1 << 16)

    def ask(self, *command: object) -> Any:
        (answer,) = self.ask_all([command])
        if isinstance(answer, ErrorAnswer):
            raise NoConversation(str(answer))
        return answer

    def ask_all(self, commands: Iterable[tuple[object, ...]]) -> list[Any]:
        """The answers to all commands, which are sent at once. Any answer may be an ErrorAnswer."""
        commands = list(commands)
        self._socket.settimeout(remaining(self._deadline))
        self._socket.sendall(b"".join(map(_encode, commands)))
        return [self._read_answer() for _ in commands]

    def _read_answer(self) -> Any:
        kind, text = self._read_line()
        if kind != b"*":
            return self._read_value(kind, text)
        count = _number(text, MOST_VALUES)
        return None if count < 0 else [self._read_value(*self._read_line()) for _ in range(count)]

    def _read_value(self, kind: bytes, text: bytes) -> Value | ErrorAnswer:
        if kind == b"-":
            return ErrorAnswer(printable(text[:LONGEST_ERROR]))
        if kind in (b"+", b":"):
            return text
        if kind != b"$":
            raise NoConversation("an answer that Redis would not give")
        length = _number(text, MOST_BYTES)
        if length < 0:
            return None
        value = self._answers.read(length + 2)
        if len(value) != length + 2:
            raise NoConversation("it closed the connection in the middle of an answer")
        return value[:length]

    def _read_line(self) -> tuple[bytes, bytes]:
        line = self._answers.readline(LONGEST_LINE)
        if not line:
            raise NoConversation("it closed the connection")
        if not line.endswith(b"\r\n"):
            raise NoConversation("an answer that Redis would not give")
        return line[:1], line[1:-2]


def _connect(address: Address, deadline: float) -> socket.socket:
    """Connect in a thread that is abandoned at the deadline, as looking up a name has timeouts of its own."""
    seconds = remaining(deadline)
    connected: list[socket.socket] = []
    failed: list[OSError] = []

    def connect() -> None:
        try:
            if address.scheme != "unix":
                connected.append(socket.create_connection((address.host, address.port), seconds))
                return
            local = socket.socket(socket.AF_UNIX)
            local.settimeout(seconds)
            local.connect(address.host)
            connected.append(local)
        except OSError as error:
            failed.append(error)
        except UnicodeError:
            failed.append(OSError("that is no name of a host"))

    abandon_after(seconds, connect)
    if failed:
        raise failed[0]
    if not connected:
        raise TimeoutError
    return connected[0]


def _secure(plain: socket.socket, address: Address, deadline: float) -> socket.socket:
    """The connection with TLS, if the address wants it."""
    if address.scheme != "rediss":
        return plain
    import ssl

    context = ssl.create_default_context(cafile=address.tls.get("ssl_ca_certs"))
    if address.tls.get("ssl_cert_reqs") == "none":
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if "ssl_certfile" in address.tls:
        context.load_cert_chain(address.tls["ssl_certfile"], address.tls.get("ssl_keyfile"))
    plain.settimeout(remaining(deadline))
    return context.wrap_socket(plain, server_hostname=address.host)


def _encode(command: tuple[object, ...]) -> bytes:
    words = [str(word).encode() for word in command]
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)


def _number(text: bytes, most: int) -> int:
    """A length within the limit; -1 means that there is no value."""
    if text == b"-1":
        return -1
    if not text.isdigit() or len(text) > len(str(most)) or int(text) > most:
        raise NoConversation(f"an answer of the length {printable(text[:20])!r}: expected at most {most:,}")
    return int(text)
