"""Files, pipes and devices that a user names: files are written atomically, and read up to a limit."""

import errno
import os
import select
import stat
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import BinaryIO, NamedTuple

from gua_sample.errors import StoreError
from gua_sample.partition_names import SQLITE_MAGIC
from gua_sample.safe_file import replacing

FOLDER = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC  # works without permission to list the folder
PLACE = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC  # a file, pipe or link itself, which is not opened
DIRECTLY = os.O_WRONLY | os.O_APPEND | os.O_NOCTTY | os.O_CLOEXEC  # /dev/fd/3 may lead to a file that has a beginning
ANY_EXECUTION = stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH
MOST_STEPS = 1000  # links may form a loop
CHUNK_BYTES = 1 << 18


@contextmanager
def whole_file(path: str, is_ours: bool = False, readers: str | None = None) -> Iterator[BinaryIO]:
    """Open `path` for an atomic write; a pipe or a device is written to directly.

    The new file gets the mode of the old one, and its owner if we may set it; with `readers`, those who can read that
    folder can read it. If gua chose the name (`is_ours`), missing folders are made and a link is replaced.
    """
    with _find_place(path, is_ours) as (folder, name, place, found):
        is_file = found is not None and stat.S_ISREG(found.st_mode)
        if found is not None and not is_file and not (is_ours and stat.S_ISLNK(found.st_mode)):
            # A link is one of /proc here: it leads to what this process has open.
            way, within = (name, folder) if stat.S_ISLNK(found.st_mode) else (f"/proc/self/fd/{place}", None)
            with open(os.open(way, DIRECTLY, dir_fd=within), "wb") as file:
                yield file
            return
        # Whoever opens it before it has its mode could read it later.
        is_private = is_file or readers is not None
        with replacing(name, within=folder, mode=0o600 if is_private else 0o666) as file:
            if found is not None and is_file:
                with suppress(PermissionError):
                    os.fchown(file.fileno(), found.st_uid, found.st_gid)
                os.fchmod(file.fileno(), found.st_mode & 0o777)
            if readers is not None:
                share_with_readers(file.fileno(), readers)
            yield file


def share_with_readers(descriptor: int, folder: str) -> None:
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
    with _find_place(path):
        pass


@contextmanager
def _find_place(path: str, is_ours: bool = False) -> Iterator[tuple[int, str, int | None, os.stat_result | None]]:
    try:
        with ExitStack() as opened:
            folder, name = open_folder(path, not is_ours, is_ours)
            opened.callback(os.close, folder)
            place = _open_place(folder, name)
            if place is not None:
                opened.callback(os.close, place)
            yield folder, name, place, None if place is None else _judge(folder, place, path, not is_ours)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise StoreError(f"{path} can't be written ({error.strerror or error}): it is as it was") from error


def open_folder(path: str, follow: bool = True, make_folders: bool = False) -> tuple[int, str]:
    """The folder of a file, opened, and the file's name. Others' links are not followed: root could write anywhere."""
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
                no_link = 0 if _is_of_proc(folder) else os.O_NOFOLLOW
                folder = _exchange(folder, os.open(step, FOLDER | no_link, dir_fd=folder))
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
    except BaseException:
        os.close(folder)
        raise


def _link_target(folder: int, name: str, path: str) -> str | None:
    entry = _open_place(folder, name)
    if entry is None:
        return None
    try:
        found = os.fstat(entry)
        if not stat.S_ISLNK(found.st_mode):
            return None
        if found.st_uid not in (0, os.geteuid()):
            raise StoreError(f"{path} leads through a link of uid {found.st_uid}'s: give another path")
        return None if _is_of_proc(folder) else os.readlink("", dir_fd=entry)
    finally:
        os.close(entry)


def _open_place(folder: int, name: str) -> int | None:
    with suppress(FileNotFoundError):
        return os.open(name, PLACE, dir_fd=folder)
    return None


def _is_of_proc(folder: int) -> bool:
    return os.fstat(folder).st_dev == os.stat("/proc").st_dev


