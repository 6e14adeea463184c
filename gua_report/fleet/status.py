"""What `gua fleet status` says of each host: how old its file is, and whether it can be used. Without pandas."""

from __future__ import annotations

from typing import Any, NamedTuple

from gua_report.fleet.look import Look
from gua_report.fleet.look_at_hosts import Looked
from gua_report.fleet.suspicions import NO_DAY, due_ms, end_ms, find_late
from gua_sample.policy import Policy

OK, LATE, UNUSED = "ok", "late", "not usable"


class HostStatus(NamedTuple):
    host: str
    state: str  # OK, LATE, UNUSED or NO_DAY
    newest_day: str | None
    age_seconds: int | None  # since the end of that day
    days: int | None
    gua_version: str | None
    machine: str | None
    thresholds: dict[str, float] | None  # those of most days
    days_other: (
        int | None
    )  # days that a report leaves out: under other thresholds than the reader's, or by an older rule
    problems: list[str]

    @property
    def is_bad(self) -> bool:
        return self.state in (LATE, UNUSED)


def find_statuses(looked: Looked, policy: Policy, now_ms: int) -> list[HostStatus]:
    """A row for each host and each earlier file of one, by name."""
    found = []
    for name in sorted({*looked.looks, *(problem.host for problem in looked.problems)}):
        own = [problem for problem in looked.problems if problem.host == name]
        look = looked.looks.get(name)
        if look is None:
            state = NO_DAY if any(problem.kind == NO_DAY for problem in own) else UNUSED
            details = [problem.detail for problem in own]
            found.append(HostStatus(name, state, *(None,) * 7, details))
        else:
            late = find_late([look], due_ms(now_ms))
            found.append(_describe(look, bool(late), [problem.detail for problem in [*late, *own]], policy, now_ms))
    return found


def _describe(look: Look, is_late: bool, problems: list[str], policy: Policy, now_ms: int) -> HostStatus:
    under = sum(days for found, days in look.thresholds if found != policy)
    others = under + look.older_rule_days
    if under:
        problems = [*problems, f"{under:,} of {look.days:,} days are under other thresholds"]
    if look.older_rule_days:
        problems = [*problems, f"{look.older_rule_days:,} of {look.days:,} days are by an older rule"]
    age = max(0, now_ms - end_ms(look)) // 1000
    usual = look.thresholds[0][0]._asdict() if look.thresholds else None
    state = UNUSED if others >= look.days else LATE if is_late else OK
    return HostStatus(
        *(look.name, state, look.newest_day, age, look.days, look.version, look.machine, usual, others, problems)
    )


def to_document(folder: str, statuses: list[HostStatus]) -> dict[str, Any]:
    """The JSON form. docs/fleet.md describes it."""
    late = [status.host for status in statuses if status.is_bad]
    return {"schema_version": 1, "folder": folder, "late_or_not_usable": late, "hosts": [s._asdict() for s in statuses]}
