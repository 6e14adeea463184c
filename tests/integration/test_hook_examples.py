"""The examples of contrib/hooks: what they end, and that they look again before they do."""

import json
import os
import signal
import socket
import subprocess
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from gua_report.commands.hook import run_hook
from tests.repository import ROOT
from tests.users import SOMEBODY, needs_root

EXAMPLES = ROOT / "contrib" / "hooks"
KERNEL = "0a1b2c3d-0000-4000-8000-0123456789ab"
ADA = os.getuid() or 1001  # without root, the servers of these tests are ours
TOKEN = "a-token"  # noqa: S105 - of no server


@pytest.fixture
def kernel(tmp_path: Path) -> Iterator[int]:
    """A process that has a kernel's connection file among its arguments."""
    process = subprocess.Popen(["sh", "-c", "sleep 60; :", f"/run/kernel-{KERNEL}.json"])
    yield process.pid
    process.kill()
    process.wait()


def facts_of(process: int, **changes: Any) -> dict[str, Any]:
    ticks = int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[19])
    boot_id = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    facts = {"boot_id": boot_id, "pid": process, "start_clock_ticks": ticks, "uid": ADA, "person_uid": ADA}
    return {**facts, "slurm_job": "4711", **changes}


def example(name: str, folder: Path, **replaced: str) -> Path:
    """The example with other paths in it."""
    text = (EXAMPLES / name).read_text()
    for old, new in replaced.items():
        line = next(line for line in text.splitlines() if line.startswith(f"{old} = "))
        text = text.replace(line, f"{old} = {new!r}")
    path = folder / name
    path.write_text(text)
    path.chmod(0o755)
    return path


@pytest.fixture
def scancel(tmp_path: Path) -> Path:
    """The example, with a scancel that remembers what it was called with."""
    program = tmp_path / "scancel"
    program.write_text('#!/bin/sh\necho "$@" >>"$0.called"\nif [ "$1" = 13 ]; then echo no such job >&2; exit 1; fi\n')
    program.chmod(0o755)
    squeue = tmp_path / "squeue"
    squeue.touch(0o755)
    let_slurm_know(squeue, f"   {ADA} ${{job}} ${{job}}")
    return example("scancel-idle", tmp_path, SCANCEL=str(program), SQUEUE=str(squeue))


def let_slurm_know(squeue: Path, *rows: str) -> None:
    """Let squeue print these rows: uid, number and name of each job."""
    asked = '[ "$*" = "--noheader --format=%U %A %i --jobs=$job" ] || exit 1'
    squeue.write_text("\n".join(["#!/bin/sh", "job=${3#--jobs=}", asked, *(f'echo "{row}"' for row in rows), ""]))


def called(scancel: Path) -> str:
    path = scancel.with_name("scancel.called")
    return path.read_text() if path.exists() else ""


def run(path: Path, facts: dict[str, Any]) -> tuple[int | None, str]:
    """As gua hook runs it."""
    return run_hook(str(path), json.dumps(facts) + "\n", 30)


# What is another process by now: each of these must keep an example from acting.
CHANGED = [{"boot_id": "another"}, {"start_clock_ticks": 1}, {"pid": 4_194_303}]


def test_a_job_is_cancelled(scancel: Path, kernel: int) -> None:
    assert run(scancel, facts_of(kernel)) == (0, "cancelled job 4711")
    assert called(scancel) == "4711\n"
    assert run(scancel, facts_of(kernel, slurm_job="13")) == (1, "scancel failed for job 13: no such job")


def test_of_a_job_array_one_job_is_cancelled(scancel: Path, kernel: int) -> None:
    """scancel takes a number for the whole array: see scancel(1). One of its jobs has the array's number as its own."""
    let_slurm_know(scancel.with_name("squeue"), *(f"{ADA} {number} 4711_{number - 4700}" for number in (4711, 4712)))
    assert run(scancel, facts_of(kernel)) == (0, "cancelled job 4711_11")
    assert called(scancel) == "4711_11\n"
    let_slurm_know(scancel.with_name("squeue"), f"{ADA} 4711 4711")
    assert run(scancel, facts_of(kernel, slurm_job="s0123456789ABC")) == (0, "cancelled job 4711")  # a unique id


@pytest.mark.parametrize("rows", [[], [f"{ADA} 4712 4711_2"], [f"{ADA} 4711 4711_1", f"{ADA + 1} 4712 4711_2"]])
def test_a_job_that_is_not_the_one_is_left_alone(scancel: Path, kernel: int, rows: list[str]) -> None:
    let_slurm_know(scancel.with_name("squeue"), *rows)
    if not rows:
        scancel.with_name("squeue").write_text("#!/bin/sh\nexit 1\n")
    assert run(scancel, facts_of(kernel))[1].startswith("left alone")
    assert called(scancel) == ""


@pytest.mark.parametrize("changed", CHANGED)
def test_no_job_is_cancelled_for_another_process(scancel: Path, kernel: int, changed: dict[str, Any]) -> None:
    assert run(scancel, facts_of(kernel, **changed)) == (0, "left alone: the process has ended")
    assert called(scancel) == ""


