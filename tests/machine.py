"""A machine under test: the real gua-sample in a real process, on the stand-in driver, in a data folder of its own."""

import os
import sqlite3
import subprocess
import sysconfig
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

from gua_report.main import main
from gua_sample.partition_names import list_partitions
from tests.driver import Scenario, environment, with_clock

SCRIPTS = Path(sysconfig.get_path("scripts"))
GUA = str(SCRIPTS / "gua")


class Machine:
    def __init__(self, driver: Path, folder: Path) -> None:
        self.driver = driver
        self.folder = folder
        self.scenario = Scenario()
        self.data_dir = folder / "data"
        self.samples = self.data_dir / "samples"

    def environment(
        self, clock_offset_ms: int | None = None, clock_ms: int | None = None, kill_at: int | None = None
    ) -> dict[str, str]:
        """The environment of a process on this machine, with the driver in the current state of the scenario."""
        scenario = self.scenario.write(self.folder / "scenario")
        variables = environment(self.driver, scenario)
        if clock_offset_ms is not None or clock_ms is not None:
            variables = with_clock(variables, self.driver, clock_offset_ms, clock_ms)
        if kill_at is not None:
            preload = [variables.get("LD_PRELOAD", ""), str(self.driver / "kill_at.so")]
            variables["LD_PRELOAD"] = ":".join(filter(None, preload))
            variables["GUA_TEST_KILL_DIR"] = str(self.data_dir)
            variables["GUA_TEST_KILL_AT"] = str(kill_at)
        return variables

    def command(self, *arguments: str) -> list[str]:
        return [str(SCRIPTS / "gua-sample"), "--data-dir", str(self.data_dir), *arguments]

    def sample(
        self,
        *arguments: str,
        clock_offset_ms: int | None = None,
        clock_ms: int | None = None,
        kill_at: int | None = None,
        variables: Mapping[str, str] | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Run gua-sample once, with these changes to its environment."""
        environment = self.environment(clock_offset_ms, clock_ms, kill_at) | dict(variables or {})
        return subprocess.run(self.command(*arguments), env=environment, capture_output=True, text=True, check=False)

    def tick(self, *arguments: str, **keywords: Any) -> None:
        """Run gua-sample once; it must succeed without a complaint."""
        done = self.sample(*arguments, **keywords)
        assert (done.returncode, done.stderr) == (0, "")

    def partitions(self) -> list[Path]:
        return [Path(path) for path in list_partitions(str(self.samples))] if self.samples.exists() else []

    def rows(self, view: str, where: str = "1") -> list[dict[str, Any]]:
        """The rows of a view over all partitions, in time order."""
        found: list[dict[str, Any]] = []
        for path in self.partitions():
            found += query(path, f"SELECT * FROM {view} WHERE {where} ORDER BY ts_ms")
        return found

    def cards(self, where: str = "1") -> list[dict[str, Any]]:
        return self.rows("card_ticks", where)

    def processes(self, where: str = "1") -> list[dict[str, Any]]:
        return self.rows("process_ticks", where)

    def ticks(self) -> list[dict[str, Any]]:
        return self.rows("ticks")

    def files(self) -> list[str]:
        return sorted(os.listdir(self.samples))


def query(path: Path, sql: str) -> list[dict[str, Any]]:
    connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    try:
        connection.row_factory = sqlite3.Row
        return [dict(row) for row in connection.execute(sql)]
    finally:
        connection.close()


def one_line(text: str) -> bool:
    return text.count("\n") == 1 and text.endswith("\n")


def call(command: Sequence[str | Path], **more: Any) -> subprocess.CompletedProcess[str]:
    """What becomes of a command, whatever its exit status."""
    return subprocess.run(command, **{"capture_output": True, "text": True, "check": False, **more})


def run_here(*words: str | Path) -> tuple[int, str, str]:
    """Exit status, output and errors of `gua` with these arguments, in this process."""
    with redirect_stdout(StringIO()) as output, redirect_stderr(StringIO()) as errors:
        status = main([*map(str, words)])
    return status, output.getvalue(), errors.getvalue()


def complaint(done: Any, status: int) -> str:
    """The one line with which a command that printed nothing has failed."""
    assert (done.returncode, done.stdout, one_line(done.stderr)) == (status, "", True)
    return str(done.stderr)


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """What is done in this block must not take longer."""
    began = time.monotonic()
    yield
    assert time.monotonic() - began < seconds
