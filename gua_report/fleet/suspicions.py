"""What files tell about each other before they are added up: who is late, whose clock is off, what is there twice."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from gua_report.console.spelling import first_of
from gua_report.fleet.look import Look
from gua_report.window import midnight_ms
from gua_sample.console import plural
from gua_sample.partition_names import DAY_MS

# Hosts roll up at 00:20 to 00:40 UTC, and then are collected. By six o'clock, yesterday has to be there.
COLLECTED_BY_MS = 6 * 3_600_000
CLOCK_OFF_MS = 300_000
MOST_SHOWN = 3

LATE, CLOCK, SAME_MACHINE, SAME_CARD = "late", "clock", "same machine", "same card"
UNUSABLE, DAYS, PLAIN_COPY, DOUBTFUL = "not usable", "days", "plain copy", "doubtful"
NO_DAY = "no day yet"


class Problem(NamedTuple):
    host: str
    kind: str
    detail: str
    is_left_out: bool  # something of the host is not in the report


def due_ms(now_ms: int) -> int:
    """The end of the newest day that every host must have been collected for."""
    return (now_ms - COLLECTED_BY_MS) // DAY_MS * DAY_MS


def is_late(look: Look, now_ms: int) -> bool:
    return end_ms(look) < due_ms(now_ms)


def end_ms(look: Look) -> int:
    """The end of the newest day in the file."""
    return midnight_ms(look.newest_day) + DAY_MS


def clock_problem(look: Look, now_ms: int) -> str | None:
    """Why the host's clock, or ours, must be off by over five minutes; None if nothing tells so."""
    if look.published_ms is not None and look.published_ms > now_ms + CLOCK_OFF_MS:
        return f"published {(look.published_ms - now_ms) // 60_000:,} minutes from now"
    newest_ms = max(look.newest_tick_ms or 0, end_ms(look) - DAY_MS)
    # Its file was written after its newest tick, and was changed no sooner than it was written.
    ahead_ms = newest_ms - min(look.changed_ms, now_ms)
    return f"has ticks of {ahead_ms // 60_000:,} minutes after its file" if ahead_ms > CLOCK_OFF_MS else None


def suspect(looks: Sequence[Look], hosts: dict[str, str], now_ms: int) -> list[Problem]:
    """The problems that the files' own words show. `hosts` are the names of folders by name of the file."""
    problems = []
    for look in looks:
        is_current = look.name == hosts[look.name]  # not one from before the host was reinstalled
        if is_current and is_late(look, now_ms):
            days = (due_ms(now_ms) - end_ms(look)) // DAY_MS
            detail = f"newest day {look.newest_day}: {plural(days, 'day')} not collected"
            problems.append(Problem(look.name, LATE, detail, True))
        if clock := clock_problem(look, now_ms):
            problems.append(Problem(look.name, CLOCK, f"the clock is off by over five minutes: it {clock}", False))
        if not look.has_meta:
            detail = "a plain copy, not a published file: its version and machine, and whether it is whole, are unknown"
            problems.append(Problem(look.name, PLAIN_COPY, detail, False))
        problems += [Problem(look.name, DOUBTFUL, warning, True) for warning in look.warnings]
    return problems + _same_machines(looks)


def _same_machines(looks: Sequence[Look]) -> list[Problem]:
    names = defaultdict(list)
    for look in looks:
        if look.machine is not None:
            names[look.machine].append(look.name)
    problems = []
    for some in names.values():
        for name in some if len(some) > 1 else ():
            others = first_of([other for other in some if other != name], MOST_SHOWN)
            problems.append(Problem(name, SAME_MACHINE, f"the same machine as {others}", False))
    return problems
