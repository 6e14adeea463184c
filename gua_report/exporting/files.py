"""Where an export goes: files that are there whole or not at all, and an output that people may stop reading."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import BinaryIO

from gua_sample.errors import StoreError


@contextmanager
def whole_file(path: str) -> Iterator[BinaryIO]:
    """To write to. It takes its place if the block ends well; else all is as it was before.

    Until then it lies beside its place, hidden. A pipe or a device is written to directly.
    """
    path = os.path.realpath(path)
    folder, name = os.path.split(path)
    temporary = os.path.join(folder, f".{name}.{secrets.token_hex(4)}")
    try:
        if os.path.exists(path) and not os.path.isfile(path):
            with open(path, "wb") as file:
                yield file
            return
        with open(temporary, "xb") as file:
            if os.path.exists(path):
                os.fchmod(file.fileno(), os.stat(path).st_mode & 0o777)
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
        sync_folder(folder)
    except BaseException as error:
        with suppress(OSError):
            os.unlink(temporary)
        if isinstance(error, OSError) and not isinstance(error, BrokenPipeError):
            raise cannot_write(path, error) from error
        raise


def sync_folder(path: str) -> None:
    """So that a name in it outlives a power cut."""
    folder = os.open(path, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def cannot_write(what: str, error: OSError) -> StoreError:
    return StoreError(f"{what} can't be written ({error.strerror or error}): it is as it was")


class StandardOutput:
    """Written at once, so that nothing is left to fail on the way out. Raises BrokenPipeError if nobody reads it."""

    closed = False

    def __init__(self) -> None:
        self._position = 0

    def write(self, data: bytes) -> int:
        rest = memoryview(data)
        try:
            while rest:
                rest = rest[os.write(1, rest) :]
        except BrokenPipeError:
            raise
        except OSError as error:
            raise StoreError(f"standard output can't be written ({error.strerror})") from error
        self._position += len(data)
        return len(data)

    def tell(self) -> int:
        return self._position

    def flush(self) -> None:
        pass

    def close(self) -> None:
        pass
