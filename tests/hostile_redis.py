"""Misbehaving servers on loopback that a Redis client should survive."""

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

PASSWORD = "hunter2"  # noqa: S105 - nobody's
MIB = 1 << 20


class HostileServer:
    def __init__(self, listener: socket.socket) -> None:
        self.place = f"redis://127.0.0.1:{listener.getsockname()[1]}/0"
        self.url = self.place.replace("//", f"//gua:{PASSWORD}@")
        self.bytes_sent = 0

    def send(self, connection: socket.socket, data: bytes) -> None:
        """Send data, and count the bytes that the client's side took, even if it does not take all."""
        view = memoryview(data)
        while view:
            count = connection.send(view)
            self.bytes_sent += count
            view = view[count:]


Behaviour = Callable[[HostileServer, socket.socket], object]


@contextmanager
def hostile_server(behave: Behaviour) -> Iterator[HostileServer]:
    """A server that treats each client this way, and ends with the block."""
    listener = socket.create_server(("127.0.0.1", 0))
    server = HostileServer(listener)

    def treat(connection: socket.socket) -> None:
        with connection, suppress(OSError):
            connection.settimeout(60)
            behave(server, connection)

    def listen() -> None:
        with suppress(OSError):
            while True:
                connection, _ = listener.accept()
                threading.Thread(target=treat, args=[connection], daemon=True).start()

    threading.Thread(target=listen, daemon=True).start()
    try:
        yield server
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()


def log_in(server: HostileServer, connection: socket.socket) -> None:
    """Behave correctly until the first GET."""
    words = b""
    while b"GET" not in words:
        words = connection.recv(MIB)
        if b"AUTH" in words:
            server.send(connection, b"+OK\r\n")
        elif not words:
            raise ConnectionError


def drip(server: HostileServer, connection: socket.socket) -> None:
    """Send one byte a second."""
    log_in(server, connection)
    for _ in range(600):
        server.send(connection, b"+")
        time.sleep(1)


def drip_at_login(server: HostileServer, connection: socket.socket) -> None:
    for _ in range(600):
        server.send(connection, b"+")
        time.sleep(1)


def send_for_ever(server: HostileServer, connection: socket.socket, begin: bytes, part: bytes) -> None:
    """Send 2 GB in parts of a megabyte."""
    log_in(server, connection)
    server.send(connection, begin)
    for _ in range(2000):
        server.send(connection, part)


def flood(server: HostileServer, connection: socket.socket) -> None:
    """Send one value."""
    send_for_ever(server, connection, b"$2000000000\r\n", b"x" * 1_000_000)


def flood_in_parts(server: HostileServer, connection: socket.socket) -> None:
    """Send a list, each part of which is small enough."""
    send_for_ever(server, connection, b"*2000\r\n", b"$1000000\r\n" + b"x" * 1_000_000 + b"\r\n")


def flood_without_lines(server: HostileServer, connection: socket.socket) -> None:
    send_for_ever(server, connection, b"", b"+" * 1_000_000)


def nest(server: HostileServer, connection: socket.socket) -> None:
    log_in(server, connection)
    server.send(connection, b"*1\r\n" * 100_000 + b"$-1\r\n")
    time.sleep(60)


def answer_slowly(server: HostileServer, connection: socket.socket) -> None:
    """Answer for 1,024 cards with a short pause after each."""
    log_in(server, connection)
    server.send(connection, b"$4\r\n1024\r\n")
    for _ in range(1024):
        server.send(connection, b"$2\r\n{}\r\n")
        time.sleep(0.017)
    time.sleep(60)


def never_answer(_: HostileServer, connection: socket.socket) -> None:
    while connection.recv(MIB):
        pass


def close_at_once(_: HostileServer, connection: socket.socket) -> None:
    connection.close()


def talk_http(server: HostileServer, connection: socket.socket) -> None:
    connection.recv(MIB)
    server.send(connection, b"HTTP/1.1 400 Bad Request\r\n\r\n")


def repeat_the_password(server: HostileServer, connection: socket.socket) -> None:
    connection.recv(MIB)
    server.send(connection, f"-ERR \x1b[31m{PASSWORD} is wrong\r\n".encode())
    time.sleep(60)


BEHAVIOURS: list[Behaviour] = [
    drip,
    drip_at_login,
    flood,
    flood_in_parts,
    flood_without_lines,
    nest,
    answer_slowly,
    never_answer,
    close_at_once,
    talk_http,
    repeat_the_password,
]
