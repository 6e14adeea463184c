"""What becomes of a host's file on a cluster, without a cluster."""

from __future__ import annotations

import resource
import threading
import time
from typing import Any

import pytest

from gua_report.fleet import executors
from gua_report.fleet.host_files import HostFile


def test_two_threads_of_a_worker_leave_its_limit_as_it_was() -> None:
    before = resource.getrlimit(resource.RLIMIT_AS)
    naps = (lambda _: time.sleep(0.2), lambda _: time.sleep(0.4))
    tasks = [threading.Thread(target=executors._work_on_cluster, args=(HostFile("a", "a", "a"), nap)) for nap in naps]
    try:
        for task in tasks:
            task.start()
        for task in tasks:
            task.join()
        assert resource.getrlimit(resource.RLIMIT_AS) == before
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


class Task:
    def __init__(self, status: str) -> None:
        self.status = status

    def exception(self) -> None:
        return None

    def result(self, seconds: float) -> Any:
        raise ArithmeticError("killed")


def test_a_cancelled_task_and_a_lost_result_cost_their_hosts_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    files = [HostFile(host, host, host) for host in ("cancelled", "finished")]
    monkeypatch.setattr(
        executors.Cluster, "_run", lambda _, some, *args, **more: ((one, Task(one.host)) for one in some)
    )
    monkeypatch.setattr(executors.Cluster, "_wait_seconds", 1.0, raising=False)
    found = {one.file.host: one.problem for one in executors.Cluster.__new__(executors.Cluster).map(files, str)}
    assert found == {
        "cancelled": "not readable: its task was cancelled on the cluster",
        "finished": "not readable: ArithmeticError on the cluster: killed",
    }
