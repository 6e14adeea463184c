"""Destinations of an export: files that are written atomically, and an output whose reader may leave early."""

from __future__ import annotations

import errno
import os
import re
import secrets
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import BinaryIO

from gua_sample.errors import StoreError
from gua_sample.partition_names import SQLITE_MAGIC
from gua_sample.whole_file import sync_folder

# A temporary file in use is written to more often than this: an older one was left by a killed run.
LEFT_BEHIND_SECONDS = 3600
FOLDER = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC  # works without permission to list the folder
MOST_STEPS = 1000  # links may form a loop


@contextmanager
def whole_file(path: str, follow: bool = True, make_folders: bool = False) -> Iterator[BinaryIO]:
    """Open `path` for an atomic write: replaced when the block succeeds, unchanged when it raises.

    Until then the new file lies hidden beside the old one. A pipe or a device is written to directly. The new file gets
    the mode of the old one, and its owner if we may set it. Without `follow`, a link is replaced. The folder is opened
    once, so that nobody can exchange it meanwhile.
    """
    try:
        folder, name = open_folder(path, follow, make_folders)
    except OSError as error:
        raise cannot_write(path, error) from error
    try:
        found = _look(folder, name, path)
        if found is None or stat.S_ISREG(found.st_mode) or (stat.S_ISLNK(found.st_mode) and not follow):
            with _replacing(folder, name, found) as file:
                yield file
        else:
            with _open_directly(folder, name, found) as file:
                yield file
    except BrokenPipeError:
        raise
    except OSError as error:
        raise cannot_write(path, error) from error
    finally:
        os.close(folder)


def check_place(path: str) -> None:
    """Raise StoreError if `whole_file` would refuse to write there."""
    try:
        folder, name = open_folder(path)
        try:
            _look(folder, name, path)
        finally:
            os.close(folder)
    except OSError as error:
        raise cannot_write(path, error) from error


def open_folder(path: str, follow: bool = True, make_folders: bool = False) -> tuple[int, str]:
    """Open the folder that a file is to be written in; return its descriptor and the file's name in it.

    Links are followed if they are root's or ours. Raises StoreError at anybody else's: its owner could make root write
    anywhere, and redirect it at any time.
    """
    rest = os.path.abspath(path).split("/")[::-1]
    folder, name = os.open("/", FOLDER), ""
    try:
        for _ in range(MOST_STEPS):
            if not rest:
                return folder, name
            step = rest.pop()
            if not step:
                continue
            name = step
            target = _link_target(folder, step, path) if rest or follow else None
            if target is not None:
                rest += target.split("/")[::-1]
                folder = _exchange(folder, os.open("/", FOLDER)) if target.startswith("/") else folder
            elif rest:
                if make_folders:
                    with suppress(FileExistsError):
                        os.mkdir(step, dir_fd=folder)
                folder = _exchange(folder, os.open(step, FOLDER | os.O_NOFOLLOW, dir_fd=folder))
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
    except BaseException:
        os.close(folder)
        raise


def _link_target(folder: int, name: str, path: str) -> str | None:
    """The target of a link; None if there is no link of that name. Raises StoreError if it is somebody else's."""
    try:
        entry = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    except FileNotFoundError:
        return None
    try:
        found = os.fstat(entry)
        # /dev/stdout and the like lead to what this process has open.
        if not stat.S_ISLNK(found.st_mode) or found.st_dev == os.stat("/proc").st_dev:
            return None
        if found.st_uid not in (0, os.geteuid()):
            raise StoreError(f"{path} leads through a link of uid {found.st_uid}'s: give another path")
        return os.readlink("", dir_fd=entry)
    finally:
        os.close(entry)


def _exchange(folder: int, other: int) -> int:
    os.close(folder)
    return other


def _look(folder: int, name: str, path: str) -> os.stat_result | None:
    """The status of the present file, or None. Raises StoreError at another user's in a folder that all may write to.

    That is the kernel's rule for such folders (fs.protected_regular and protected_fifos, see proc_sys_fs(5)), which
    does not cover that we pass on a file's owner.
    """
    try:
        found = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None
    around = os.fstat(folder)
    shared = stat.S_ISVTX | stat.S_IWOTH
    if around.st_mode & shared == shared and found.st_uid not in (os.geteuid(), around.st_uid):
        raise StoreError(f"{path} is uid {found.st_uid}'s, where everybody may write: give another file")
    if stat.S_ISDIR(found.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    return found


@contextmanager
def _replacing(folder: int, name: str, found: os.stat_result | None) -> Iterator[BinaryIO]:
    temporary = f".{name}.{secrets.token_hex(4)}"
    with suppress(OSError):  # a folder may be writable, but not readable
        remove_leftovers(f"/proc/self/fd/{folder}", re.escape(name))
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666, dir_fd=folder)
        with open(descriptor, "wb") as file:
            if found is not None and stat.S_ISREG(found.st_mode):
                with suppress(PermissionError):
                    os.fchown(file.fileno(), found.st_uid, found.st_gid)
                os.fchmod(file.fileno(), found.st_mode & 0o777)
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary, dir_fd=folder)
        raise
    sync_folder(f"/proc/self/fd/{folder}")


def _open_directly(folder: int, name: str, found: os.stat_result) -> BinaryIO:
    """Open a pipe, a device or what this process has open already, for writing in place."""
    follow = 0 if stat.S_ISLNK(found.st_mode) else os.O_NOFOLLOW
    descriptor = os.open(name, os.O_WRONLY | os.O_CLOEXEC | os.O_NOCTTY | follow, dir_fd=folder)
    return open(descriptor, "wb")


def is_database(path: str) -> bool:
    """Whether the path is an SQLite database: perhaps a partition, which no export should replace."""
    if not os.path.isfile(path):
        return False  # reading a pipe would block
    try:
        with open(path, "rb") as file:
            return file.read(len(SQLITE_MAGIC)) == SQLITE_MAGIC
    except OSError:
        return False


def remove_leftovers(folder: str, names: str, older_than_seconds: float = LEFT_BEHIND_SECONDS) -> None:
    """Remove temporary files that killed runs left in the folder. `names`: a regular expression of the final names."""
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
    """Unbuffered standard output, so that no write can fail at exit. Raises BrokenPipeError if nobody reads it."""

    def write(self, data: bytes) -> None:
        rest = memoryview(data)
        try:
            while rest:
                rest = rest[os.write(1, rest) :]
        except BrokenPipeError:
            raise
        except OSError as error:
            raise StoreError(f"standard output can't be written ({error.strerror})") from error
