"""gua status and gua free on a machine under test, and what they show."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from typing import Any

from tests.machine import GUA, Machine

NOBODY = 4_194_303  # the largest pid there can be, and no process of ours

Document = dict[str, Any]


def gua(
    machine: Machine, *arguments: str, clock_ms: int | None = None, variables: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run gua with a verb."""
    verb, *options = arguments
    command = [GUA, verb, "--data-dir", str(machine.data_dir), *options]
    environment = machine.environment(clock_ms=clock_ms) | dict(variables or {})
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=60)


def status(machine: Machine, *arguments: str, clock_ms: int | None = None) -> str:
    """What gua status prints; it must end well and have nothing to complain about."""
    done = gua(machine, "status", *arguments, clock_ms=clock_ms)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def document(machine: Machine, *arguments: str, clock_ms: int | None = None) -> Document:
    """What gua status tells as JSON."""
    found: Document = json.loads(status(machine, "--json", *arguments, clock_ms=clock_ms))
    return found


def states(found: Document) -> list[str]:
    """The states of the cards, by index."""
    return [gpu["state"] for gpu in found["gpus"]]
