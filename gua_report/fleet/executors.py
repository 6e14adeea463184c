"""Work on hosts' files: in children of this machine, several at a time, or on an existing Dask cluster.

A file may make its reader hang, crash, take all memory, or answer what it likes. So each has a child of its own, with
limits; a host whose child was killed is tried again, alone, before it loses its place in the report.
A cluster's workers see the fleet folder under the same path. None is started here: Dask listens without authentication
unless it is told otherwise.
"""

import asyncio
import gc
import json
import os
import resource
import threading
from collections import deque
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Sequence
from contextlib import closing, suppress
from functools import partial
from typing import Any, NamedTuple

from gua_report.fleet.host_files import HostFile
from gua_report.machine.child import Message, ReadingFailed, Silent, limit_memory, stream, understanding
from gua_sample.errors import GuaError, StoreError

SECONDS_PER_HOST = 120.0
MORE_MEMORY_BYTES = 2 << 30  # than the child has when it begins
MOST_ANSWER_BYTES = 16 << 20
MOST_PROBLEM_BYTES = 1000  # of a message, which may quote a name from the file
CHILDREN_PER_CORE = 2  # while the oldest one is waited for, others may be done
BEGUN, DONE, FAILED = "begun", "done", "failed"
Work = Callable[[HostFile], Any]  # its result is serializable as JSON

TASKS_AHEAD = 4  # for each thread of a worker: what is not yet wanted need not be kept
CONNECT_SECONDS = "30s"
ALONE = threading.Lock()  # the limit is the process's, so its threads take turns


class Outcome(NamedTuple):
    file: HostFile
    value: Any
    problem: str | None = None  # why there is no value


Executor = Callable[[Sequence[HostFile], Work], Iterator[Outcome]]


def map_in_children(files: Sequence[HostFile], work: Work, workers: int | None = None) -> Iterator[Outcome]:
    """The outcome for each file, in any order. Nothing is kept of those that were taken."""
    suspects: list[HostFile] = []
    gc.freeze()  # else the search for garbage would write to all memory that children share with this process
    try:
        for file, found in _ask(files, work, workers or CHILDREN_PER_CORE * len(os.sched_getaffinity(0))):
            if isinstance(found, Exception) and not isinstance(found, Silent):  # what hangs once would hang again
                suspects.append(file)
            else:
                yield _outcome(file, found)
        for file, found in _ask(suspects, work, 1):
            yield _outcome(file, found)
    finally:
        gc.unfreeze()


def restore(outcomes: Iterable[Outcome], make: Callable[[HostFile, Any], Any]) -> Iterator[Outcome]:
    """The outcomes with what is made of their values; nonsense is a problem of its file."""
    for outcome in outcomes:
        try:
            if outcome.problem is None:
                with understanding():
                    outcome = outcome._replace(value=make(outcome.file, outcome.value))
        except StoreError as error:
            outcome = Outcome(outcome.file, None, str(error))
        yield outcome


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


def _outcome(file: HostFile, found: Message | Exception) -> Outcome:
    if isinstance(found, Exception):
        return understand(file, FAILED, f"not readable: {found}".encode("utf-8", "replace"))
    return understand(file, *found)


def _ask(files: Sequence[HostFile], work: Work, most: int) -> Iterator[tuple[HostFile, Message | Exception]]:
    """What the child of each file answers, or why it does not: so many at a time, in their order."""
    waiting, running = deque(files), deque[tuple[HostFile, Generator[Message, None, None]]]()
    while waiting or running:
        while waiting and len(running) < most:
            running.append((waiting[0], stream(partial(_work_on, waiting.popleft(), work), None, SECONDS_PER_HOST)))
            with suppress(StopIteration, GuaError, ReadingFailed):  # it answers nothing then
                next(running[-1][1])
        file, messages = running.popleft()
        try:
            with closing(messages):
                found = next(messages, None)  # what it sends beyond that is of no file
            yield file, found or StoreError("what reads its file answers nothing")
        except (GuaError, ReadingFailed) as error:
            yield file, error


def _work_on(file: HostFile, work: Work) -> Iterator[Message]:
    """Do the work in this process, which is a child of its own."""
    yield BEGUN, b""
    limit_memory(MORE_MEMORY_BYTES)
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


