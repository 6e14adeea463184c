"""Work on hosts' files on an existing Dask cluster, whose workers see the fleet folder under the same path.

No cluster is started here: Dask listens without authentication unless it is told otherwise. Imported only when asked
for, since it needs the extra `fleet`.
"""

from __future__ import annotations

import asyncio
import os
import resource
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

from gua_report.fleet.host_files import HostFile
from gua_report.fleet.in_children import MORE_MEMORY_BYTES, Outcome, Work, understand, work_on
from gua_sample.errors import GuaError

TASKS_AHEAD = 4  # for each thread of a worker: what is not yet wanted need not be kept
CONNECT_SECONDS = "30s"
ALONE = threading.Lock()  # the limit is the process's, so its threads take turns


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
                tasks[self._client.submit(_work_on, file, work, pure=False)] = file
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


def _work_on(file: HostFile, work: Work) -> tuple[str, bytes]:
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
