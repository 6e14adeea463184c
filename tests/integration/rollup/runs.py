"""Many runs of gua rollup, some at a time, that may be killed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

RUNS = """
import os, sys, warnings
from gua_report.main import main
from gua_report.upkeep import nightly  # with all it needs

warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 warns of threads: numpy's, which do nothing here

def start(data_dir, moment, fault):
    child = os.fork()
    if child == 0:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        os.environ["GUA_TEST_KILL_AT" if fault == "kill" else "GUA_TEST_FAULT_AT"] = moment
        if fault != "kill":
            os.environ["GUA_TEST_FAULT"] = fault
        os._exit(main(["rollup", "--data-dir", data_dir, *sys.argv[1:]]))
    return child

for line in sys.stdin:
    data_dir, count, moment, fault = line.split()
    children = [start(data_dir, moment, fault) for _ in range(int(count))]
    statuses = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    print(*statuses, flush=True)
"""


class Runs:
    """Runs of gua rollup, some at a time, each a process of its own, but all with pandas from the first one.

    They are killed, or their changes fail, in what is `watched`; by default in all of the folder.
    """

    def __init__(self, driver: Path, folder: Path, *arguments: str, watched: Path | None = None) -> None:
        variables = {"LD_PRELOAD": str(driver / "kill_at.so"), "GUA_TEST_KILL_DIR": str(watched or folder)}
        self._errors = folder / "stderr"
        with self._errors.open("w") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-c", RUNS, *arguments],
                env=os.environ | variables,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )

    def __enter__(self) -> Runs:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()

    def run(self, data_dir: Path, count: int = 1, kill_at: int = 0, fault: int | None = None) -> list[int]:
        """How they ended. With a `fault`, the change fails with this error number instead (0: half a write)."""
        assert self._process.stdin
        assert self._process.stdout
        print(data_dir, count, kill_at, "kill" if fault is None else fault, file=self._process.stdin, flush=True)
        return [int(status) for status in self._process.stdout.readline().split()]

    def errors(self) -> str:
        return self._errors.read_text()
