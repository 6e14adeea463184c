"""A Dask cluster of separate processes that speak TLS: a scheduler, and workers each with a nanny."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from gua_report.fleet.host_files import HostFile
from tests.fleets import EachFile
from tests.redis_server import CERTIFICATE, KEY

ROOT = Path(__file__).parents[1]
SETTINGS = {
    "COMM__REQUIRE_ENCRYPTION": "true",
    "COMM__TLS__CA_FILE": CERTIFICATE,
    **{f"COMM__TLS__{role}__CERT": CERTIFICATE for role in ("SCHEDULER", "WORKER", "CLIENT")},
    **{f"COMM__TLS__{role}__KEY": KEY for role in ("SCHEDULER", "WORKER", "CLIENT")},
    "SCHEDULER__ALLOWED_FAILURES": "1",  # how often a task may end a worker before it is given up
}
ENVIRONMENT = {f"DASK_DISTRIBUTED__{name}": str(value) for name, value in SETTINGS.items()}
WAIT_SECONDS = 60.0


@contextmanager
def dask_cluster(folder: Path, workers: int = 2, memory: str = "1GiB") -> Iterator[Path]:
    """The file of the scheduler, once the workers are there."""
    file, log = folder / "scheduler.json", folder / "cluster.log"
    common = ["--protocol", "tls", "--no-dashboard"]
    scheduler = ["dask_scheduler", "--host", "127.0.0.1", "--port", "0", "--scheduler-file", str(file), *common]
    worker = ["dask_worker", "--scheduler-file", str(file), "--nthreads", "1", "--memory-limit", memory, *common]
    worker += ["--nworkers", str(workers), "--local-directory", str(folder)]
    started = []
    try:
        with log.open("w") as output:
            for command in (scheduler, worker) if workers else (scheduler,):
                started.append(_start(command, output))
                if command is scheduler:
                    _wait(file.exists, log)
        _wait(lambda: log.read_text().count("Registered to:") >= workers, log)
        yield file
    finally:
        for process in reversed(started):
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _start(command: list[str], output: Any) -> subprocess.Popen[bytes]:
    environment = {**os.environ, **ENVIRONMENT, "PYTHONPATH": str(ROOT)}
    module, *arguments = command
    return subprocess.Popen(
        [sys.executable, "-m", f"distributed.cli.{module}", *arguments],
        stdout=output,
        stderr=output,
        env=environment,
        start_new_session=True,
    )


def _wait(is_done: Any, log: Path) -> None:
    ends = time.monotonic() + WAIT_SECONDS
    while not is_done():
        assert time.monotonic() < ends, log.read_text()
        time.sleep(0.05)


class TellPid(EachFile):
    """Work that tells which process did it, and takes a moment."""

    def find(self, file: HostFile) -> int:
        time.sleep(0.05)
        return os.getpid()


class EatMemory(EachFile):
    """Work that takes more memory than a worker has, at one host."""

    def find(self, file: HostFile) -> str:
        eaten = []
        while file.host == "eat":
            eaten.append(bytearray(os.urandom(1 << 20) * 20))
            time.sleep(0.02)
        return file.host
