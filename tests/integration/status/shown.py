"""gua status and gua free on a machine under test, and what they show."""

import json
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.machine import GUA, Machine, call

NOBODY = 4_194_303  # the largest pid there can be, and no process of ours

Document = dict[str, Any]


def gua(
    machine: Machine, *arguments: str, clock_ms: int | None = None, variables: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run gua with a verb."""
    verb, *options = arguments
    command = [GUA, verb, "--data-dir", str(machine.data_dir), *options]
    environment = machine.environment(clock_ms=clock_ms) | dict(variables or {})
    return call(command, env=environment, timeout=60)


def status(machine: Machine, *arguments: str, clock_ms: int | None = None) -> str:
    """What gua status prints; it must end well and have nothing to complain about."""
    done = gua(machine, "status", *arguments, clock_ms=clock_ms)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def document(machine: Machine, *arguments: str, clock_ms: int | None = None) -> Document:
    """What gua status tells as JSON."""
    found: Document = json.loads(status(machine, "--json", *arguments, clock_ms=clock_ms))
    return found


@contextmanager
def sleeping(*programs: str | Path, users: Sequence[int | None] = (None,)) -> Iterator[list[int]]:
    """The pids of processes that do nothing: of each program, by default of sleep, for each user."""
    commands = [([str(program), "600"], user) for program in programs or ("sleep",) for user in users]
    running = [subprocess.Popen(command, user=user) for command, user in commands]
    try:
        yield [one.pid for one in running]
    finally:
        for one in running:
            one.kill()
            one.wait()


def states(found: Document) -> list[str]:
    """The states of the cards, by index."""
    return [gpu["state"] for gpu in found["gpus"]]
