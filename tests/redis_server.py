"""A real Redis server on a free port, filled as canhazgpu fills it."""

import json
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
import redis

SERVER = "redis-server"
needs_redis = pytest.mark.needs(SERVER)

# Self-signed, for localhost, valid for a hundred years.
CERTIFICATE, KEY = (Path(__file__).parent / "tls" / name for name in ("certificate.pem", "key.pem"))

# A script writes the values because Redis itself then spells the numbers in the JSON.
RESERVE = """
local state = {user = ARGV[2], type = ARGV[3], start_time = tonumber(ARGV[4])}
if ARGV[5] ~= '' then state.actual_user = ARGV[5] end
if ARGV[6] ~= '' then state.last_heartbeat = tonumber(ARGV[6]) end
if ARGV[7] ~= '' then state.expiry_time = tonumber(ARGV[7]) end
redis.call('SET', 'canhazgpu:gpu:' .. ARGV[1], cjson.encode(state))
"""


class Canhazgpu:
    """A Redis server with the values that canhazgpu's commands leave. Times are epoch seconds."""

    def __init__(self, port: int, tls_port: int, unix_socket: Path) -> None:
        self.port = port
        self.url = f"redis://127.0.0.1:{port}/0"
        self.tls_url = f"rediss://localhost:{tls_port}/0"
        self.unix_url = f"unix://{unix_socket}"
        self.client: Any = redis.Redis(port=port, protocol=2)

    def admin(self, cards: int) -> None:
        self.client.flushall()
        self.client.set("canhazgpu:gpu_count", cards)

    def reserve(self, index: int, user: str, start: int, expiry: int | None = None, account: str = "") -> None:
        """Write the state of canhazgpu reserve: a manual reservation until a time."""
        self.client.eval(RESERVE, 0, index, user, "manual", start, account, "", expiry if expiry is not None else "")

    def run(self, index: int, user: str, start: int, heartbeat: int, account: str = "") -> None:
        """Write the state of canhazgpu run before its first heartbeat."""
        self.client.eval(RESERVE, 0, index, user, "run", start, account, heartbeat, "")

    def beat(self, index: int, user: str, start: float, heartbeat: float) -> None:
        """Write the state of canhazgpu run after a heartbeat: Go rewrites the whole object, with all times."""
        times = {"start_time": rfc3339(start), "last_heartbeat": rfc3339(heartbeat)}
        state = {"user": user, "actual_user": user, **times, "type": "run", "expiry_time": None, "last_released": None}
        self.client.set(f"canhazgpu:gpu:{index}", json.dumps(state, separators=(",", ":")))

    def release(self, index: int, released: float) -> None:
        times = {"start_time": None, "last_heartbeat": None, "expiry_time": None, "last_released": rfc3339(released)}
        self.client.set(f"canhazgpu:gpu:{index}", json.dumps(times, separators=(",", ":")))

    def record(self, index: int, user: str, start: float, end: float, kind: str = "run") -> None:
        """Add a released reservation to the history."""
        record = {
            "user": user,
            "gpu_id": index,
            "start_time": rfc3339(start),
            "end_time": rfc3339(end),
            "duration_seconds": end - start,
            "reservation_type": kind,
        }
        self.client.zadd("canhazgpu:usage_history_sorted", {json.dumps(record, separators=(",", ":")): int(end)})


def rfc3339(seconds: float) -> str:
    """A time with nine digits and a zone, as Go writes it."""
    return datetime.fromtimestamp(seconds, timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%f789Z")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def redis_server(folder: Path) -> Iterator[Canhazgpu]:
    port, tls_port, unix_socket = free_port(), free_port(), folder / "redis.sock"
    options = ["--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", str(folder)]
    options += ["--unixsocket", str(unix_socket), "--tls-port", str(tls_port), "--tls-auth-clients", "optional"]
    options += ["--tls-cert-file", str(CERTIFICATE), "--tls-key-file", str(KEY), "--tls-ca-cert-file", str(CERTIFICATE)]
    with subprocess.Popen([SERVER, *options], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            server = Canhazgpu(port, tls_port, unix_socket)
            deadline = time.monotonic() + 20
            while True:
                try:
                    server.client.ping()
                    break
                except redis.ConnectionError:
                    assert process.poll() is None
                    assert time.monotonic() < deadline
                    time.sleep(0.02)
            yield server
            server.client.close()
        finally:
            process.kill()
