"""Run a program with a time limit and without a shell; and whose program may be run as the hook."""

import os
import signal
import stat
import subprocess
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import PurePath
from shlex import quote
from typing import IO, NamedTuple

from gua_sample.errors import GuaError

MOST_BYTES = 4096  # of its output that are kept
END_SECONDS = 1.0  # for the rest of its output
MOVE = "move the program to a folder that only root can change, and name it there in [hook] run"


class Ended(NamedTuple):
    status: int | None  # None: it was not done in time
    output: bytes  # the beginning of what it wrote to standard output
    errors: bytes


def run_program(
    command: Sequence[str],
    seconds: float,
    given: bytes = b"",
    environment: Mapping[str, str] | None = None,
    most_bytes: int = MOST_BYTES,
) -> Ended:
    """Run the command. When the time is over, it and all that it started are killed; else, that is not waited for."""
    with open(os.memfd_create("given"), "w+b") as file:
        file.write(given)
        file.seek(0)
        process = subprocess.Popen(
            command,
            stdin=file,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
            cwd="/",
            start_new_session=True,
        )
    readers = [_collect(pipe, most_bytes) for pipe in (process.stdout, process.stderr) if pipe]
    try:
        status = process.wait(seconds)
    except subprocess.TimeoutExpired:
        status = None
        with suppress(OSError, subprocess.TimeoutExpired):  # OSError: it may have become another user
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(END_SECONDS)
    for thread, _ in readers:
        thread.join(END_SECONDS)  # something in the background may keep the pipe open
    return Ended(status, *(bytes(found) for _, found in readers))


def _collect(pipe: IO[bytes], most_bytes: int) -> tuple[threading.Thread, bytearray]:
    found = bytearray()

    def read() -> None:
        with suppress(OSError), pipe:
            while part := os.read(pipe.fileno(), 65536):
                found.extend(part[: most_bytes - len(found)])

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    return thread, found


class Untrusted(GuaError):
    """Why a file is not run as the hook."""


def check_target(path: str) -> None:
    """Raise Untrusted unless the file and every folder above it are root's, and nobody else may write to them.

    Nothing is said of how to change a folder: it may be somebody's home. An access list shows in the group's bits.
    """
    if not path.startswith("/") or os.path.realpath(path) != path:
        raise Untrusted(
            f"{path} is no plain absolute path, or leads through a link: name the file itself in [hook] run"
        )
    for place in (path, *map(str, PurePath(path).parents)):
        is_file = place == path
        try:
            found = os.lstat(place)
        except OSError as error:
            raise Untrusted(
                f"{place} can't be looked at ({error.strerror}): create it, or correct [hook] run"
            ) from error
        if is_file and not stat.S_ISREG(found.st_mode):
            raise Untrusted(f"{path} is no regular file: correct [hook] run")
        if found.st_uid != 0 or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            who = f"others than root may write to {place}, and change what is run"
            who = f"{place} belongs to uid {found.st_uid}, who could change what is run" if found.st_uid else who
            remedy = f"sudo {'chown root' if found.st_uid else 'chmod go-w'} {quote(path)}"
            raise Untrusted(f"{who}: {remedy if is_file else MOVE}")
        if is_file and not found.st_mode & 0o111:
            raise Untrusted(f"{path} is not executable: sudo chmod 755 {path}")