def _exchange(folder: int, other: int) -> int:
    os.close(folder)
    return other


def _judge(folder: int, place: int, path: str, follow: bool) -> os.stat_result:
    """The status of what is opened. Raises StoreError at another user's in a folder that all may write to.

    It would be given to that user. The kernel's rule for such folders (see proc_sys_fs(5)) does not cover that, nor
    folders where everybody may also remove others' files.
    """
    found, around = os.fstat(place), os.fstat(folder)
    if around.st_mode & stat.S_IWOTH and found.st_uid not in (os.geteuid(), around.st_uid):
        raise StoreError(f"{path} is uid {found.st_uid}'s, where everybody may write: give another file")
    if stat.S_ISFIFO(found.st_mode) and os.geteuid() == 0 and found.st_uid != 0:
        raise StoreError(f"not as root: {path} is a pipe of uid {found.st_uid}'s: give another file")
    if stat.S_ISLNK(found.st_mode) and follow and not _is_of_proc(folder):  # it was none when links were followed
        raise StoreError(f"{path} leads through a link that has just been made: give another path")
    if stat.S_ISDIR(found.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    return found


def is_database(path: str) -> bool:
    """Whether the path is an SQLite database: perhaps a partition, which no export should replace."""
    with _find_place(path) as (_, _, place, _), suppress(OSError):
        # The file that was found: a link in its place may lead to a device, and to open one may have effects.
        return place is not None and read_bounded(f"/proc/self/fd/{place}", len(SQLITE_MAGIC)).data == SQLITE_MAGIC
    return False


@contextmanager
def standard_output() -> Iterator[BinaryIO]:
    try:
        with open(1, "wb", closefd=False) as file:
            yield file
    except BrokenPipeError:
        raise
    except OSError as error:
        raise StoreError(f"standard output can't be written ({error.strerror})") from error


class Content(NamedTuple):
    data: bytes
    is_whole: bool  # whether the data is the complete file


class NoRegularFile(OSError):
    """A pipe, a device or a socket where only a regular file will do."""


def read_bounded(path: str, most_bytes: int, pipe_seconds: float | None = None) -> Content:
    """The first `most_bytes` of a file. Pipes and devices need `pipe_seconds`, their timeout (raises TimeoutError)."""
    if pipe_seconds is None:
        _check_regular(os.stat(path))
    # Without O_NONBLOCK, opening a named pipe blocks until somebody writes to it.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    try:
        if pipe_seconds is None:
            _check_regular(os.fstat(descriptor))
        data = _read(descriptor, most_bytes + 1, time.monotonic() + (pipe_seconds or 0))
    finally:
        os.close(descriptor)
    return Content(data[:most_bytes], len(data) <= most_bytes)


def read_untrusted(path: str, most_bytes: int) -> Content:
    """The same of a regular file, without following others' links: they might not be allowed to read what is there."""
    folder, name = open_folder(path)
    try:
        place = os.open(name, PLACE, dir_fd=folder)
    finally:
        os.close(folder)
    try:
        return read_bounded(f"/proc/self/fd/{place}", most_bytes)
    finally:
        os.close(place)


def _check_regular(found: os.stat_result) -> None:
    if stat.S_ISDIR(found.st_mode):
        raise NoRegularFile(errno.EINVAL, "it is a directory")
    if not stat.S_ISREG(found.st_mode):
        raise NoRegularFile(errno.EINVAL, "it is no regular file")


def _read(descriptor: int, most_bytes: int, deadline: float) -> bytes:
    parts: list[bytes] = []
    wait = select.poll()
    wait.register(descriptor, select.POLLIN)
    while most_bytes > 0:
        # A regular file is ready at once. A named pipe without a writer is not, though a read would find it empty.
        if not wait.poll(max(0.0, deadline - time.monotonic()) * 1000):
            raise TimeoutError
        try:
            part = os.read(descriptor, min(most_bytes, CHUNK_BYTES))
        except BlockingIOError:  # another reader took the data
            continue
        if not part:
            break
        parts.append(part)
        most_bytes -= len(part)
    return b"".join(parts)
