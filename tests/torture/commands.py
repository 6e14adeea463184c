"""Run the real commands, each in a process of its own, forked from one that has imported everything they need.

A new process takes 60 ms for a tick and 600 ms for a report, most of it for imports; a forked one takes 20 and 150 ms.
It is killed, limited and waited for like any other.
"""

import ast
import contextlib
import gc
import importlib
import io
import os
import pkgutil
import resource
import select
import signal
import sys
import traceback
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import gua_report
import gua_sample
from gua_report.main import main

LIMIT_SECONDS = float(os.environ.get("GUA_TORTURE_SECONDS", "20"))  # for small folders, on busy cores
LIMIT_MIB = 2048  # of memory in addition to that at the start
LARGEST_FILE_MIB = 256  # limit for a file that a command writes
KILLED = -signal.SIGKILL
STATUSES = (0, 1, 2, 3)
SOMEBODY = 54321  # no passwd entry
BUG = ("Traceback (most recent call last)", "this is a bug")


class Problem(NamedTuple):
    column: str  # of the table
    text: str


class Ran(NamedTuple):
    words: list[str]
    status: int  # negative: the signal that ended the process
    out: str
    err: str
    is_late: bool  # timeout

    def problems(self, statuses: tuple[int, ...] = STATUSES) -> list[Problem]:
        """Faults that no run may have."""
        shown = f"gua {' '.join(self.words)} ended with {self.status}: {self.err.strip()[-600:]}"
        if self.is_late:
            return [Problem("hangs", f"gua {' '.join(self.words)} did not end within {LIMIT_SECONDS:.0f} s")]
        if "MemoryError" in self.err or self.status == -signal.SIGXFSZ:
            return [Problem("floods", shown)]
        if any(words in self.err for words in BUG) or self.status not in statuses:
            return [Problem("tracebacks", shown)]
        return []


class Running:
    """A started command. `variables` are added to its environment; `user` is the user that root becomes first."""

    def __init__(self, folder: Path, words: list[str], variables: Mapping[str, str], user: int | None = None) -> None:
        self.words = words
        self._out, self._err = os.memfd_create("out"), os.memfd_create("err")
        self._pid = os.fork()
        if self._pid == 0:
            _become_command(folder, words, variables, user, self._out, self._err)
        self._handle = os.pidfd_open(self._pid)

    def kill_after(self, seconds: float) -> None:
        if not self._ends_within(seconds):
            os.kill(self._pid, signal.SIGKILL)

    def wait(self, seconds: float = LIMIT_SECONDS) -> Ran:
        is_late = not self._ends_within(seconds)
        if is_late:
            os.kill(self._pid, signal.SIGKILL)
        _, status = os.waitpid(self._pid, 0)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._pid, signal.SIGKILL)  # its children
        os.close(self._handle)
        code = os.waitstatus_to_exitcode(status)
        return Ran(self.words, code, _read(self._out), _read(self._err), is_late)

    def _ends_within(self, seconds: float) -> bool:
        poll = select.poll()
        poll.register(self._handle, select.POLLIN)
        return bool(poll.poll(seconds * 1000))


def _read(handle: int) -> str:
    with open(handle, "rb") as file:
        file.seek(0)
        return file.read().decode(errors="replace")


def _become_command(
    folder: Path, words: list[str], variables: Mapping[str, str], user: int | None, out: int, err: int
) -> None:
    """Run the command in the forked child; never returns."""
    status = 70
    try:
        os.setpgid(0, 0)
        os.dup2(out, 1)
        os.dup2(err, 2)
        os.chdir(folder)
        if user is not None:
            os.setgroups([])
            os.setresgid(user, user, user)
            os.setresuid(user, user, user)
        limit = _addresses() + LIMIT_MIB * 2**20
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        resource.setrlimit(resource.RLIMIT_FSIZE, (LARGEST_FILE_MIB * 2**20, LARGEST_FILE_MIB * 2**20))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)  # Python ignores it, which would hide a flood
        os.environ.update(variables)
        sys.stdout, sys.stderr = (io.TextIOWrapper(io.FileIO(handle, "w"), "utf-8") for handle in (1, 2))
        status = main(words)
        sys.stdout.flush()
    except BaseException:
        os.write(2, traceback.format_exc().encode())
    finally:
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.flush()
        os._exit(status)


def _addresses() -> int:
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


def import_everything() -> None:
    """Import everything that a command may import later: as another user it may have no access to Python's files."""
    for package in (gua_sample, gua_report):
        for found in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
            module = importlib.import_module(found.name)
            for name in _imports(ast.parse(Path(str(module.__file__)).read_text())):
                with contextlib.suppress(ImportError):
                    importlib.import_module(name)
    gc.collect()
    gc.freeze()


def _imports(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
