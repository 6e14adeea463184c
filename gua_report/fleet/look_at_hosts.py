"""A first look at all hosts of a fleet, and what their files show to be wrong. Without pandas."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from gua_report.fleet import suspicions
from gua_report.fleet.host_files import HostFile, Listed
from gua_report.fleet.in_children import Outcome, Work
from gua_report.fleet.look import Look, look_at, restore_look
from gua_report.fleet.suspicions import Problem
from gua_report.machine.child import understanding
from gua_sample.errors import StoreError

Executor = Callable[[Sequence[HostFile], Work], Iterator[Outcome]]


class Looked(NamedTuple):
    files: list[HostFile]  # those that can be used
    looks: dict[str, Look]
    problems: list[Problem]
    hosts: list[str]  # all that are expected


def look_at_hosts(listed: Listed, executor: Executor, now_ms: int) -> Looked:
    """Look at all files, each in a child, and find what their own words show to be wrong."""
    problems = [Problem(host, suspicions.UNUSABLE, why, True) for host, why in listed.unusable.items()]
    looks: dict[str, Look] = {}
    for outcome in executor(listed.files, look_at):
        name, problem = outcome.file.name, outcome.problem
        if problem is None and type(outcome.value) is int:
            problems.append(suspicions.without_days(name, outcome.value, now_ms))
            continue
        try:
            with understanding():
                looks |= {} if problem else {name: restore_look(name, outcome.value)}
        except StoreError as error:
            problem = str(error)
        if problem:
            problems.append(Problem(name, suspicions.UNUSABLE, problem, True))
    files = [file for file in listed.files if file.name in looks]
    hosts = {file.name: file.host for file in listed.files}
    problems += suspicions.suspect([looks[file.name] for file in files], now_ms)
    return Looked(files, looks, problems, sorted({*hosts.values(), *listed.unusable}))
