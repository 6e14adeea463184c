"""Work on hosts' files: in children of this machine, several at a time, or on an existing Dask cluster.

A file may make its reader hang, crash, take all memory, or answer what it likes. So it is read in a child, with limits,
together with some others: these are read again without it, and it is tried once more, alone, before its host loses its
place in the report.
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
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from functools import partial
from itertools import groupby
from typing import Any, NamedTuple, Protocol

from gua_report.fleet.host_files import HostFile, is_short_of_memory
from gua_report.machine.child import Message, ReadingFailed, Silent, limit_memory, stream, understanding
from gua_sample.errors import GuaError, StoreError

SECONDS = 120.0  # for the files that one child reads
MORE_MEMORY_BYTES = 2 << 30  # than the child has when it begins
MOST_ANSWER_BYTES = 64 << 20
MOST_PROBLEM_BYTES = 1000  # of a message, which may quote a name from the file
CHILDREN_PER_CORE = 2  # while the oldest one is waited for, others may be done
BEGUN, DONE = "begun", "done"

TASKS_AHEAD = 4  # for each thread of a worker: what is not yet wanted need not be kept
CONNECT_SECONDS = "30s"
ALONE = threading.Lock()  # the limit is the process's, so its threads take turns


class Work(Protocol):
    """What is done with some files: a child reads each and puts all together, and its parent checks the answer."""

    def read(self, number: int, file: HostFile, /) -> Any: ...

    def combine(self, read: list[Any], /) -> Any: ...  # its result is serializable as JSON

    def restore(self, files: Sequence[HostFile], sent: Any, /) -> Any: ...  # raises TypeError, ValueError, LookupError


class Outcome(NamedTuple):
    files: Sequence[HostFile]  # those that were read together
    value: Any = None  # of all without a problem; None if there is none
    problems: Mapping[int, str] = {}  # by position: why nothing is read of a file
    may_be_others: bool = False  # whether a file may be better off alone


Executor = Callable[[Sequence[HostFile], Work, int], Iterator[Outcome]]
Together = list[HostFile]
Run = Callable[[list[Together], Work, int | None], Iterator[Outcome]]


def map_with(run: Run, files: Sequence[HostFile], work: Work, most: int) -> Iterator[Outcome]:
    """The outcome of all files, in any order: `most` together, without parting those of one host.

    Whatever ends the work on some files may be due to any of them, or to what went on beside it. So each host is tried
    again, alone, and then each of its files.
    """
    waiting, at_a_time = _put_together(files, most), None
    while waiting:
        suspects = list[Together]()
        for outcome in run(waiting, work, at_a_time):
            if outcome.may_be_others:
                hosts = _put_together(outcome.files, 1)
                suspects += hosts if len(hosts) > 1 else [[file] for file in outcome.files]
            else:
                yield outcome
        waiting, at_a_time = suspects, 1


def _put_together(files: Sequence[HostFile], most: int) -> list[Together]:
    found = list[Together]()
    for _, own in groupby(files, lambda file: file.host):
        together = [*own]
        if not found or len(found[-1]) + len(together) > most:
            found.append([])
        found[-1] += together
    return found


def map_in_children(files: Sequence[HostFile], work: Work, most: int, workers: int | None = None) -> Iterator[Outcome]:
    """The outcome of all files, `most` in a child. Nothing is kept of those that were taken."""
    gc.freeze()  # else the search for garbage would write to all memory that children share with this process
    try:
        children = workers or CHILDREN_PER_CORE * len(os.sched_getaffinity(0))
        yield from map_with(partial(_ask, children), files, work, most)
    finally:
        gc.unfreeze()


def understand(files: Sequence[HostFile], work: Work, content: bytes) -> Outcome:
    """What a child or worker has found. Raises StoreError for nonsense."""
    if len(content) > MOST_ANSWER_BYTES:
        raise StoreError("its file has more people and cards than any host")
    with understanding():
        value, problems = json.loads(content)
        told = {int(number): str(text)[:MOST_PROBLEM_BYTES] for number, text in problems.items()}
        if not told.keys() <= set(range(len(files))):
            raise ValueError("no such file")
        return Outcome(files, None if value is None else work.restore(files, value), told)


def failed(files: Sequence[HostFile], problem: str, is_final: bool) -> Outcome:
    told = dict.fromkeys(range(len(files)), problem[:MOST_PROBLEM_BYTES])
    return Outcome(files, None, told, len(files) > 1 or not is_final)


def _ask(children: int, batches: list[Together], work: Work, most: int | None) -> Iterator[Outcome]:
    """What the child of each batch answers: so many at a time, in their order."""
    waiting, running = deque(batches), deque[tuple[Together, Generator[Message, None, None]]]()
    while waiting or running:
        while waiting and len(running) < (most or children):
            running.append((waiting[0], stream(partial(_work_in_child, waiting.popleft(), work), None, SECONDS)))
            with suppress(StopIteration, GuaError, ReadingFailed):  # it answers nothing then
                next(running[-1][1])
        files, messages = running.popleft()
        try:
            with closing(messages):
                _, content = next(messages, (DONE, b"no answer"))
            yield understand(files, work, content)
        except (GuaError, ReadingFailed) as error:
            is_final = most is not None or isinstance(error, Silent)  # what hangs alone would hang again
            yield failed(files, f"not readable: {error}", is_final)


def _work_in_child(files: Together, work: Work) -> Iterator[Message]:
    yield BEGUN, b""
    limit_memory(MORE_MEMORY_BYTES)
    yield DONE, work_on(files, work)


def work_on(files: Together, work: Work) -> bytes:
    """What is found. The damage of a file costs that file alone. Raises StoreError if files can't be put together."""
    read, problems = [], dict[int, str]()
    for number, file in enumerate(files):
        try:
            read.append(work.read(number, file))
        except Exception as error:  # a damaged file may raise any
            problems[number] = _spell(error)
            if len(files) > 1 and is_short_of_memory(error):  # another than this one may have taken it
                raise StoreError(problems[number]) from error
    try:
        return json.dumps([work.combine(read) if read else None, problems], allow_nan=False).encode()
    except Exception as error:  # so may what was read of it
        raise StoreError(_spell(error)) from error


