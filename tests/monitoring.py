"""A real node_exporter and a real Prometheus that scrapes it, on free ports."""

import json
import socket
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

PROGRAMS = ("prometheus", "prometheus-node-exporter", "promtool")
needs_prometheus = pytest.mark.needs(*PROGRAMS)

CONFIGURATION = """
global: {{ scrape_interval: 500ms, evaluation_interval: 500ms }}
rule_files: [{rules}]
scrape_configs:
  - job_name: node
    static_configs: [{{ targets: ["{target}"] }}]
"""
PATIENCE_SECONDS = 60


def promtool(*arguments: str, text: str = "", cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    command = ["promtool", *arguments]
    return subprocess.run(command, input=text, capture_output=True, text=True, check=False, cwd=cwd)


def get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=10) as answer:  # noqa: S310 - our own server
        text: str = answer.read().decode()
        return text


class Monitoring:
    def __init__(self, folder: Path, exporter: str, prometheus: str) -> None:
        self.folder = folder  # in which node_exporter looks for *.prom
        self.exporter = exporter
        self.prometheus = prometheus

    def scrape(self) -> str:
        """The metrics that node_exporter serves from our files."""
        return get(f"http://{self.exporter}/metrics")

    def query(self, expression: str) -> list[dict[str, Any]]:
        """The current series of an expression; each has "metric" and "value"."""
        return list(self._get("query", query=expression)["result"])

    def alerts(self) -> list[dict[str, Any]]:
        return list(self._get("alerts")["alerts"])

    def _get(self, what: str, **parameters: str) -> dict[str, Any]:
        try:
            answer = get(f"http://{self.prometheus}/api/v1/{what}?{urllib.parse.urlencode(parameters)}")
        except urllib.error.HTTPError as error:
            pytest.fail(f"{parameters}: {error.read().decode()}")
        data: dict[str, Any] = json.loads(answer)["data"]
        return data


def wait_for(condition: Callable[[], Any], what: str) -> Any:
    """The first true value of the condition."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            if value := condition():
                return value
        except (urllib.error.URLError, ConnectionError):
            pass  # not up yet
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        time.sleep(0.1)


@contextmanager
def monitoring(folder: Path, rules: Path) -> Iterator[Monitoring]:
    """Both servers, as soon as they answer. `folder` is for their files."""
    textfiles = folder / "textfiles"
    textfiles.mkdir()
    exporter, prometheus = (f"127.0.0.1:{port}" for port in free_ports(2))
    configuration = folder / "prometheus.yml"
    configuration.write_text(CONFIGURATION.format(rules=json.dumps(str(rules)), target=exporter))
    with ExitStack() as stack:
        stack.enter_context(
            running(
                folder / "exporter.log",
                *("prometheus-node-exporter", f"--web.listen-address={exporter}", "--collector.disable-defaults"),
                *("--collector.textfile", f"--collector.textfile.directory={textfiles}"),
            )
        )
        stack.enter_context(
            running(
                folder / "prometheus.log",
                *("prometheus", f"--config.file={configuration}", f"--storage.tsdb.path={folder / 'tsdb'}"),
                *(f"--web.listen-address={prometheus}", "--log.level=warn"),
            )
        )
        servers = Monitoring(textfiles, exporter, prometheus)
        wait_for(servers.scrape, "node_exporter")
        wait_for(lambda: get(f"http://{prometheus}/-/ready"), "Prometheus")
        yield servers


@contextmanager
def running(log: Path, *command: str) -> Iterator[None]:
    with log.open("w") as output, subprocess.Popen(command, stdout=output, stderr=output, cwd=log.parent) as server:
        try:
            yield
        finally:
            server.kill()


def free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports
