"""Read another user's data folder as root, in a child that has become its owner for good.

A folder's owner controls its contents, so its reader must not have more rights than the owner. The child sends its
results as texts and bytes; nothing of them is executed, and their size is limited.
"""

from __future__ import annotations

import importlib
import io
import json
import os
import select
import signal
import sys
import time
import warnings
from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from typing import Any, BinaryIO, NoReturn

from gua_sample import errors
from gua_sample.console import show_traceback
from gua_sample.errors import GuaError, StoreError
from gua_sample.rights import become, owner_to_become

Message = tuple[str, bytes]
Owner = tuple[int, int]  # uid and gid

LONGEST_LABEL_BYTES = 64 << 10
LARGEST_MESSAGE_BYTES = 1 << 30
# A timeout, as the owner can stop the child, or let it read a file that blocks for ever. The longest task, a report
# from years of ticks, takes minutes.
LONGEST_SILENCE_SECONDS = 3600.0
LONGEST_END_SECONDS = 10.0
ANSWER, ERROR, BUG = "answer", "error", "bug"
PR_SET_PDEATHSIG = 1
KINDS = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, GuaError)]
ERRORS = {kind.__name__: kind for kind in KINDS}
NONSENSE = (LookupError, RecursionError, TypeError, ValueError)
SAYS_NONSENSE = "what reads the folder sends nonsense: is a file in it damaged?"
# Modules that the child may need: it can't read a Python, or a virtual environment, under /root.
PRELOADED = (
    *("concurrent.futures.thread", "encodings.ascii", "encodings.unicode_escape", "traceback", "ctypes"),
    *("gua_report.ticks.open_partition", "gua_report.ticks.private_copy"),
)


class ReadingFailed(Exception):
    """A bug of gua that showed in the child."""


def ask_as_owner(data_dir: str, question: Callable[[], Any]) -> Any:
    """The result of the question, which must be serializable as JSON: tuples may come back as lists."""
    owner = owner_to_become(data_dir)
    if owner is None:
        return question()
    for _, answer in stream_as(owner, lambda: iter([(ANSWER, json.dumps(question()).encode())])):
        try:
            return json.loads(answer)
        except NONSENSE as error:
            raise StoreError(SAYS_NONSENSE) from error
    raise StoreError(f"{data_dir} was not read: its reader said nothing")


def stream_as_owner(data_dir: str, produce: Callable[[], Iterator[Message]]) -> Iterator[Message]:
    """The messages that `produce` yields. A GuaError that it raises is raised here too."""
    owner = owner_to_become(data_dir)
    return produce() if owner is None else stream_as(owner, produce)


def stream_as(owner: Owner | None, produce: Callable[[], Iterator[Message]]) -> Generator[Message, None, None]:
    """The messages that `produce` yields in a child, which becomes the owner first; None: it stays our user."""
    for module in PRELOADED:
        importlib.import_module(module)
    reading, writing = os.pipe()
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()  # else the child would write its buffer again
    parent = os.getpid()
    with warnings.catch_warnings():
        # Python 3.12 warns of threads; here they are those of numpy's linear algebra, which is not used.
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid == 0:
        os.close(reading)
        _produce(owner, produce, writing, parent)
    os.close(writing)
    try:
        with io.BufferedReader(_Pipe(reading)) as file:
            yield from _receive(file)
        _check_end(_wait(pid))
        pid = 0
    finally:
        if pid:  # the caller stopped early, or the child sent nonsense
            with suppress(OSError):  # we may have become a user without the right to
                os.kill(pid, signal.SIGKILL)
            with suppress(OSError, StoreError):
                _wait(pid)


def _produce(owner: Owner | None, produce: Callable[[], Iterator[Message]], writing: int, parent: int) -> NoReturn:
    """Send what `produce` yields, then exit the child: it never returns into the parent's code, whatever happens."""
    status = 1
    try:
        with open(writing, "wb") as file:
            try:
                if owner is not None:
                    _let_go(writing)
                    become(*owner)
                _die_with(parent)
                for label, content in produce():
                    _send(file, label, content)
            except GuaError as error:
                name = next(kind.__name__ for kind in type(error).__mro__ if kind.__name__ in ERRORS)
                _send(file, ERROR, json.dumps([name, str(error)]).encode())
            except ImportError as error:
                text = f"{error}, which uid {os.geteuid()} may not read: install gua where everybody may"
                _send(file, ERROR, json.dumps([StoreError.__name__, text]).encode())
            except Exception as error:  # a mistake of ours, which the parent is to report
                if "--debug" in sys.argv:
                    show_traceback()
                _send(file, BUG, f"{type(error).__name__}: {error}".encode("utf-8", "backslashreplace"))
        status = 0
    finally:
        os._exit(status)


def _die_with(parent: int) -> None:
    """Have the kernel end this process when its parent ends. A later change of user would undo it: see prctl(2)."""
    import ctypes

    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # the parent ended before the call
        os._exit(1)


def _let_go(writing: int) -> None:
    """Close what the owner has no right to: root's open files, its input, its terminal."""
    os.setsid()
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1):
        os.dup2(nothing, stream)
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2 and int(name) != writing:
            with suppress(OSError):  # the descriptor of the listing itself
                os.close(int(name))


def _send(file: BinaryIO, label: str, content: bytes) -> None:
    file.write(json.dumps([label, len(content)]).encode() + b"\n" + content)
    file.flush()


def _receive(file: BinaryIO) -> Iterator[Message]:
    while line := file.readline(LONGEST_LABEL_BYTES):
        label, content = _one(line, file)
        if label == ERROR:
            try:
                name, text = json.loads(content)
                problem = ERRORS[name](text)
            except NONSENSE as error:
                raise StoreError(SAYS_NONSENSE) from error
            raise problem
        if label == BUG:
            raise ReadingFailed(content.decode("utf-8", "replace"))
        yield label, content


def _one(line: bytes, file: BinaryIO) -> Message:
    try:
        label, size = json.loads(line)
        if not (isinstance(label, str) and isinstance(size, int) and 0 <= size <= LARGEST_MESSAGE_BYTES):
            raise ValueError("no message")
    except NONSENSE as error:
        raise StoreError(SAYS_NONSENSE) from error
    content = file.read(size)
    if len(content) < size:
        raise StoreError("what reads the folder ended early: is a file in it damaged, or memory short?")
    return label, content


class _Pipe(io.RawIOBase):
    """The reading end of a pipe, with a timeout: raises StoreError after a long silence."""

    def __init__(self, pipe: int) -> None:
        self._pipe = pipe

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if not select.select([self._pipe], [], [], LONGEST_SILENCE_SECONDS)[0]:
            raise StoreError("what reads the folder says nothing any more: has its owner stopped it?")
        return os.readv(self._pipe, [buffer])

    def close(self) -> None:
        if not self.closed:
            os.close(self._pipe)
        super().close()


def _wait(pid: int) -> int:
    """The exit status of a child that has closed its pipe, which is its last action."""
    ends = time.monotonic() + LONGEST_END_SECONDS
    while time.monotonic() < ends:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            return status
        time.sleep(0.001)
    raise StoreError("what reads the folder does not end: has its owner stopped it?")


def _check_end(status: int) -> None:
    if os.WIFSIGNALED(status):
        name = signal.Signals(os.WTERMSIG(status)).name
        raise StoreError(f"what reads the folder was ended by {name}: is a file in it damaged, or memory short?")
    if os.waitstatus_to_exitcode(status):
        raise StoreError("what reads the folder failed")
