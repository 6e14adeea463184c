"""Ask a Docker-compatible socket about one container, with a deadline and a limit of bytes.

Nothing but GET is ever sent. Whoever started a container chose most of the answer. A name, an image, one label and the
sources of mounts are taken from it; all else, such as the environment and the command, is dropped.
"""

# No `from __future__ import annotations` here: it would make NamedTuple compile the text of every field.
import http
import http.client
import io
import json
import socket
from typing import Any, NamedTuple

from gua_report.machine.bounded_socket import BoundedReader, remaining

MOST_BYTES = 1 << 20  # of an answer, with its headers; usual ones have 20 kB
MOST_MOUNTS = 64


class Told(NamedTuple):
    """What a runtime tells of a container. No text is checked yet."""

    name: Any
    image: Any
    label: Any  # the value of the label that names the owner
    sources: list[Any]  # paths of the host that are mounted


class NoAnswer(Exception):
    """A socket that did not answer, or with nonsense; the text says why."""


class ContainerSocket:
    """An open connection for one question. Raises FileNotFoundError if there is no such socket, else NoAnswer."""

    def __init__(self, path: str, seconds: float) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(seconds)
        try:
            self._socket.connect(path)
        except (FileNotFoundError, NotADirectoryError) as error:
            self._socket.close()
            raise FileNotFoundError(path) from error
        except OSError as error:
            self._socket.close()
            raise NoAnswer(error.strerror or str(error)) from error

    def inspect(self, container: str, label: str, deadline: float) -> Told | None:
        """What the runtime tells of a container; None if it has none of this id."""
        connection = http.client.HTTPConnection("localhost")
        connection.sock = _Limited(self._socket, deadline)
        try:
            connection.request("GET", f"/containers/{container}/json")
            response = connection.getresponse()
            content = response.read(2 * MOST_BYTES)  # else it would allocate any length that the server promises
        except TimeoutError as error:
            raise NoAnswer("it does not answer in time") from error
        except OSError as error:
            raise NoAnswer(error.strerror or str(error)) from error
        except (http.client.HTTPException, ValueError) as error:
            raise NoAnswer("it does not speak HTTP") from error
        finally:
            self._socket.close()
        if response.status == http.HTTPStatus.NOT_FOUND:
            return None
        if response.status != http.HTTPStatus.OK:
            raise NoAnswer(f"it answers with status {response.status}")
        return _pick(content, container, label)


class _Limited:
    """The socket as http.client uses it, with its limits."""

    def __init__(self, opened: socket.socket, deadline: float) -> None:
        self._opened, self._deadline = opened, deadline

    def sendall(self, data: bytes) -> None:
        self._opened.settimeout(remaining(self._deadline))
        self._opened.sendall(data)

    def makefile(self, mode: str) -> io.BufferedReader:
        return io.BufferedReader(BoundedReader(self._opened, self._deadline, MOST_BYTES))

    def close(self) -> None:
        """Leave the socket open: http.client calls this before the answer is read to its end."""


def _pick(content: bytes, container: str, label: str) -> Told:
    try:
        # Numbers are dropped: none is needed, and to read a very long one takes very long.
        document = json.loads(content, parse_int=lambda _: None, parse_float=lambda _: None)
    except (ValueError, RecursionError) as error:
        raise NoAnswer("it answers with something that is no JSON") from error
    full_id = _get(document, "Id")
    # A name may look like somebody else's id, and some runtimes prefer names.
    if not isinstance(full_id, str) or not full_id.startswith(container):
        raise NoAnswer("it answers for another container")
    config, mounts = _get(document, "Config"), _get(document, "Mounts")
    return Told(
        _get(document, "Name"),
        _get(config, "Image"),
        _get(_get(config, "Labels"), label),
        [_get(mount, "Source") for mount in mounts[:MOST_MOUNTS]] if isinstance(mounts, list) else [],
    )


def _get(value: Any, key: str) -> Any:
    return value.get(key) if isinstance(value, dict) else None
