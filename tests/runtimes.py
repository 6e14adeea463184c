"""Docker-compatible sockets, well-behaved and hostile, each a server in a thread of this process."""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

ID = "3f2a9c81d0b7" + "5" * 52
KEY = ID[:12]
SECRET = "hunter2-of-the-environment"  # noqa: S105 - nobody's
MIB = 1 << 20

Behaviour = Callable[[socket.socket, bytes], object]  # is given the connection and the request


class Server:
    """A server on a socket, with the requests that it got."""

    def __init__(self) -> None:
        self.requests: list[bytes] = []


@contextmanager
def runtime(path: Path, behave: Behaviour, uid: int = 0, mode: int = 0o660) -> Iterator[Server]:
    """A socket at that path, for that user, whose server treats each client this way; it ends with the block."""
    if os.getuid() not in (0, uid):  # a test may pretend to be another user
        pytest.skip("only root can give a socket to another user")
    path.parent.mkdir(parents=True, exist_ok=True)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    os.chown(path, uid, uid)
    path.chmod(mode)
    listener.listen(64)
    server = Server()

    def treat(connection: socket.socket) -> None:
        with connection, suppress(OSError):
            connection.settimeout(60)
            request = connection.recv(MIB)
            if request:  # else the client connected and asked nothing
                server.requests.append(request)
                behave(connection, request)

    def listen() -> None:
        with suppress(OSError):
            while True:
                threading.Thread(target=treat, args=[listener.accept()[0]], daemon=True).start()

    threading.Thread(target=listen, daemon=True).start()
    try:
        yield server
    finally:
        with suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        path.unlink(missing_ok=True)


def inspection(full_id: str = ID, name: str = "/train-resnet", **more: Any) -> dict[str, Any]:
    """An answer as Docker gives it, with secrets where people have them. `more`: labels, mounts, image."""
    return {
        "Id": full_id,
        "Name": name,
        "Path": SECRET,
        "Args": ["--password", SECRET],
        "Image": f"sha256:{'7' * 64}",
        "State": {"Pid": 4711, "Running": True, "Error": SECRET},
        "Mounts": [{"Type": "bind", "Source": source, "Destination": "/data"} for source in more.get("mounts", [])],
        "Config": {
            "Image": more.get("image", "pytorch:2.9"),
            "Env": [f"API_KEY={SECRET}"],
            "Cmd": ["python", SECRET],
            "Entrypoint": [SECRET],
            "Labels": more.get("labels", {}),
        },
    }


def response(content: bytes, status: str = "200 OK", *headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(content)}", "Connection: close", *headers, "", ""]
    return "\r\n".join(lines).encode() + content


def knows(*documents: dict[str, Any]) -> Behaviour:
    """A runtime with these containers, found by a name or by the beginning of an id, names first as in Docker."""

    def behave(connection: socket.socket, request: bytes) -> None:
        wanted = request.split(b" ")[1].decode().split("/")[2]
        by_name = [one for one in documents if one["Name"] == f"/{wanted}"]
        by_id = [one for one in documents if one["Id"].startswith(wanted)]
        found = next(iter([*by_name, *by_id]), None)
        missing = response(b'{"message": "No such container"}', "404 Not Found")
        connection.sendall(response(json.dumps(found).encode()) if found else missing)

    return behave


def says(content: bytes) -> Behaviour:
    def behave(connection: socket.socket, request: bytes) -> None:
        connection.sendall(content)

    return behave


def hang(connection: socket.socket, request: bytes) -> None:
    while connection.recv(MIB):
        pass


def drip(connection: socket.socket, request: bytes) -> None:
    """Send a byte of headers ten times a second, for ever."""
    connection.sendall(b"HTTP/1.1 200 OK\r\n")
    while True:
        connection.sendall(b"X")
        time.sleep(0.1)


def flood(connection: socket.socket, request: bytes) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
    while True:
        connection.sendall(b'{"Id": "' + b"x" * MIB)


def flood_in_chunks(connection: socket.socket, request: bytes) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    while True:
        connection.sendall(b"10000\r\n" + b"x" * 0x10000 + b"\r\n")


def go_on_for_ever(connection: socket.socket, request: bytes) -> None:
    while True:
        connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\n" * 1000)


BODY = json.dumps(inspection()).encode()
HOSTILE: dict[str, Behaviour] = {
    "hang": hang,
    "drip": drip,
    "flood": flood,
    "flood in chunks": flood_in_chunks,
    "go on for ever": go_on_for_ever,
    "close at once": lambda connection, request: connection.close(),
    "headers without end": says(b"HTTP/1.1 200 OK\r\n" + b"".join(b"X-%d: y\r\n" % n for n in range(9999))),
    "a header of a mebibyte": says(b"HTTP/1.1 200 OK\r\nX: " + b"y" * MIB + b"\r\n\r\n"),
    "bad chunks": says(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n" + BODY),
    "a negative chunk": says(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-5\r\n" + BODY),
    "less than promised": says(b"HTTP/1.1 200 OK\r\nContent-Length: 99999\r\n\r\n" + BODY[:-9]),
    "an absurd length": says(b"HTTP/1.1 200 OK\r\nContent-Length: 1%b\r\n\r\n" % (b"0" * 12) + BODY[:-9]),
    "a negative length": says(b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n" + BODY[:-9]),
    "no HTTP": says(b"-ERR unknown command\r\n"),
    "binary": says(bytes(range(256)) * 64),
    "redirect": says(response(BODY, "301 Moved Permanently", f"Location: /containers/{ID}/json")),
    "an error": says(response(BODY, "500 Internal Server Error")),
    "no JSON": says(response(b"hello")),
    "half a JSON": says(response(BODY[:-9])),
    "deep": says(response(b"[" * 500_000)),
    "deep objects": says(response(b'{"a":' * 100_000)),
    "another type": says(response(b"[1, 2]")),
    "a number": says(response(b"9" * 500_000)),
    "another container": says(response(json.dumps(inspection("f" * 64)).encode())),
    "an empty id": says(response(json.dumps(inspection("")).encode())),
    "an id that is none": says(response(json.dumps(inspection() | {"Id": [ID]}).encode())),
    "ten megabytes of a name": says(response(json.dumps(inspection(name="x" * 10 * MIB)).encode())),
}
