"""Work on hosts' files on an existing Dask cluster, whose workers see the fleet folder under the same path.

No cluster is started here: Dask listens without authentication unless it is told otherwise. Imported only when asked
for, since it needs the extra `fleet`.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

from gua_report.fleet.host_files import HostFile
from gua_report.fleet.in_children import DONE, FAILED, MOST_ANSWER_BYTES, Outcome, Work, work_on
from gua_sample.errors import GuaError

HOSTS_PER_TASK = 2  # a second of work: few enough that no worker waits for another at the end
TASKS_AHEAD = 4  # for each thread of a worker: what is not yet wanted need not be kept
CONNECT_SECONDS = "30s"


class Cluster:
    """An existing cluster: its scheduler's address (tls://host:8786), or the file that it has written."""

    def __init__(self, scheduler: str, wait_seconds: float = 60.0) -> None:
        try:
            import distributed
        except ImportError as error:
            raise GuaError(f"--scheduler needs Dask ({error}): pip install 'gua[fleet]'") from error
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
        waiting = [list(files[start : start + HOSTS_PER_TASK]) for start in range(0, len(files), HOSTS_PER_TASK)]
        suspects: list[HostFile] = []
        tasks: dict[Any, list[HostFile]] = {}
        while waiting or tasks:
            while waiting and len(tasks) < self._most_tasks():
                chunk = waiting.pop(0)
                tasks[self._submit(chunk, work)] = chunk
            task = self._first_done(tasks)
            chunk = tasks.pop(task)
            if task.status == "finished":
                # Its worker may have gone since: then another one does it again.
                yield from map(_understand, chunk, self._patiently(task.result))
            else:
                suspects += chunk
            task.release()
        for file in suspects:
            task = self._submit([file], work)
            error = self._first_done([task]).exception()
            if error is None:
                yield _understand(file, self._patiently(task.result)[0])
            else:
                yield Outcome(file, None, _explain(error))
            task.release()

    def _submit(self, files: list[HostFile], work: Work) -> Any:
        return self._client.submit(_work_on, files, work, pure=False)

    def _first_done(self, tasks: Collection[Any]) -> Any:
        """Wait until one of the tasks has ended."""
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

    def _most_tasks(self) -> int:
        threads: int = sum(self._client.nthreads().values())
        return TASKS_AHEAD * max(1, threads)

    def close(self) -> None:
        self._client.close()


def _work_on(files: list[HostFile], work: Work) -> list[tuple[str, bytes]]:
    return [work_on(file, work) for file in files]


def _understand(file: HostFile, answer: tuple[str, bytes]) -> Outcome:
    label, content = answer
    if label == DONE and len(content) <= MOST_ANSWER_BYTES:
        return Outcome(file, json.loads(content))
    assert label == FAILED or len(content) > MOST_ANSWER_BYTES
    return Outcome(file, None, content[:1000].decode("utf-8", "replace"))


def _explain(error: BaseException) -> str:
    """Why there is nothing of a host, in a line: most often its workers were killed, for want of memory."""
    return f"not readable: {type(error).__name__} on the cluster: {' '.join(str(error).split())[:300]}"
