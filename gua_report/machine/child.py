"""Ask questions in a child process: with a timeout, or as another user."""

from __future__ import annotations

import fcntl
import json
import os
import select
import signal
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, NamedTuple, NoReturn

NO_ANSWER = "no answer"
CRASHED = "crashed"


class Answer(NamedTuple):
    value: Any  # serializable as JSON
    problem: str | None = None  # NO_ANSWER in time, or CRASHED


def ask(question: Callable[[], Any], seconds: float, before: Callable[[], None] | None = None) -> Answer:
    """The question's answer from a forked child, which calls `before` first.

    A child that hangs in the driver may not even be killable. So it is never waited for, and inherits neither our
    output, which somebody may be reading to its end, nor our input.
    """
    _bury()
    reading, writing = _pipe()
    pid = os.fork()
    if pid == 0:
        _answer(question, before, writing)
    os.close(writing)
    try:
        text = _read(reading, time.monotonic() + seconds)
    finally:
        os.close(reading)
        with suppress(OSError):
            os.kill(pid, signal.SIGKILL)
        _left.append(pid)
        _bury()
    if text is None:
        return Answer(None, NO_ANSWER)
    try:
        return Answer(json.loads(text))
    except ValueError:
        return Answer(None, CRASHED)


def run(command: list[str], environment: Mapping[str, str], seconds: float) -> tuple[int, str] | None:
    """The exit status and the output of a program; None on a timeout. Raises OSError if it can't be run.

    Does without `subprocess`, which takes about as long to import as systemctl to answer.
    """
    reading, writing = _pipe()
    pid = text = None
    try:
        nothing = (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)
        output = [(os.POSIX_SPAWN_DUP2, writing, stream) for stream in (1, 2)]
        pid = os.posix_spawnp(command[0], command, environment, file_actions=[nothing, *output])
    finally:
        os.close(writing)
        if pid is None:
            os.close(reading)
    try:
        text = _read(reading, time.monotonic() + seconds)
    finally:
        os.close(reading)
        if text is None:
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)
            _left.append(pid)
    if text is None:
        return None
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), text.decode("utf-8", "backslashreplace")


_left: list[int] = []  # children that may not have ended yet


def _bury() -> None:
    """Reap the children that have ended, without waiting for others, so that repeated questions leave no zombies."""
    for pid in _left[:]:
        with suppress(ChildProcessError):
            if os.waitpid(pid, os.WNOHANG) == (0, 0):
                continue
        _left.remove(pid)


def _pipe() -> tuple[int, int]:
    """A pipe whose writing end is no standard stream, even if those are closed: the child replaces these."""
    reading, writing = os.pipe()
    try:
        return reading, fcntl.fcntl(writing, fcntl.F_DUPFD_CLOEXEC, 3)
    finally:
        os.close(writing)


def _answer(question: Callable[[], Any], before: Callable[[], None] | None, writing: int) -> NoReturn:
    try:
        nowhere = os.open(os.devnull, os.O_RDWR)
        for stream in range(3):
            os.dup2(nowhere, stream)
        if before:
            before()
        text = json.dumps(question()).encode()
        while text:
            text = text[os.write(writing, text) :]
    finally:  # whatever happens, the child must not return into the parent's code
        os._exit(0)


def _read(pipe: int, deadline: float) -> bytes | None:
    """All bytes until the other end is closed, or None on a timeout."""
    text = b""
    while True:
        ready, _, _ = select.select([pipe], [], [], max(0, deadline - time.monotonic()))
        if not ready:
            return None
        part = os.read(pipe, 65536)
        if not part:
            return text
        text += part
