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


def flood(server: HostileServer, connection: socket.socket) -> None:
    """Send a list of 2 GB, each part of which is small enough."""
    log_in(server, connection)
    server.send(connection, b"*2000\r\n")
    for _ in range(2000):
        server.send(connection, b"$1000000\r\n" + b"x" * 1_000_000 + b"\r\n")


def nest(server: HostileServer, connection: socket.socket) -> None:
    log_in(server, connection)
    server.send(connection, b"*1\r\n" * 100_000 + b"$-1\r\n")
    time.sleep(60)


def never_answer(_: HostileServer, connection: socket.socket) -> None:
    while connection.recv(MIB):
        pass


def talk_http(server: HostileServer, connection: socket.socket) -> None:
    connection.recv(MIB)
    server.send(connection, b"HTTP/1.1 400 Bad Request\r\n\r\n")


def repeat_the_password(server: HostileServer, connection: socket.socket) -> None:
    connection.recv(MIB)
    server.send(connection, f"-ERR \x1b[31m{PASSWORD} is wrong\r\n".encode())
    time.sleep(60)


BEHAVIOURS: list[Behaviour] = [
    drip,
    flood,
    nest,
    never_answer,
    talk_http,
    repeat_the_password,
]
