"""What a command costs, and figures beside what they have to hold."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import IO, NamedTuple

# What is installed has its bytecode, and no pyarrow.
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
ENVIRONMENT["PYTHONPATH"] = str(Path(__file__).with_name("plain_install"))


class Cost(NamedTuple):
    wall_seconds: float
    cpu_seconds: float
    peak_mib: float


class Bounds:
    """Prints figures beside what they have to hold."""

    def __init__(self) -> None:
        self.failed = False

    def show(self, what: str, value: float, unit: str, bound: float, least: bool = False) -> None:
        holds = value >= bound if least else value <= bound
        self.failed |= not holds
        word = "at least" if least else "at most"
        print(f"{what:<58} {value:7.2f} {unit:<6} {word} {bound:g}{'' if holds else '   MISSED'}", flush=True)


def run_once(
    command: list[str], variables: dict[str, str] = ENVIRONMENT, output: int | IO[str] = subprocess.DEVNULL
) -> Cost:
    began = time.perf_counter()
    process = subprocess.Popen(command, env=variables, stdout=output)
    _, status, usage = os.wait4(process.pid, 0)
    wall_seconds = time.perf_counter() - began
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"{command[0]} failed")
    return Cost(wall_seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)


def ratio(values: Iterable[float], others: Iterable[float]) -> float:
    """Of each turn by itself, since a machine is faster at one time than at another."""
    return statistics.median(one / other for one, other in zip(values, others, strict=True))


def median(costs: Iterable[Cost]) -> Cost:
    """Of each figure by itself."""
    return Cost(*map(statistics.median, zip(*costs, strict=True)))
