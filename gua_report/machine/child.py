"""Ask questions in a child process: with a timeout, and as another user if need be.

Root reads another user's files in a child that has become that user for good: a file's owner controls its content, so
its reader must not have more rights. What the child sends is not executed, and its size is limited.
"""

import fcntl
import io
import json
import os
import resource
import select
import signal
import sys
import time
import warnings
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from typing import Any, BinaryIO, NamedTuple, NoReturn

from gua_sample import errors
from gua_sample.console import import_failed, show_traceback
from gua_sample.errors import GuaError, StoreError
from gua_sample.processes import read_file
from gua_sample.rights import become, out_of_reach, owner_to_become

Message = tuple[str, bytes]  # a label and a content
Identity = tuple[int, int] | tuple[int, int, tuple[int, ...]]  # uid, gid and perhaps all groups: see `become`
Produce = Callable[[], Iterable[Message]]

LONGEST_LABEL_BYTES = 64 << 10
LARGEST_MESSAGE_BYTES = 1 << 30
# The owner can stop the child, or let it read a file that blocks for ever. The longest task takes minutes.
LONGEST_SILENCE_SECONDS = 3600.0
STALLED_SECONDS = 60.0  # without any work of its processor: whatever the task, it was stopped, or hangs
MOMENT_SECONDS = 0.5
ANSWER, ERROR, BUG, END = "answer", "error", "bug", "end"
NO_ANSWER, CRASHED = "no answer", "crashed"
PR_SET_PDEATHSIG = 1
KINDS = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, GuaError)]
ERRORS = {kind.__name__: kind for kind in KINDS}


class ReadingFailed(Exception):
    """A bug of gua that showed in the child."""


class Silent(StoreError):
    """The child has sent nothing for too long."""


class Answer(NamedTuple):
    value: Any  # serializable as JSON
    problem: str | None = None  # NO_ANSWER in time, or CRASHED


def ask_as_owner(data_dir: str, question: Callable[[], Any], seconds: float | None = None) -> Any:
    """The result of the question, serializable as JSON: tuples may come back as lists. StoreError after `seconds`."""
    owner = owner_to_become(data_dir)
    return question() if owner is None else answer_of(question, owner, seconds)


def ask_apart(data_dir: str, question: Callable[[], Any], seconds: float) -> Any:
    """The same, always from a child and in time, so that we go on whatever becomes of it, even by a bug."""
    return answer_of(question, owner_to_become(data_dir), seconds)


def stream_as_owner(data_dir: str, produce: Callable[[], Iterator[Message]]) -> Iterator[Message]:
    owner = owner_to_become(data_dir)
    return produce() if owner is None else stream(produce, owner)


def ask(question: Callable[[], Any], seconds: float, user: Identity | None = None) -> Answer:
    """The question's answer from a child, which inherits none of our streams: somebody may read them to their end."""
    try:
        return Answer(answer_of(question, user, seconds, range(3)))
    except Silent:
        return Answer(None, NO_ANSWER)
    except (GuaError, ReadingFailed):
        return Answer(None, CRASHED)


def answer_of(question: Callable[[], Any], *how: Any) -> Any:

    def produce() -> Iterator[Message]:
        yield ANSWER, json.dumps(question()).encode()

    with closing(stream(produce, *how)) as messages, understanding():
        return json.loads(next(messages, (ANSWER, b""))[1])


