"""Run gua's verbs as any user and within limits, in children of this process, which has imported pandas once."""

import importlib
import os
import pkgutil
import resource
import select
import signal
import sys
import tempfile
import time
import warnings
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, NoReturn

import gua_report
import gua_sample
from gua_report.commands.containers import main as ask_for_names
from gua_report.commands.report import main as report
from gua_report.main import main
from gua_sample.cli import main as sample
from gua_sample.rights import import_late
from tests.users import SOMEBODY

# Now, as another user may have no access to Python's files. Without what needs pyarrow: see conftest.py.
for package in (gua_sample, gua_report):
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        if not module.name.endswith(".parquet"):
            importlib.import_module(module.name)
import_late()

SCRIPTS = {"gua-sample": sample, "gua-report": report, "gua-containers": ask_for_names}
SECONDS = 30
MEMORY_BYTES = 3 << 30


class Done(NamedTuple):
    returncode: int  # negative: the signal that ended it
    stdout: str
    stderr: str

    @property
    def is_calm(self) -> bool:
        """Whether the command ended with a documented exit status and without a bug of ours."""
        return self.returncode in (0, 1, 2, 3) and "Traceback" not in self.stderr and "is a bug" not in self.stderr


def run(
    *arguments: str | Path,
    uid: int = 0,
    temporary: Path | None = None,
    variables: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    seconds: float | None = None,
) -> Done:
    """The result of `gua` with these arguments, or of a command of its own if the first names one.

    `temporary` is its TMPDIR; `variables` are added to the environment; it is killed after `seconds`, or SECONDS.
    """
    words = [str(argument) for argument in arguments]
    added = {**(variables or {}), **({"TMPDIR": str(temporary)} if temporary else {})}
    needless = [name for name in added if name.startswith(("LD_", "PYTHON", "LC_", "LANG"))]
    assert not needless, f"{needless} would change nothing: Python has started already"
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # the test runner has threads
            pid = os.fork()
        if pid == 0:
            _be_the_command(words, uid, added, cwd, output.fileno(), errors.fileno())
        status = _wait(pid, seconds or SECONDS)
        texts = []
        for file in (output, errors):
            file.seek(0)
            texts.append(file.read().decode("utf-8", "backslashreplace"))
    return Done(status, *texts)


def _be_the_command(
    words: list[str], uid: int, variables: Mapping[str, str], cwd: Path | None, output: int, errors: int
) -> NoReturn:
    status = 99
    try:
        os.setsid()
        for number, stream in enumerate((os.open(os.devnull, os.O_RDONLY), output, errors)):
            os.dup2(stream, number)
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
        sys.stdout, sys.stderr = open(1, "w", closefd=False), open(2, "w", closefd=False)  # noqa: SIM115
        os.environ.update(variables)
        tempfile.tempdir = None  # TMPDIR may be another one
        time.tzset()
        if cwd:
            os.chdir(cwd)
        if uid:
            os.setgroups([])
            os.setresgid(uid, uid, uid)
            os.setresuid(uid, uid, uid)
        try:
            status = SCRIPTS[words[0]](words[1:]) if words[0] in SCRIPTS else main(words)
        except SystemExit as end:
            status = int(end.code or 0)
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(status)


def _wait(pid: int, seconds: float) -> int:
    ends = time.monotonic() + seconds
    handle = os.pidfd_open(pid)
    try:
        ready, _, _ = select.select([handle], [], [], max(0, ends - time.monotonic()))
        if not ready:
            with suppress(OSError):
                os.killpg(pid, signal.SIGKILL)
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    finally:
        os.close(handle)


def give(path: Path, uid: int = SOMEBODY) -> None:
    """Make that user the owner of the path and everything in it."""
    for one in [path, *path.rglob("*")]:
        os.chown(one, uid, uid, follow_symlinks=False)
