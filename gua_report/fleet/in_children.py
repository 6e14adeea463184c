"""Work on hosts' files in children of this machine, several at a time.

A file may make its reader hang, crash or take all memory. So each child has limits, and is a fresh one after some
hosts; what ends a child costs the host that it was at a second try, alone, and then its place in the report.
"""

from __future__ import annotations

import gc
import json
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from functools import partial
from itertools import islice
from queue import SimpleQueue
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
    count = min(workers or len(os.sched_getaffinity(0)), len(files)) or 1
    lanes = [files[number::count] for number in range(count)]
    found: SimpleQueue[Outcome | Exception] = SimpleQueue()
    gc.freeze()  # else the search for garbage would write to all memory that children share with this process
    try:
        # A lane only waits for its children, who have limits of their own: it has failed if it outlasts two tries.
        streams = [stream(partial(_run_lane, lane, work), None, 4 * SECONDS_PER_HOST) for lane in lanes]
        for messages in streams:
            next(messages)  # forks here, while there are no other threads
        for lane, messages in zip(lanes, streams, strict=True):
            threading.Thread(target=_drain, args=(lane, messages, found), daemon=True).start()
        for _ in files:
            outcome = found.get()
            if isinstance(outcome, Exception):
                raise outcome
            yield outcome
    finally:
        gc.unfreeze()


def _drain(lane: Sequence[HostFile], messages: Iterator[Message], found: SimpleQueue[Any]) -> None:
    """Put the outcome for each file of the lane into the queue; instead of them, a mistake of ours."""
    done = 0
    try:
        for message in messages:
            found.put(understand(lane[done], *message))
            done += 1
    except GuaError:
        pass  # the lane was ended: what it has not done is named
    except Exception as error:  # a mistake of ours: the main thread raises it
        found.put(error)
    for file in lane[done:]:
        found.put(Outcome(file, None, "what reads its file ended early: is memory short?"))


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


def _run_lane(files: Sequence[HostFile], work: Work) -> Iterator[Message]:
    """A message for each file, in order, from one child after another."""
    yield BEGUN, b""
    done, tried = 0, -1  # `tried`: the file that ended a child
    while done < len(files):
        chunk = files[done : done + (1 if tried == done else HOSTS_PER_CHILD)]
        before = done
        try:
            with closing(stream(partial(_work_on, chunk, work), None, SECONDS_PER_HOST)) as messages:
                for message in islice(messages, len(chunk)):  # what it sends beyond that is of no file of its own
                    done += 1
                    yield message
            if done == before:
                raise StoreError("what reads its file answers nothing")
        except (GuaError, ReadingFailed) as error:
            if tried == done or isinstance(error, Silent):  # what hangs once would hang again
                done += 1
                yield FAILED, f"not readable: {error}".encode("utf-8", "replace")
            else:
                tried = done


def _work_on(files: Sequence[HostFile], work: Work) -> Iterator[Message]:
    """Do the work in this process, which is a child of its own."""
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