class Cluster:
    """An existing cluster: its scheduler's address (tls://host:8786), or the file that it has written."""

    def __init__(self, scheduler: str, wait_seconds: float = 60.0) -> None:
        try:
            import distributed
        except ImportError as error:
            raise GuaError(f"--scheduler needs Dask ({error}): sudo make install EXTRAS=fleet") from error
        client: Any = distributed.Client
        self._wait: Any = distributed.wait
        self._scheduler, self._wait_seconds = scheduler, wait_seconds  # that long, without any worker
        is_file = os.path.exists(scheduler)
        where = {"scheduler_file": scheduler} if is_file else {"address": scheduler}
        try:
            # Certificates and keys are those of Dask's own configuration: distributed.comm.tls.
            self._client: Any = client(**where, timeout=CONNECT_SECONDS, set_as_default=False)
        except (OSError, ValueError, TypeError, RuntimeError, ImportError) as error:
            raise GuaError(f"no Dask scheduler at {scheduler}: {' '.join(str(error).split())}") from error

    def map(self, files: Sequence[HostFile], work: Work) -> Iterator[Outcome]:
        """The outcome for each file, in any order. Each result is released as soon as it is taken.

        What ends a worker may be any of the tasks that it had, and Dask blames them all. So each file of a failed task
        is tried again when all others are done, alone.
        """
        suspects: list[HostFile] = []
        for file, task in self._run(files, work):
            if task.status == "finished":
                yield self._outcome(file, task)
            else:
                suspects.append(file)
        for file, task in self._run(suspects, work, most=1):
            failed = task.status != "finished"
            yield Outcome(file, None, _explain(task.exception())) if failed else self._outcome(file, task)

    def _run(self, files: Sequence[HostFile], work: Work, most: int | None = None) -> Iterator[tuple[HostFile, Any]]:
        """Each file with its task when that has ended: so many at a time, or what keeps all at work."""
        waiting, tasks = list(files), dict[Any, HostFile]()
        while waiting or tasks:
            threads = sum(self._client.nthreads().values()) if most is None else 0
            while waiting and len(tasks) < (most or TASKS_AHEAD * max(1, threads)):
                file = waiting.pop(0)
                tasks[self._client.submit(_work_on_cluster, file, work, pure=False)] = file
            task = self._first_done(tasks)
            yield tasks.pop(task), task
            task.release()

    def _outcome(self, file: HostFile, task: Any) -> Outcome:
        """What a task has found; its worker may have gone since: then another one does it again."""
        try:
            return understand(file, *self._patiently(task.result))
        except GuaError:
            raise
        except Exception as error:  # the cluster's own, of many kinds: it costs this host alone
            return Outcome(file, None, _explain(error))

    def _first_done(self, tasks: Collection[Any]) -> Any:
        while not (done := [task for task in tasks if task.status != "pending"]):
            with self._client.as_current():
                self._patiently(lambda seconds: self._wait(list(tasks), seconds, "FIRST_COMPLETED"))
        return done[0]

    def _patiently(self, action: Callable[[float], Any]) -> Any:
        """Do what takes a time limit until it is done. Raises GuaError if there is no worker that could do it."""
        while True:
            try:
                return action(self._wait_seconds)
            except asyncio.TimeoutError as error:
                if not self._client.nthreads():
                    raise GuaError(
                        f"the Dask scheduler at {self._scheduler} had no workers for {self._wait_seconds:g} s: start"
                        " some (dask worker), wait longer with --wait, or leave out --scheduler to do it here"
                    ) from error

    def close(self) -> None:
        self._client.close()


def _work_on_cluster(file: HostFile, work: Work) -> tuple[str, bytes]:
    """Do the work in this worker, which may take no more memory meanwhile than a child of ours."""
    with ALONE:
        soft, hard = resource.getrlimit(resource.RLIMIT_AS)
        with open("/proc/self/statm", encoding="ascii") as statm:
            wanted = int(statm.read().split()[0]) * resource.getpagesize() + MORE_MEMORY_BYTES
        if hard == resource.RLIM_INFINITY or wanted < hard:
            resource.setrlimit(resource.RLIMIT_AS, (wanted, hard))
        try:
            return work_on(file, work)
        finally:
            resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def _explain(error: BaseException | None) -> str:
    """Why there is nothing of a host: most often its workers were killed, for want of memory."""
    if error is None:
        return "not readable: its task was cancelled on the cluster"
    return f"not readable: {type(error).__name__} on the cluster: {' '.join(str(error).split())[:300]}"
