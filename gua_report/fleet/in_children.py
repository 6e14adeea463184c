"""Work on hosts' files in children of this machine, several at a time.

A file may make its reader hang, crash or take all memory. So each child has limits, and is a fresh one after some
hosts; what ends a child costs the host that it was at a second try, alone, and then its place in the report.
"""

from __future__ import annotations

import gc
import json
import os
import resource
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from functools import partial
from queue import SimpleQueue
from typing import Any, NamedTuple

from gua_report.fleet.host_files import HostFile
from gua_report.machine.child import Message, ReadingFailed, Silent, stream, understanding
from gua_sample.errors import GuaError, StoreError

HOSTS_PER_CHILD = 16
SECONDS_PER_HOST = 120.0
MORE_MEMORY_BYTES = 2 << 30  # than the child has when it begins
MOST_ANSWER_BYTES = 16 << 20
BEGUN, DONE, FAILED = "begun", "done", "failed"
Work = Callable[[HostFile], Any]  # its result is serializable as JSON


class Outcome(NamedTuple):
    file: HostFile
    value: Any
    problem: str | None = None  # why there is no value


def map_in_children(files: Sequence[HostFile], work: Work, workers: int | None = None) -> Iterator[Outcome]:
    """The outcome for each file, in any order. Nothing is kept of those that were taken."""
    count = min(workers or len(os.sched_getaffinity(0)), len(files)) or 1
    lanes = [files[number::count] for number in range(count)]
    gc.freeze()  # else the search for garbage would write to all memory that children share with this process
    try:
        yield from _outcomes(lanes, work)
    finally:
        gc.unfreeze()


def _outcomes(lanes: Sequence[Sequence[HostFile]], work: Work) -> Iterator[Outcome]:
    streams = [stream(partial(_run_lane, lane, work)) for lane in lanes]
    for messages in streams:
        next(messages)  # forks here, while there are no other threads
    found: SimpleQueue[tuple[int, Message | Exception | None]] = SimpleQueue()
    for number, messages in enumerate(streams):
        threading.Thread(target=_drain, args=(number, messages, found), daemon=True).start()
    done, running = [0] * len(lanes), len(lanes)
    while running:
        number, message = found.get()
        if message is None:
            running -= 1
            for file in lanes[number][done[number] :]:
                yield Outcome(file, None, "what reads its file ended early: is memory short?")
        elif isinstance(message, Exception):
            raise message
        else:
            file = lanes[number][done[number]]
            done[number] += 1
            yield _understand(file, *message)


def _drain(number: int, messages: Iterator[Message], found: SimpleQueue[Any]) -> None:
    try:
        for message in messages:
            found.put((number, message))
    except GuaError:
        pass  # the lane was ended: what it has not done is named
    except Exception as error:  # raised again where the outcomes are taken
        found.put((number, error))
    finally:
        found.put((number, None))


def _understand(file: HostFile, label: str, content: bytes) -> Outcome:
    if label == FAILED:
        return Outcome(file, None, content.decode("utf-8", "replace"))
    if len(content) > MOST_ANSWER_BYTES:
        return Outcome(file, None, "its file has more people and cards than any host")
    try:
        with understanding():
            return Outcome(file, json.loads(content))
    except StoreError as error:
        return Outcome(file, None, str(error))


def _run_lane(files: Sequence[HostFile], work: Work) -> Iterator[Message]:
    """A message for each file, in order, from one child after another."""
    yield BEGUN, b""
    done, tried = 0, -1  # `tried`: the file that ended a child
    while done < len(files):
        chunk = files[done : done + (1 if tried == done else HOSTS_PER_CHILD)]
        before = done
        try:
            with closing(stream(partial(_work_on, chunk, work), None, SECONDS_PER_HOST)) as messages:
                for message in messages:
                    done += 1
                    yield message
        except (GuaError, ReadingFailed) as error:
            if tried == done or isinstance(error, Silent):  # what hangs once would hang again
                done += 1
                yield FAILED, f"not readable: {error}".encode("utf-8", "replace")
            else:
                tried = done
        if done == before and tried != done:
            raise AssertionError("a child has answered nothing, and did not fail")


def _work_on(files: Sequence[HostFile], work: Work) -> Iterator[Message]:
    """Do the work in this process, which is a child of its own."""
    _limit_memory()
    for file in files:
        yield work_on(file, work)


def work_on(file: HostFile, work: Work) -> Message:
    """The answer for one file, or why there is none. Whatever a file does to our code costs that file alone."""
    try:
        return DONE, json.dumps(work(file), allow_nan=False).encode()
    except GuaError as error:
        problem = str(error)
    except MemoryError:
        problem = "its file takes more memory than that of any host"
    except Exception as error:  # a damaged file may raise any
        problem = f"its file holds what no gua writes ({type(error).__name__}: {error})"
    return FAILED, problem.encode("utf-8", "replace")


def _limit_memory() -> None:
    with open("/proc/self/statm", encoding="ascii") as file:
        now_bytes = int(file.read().split()[0]) * resource.getpagesize()
    _, most = resource.getrlimit(resource.RLIMIT_AS)
    wanted = now_bytes + MORE_MEMORY_BYTES
    if most == resource.RLIM_INFINITY or wanted < most:
        resource.setrlimit(resource.RLIMIT_AS, (wanted, wanted))