def _spell(error: Exception) -> str:
    if is_short_of_memory(error):
        return "its file takes more memory than that of any host"
    if isinstance(error, GuaError):
        return str(error)
    return f"its file holds what no gua writes ({type(error).__name__}: {error})"


class NoWorkers(GuaError):
    pass


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

    def map(self, files: Sequence[HostFile], work: Work, most: int) -> Iterator[Outcome]:
        """The outcome of all files, `most` in a task. Each result is released as soon as it is taken.

        What ends a worker may be any of the tasks that it had, and Dask blames them all.
        """
        yield from map_with(self._run, files, work, most)

    def _run(self, batches: list[Together], work: Work, most: int | None) -> Iterator[Outcome]:
        """The outcome of each batch when its task has ended: so many at a time, or what keeps all at work."""
        waiting, tasks = deque(batches), dict[Any, Together]()
        while waiting or tasks:
            threads = sum(self._client.nthreads().values()) if most is None else 0
            while waiting and len(tasks) < (most or TASKS_AHEAD * max(1, threads)):
                together = waiting.popleft()
                tasks[self._client.submit(_work_on_cluster, together, work, pure=False)] = together
            task = self._first_done(tasks)
            yield self._outcome(tasks.pop(task), work, task, most is not None)
            task.release()

    def _outcome(self, files: Together, work: Work, task: Any, is_final: bool) -> Outcome:
        """What a task has found; its worker may have gone since: then another one does it again."""
        try:
            if task.status != "finished":
                return failed(files, _explain(task.exception()), is_final)
            return understand(files, work, self._patiently(task.result))
        except NoWorkers:
            raise
        except StoreError as error:
            return failed(files, str(error), is_final)
        except Exception as error:  # the cluster's own, of many kinds: it costs these hosts alone
            return failed(files, _explain(error), is_final)

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
                    raise NoWorkers(
                        f"the Dask scheduler at {self._scheduler} had no workers for {self._wait_seconds:g} s: start"
                        " some (dask worker), wait longer with --wait, or leave out --scheduler to do it here"
                    ) from error

    def close(self) -> None:
        self._client.close()


def _work_on_cluster(files: Together, work: Work) -> bytes:
    """Do the work in this worker, which may take no more memory meanwhile than a child of ours."""
    with ALONE:
        soft, hard = resource.getrlimit(resource.RLIMIT_AS)
        with open("/proc/self/statm", encoding="ascii") as statm:
            wanted = int(statm.read().split()[0]) * resource.getpagesize() + MORE_MEMORY_BYTES
        if hard == resource.RLIM_INFINITY or wanted < hard:
            resource.setrlimit(resource.RLIMIT_AS, (wanted, hard))
        try:
            return work_on(files, work)
        finally:
            resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def _explain(error: BaseException | None) -> str:
    """Why there is nothing of a host: most often its workers were killed, for want of memory."""
    if error is None:
        return "not readable: its task was cancelled on the cluster"
    return f"not readable: {type(error).__name__} on the cluster: {' '.join(str(error).split())[:300]}"
