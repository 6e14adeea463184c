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

from gua_report.fleet.host_files import HostFile
from gua_report.machine.child import Message, ReadingFailed, Silent, limit_memory, stream, understanding
from gua_sample.errors import GuaError, StoreError

SECONDS = 120.0  # for the files that one child reads
MORE_MEMORY_BYTES = 2 << 30  # than the child has when it begins
MOST_ANSWER_BYTES = 64 << 20
MOST_PROBLEM_BYTES = 1000  # of a message, which may quote a name from the file
CHILDREN_PER_CORE = 2  # while the oldest one is waited for, others may be done
AT, DONE = "at", "done"
SHORT_OF_MEMORY = "takes more memory than that of any host"

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


Executor = Callable[[Sequence[HostFile], Work, int], Iterator[Outcome]]


def batches(files: Sequence[HostFile], most: int) -> list[list[HostFile]]:
    """The files, so many together; those of one host are not parted."""
    found: list[list[HostFile]] = []
    for _, own in groupby(files, lambda file: file.host):
        together = [*own]
        if not found or len(found[-1]) + len(together) > most:
            found.append([])
        found[-1] += together
    return found


def _apart(together: Sequence[HostFile]) -> list[list[HostFile]]:
    """Each host for itself, as what is free there counts once; each file of a single host."""
    hosts = batches(together, 1)
    return hosts if len(hosts) > 1 else [[file] for file in together]


def map_in_children(files: Sequence[HostFile], work: Work, most: int, workers: int | None = None) -> Iterator[Outcome]:
    """The outcome of all files, `most` in a child, in any order. Nothing is kept of those that were taken."""
    waiting = deque(batches(files, most))
    suspects = deque[list[HostFile]]()
    gc.freeze()  # else the search for garbage would write to all memory that children share with this process
    try:
        for together, found in _ask(waiting, work, workers or CHILDREN_PER_CORE * len(os.sched_getaffinity(0))):
            if not isinstance(found, Trouble):
                yield found
                continue
            if found.is_silent and len(together) == 1:  # what hangs once would hang again
                yield Outcome(together, None, {0: found.problem})
            elif found.is_silent:  # another than the one that it was at may have taken the time
                waiting += _apart(together)
            elif found.at == len(together):
                suspects += _apart(together)
            else:
                own = [file for file in together if file.host == together[found.at].host]
                suspects.append(own)
                waiting += [rest] if (rest := [file for file in together if file not in own]) else []
        for together, found in _ask(suspects, work, 1):
            if isinstance(found, Outcome):
                yield found
            elif len(together) > 1:
                suspects += _apart(together)
            else:
                yield Outcome(together, None, {0: found.problem})
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


class Trouble(NamedTuple):
    """Why a child gave no answer."""

    problem: str
    at: int  # the file that it was reading; their number if it had read all
    is_silent: bool


def _ask(waiting: deque[list[HostFile]], work: Work, most: int) -> Iterator[tuple[list[HostFile], Outcome | Trouble]]:
    """What the child of each batch answers: so many at a time, in their order. More may be added meanwhile."""
    running = deque[tuple[list[HostFile], Generator[Message, None, None]]]()
    while waiting or running:
        while waiting and len(running) < most:
            running.append((waiting[0], stream(partial(_work_in_child, waiting.popleft(), work), None, SECONDS)))
            with suppress(StopIteration, GuaError, ReadingFailed):  # it answers nothing then
                next(running[-1][1])
        files, messages = running.popleft()
        yield files, _answer(files, work, messages)


def _answer(files: list[HostFile], work: Work, messages: Generator[Message, None, None]) -> Outcome | Trouble:
    at = 0
    try:
        with closing(messages):
            for label, content in messages:
                if label == DONE:
                    return understand(files, work, content)
                at = min(max(0, int(content)), len(files))
        raise StoreError("what reads its file answers nothing")
    except (GuaError, ReadingFailed, ValueError) as error:
        return Trouble(f"not readable: {error}"[:MOST_PROBLEM_BYTES], at, isinstance(error, Silent))


def _work_in_child(files: list[HostFile], work: Work) -> Iterator[Message]:
    yield AT, b"0"
    limit_memory(MORE_MEMORY_BYTES)
    yield from work_on(files, work)