@contextmanager
def understanding() -> Iterator[None]:
    """Raise StoreError for what a child has sent that makes no sense: a file may have taken control of it."""
    try:
        yield
    except (AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        raise StoreError("what reads the folder sends nonsense: is a file in it damaged?") from error


def stream(
    produce: Produce, user: Identity | None = None, seconds: float | None = None, replaced: Iterable[int] = (0, 1)
) -> Generator[Message, None, None]:
    bury()
    reading, writing = open_pipe()
    for output in (sys.stdout, sys.stderr):
        if output is not None:
            output.flush()  # else the child would write its buffer again
    parent = os.getpid()
    with warnings.catch_warnings():
        # Python 3.12 warns of threads; here they are those of numpy's linear algebra, which is not used.
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid == 0:
        _produce(writing, produce, user, parent, replaced)
    os.close(writing)
    try:
        with io.BufferedReader(Pipe(reading, seconds or LONGEST_SILENCE_SECONDS, None if seconds else pid)) as file:
            yield from _receive(file)
    finally:
        abandon(pid)


def _produce(writing: int, produce: Produce, user: Identity | None, parent: int, replaced: Iterable[int]) -> NoReturn:
    """Send what `produce` yields, then exit the child: it never returns into the parent's code, whatever happens."""
    try:
        with open(writing, "wb") as file:
            try:
                _let_go(writing, replaced)
                if user is not None:
                    become(*user)
                _die_with(parent)
                for label, content in produce():
                    _send(file, label, content)
                _send(file, END, b"")
            except GuaError as error:
                name = next(kind.__name__ for kind in type(error).__mro__ if kind.__name__ in ERRORS)
                _send(file, ERROR, json.dumps([name, str(error)]).encode())
            except (ImportError, PermissionError) as error:
                text = out_of_reach(error.filename) if isinstance(error, OSError) else import_failed(error)
                _send(file, ERROR, json.dumps([StoreError.__name__, text]).encode())
            except Exception as error:  # a mistake of ours, which the parent is to report
                if "--debug" in sys.argv:
                    show_traceback()
                _send(file, BUG, f"{type(error).__name__}: {error}".encode("utf-8", "backslashreplace"))
    finally:
        os._exit(0)


def _let_go(writing: int, replaced: Iterable[int]) -> None:
    """Close what another user has no right to: our open files, our input, our terminal."""
    os.setsid()
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in replaced:
        os.dup2(nothing, number)
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2 and int(name) != writing:
            with suppress(OSError):  # the descriptor of the listing itself
                os.close(int(name))


def _die_with(parent: int) -> None:
    """Have the kernel end this process when its parent ends. A later change of user would undo it: see prctl(2)."""
    import ctypes

    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # the parent ended before the call
        os._exit(1)


def limit_memory(more_bytes: int) -> None:
    with open("/proc/self/statm", encoding="ascii") as file:
        now_bytes = int(file.read().split()[0]) * resource.getpagesize()
    _, most = resource.getrlimit(resource.RLIMIT_AS)
    wanted = now_bytes + more_bytes
    if most == resource.RLIM_INFINITY or wanted < most:
        resource.setrlimit(resource.RLIMIT_AS, (wanted, wanted))


def _send(file: BinaryIO, label: str, content: bytes) -> None:
    file.write(json.dumps([label, len(content)]).encode() + b"\n" + content)
    file.flush()


def _receive(file: BinaryIO) -> Iterator[Message]:
    while line := file.readline(LONGEST_LABEL_BYTES):
        with understanding():
            label, size = json.loads(line)
            if not (isinstance(label, str) and isinstance(size, int) and 0 <= size <= LARGEST_MESSAGE_BYTES):
                raise ValueError("no message")
        content = file.read(size)
        if len(content) < size:
            break
        if label == END:
            return
        if label == ERROR:
            with understanding():
                name, text = json.loads(content)
                problem = ERRORS[name](text)
            raise problem
        if label == BUG:
            raise ReadingFailed(content.decode("utf-8", "replace"))
        yield label, content
    raise StoreError("what reads the folder ended early: is a file in it damaged, or memory short?")


def open_pipe() -> tuple[int, int]:
    """A pipe whose writing end is no standard stream, even if those are closed: the child replaces these."""
    reading, writing = os.pipe()
    try:
        return reading, fcntl.fcntl(writing, fcntl.F_DUPFD_CLOEXEC, 3)
    finally:
        os.close(writing)


class Pipe(io.FileIO):
    """The reading end of a pipe, with a timeout for all; with `pid`, who must be seen to work, for each silence."""

    def __init__(self, pipe: int, seconds: float, pid: int | None = None) -> None:
        super().__init__(pipe)
        self._seconds, self._pid = seconds, pid

    def readinto(self, buffer: Any, /) -> int:
        began, work = time.monotonic(), _work_of(self._pid)
        slice_seconds = max(0.0, self._seconds if self._pid is None else min(self._seconds, STALLED_SECONDS))
        while not select.select([self], [], [], slice_seconds)[0]:
            before, work = work, _work_of(self._pid)
            waited = time.monotonic() - began
            if self._pid is None or waited >= self._seconds or (work and work == before):
                raise Silent(
                    f"reading the data folder timed out after {waited:.0f} s: has its owner stopped the reader?"
                )
        self._seconds -= 0 if self._pid else time.monotonic() - began
        return super().readinto(buffer)


def _work_of(pid: int | None) -> list[bytes]:
    return (read_file(f"/proc/{pid}/stat") or b"").rpartition(b")")[2].split()[11:15]


_left: list[int] = []  # children that may not have ended yet


def abandon(pid: int) -> None:
    """Kill a child, and wait only a moment: it may hang in the kernel, or be a user's whom we may not kill.

    One that is still ending when a unit's run is over would be reported as left over by the unit's next run.
    """
    with suppress(OSError):
        os.kill(pid, signal.SIGKILL)
    _left.append(pid)
    ends = time.monotonic() + MOMENT_SECONDS
    bury()
    while pid in _left and time.monotonic() < ends:
        time.sleep(0.001)
        bury()


def bury() -> None:
    """Reap the children that have ended, without waiting for others, so that repeated questions leave no zombies.

    Not by a thread: what is forked beside one may inherit a lock that it holds.
    """
    for pid in _left[:]:
        with suppress(ChildProcessError):
            if os.waitpid(pid, os.WNOHANG) == (0, 0):
                continue
        _left.remove(pid)
