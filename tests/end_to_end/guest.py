"""A guest: a real systemd, booted in under a second on a copy of this machine's files that keeps its changes to itself.

    with Guest(tmp_path / "guest") as guest:
        guest.run("systemctl", "start", "gua-sample.service")

All that a guest writes lands in its folder. After a shutdown, another guest on the same folder is a reboot, and the
folder can be a layer under other guests, which leave it as it is.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import TypeVar

import pytest

from tests.repository import ROOT

KEEPER = Path(__file__).with_name("keeper.py")

# The kernel has no namespaces for these: a guest's changes would affect the host.
CAPABILITIES = "-sys_time,-wake_alarm,-sys_module,-syslog,-sys_rawio,-block_suspend,-mac_admin,-mac_override"

# The environment of a root login, whatever that of the tests is.
ENVIRONMENT = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": "/root",
    "USER": "root",
    "LOGNAME": "root",
    "LANG": "C.UTF-8",
}

Value = TypeVar("Value")


class Guest:
    """A guest while its block runs. `layers` are folders of guests that were shut down, the lowest first. `network` is
    the host's; without it there is only a loopback."""

    def __init__(self, folder: Path, layers: Iterable[Path] = (), network: bool = False) -> None:
        self.folder = folder
        is_elsewhere = ROOT.stat().st_dev != Path("/").stat().st_dev
        self._plan = {
            "folder": str(folder),
            "layers": [str(layer) for layer in layers],
            "read_only": [str(ROOT)] if is_elsewhere else [],
            "network": network,
        }

    def __enter__(self) -> Guest:
        self.folder.mkdir(parents=True, exist_ok=True)
        log = self.folder / "boot.log"
        keeper = ["unshare", "--mount", "--propagation", "private", "--", sys.executable, "-I", str(KEEPER)]
        with log.open("w") as errors:
            self._keeper = subprocess.Popen(
                [*keeper, json.dumps(self._plan)],
                env={**ENVIRONMENT, "GUEST_CAPABILITIES": CAPABILITIES},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                start_new_session=True,  # out of reach of signals to the tests' process group
            )
        try:
            self._wait_for_boot()
        except BaseException as failure:
            self.kill()
            if isinstance(failure, AssertionError):
                raise AssertionError(f"{failure}\n{log.read_text()}") from None
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    def _wait_for_boot(self) -> None:
        assert self._keeper.stdout
        pid = self._keeper.stdout.readline()
        assert pid, "the guest did not start"
        self.pid = int(pid)
        self.wait_until(self._is_settled, 60, "the boot to settle")

    def _is_settled(self) -> bool:
        state = self.run("systemctl", "is-system-running", check=False).stdout.strip()
        return state in ("running", "degraded")

    def run(
        self,
        *command: str | Path,
        user: str | None = None,
        cwd: str | Path = "/",
        environment: Mapping[str, str] | None = None,
        stdin: str = "",
        timeout: float = 60,
        check: bool = True,
    ) -> subprocess.CompletedProcess[str]:
        """Run the command as root, or as a user of the guest, in the environment of a login and the variables given
        here. Raises AssertionError with the output on a timeout or, with `check`, a failure."""
        assert self.is_running(), "the guest has ended"
        enter = ["nsenter", "--all", "--target", str(self.pid), f"--wdns={cwd}"]
        limits = ["setpriv", "--bounding-set", CAPABILITIES, "--", "timeout", "--kill-after=5", str(timeout)]
        become = ["runuser", user, "--shell=/bin/sh", "--command", 'exec "$0" "$@"', "--"] if user else []
        done = subprocess.run(
            [*enter, *limits, *become, *command],
            env={**ENVIRONMENT, **(environment or {})},
            input=stdin,
            capture_output=True,
            encoding="utf-8",
            errors="backslashreplace",
            check=False,
        )
        if done.returncode == 124 or (check and done.returncode != 0):
            outcome = f"took over {timeout} s" if done.returncode == 124 else f"gave status {done.returncode}"
            output = f"stdout:\n{done.stdout}\nstderr:\n{done.stderr}"
            raise AssertionError(f"{' '.join(map(str, command))} {outcome}\n{output}")
        return done

    def read(self, path: str | Path) -> str:
        return self.run("cat", "--", path).stdout

    def write(self, path: str | Path, text: str, mode: int = 0o644) -> None:
        """Write a file as root; missing directories are made."""
        self.run("install", "-D", f"--mode={mode:o}", "/dev/stdin", path, stdin=text)

    def path(self, path: str | Path) -> Path:
        """The path on the host of a file of the running guest. Links are followed in the guest: an absolute one would
        lead the host to its own files, and SQLite too, which follows /proc/PID/root as a link."""
        resolved = self.run("realpath", "--canonicalize-missing", "--", path).stdout.removesuffix("\n")
        return Path(f"/proc/{self.pid}/root{resolved}")

    def journal(self, unit: str, *options: str, output: str = "cat") -> list[str]:
        """The unit's lines from all boots, unless the options say otherwise."""
        self.run("journalctl", "--sync")
        return self.run("journalctl", "--quiet", f"--unit={unit}", f"--output={output}", *options).stdout.splitlines()

    def wait_until(self, condition: Callable[[], Value], seconds: float, what: str) -> Value:
        """The first true value of the condition."""
        deadline = time.monotonic() + seconds
        while not (value := condition()):
            assert time.monotonic() < deadline, f"waited {seconds} s in vain for {what}"
            time.sleep(0.05)
        return value

    def is_running(self) -> bool:
        return self._keeper.poll() is None

    def shutdown(self, seconds: float = 60) -> None:
        """Stop all units and end the guest, like `systemctl poweroff`."""
        assert self.is_running(), "the guest has ended"
        os.kill(self.pid, signal.SIGRTMIN + 4)
        try:
            self._keeper.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the guest did not shut down in {seconds} s") from None
        finally:
            self.kill()

    def kill(self) -> None:
        """End the guest like a power cut. Only its folder is left."""
        assert self._keeper.stdin
        assert self._keeper.stdout
        self._keeper.stdin.close()  # tells the keeper to end
        self._keeper.wait()
        self._keeper.stdout.close()


def prepare_layer(
    name: str,
    tmp_path_factory: pytest.TempPathFactory,
    prepare: Callable[[Guest], object],
    layers: Iterable[Path] = (),
    network: bool = False,
) -> Path:
    """The folder of a guest that was prepared and shut down. All workers of pytest-xdist share it: the first one
    prepares it while the others wait."""
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent
    layer = folder / name
    with (folder / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (layer / "is_prepared").exists():
            shutil.rmtree(layer, ignore_errors=True)
            with Guest(layer, layers=layers, network=network) as guest:
                prepare(guest)
                guest.shutdown()
            (layer / "is_prepared").touch()
    return layer


@cache
def why_not() -> str | None:
    """The reason why no guest can be booted here; None if it can."""
    if os.geteuid() != 0:
        return "only root can boot a guest"
    if not Path("/lib/systemd/systemd").exists():
        return "no systemd on this machine"
    if missing := [tool for tool in ("nsenter", "runuser", "setpriv", "unshare") if not shutil.which(tool)]:
        return f"not on this machine: {', '.join(missing)}"
    try:
        with tempfile.TemporaryDirectory(prefix="gua-test-") as folder, Guest(Path(folder)):
            return None
    except AssertionError as failure:
        return f"a guest does not boot here: {failure}"
