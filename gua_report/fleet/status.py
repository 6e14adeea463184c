"""What `gua fleet status` says of each host: how old its file is, and what a report leaves out of it, or doubts."""

from __future__ import annotations

from typing import Any, NamedTuple

from gua_report.fleet.build import Mapped
from gua_report.fleet.look import Look
from gua_report.fleet.suspicions import KINDS, NO_DAY, end_ms
from gua_sample.policy import Policy

OK = "ok"


class HostStatus(NamedTuple):
    host: str
    state: str  # OK, or the most important of its problems, one of KINDS
    newest_day: str | None
    age_seconds: int | None  # since the end of that day
    days: int | None
    gua_version: str | None
    machine: str | None
    thresholds: dict[str, float] | None  # those of most days
    days_other: int | None  # of all days: those under other thresholds than the reader's, or by another rule
    problems: list[str]

    @property
    def is_bad(self) -> bool:
        return self.state not in (OK, NO_DAY)


def find_statuses(mapped: Mapped, policy: Policy, now_ms: int) -> list[HostStatus]:
    """A row for each host and each earlier file of one, by name."""
    looks, found = mapped.looked.looks, []
    for name in sorted({*looks, *(problem.host for problem in mapped.problems)}):
        own = [problem for problem in mapped.problems if problem.host == name]
        own.sort(key=lambda problem: KINDS.index(problem.kind))
        facts: list[Any] = _describe(looks[name], policy, now_ms) if name in looks else [None] * 7
        found.append(HostStatus(*(name, own[0].kind if own else OK, *facts, [problem.detail for problem in own])))
    return found


def _describe(look: Look, policy: Policy, now_ms: int) -> list[Any]:
    others = sum(days for found, days in look.thresholds if found != policy) + look.other_rule_days
    age = max(0, now_ms - end_ms(look)) // 1000
    usual = look.thresholds[0][0]._asdict() if look.thresholds else None
    return [look.newest_day, age, look.days, look.version, look.machine, usual, others]


def to_document(folder: str, statuses: list[HostStatus]) -> dict[str, Any]:
    """The JSON form. docs/fleet.md describes it."""
    bad = [status.host for status in statuses if status.is_bad]
    return {"schema_version": 1, "folder": folder, "with_problems": bad, "hosts": [s._asdict() for s in statuses]}
