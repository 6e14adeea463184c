"""Runs commands for compare_versions.py: each in a fork of this process, which has imported one checkout's modules.

python serve.py CHECKOUT: it reads a question as a line of JSON, and answers with a line of JSON.
"""

from __future__ import annotations

import ast
import importlib
import json
import os
import pkgutil
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

TIMEOUT_SECONDS = 120
BOOTTIME_NS = 10**15
# What commands import late, or what that does.
PACKAGES = ("gua_sample", "gua_report", "pandas.io", "email", "encodings", "html", "zoneinfo", "multiprocessing")


def serve(checkout: str) -> None:
    """Answer questions until there are no more."""
    sys.path[0] = checkout
    boottime = time.clock_gettime_ns
    time.clock_gettime_ns = lambda clock: BOOTTIME_NS if clock == time.CLOCK_BOOTTIME else boottime(clock)
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for name in PACKAGES:
        import_all(importlib.import_module(name))
    if not str(sys.modules["gua_report"].__file__).startswith(f"{checkout}/"):
        raise RuntimeError(f"{sys.modules['gua_report'].__file__} is not in {checkout}")
    observer: Any = sys.modules.get("gua_report.live.observer")
    if hasattr(observer, "LOOK_BACK_SECONDS"):  # how far it gets must not depend on how busy the machine is
        observer.LOOK_BACK_SECONDS = 60
    for line in sys.stdin:
        asked = json.loads(line)
        replies.write(json.dumps(run_forked(**asked)) + "\n")
        replies.flush()


def import_all(package: Any) -> None:
    """Import a package, and all that its modules import anywhere: a user of a command may not read Python's files."""
    for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        if ".tests" not in found.name and not found.name.endswith("__main__"):
            with suppress(Exception):  # what it needs may be missing
                module = importlib.import_module(found.name)
                for name in imported_names(ast.parse(Path(str(module.__file__)).read_text())):
                    with suppress(ImportError):
                        importlib.import_module(name)


def imported_names(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module


def run_forked(words: list[str], variables: dict[str, str], uid: int, files: str | None) -> dict[str, Any]:
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        pid = os.fork()
        if pid == 0:
            become_command(words, variables, uid, output.fileno(), errors.fileno())
        ends = time.monotonic() + TIMEOUT_SECONDS
        while not (ended := os.waitpid(pid, os.WNOHANG))[0]:
            if time.monotonic() > ends:
                ends += TIMEOUT_SECONDS
                os.killpg(pid, signal.SIGKILL)
            time.sleep(0.005)
        texts = {"status": str(os.waitstatus_to_exitcode(ended[1]))}
        for name, file in (("stdout", output), ("stderr", errors)):
            file.seek(0)
            texts[name] = file.read().decode(errors="backslashreplace")
    if files:
        place = Path(files)
        for path in sorted(place.rglob("*") if place.is_dir() else [place]):
            if path.is_file():
                texts[str(path.relative_to(place.parent))] = read_text(path)
        shutil.rmtree(place, ignore_errors=True)
    return texts


def read_text(path: Path) -> str:
    if path.suffix == ".parquet":
        parquet = importlib.import_module("pyarrow.parquet")
        return str(parquet.ParquetFile(path).read().to_pandas().to_csv(index=False))
    return path.read_bytes().decode(errors="backslashreplace")


def become_command(words: list[str], variables: dict[str, str], uid: int, output: int, errors: int) -> None:
    status = 99
    try:
        os.setsid()
        for number, stream in enumerate((os.open(os.devnull, os.O_RDONLY), output, errors)):
            os.dup2(stream, number)
        sys.stdout, sys.stderr = (open(number, "w", closefd=False) for number in (1, 2))  # noqa: SIM115
        os.environ.update(variables)
        tempfile.tempdir = None
        time.tzset()
        os.chdir("/")
        if uid != os.geteuid():
            os.setgroups([])
            os.setresgid(uid, uid, uid)
            os.setresuid(uid, uid, uid)
        try:
            status = importlib.import_module("gua_report.main").main(words)
        except SystemExit as end:
            status = int(end.code or 0)
        sys.stdout.flush()
        sys.stderr.flush()
    except BaseException:
        os.write(2, traceback.format_exc().encode())
    finally:
        os._exit(status)


if __name__ == "__main__":
    serve(sys.argv[1])
