"""Destinations that a user names: files that are written atomically, pipes and devices, standard output."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import BinaryIO

from gua_report.console.bounded_file import read_bounded
from gua_sample.errors import StoreError
from gua_sample.partition_names import SQLITE_MAGIC
from gua_sample.whole_file import replacing

FOLDER = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC  # works without permission to list the folder
ANY_EXECUTION = stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH
MOST_STEPS = 1000  # links may form a loop


@contextmanager
def whole_file(path: str, follow: bool = True, make_folders: bool = False) -> Iterator[BinaryIO]:
    """Open `path` for an atomic write: replaced when the block succeeds, unchanged when it raises.

    A pipe or a device is written to directly. The new file gets the mode of the old one, and its owner if we may set
    it. Without `follow`, a link is replaced. The folder is opened once, so that nobody can exchange it meanwhile.
    """
    with _find_place(path, follow, make_folders) as (folder, name, found):
        is_file = found is not None and stat.S_ISREG(found.st_mode)
        if found is not None and not is_file and (follow or not stat.S_ISLNK(found.st_mode)):
            with _open_directly(folder, name, found) as file:
                yield file
            return
        with replacing(name, within=folder) as file:
            if found is not None and is_file:
                with suppress(PermissionError):
                    os.fchown(file.fileno(), found.st_uid, found.st_gid)
                os.fchmod(file.fileno(), found.st_mode & 0o777)
            yield file


def share_with_readers(descriptor: int, folder: str) -> None:
    """Let those read an open file or folder who can read `folder`, and nobody else."""
    readers, found = os.stat(folder), os.fstat(descriptor)
    groups = readers.st_mode & (stat.S_IRGRP | stat.S_IXGRP)
    others = readers.st_mode & (stat.S_IROTH | stat.S_IXOTH)
    try:
        if found.st_gid != readers.st_gid:  # where it is the same, a sandbox need not allow the call
            os.fchown(descriptor, -1, readers.st_gid)
    except PermissionError:  # not in that group: nobody else's group may read it instead
        groups = groups if others & stat.S_IROTH else 0
    mode = stat.S_IRWXU | groups | others
    os.fchmod(descriptor, mode if stat.S_ISDIR(found.st_mode) else mode & ~ANY_EXECUTION)


def check_place(path: str) -> None:
    """Raise StoreError if `whole_file` would refuse to write there."""
    with _find_place(path):
        pass


@contextmanager
def _find_place(
    path: str, follow: bool = True, make_folders: bool = False
) -> Iterator[tuple[int, str, os.stat_result | None]]:
    """The open folder, the name in it, and the status of the present file. Raises StoreError for any OSError."""
    try:
        folder, name = open_folder(path, follow, make_folders)
        try:
            yield folder, name, _look(folder, name, path)
        finally:
            os.close(folder)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise StoreError(f"{path} can't be written ({error.strerror or error}): it is as it was") from error


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


def _open_directly(folder: int, name: str, found: os.stat_result) -> BinaryIO:
    """Open a pipe, a device or what this process has open already, for writing in place."""
    follow = 0 if stat.S_ISLNK(found.st_mode) else os.O_NOFOLLOW
    descriptor = os.open(name, os.O_WRONLY | os.O_CLOEXEC | os.O_NOCTTY | follow, dir_fd=folder)
    return open(descriptor, "wb")


def is_database(path: str) -> bool:
    """Whether the path is an SQLite database: perhaps a partition, which no export should replace."""
    try:
        return read_bounded(path, len(SQLITE_MAGIC)).data == SQLITE_MAGIC
    except OSError:
        return False


@contextmanager
def standard_output() -> Iterator[BinaryIO]:
    """Standard output, flushed at the end, so that no write can fail at exit. Raises BrokenPipeError."""
    try:
        with open(1, "wb", closefd=False) as file:
            yield file
    except BrokenPipeError:
        raise
    except OSError as error:
        raise StoreError(f"standard output can't be written ({error.strerror})") from error
