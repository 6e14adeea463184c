"""A Redis client for a short, limited conversation with an untrusted server.

The limits apply to the conversation as a whole: the time from the first look-up of the name to the last answer, and
the bytes of all answers together. An answer is a value or a flat list of values; nothing here needs more.
"""

from __future__ import annotations

import io
import socket
import threading
import time
from collections.abc import Iterable
from types import TracebackType
from typing import Any

from gua_report.reservations.redis_url import Address
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


class Conversation:
    """A conversation with one server, within the limits:
    `with Conversation(address) as server: server.ask("GET", "key")`."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._deadline = time.monotonic() + CONVERSATION_SECONDS

    def __enter__(self) -> Conversation:
        self._socket = self._connect()
        try:
            self._answers = io.BufferedReader(_Answers(self._socket, self._deadline), 1 << 16)
            self._begin()
        except BaseException:
            self._socket.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close()

    def ask(self, *command: object) -> Any:
        (answer,) = self.ask_all([command])
        if isinstance(answer, ErrorAnswer):
            raise NoConversation(str(answer))
        return answer

    def ask_all(self, commands: Iterable[tuple[object, ...]]) -> list[Any]:
        """The answers to all commands, which are sent at once. Any answer may be an ErrorAnswer."""
        commands = list(commands)
        self._socket.settimeout(_remaining(self._deadline))
        self._socket.sendall(b"".join(map(_encode, commands)))
        return [self._read_answer() for _ in commands]

    def _connect(self) -> socket.socket:
        if self._address.scheme == "unix":
            places: list[Any] = [(socket.AF_UNIX, socket.SOCK_STREAM, 0, "", self._address.host)]
        else:
            places = _resolve(self._address.host, self._address.port, _remaining(self._deadline))
        failure: OSError | None = None
        for family, kind, protocol, _, place in places:
            found = socket.socket(family, kind, protocol)
            try:
                found.settimeout(_remaining(self._deadline))
                found.connect(place)
                return self._with_tls(found) if self._address.scheme == "rediss" else found
            except OSError as error:
                found.close()
                failure = error
        raise failure or OSError("it has no address")

    def _with_tls(self, plain: socket.socket) -> socket.socket:
        import ssl

        options = self._address.tls
        context = ssl.create_default_context(cafile=options.get("ssl_ca_certs"))
        if options.get("ssl_cert_reqs") == "none":
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        if "ssl_certfile" in options:
            context.load_cert_chain(options["ssl_certfile"], options.get("ssl_keyfile"))
        plain.settimeout(_remaining(self._deadline))
        return context.wrap_socket(plain, server_hostname=self._address.host)

    def _begin(self) -> None:
        if self._address.user or self._address.password:
            self.ask("AUTH", *filter(None, [self._address.user]), self._address.password)
        if self._address.database:
            self.ask("SELECT", self._address.database)

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


class _Answers(io.RawIOBase):
    """The bytes from a socket, until the deadline or the limit of bytes."""

    def __init__(self, source: socket.socket, deadline: float) -> None:
        self._source, self._deadline, self._left = source, deadline, MOST_BYTES

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if self._left <= 0:
            raise NoConversation(f"it answered with more than {MOST_BYTES >> 20} MiB")
        self._source.settimeout(_remaining(self._deadline))
        count = self._source.recv_into(buffer)
        self._left -= count
        return count


def _remaining(deadline: float) -> float:
    seconds = deadline - time.monotonic()
    if seconds <= 0:
        raise TimeoutError
    return seconds


def _resolve(host: str, port: int, seconds: float) -> list[Any]:
    """The addresses of a host. A thread asks and is abandoned at the timeout, as a resolver has timeouts of its own."""
    found: list[Any] = []
    failed: list[OSError] = []

    def ask() -> None:
        try:
            found.extend(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
        except OSError as error:
            failed.append(error)
        except UnicodeError:
            failed.append(OSError("no such name can be"))

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(seconds)
    if failed:
        raise failed[0]
    if not found:
        raise TimeoutError
    return found


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
