"""A fleet's report on a real dask.distributed cluster: separate processes, TLS, killed and starved workers."""

import os
import re
import signal
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import dask
import distributed  # noqa: F401 # its own settings must be there before any is changed
import pytest

from gua_report.commands.report import main
from gua_report.fleet.executors import Cluster
from gua_report.fleet.host_files import HostFile
from gua_report.render.json import render
from gua_sample.errors import GuaError
from tests.dask_cluster import EatMemory, TellPid, dask_cluster
from tests.fleets import add_host, by_host, fleet_report, make_fleet
from tests.redis_server import CERTIFICATE, KEY, free_port

pytestmark = [pytest.mark.real, pytest.mark.filterwarnings("default")]
COMM = "distributed.comm"
TLS = {f"{COMM}.require-encryption": True, f"{COMM}.tls.ca-file": str(CERTIFICATE)}
OWN = {f"{COMM}.tls.client.cert": str(CERTIFICATE), f"{COMM}.tls.client.key": str(KEY)}
ELSEWHERE = CERTIFICATE.with_name("elsewhere.pem"), CERTIFICATE.with_name("elsewhere-key.pem")


@pytest.fixture(autouse=True)
def tls() -> Iterator[None]:
    with dask.config.set({**TLS, **OWN}):
        yield


def hosts(folder: Path, *names: str) -> list[HostFile]:
    return [HostFile(name, name, str(folder / name / "rollups.sqlite")) for name in names]


def test_a_report_on_a_cluster_is_the_one_of_this_machine(tmp_path: Path) -> None:
    folder = make_fleet(tmp_path / "fleet")
    add_host(folder, "bad", "small").write_bytes(b"x" * 5000)
    here = fleet_report(folder)
    with dask_cluster(tmp_path) as scheduler, closing(Cluster(str(scheduler))) as cluster:
        there = fleet_report(folder, executor=cluster.map)
    assert render(there) == render(here)


def test_a_worker_that_is_killed_mid_way_changes_nothing(tmp_path: Path) -> None:
    names = [f"gpu{number:03}" for number in range(60)]
    with dask_cluster(tmp_path) as scheduler, closing(Cluster(str(scheduler))) as cluster:
        outcomes = cluster.map(hosts(tmp_path, *names), TellPid(), 1)
        first = next(outcomes)
        os.kill(first.value[0][1], signal.SIGKILL)
        pids, problems = by_host([first, *outcomes])
    assert (sorted(pids), problems) == (names, {})
    # A new worker has taken its place.
    assert len(set(pids.values())) >= 3


def test_a_host_that_takes_all_memory_costs_itself_alone(tmp_path: Path) -> None:
    names = ["a", "b", "eat", "c", "d"]
    with dask_cluster(tmp_path, memory="400MiB") as scheduler, closing(Cluster(str(scheduler))) as cluster:
        found, problems = by_host(cluster.map(hosts(tmp_path, *names), EatMemory(), 3))
    assert "KilledWorker" in problems.pop("eat")
    assert (found, problems) == ({name: name for name in names if name != "eat"}, {})


def test_without_workers_a_report_gives_up_and_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    folder = make_fleet(tmp_path / "fleet", "small")
    with dask_cluster(tmp_path, workers=0) as scheduler:
        words = ["--fleet", str(folder), "--scheduler", str(scheduler), "--config", os.devnull]
        started = time.monotonic()
        assert main([*words, "--wait", "2s"]) == 1
    assert time.monotonic() - started < 30
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"gua-report: error: the Dask scheduler at {scheduler} had no workers for 2 s: start some")


def test_when_the_last_worker_has_gone_the_rest_is_not_waited_for(tmp_path: Path) -> None:
    names = [f"gpu{number:03}" for number in range(60)]
    with dask_cluster(tmp_path, workers=1) as scheduler, closing(Cluster(str(scheduler), 3.0)) as cluster:
        outcomes = cluster.map(hosts(tmp_path, *names), TellPid(), 1)
        worker = next(outcomes).value[0][1]
        (parent,) = re.findall(r"^PPid:\s(\d+)$", Path(f"/proc/{worker}/status").read_text(), re.M)
        for pid in (int(parent), worker):  # what would start another one first
            os.kill(pid, signal.SIGKILL)
        with pytest.raises(GuaError, match="no workers for 3 s"):
            list(outcomes)


def test_without_the_right_certificate_there_is_no_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gua_report.fleet.executors.CONNECT_SECONDS", "3s")
    with dask_cluster(tmp_path, workers=1) as scheduler:
        elsewhere = {f"{COMM}.tls.client.cert": str(ELSEWHERE[0]), f"{COMM}.tls.client.key": str(ELSEWHERE[1])}
        with dask.config.set(elsewhere), pytest.raises(GuaError, match="no Dask scheduler"):
            Cluster(str(scheduler))


def test_a_scheduler_that_is_not_there_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gua_report.fleet.executors.CONNECT_SECONDS", "1s")
    with pytest.raises(GuaError, match=r"no Dask scheduler at tls://127\.0\.0\.1"):
        Cluster(f"tls://127.0.0.1:{free_port()}")