@pytest.mark.parametrize("uid", [ADA + 1, 0, None])
def test_a_job_of_another_user_is_left_alone(scancel: Path, kernel: int, uid: int | None) -> None:
    said = f"left alone: squeue does not say that job 4711 is of user {uid}"
    assert run(scancel, facts_of(kernel, uid=uid)) == (1, said)
    assert called(scancel) == ""


@pytest.mark.parametrize(("job", "status"), [(None, 0), ("--user=ada", 1), ("4711 13", 1), ("", 1), ("4711\n", 1)])
def test_what_is_no_job_is_left_alone(scancel: Path, kernel: int, job: str | None, status: int) -> None:
    found, said = run(scancel, facts_of(kernel, slurm_job=job))
    assert (found, said[:10]) == (status, "left alone")
    assert called(scancel) == ""


class Server:
    """What is asked of a Jupyter server, which knows one kernel. It answers as the documented REST API does."""

    def __init__(self) -> None:
        self.state, self.asked = "idle", list[str]()


@contextmanager
def jupyter() -> Iterator[tuple[Server, str]]:
    server = Server()

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            server.asked.append(f"{self.command} {self.path}")
            known = self.path == f"/api/kernels/{KERNEL}" and self.headers["Authorization"] == f"token {TOKEN}"
            self.send_response((204 if self.command == "DELETE" else 200) if known else 404)
            self.end_headers()
            if known and self.command == "GET":
                self.wfile.write(json.dumps({"id": KERNEL, "execution_state": server.state}).encode())

        do_GET = do_DELETE = answer  # noqa: N815 - as http.server calls them

        def log_message(self, *_: Any) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as listener:
        thread = threading.Thread(target=listener.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server, f"http://127.0.0.1:{listener.server_port}"
        finally:
            listener.shutdown()
            thread.join()


@contextmanager
def shutdown(folder: Path) -> Iterator[tuple[Path, Server]]:
    """The example, with a server of ada's."""
    with jupyter() as (server, url):
        (folder / "token").write_text(f"{TOKEN}\n")
        servers = {str(ADA): {"url": url, "token_file": str(folder / "token")}}
        (folder / "servers.json").write_text(json.dumps(servers))
        yield example("jupyter-shutdown", folder, SERVERS=str(folder / "servers.json")), server


def test_a_kernel_is_shut_down_unless_it_is_at_work(tmp_path: Path, kernel: int) -> None:
    with shutdown(tmp_path) as (path, server):
        server.state = "busy"
        assert run(path, facts_of(kernel)) == (0, "left alone: the kernel is at work")
        server.state = "idle"
        assert run(path, facts_of(kernel)) == (0, f"shut kernel {KERNEL} down")
        look = f"GET /api/kernels/{KERNEL}"
        assert server.asked == [look, look, f"DELETE /api/kernels/{KERNEL}"]


@pytest.mark.parametrize("changed", [*CHANGED, {"person_uid": ADA + 1}, {"person_uid": None}])
def test_no_kernel_is_ended_for_another_process_or_user(tmp_path: Path, kernel: int, changed: dict[str, Any]) -> None:
    with shutdown(tmp_path) as (path, server):
        status, said = run(path, facts_of(kernel, **changed))
        assert (status, said[:10]) == (0, "left alone")
        assert not [asked for asked in server.asked if asked.startswith("DELETE")]


def be_somebody(url: str) -> None:
    """Take the port, as another user, and keep what is heard there."""
    port = int(url.rpartition(":")[2])
    os.setresgid(SOMEBODY, SOMEBODY, SOMEBODY)
    os.setresuid(SOMEBODY, SOMEBODY, SOMEBODY)
    with socket.create_server(("127.0.0.1", port)) as listener:
        os.write(1, b"ready\n")
        connection, _ = listener.accept()
        os.write(1, connection.recv(4096))


@needs_root
def test_the_token_is_not_sent_to_another_user_who_took_the_port(tmp_path: Path, kernel: int) -> None:
    """A server ends, its kernels go on, and whoever takes its port next would be told the token."""
    with shutdown(tmp_path) as (path, _):
        url = json.loads((tmp_path / "servers.json").read_text())[str(ADA)]["url"]
    read, write = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # the test runner has threads
        pid = os.fork()
    if pid == 0:
        try:
            os.dup2(write, 1)
            be_somebody(url)
        finally:
            os._exit(0)
    try:
        assert os.read(read, 100) == b"ready\n"
        status, said = run(path, facts_of(kernel))
        assert (status, said[:10]) == (1, "left alone")
        os.set_blocking(read, False)
        with pytest.raises(BlockingIOError):
            os.read(read, 100)
        said = run(path, facts_of(kernel, person_uid=SOMEBODY))[1]
        assert said == "left alone: there is no Jupyter server of this user"
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(read)
        os.close(write)


@pytest.mark.parametrize("url", ["http://lab.example:{}", "http://127.0.0.1.lab.example:{}", "http://127.0.0.1:1"])
def test_a_server_elsewhere_or_none_is_sent_no_token(tmp_path: Path, kernel: int, url: str) -> None:
    with shutdown(tmp_path) as (path, server):
        servers = json.loads((tmp_path / "servers.json").read_text())
        servers[str(ADA)]["url"] = url.format(servers[str(ADA)]["url"].rpartition(":")[2])
        (tmp_path / "servers.json").write_text(json.dumps(servers))
        assert run(path, facts_of(kernel))[0] == 1
        assert server.asked == []
