"""gua doctor as a person runs it, and what it finds."""

import json
import subprocess
from collections.abc import Mapping
from typing import Any

from tests.lab import DAY_MS
from tests.machine import GUA, Machine, call

Finding = dict[str, str]


def doctor(
    machine: Machine, *arguments: str, variables: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run gua doctor."""
    command = [GUA, "doctor", "--data-dir", str(machine.data_dir), *arguments]
    return call(command, env=variables or machine.environment(), timeout=60)


def examine(machine: Machine, *arguments: str, variables: Mapping[str, str] | None = None) -> dict[str, Any]:
    """What gua doctor finds, as JSON; its exit status must say the same."""
    done = doctor(machine, "--json", *arguments, variables=variables)
    assert done.stderr == ""
    document: dict[str, Any] = json.loads(done.stdout)
    assert done.returncode == (0 if document["ok"] else 1)
    assert document["ok"] == all(finding["status"] != "error" for finding in document["findings"])
    return document


def of_check(document: dict[str, Any], check: str) -> list[Finding]:
    """All findings of one check."""
    return [finding for finding in document["findings"] if finding["check"] == check]


def one(document: dict[str, Any], check: str) -> Finding:
    """The only finding of a check."""
    (finding,) = of_check(document, check)
    return finding


def errors(document: dict[str, Any]) -> set[str]:
    """The checks that found an error."""
    return {finding["check"] for finding in document["findings"] if finding["status"] == "error"}


def sample_before(machine: Machine, days: int = 1) -> None:
    """Record a tick of days ago. That there are later ones already is worth a warning, but not here."""
    assert machine.sample(clock_offset_ms=-days * DAY_MS).returncode == 0
