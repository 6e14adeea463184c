"""Where an export goes: files that are there whole or not at all, and an output that people may stop reading."""

from __future__ import annotations

import os
import re
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import BinaryIO

from gua_sample.errors import StoreError
from gua_sample.partition_names import SQLITE_MAGIC
from gua_sample.whole_file import check_planted, sync_folder

# Whoever writes to a file does so more often than this: one that is older was left by a run that was killed.
LEFT_BEHIND_SECONDS = 3600


@contextmanager
def whole_file(path: str, follow: bool = True) -> Iterator[BinaryIO]:
    """To write to. It takes its place if the block ends well; else all is as it was before.

    Until then it lies beside its place, hidden. A pipe or a device is written to directly. A file that is replaced
    hands on its owner, as far as that is ours to decide, and its mode. Not to `follow` a link is to replace it.
    """
    check_planted(path)
    given, path = path, os.path.realpath(path) if follow else path
    folder, name = os.path.split(path)
    temporary = os.path.join(folder, f".{name}.{secrets.token_hex(4)}")
    try:
        if (
            follow and os.path.exists(given) and not os.path.isfile(given)
        ):  # by the name given: /dev/stdout has no other
            with open(given, "wb") as file:
                yield file
            return
        with suppress(OSError):  # a folder may take files and still not show them
            remove_leftovers(folder, re.escape(name))
        with open(temporary, "xb") as file:
            if os.path.isfile(path) and not os.path.islink(path):
                found = os.lstat(path)
                with suppress(PermissionError):
                    os.fchown(file.fileno(), found.st_uid, found.st_gid)
                os.fchmod(file.fileno(), found.st_mode & 0o777)
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


def is_database(path: str) -> bool:
    """Whether a file of SQLite's is there: a partition perhaps, which no export should take the place of."""
    if not os.path.isfile(path):
        return False  # to look into a pipe is to wait for it
    try:
        with open(path, "rb") as file:
            return file.read(len(SQLITE_MAGIC)) == SQLITE_MAGIC
    except OSError:
        return False


def remove_leftovers(folder: str, names: str, older_than_seconds: float = LEFT_BEHIND_SECONDS) -> None:
    """What runs that were killed have left there of files with such names (a regular expression)."""
    pattern = re.compile(rf"\.{names}\.[0-9a-f]{{8}}")
    oldest = time.time() - older_than_seconds
    for name in filter(pattern.fullmatch, os.listdir(folder)):
        path = os.path.join(folder, name)
        with suppress(OSError):
            if not older_than_seconds or os.lstat(path).st_mtime < oldest:
                os.unlink(path)


def cannot_write(what: str, error: OSError) -> StoreError:
    return StoreError(f"{what} can't be written ({error.strerror or error}): it is as it was")


class StandardOutput:
    """Written at once, so that nothing is left to fail on the way out. Raises BrokenPipeError if nobody reads it."""

    def write(self, data: bytes) -> None:
        rest = memoryview(data)
        try:
            while rest:
                rest = rest[os.write(1, rest) :]
        except BrokenPipeError:
            raise
        except OSError as error:
            raise StoreError(f"standard output can't be written ({error.strerror})") from error
