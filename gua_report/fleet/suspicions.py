"""A first look at all hosts of a fleet, and what their files show to be wrong: who is late, whose clock is off, what is
there twice. Without pandas.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from gua_report.console.spelling import duration, first_of
from gua_report.fleet.executors import Executor
from gua_report.fleet.host_files import HostFile, Listed, Look, LookAtFiles
from gua_report.summary.of_hosts import STOPPED, host_of, is_earlier
from gua_report.window import midnight_ms
from gua_sample.console import plural
from gua_sample.partition_names import DAY_MS

# Hosts roll up at 00:20 to 00:40 UTC, and then are collected. By six o'clock, yesterday has to be there.
COLLECTED_BY_MS = 6 * 3_600_000
NEW_MS = 2 * DAY_MS  # by then, a day of a new host is over
CLOCK_OFF_MS = 300_000
STOPPED_MS = 3_600_000  # without a tick
MOST_SHOWN = 3
AT_A_LOOK = 32  # files in a child

LATE, CLOCK, SAME_MACHINE, SAME_CARD = "late", "clock", "same machine", "same card"
UNUSABLE, DAYS, PLAIN_COPY, DOUBTFUL = "not usable", "days", "plain copy", "doubtful"
NO_DAY = "no day yet"
# What is said of a host in a word is the first of these that it has.
KINDS = (UNUSABLE, LATE, STOPPED, SAME_CARD, DAYS, CLOCK, SAME_MACHINE, DOUBTFUL, PLAIN_COPY, NO_DAY)


class Problem(NamedTuple):
    host: str
    kind: str
    detail: str
    is_left_out: bool  # something of the host is not in the report


class Looked(NamedTuple):
    files: list[HostFile]  # those that can be used
    looks: dict[str, Look]
    problems: list[Problem]
    hosts: list[str]  # all that are expected


def look_at_hosts(listed: Listed, executor: Executor, now_ms: int, is_thorough: bool = False) -> Looked:
    problems = [Problem(host, UNUSABLE, why, True) for host, why in listed.unusable.items()]
    looks: dict[str, Look] = {}
    for outcome in executor(listed.files, LookAtFiles(is_thorough), AT_A_LOOK):
        problems += [Problem(outcome.files[at].name, UNUSABLE, why, True) for at, why in outcome.problems.items()]
        for look in outcome.value or ():
            if look.days:
                looks[look.name] = look
            else:
                published_ms = look.changed_ms if look.published_ms is None else look.published_ms
                problems.append(without_days(look.name, published_ms, now_ms))
    files = [file for file in listed.files if file.name in looks]
    hosts = {file.name: file.host for file in listed.files}
    problems += suspect([looks[file.name] for file in files], now_ms)
    return Looked(files, looks, problems, sorted({*hosts.values(), *listed.unusable}))


def due_ms(now_ms: int) -> int:
    """The end of the newest day that every host must have been collected for."""
    return (now_ms - COLLECTED_BY_MS) // DAY_MS * DAY_MS


def without_days(name: str, published_ms: int, now_ms: int) -> Problem:
    """What a file without any day means: its host is new, or has rolled up nothing for days."""
    age_ms = now_ms - published_ms
    if age_ms < -CLOCK_OFF_MS:
        detail = f"no day of it is over yet, and the clock is off: it published {-age_ms // 60_000:,} minutes from now"
        return Problem(name, CLOCK, detail, False)
    if age_ms < NEW_MS:
        return Problem(name, NO_DAY, "no day of it is over yet", False)
    detail = f"published {duration(age_ms / 1000)} ago without any day: does gua-sample run there, and gua rollup?"
    return Problem(name, UNUSABLE, detail, True)


def end_ms(look: Look) -> int:
    return midnight_ms(look.newest_day) + DAY_MS


def clock_problem(look: Look, now_ms: int) -> str | None:
    """Why the host's clock, or ours, must be off by over five minutes; None if nothing tells so."""
    if look.published_ms is not None and look.published_ms > now_ms + CLOCK_OFF_MS:
        return f"published {(look.published_ms - now_ms) // 60_000:,} minutes from now"
    asked_ms = 0 if is_earlier(look.name) else look.asked_ms or 0
    if look.published_ms is not None and asked_ms > look.published_ms + CLOCK_OFF_MS:
        return f"published its file at least {(asked_ms - look.published_ms) // 60_000:,} minutes later than it says"
    newest_ms = max(look.newest_tick_ms or 0, end_ms(look) - DAY_MS)
    # Its file was written after its newest tick, and was changed no sooner than it was written.
    ahead_ms = newest_ms - min(look.changed_ms, now_ms)
    return f"has ticks of {ahead_ms // 60_000:,} minutes after its file" if ahead_ms > CLOCK_OFF_MS else None


def find_late(looks: Iterable[Look], until_ms: int) -> list[Problem]:
    problems = []
    for look in looks:
        days = -((end_ms(look) - until_ms) // DAY_MS)
        if days > 0 and not is_earlier(look.name):
            detail = f"newest day {look.newest_day}: {plural(days, 'day')} not collected"
            problems.append(Problem(look.name, LATE, detail, True))
    return problems


def suspect(looks: Sequence[Look], now_ms: int) -> list[Problem]:
    problems = []
    for look in looks:
        if clock := clock_problem(look, now_ms):
            problems.append(Problem(look.name, CLOCK, f"the clock is off by over five minutes: it {clock}", False))
        elif look.published_ms is not None and look.newest_tick_ms is not None and not is_earlier(look.name):
            silent_ms = look.published_ms - look.newest_tick_ms
            detail = f"the sampler seems to have stopped: no tick for {duration(silent_ms / 1000)} when it published"
            problems += [Problem(look.name, STOPPED, detail, False)] if silent_ms > STOPPED_MS else []
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
        for name in some if len({host_of(one) for one in some}) > 1 else ():
            others = first_of([other for other in some if other != name], MOST_SHOWN)
            problems.append(Problem(name, SAME_MACHINE, f"the same machine as {others}", False))
    return problems