def work_on(files: Sequence[HostFile], work: Work) -> Iterator[Message]:
    """At which file the work is, and last what was found. The damage of a file costs that file alone."""
    read, problems = [], dict[int, str]()
    for number, file in enumerate(files):
        yield AT, str(number).encode()
        try:
            read.append(work.read(number, file))
        except Exception as error:  # a damaged file may raise any
            is_short = isinstance(error, MemoryError) or isinstance(error.__cause__, MemoryError)
            if is_short and len(files) > 1:  # another than this one may have taken it
                yield AT, str(len(files)).encode()
                raise
            why = SHORT_OF_MEMORY if is_short else f"holds what no gua writes ({type(error).__name__}: {error})"
            problems[number] = str(error) if isinstance(error, GuaError) and not is_short else f"its file {why}"
    yield AT, str(len(files)).encode()
    try:
        found = json.dumps([work.combine(read) if read else None, problems], allow_nan=False)
    except (ArithmeticError, LookupError, MemoryError, TypeError, ValueError) as error:
        if len(files) > 1:
            raise StoreError(f"files that can't be added up ({type(error).__name__}: {error})") from error
        why = SHORT_OF_MEMORY if isinstance(error, MemoryError) else f"holds what no gua writes ({error})"
        found = json.dumps([None, {0: f"its file {why}"}])
    yield DONE, found.encode()


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
        """The outcome of all files, `most` in a task, in any order. Each result is released as soon as it is taken.

        What ends a worker may be any of the tasks that it had, and Dask blames them all. So each file of a failed task
        is tried again when all others are done, alone.
        """
        suspects: list[list[HostFile]] = []
        for together, task in self._run(batches(files, most), work):
            found = self._outcome(together, work, task)
            if found.problems.keys() == set(range(len(together))) and found.value is None:
                suspects += _apart(together)
            else:
                yield found
        for together, task in self._run(suspects, work, most=1):
            yield self._outcome(together, work, task)

    def _run(
        self, files: list[list[HostFile]], work: Work, most: int | None = None
    ) -> Iterator[tuple[list[HostFile], Any]]:
        """Each batch with its task when that has ended: so many at a time, or what keeps all at work."""
        waiting, tasks = list(files), dict[Any, list[HostFile]]()
        while waiting or tasks:
            threads = sum(self._client.nthreads().values()) if most is None else 0
            while waiting and len(tasks) < (most or TASKS_AHEAD * max(1, threads)):
                together = waiting.pop(0)
                tasks[self._client.submit(_work_on_cluster, together, work, pure=False)] = together
            task = self._first_done(tasks)
            yield tasks.pop(task), task
            task.release()

    def _outcome(self, files: list[HostFile], work: Work, task: Any) -> Outcome:
        """What a task has found; its worker may have gone since: then another one does it again."""
        try:
            if task.status != "finished":
                problem = _explain(task.exception())
            else:
                return understand(files, work, self._patiently(task.result))
        except NoWorkers:
            raise
        except Exception as error:  # the cluster's own, of many kinds: it costs these hosts alone
            problem = _explain(error)
        return Outcome(files, None, dict.fromkeys(range(len(files)), problem))

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


def _work_on_cluster(files: list[HostFile], work: Work) -> bytes:
    """Do the work in this worker, which may take no more memory meanwhile than a child of ours."""
    with ALONE:
        soft, hard = resource.getrlimit(resource.RLIMIT_AS)
        with open("/proc/self/statm", encoding="ascii") as statm:
            wanted = int(statm.read().split()[0]) * resource.getpagesize() + MORE_MEMORY_BYTES
        if hard == resource.RLIM_INFINITY or wanted < hard:
            resource.setrlimit(resource.RLIMIT_AS, (wanted, hard))
        try:
            return [*work_on(files, work)][-1][1]
        finally:
            resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def _explain(error: BaseException | None) -> str:
    """Why there is nothing of a host: most often its workers were killed, for want of memory."""
    if error is None:
        return "not readable: its task was cancelled on the cluster"
    return f"not readable: {type(error).__name__} on the cluster: {' '.join(str(error).split())[:300]}"
