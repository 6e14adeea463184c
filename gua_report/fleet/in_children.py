"""Work on hosts' files in children of this machine, several at a time.

A file may make its reader hang, crash or take all memory. So each child has limits, and is a fresh one after some
hosts; what ends a child costs the host that it was at a second try, alone, and then its place in the report.
"""

from __future__ import annotations

import gc
import json
import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from functools import partial
from itertools import islice
from typing import Any, NamedTuple

from gua_report.fleet.host_files import HostFile
from gua_report.machine.child import Message, ReadingFailed, Silent, limit_memory, stream, understanding
from gua_sample.errors import GuaError, StoreError

HOSTS_PER_CHILD = 16
SECONDS_PER_HOST = 120.0
MORE_MEMORY_BYTES = 2 << 30  # than the child has when it begins
MOST_ANSWER_BYTES = 16 << 20
MOST_PROBLEM_BYTES = 1000  # of a message, which may quote a name from the file
BEGUN, DONE, FAILED = "begun", "done", "failed"
Work = Callable[[HostFile], Any]  # its result is serializable as JSON


class Outcome(NamedTuple):
    file: HostFile
    value: Any
    problem: str | None = None  # why there is no value


Executor = Callable[[Sequence[HostFile], Work], Iterator[Outcome]]


def map_in_children(files: Sequence[HostFile], work: Work, workers: int | None = None) -> Iterator[Outcome]:
    """The outcome for each file, in any order. Nothing is kept of those that were taken."""
    count = workers or len(os.sched_getaffinity(0))
    lanes = deque(_run_lane(files[number::count], work) for number in range(count))
    gc.freeze()  # else the search for garbage would write to all memory that children share with this process
    try:
        while lanes:  # in turn: while one is waited for, the children of the others are at work
            lane = lanes.popleft()
            for outcome in islice(lane, 1):
                lanes.append(lane)
                if outcome is not None:
                    yield outcome
    finally:
        gc.unfreeze()


def understand(file: HostFile, label: str, content: bytes) -> Outcome:
    if label == FAILED:
        return Outcome(file, None, content[:MOST_PROBLEM_BYTES].decode("utf-8", "replace"))
    if len(content) > MOST_ANSWER_BYTES:
        return Outcome(file, None, "its file has more people and cards than any host")
    try:
        with understanding():
            return Outcome(file, json.loads(content))
    except StoreError as error:
        return Outcome(file, None, str(error))


def _run_lane(files: Sequence[HostFile], work: Work) -> Iterator[Outcome | None]:
    """The outcome for each file, in order, from one child after another; None when a child has begun."""
    done, tried = 0, -1  # `tried`: the file that ended a child
    while done < len(files):
        chunk = files[done : done + (1 if tried == done else HOSTS_PER_CHILD)]
        before = done
        try:
            with closing(stream(partial(_work_on, chunk, work), None, SECONDS_PER_HOST)) as messages:
                next(messages, None)
                yield None
                for message in islice(messages, len(chunk)):  # what it sends beyond that is of no file of its own
                    done += 1
                    yield understand(files[done - 1], *message)
            if done == before:
                raise StoreError("what reads its file answers nothing")
        except (GuaError, ReadingFailed) as error:
            if tried == done or isinstance(error, Silent):  # what hangs once would hang again
                done += 1
                yield understand(files[done - 1], FAILED, f"not readable: {error}".encode("utf-8", "replace"))
            else:
                tried = done


def _work_on(files: Sequence[HostFile], work: Work) -> Iterator[Message]:
    """Do the work in this process, which is a child of its own."""
    yield BEGUN, b""
    limit_memory(MORE_MEMORY_BYTES)
    for file in files:
        yield work_on(file, work)


def work_on(file: HostFile, work: Work) -> Message:
    """The answer for one file, or why there is none. Its damage costs that file alone."""
    try:
        return DONE, json.dumps(work(file), allow_nan=False).encode()
    except GuaError as error:
        problem = str(error)
    except MemoryError:
        problem = "its file takes more memory than that of any host"
    except Exception as error:  # a damaged file may raise any
        problem = f"its file holds what no gua writes ({type(error).__name__}: {error})"
    return FAILED, problem.encode("utf-8", "replace")
