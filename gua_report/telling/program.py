"""Run the administrator's program: no shell, an empty environment, facts on stdin, a time limit."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from contextlib import suppress
from typing import IO, NamedTuple

from gua_sample.processes import printable

MOST_BYTES = 4096  # of its output that are looked at
LONGEST_LINE = 200
END_SECONDS = 1.0  # for the rest of its output


class Ended(NamedTuple):
    status: int | None  # None: it was not done in time, or could not be run
    said: str  # the first line of its output, or why it has no status


def run_program(path: str, facts: str, seconds: float) -> Ended:
    """Run the program and wait for it. When the time is over, it and all that it has started are ended."""
    with open(os.memfd_create("facts"), "w+b") as given:
        given.write(facts.encode())
        given.seek(0)
        try:
            process = subprocess.Popen(
                [path],
                stdin=given,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env={},
                cwd="/",
                close_fds=True,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            return Ended(None, f"{path} can't be run ({error})")
    output = _Output(process.stdout)
    try:
        status = process.wait(seconds)
    except subprocess.TimeoutExpired:
        with suppress(OSError):
            os.killpg(process.pid, signal.SIGKILL)
        with suppress(subprocess.TimeoutExpired):
            process.wait(END_SECONDS)
        return Ended(None, f"{path} was not done within {seconds:g} s")
    return Ended(status, output.first_line())


class _Output:
    """Reads all that a program says, so that it never waits, and keeps the beginning.

    Whatever the program leaves running in the background may keep the pipe open, and is not waited for.
    """

    def __init__(self, pipe: IO[bytes] | None) -> None:
        assert pipe is not None
        self._pipe, self._begin = pipe, b""
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        with suppress(OSError), self._pipe:
            while part := os.read(self._pipe.fileno(), 65536):
                self._begin = (self._begin + part)[:MOST_BYTES]

    def first_line(self) -> str:
        self._thread.join(END_SECONDS)
        return printable(self._begin.split(b"\n")[0].strip())[:LONGEST_LINE]
