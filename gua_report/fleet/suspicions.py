"""What files tell about each other before they are added up: who is late, whose clock is off, what is there twice."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from gua_report.console.spelling import first_of
from gua_report.fleet.host_files import HostFile
from gua_report.fleet.look import Look
from gua_report.rollups.index import open_rollups
from gua_report.window import midnight_ms
from gua_sample.console import plural
from gua_sample.partition_names import DAY_MS

# Hosts roll up at 00:20 to 00:40 UTC, and then are collected. By six o'clock, yesterday has to be there.
COLLECTED_BY_MS = 6 * 3_600_000
CLOCK_OFF_MS = 300_000
NO_CARD = "unknown:"  # what the uuid of a card begins with that could not tell it
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


def find_shared_cards(looks: Iterable[Look]) -> dict[str, list[str]]:
    """The uuids of cards that several files have, for each of these files."""
    times = Counter(uuid for look in looks for uuid in set(look.uuids))
    found: dict[str, list[str]] = {}
    for look in looks:
        shared = [uuid for uuid in look.uuids if times[uuid] > 1 and not uuid.startswith(NO_CARD)]
        if shared:
            found[look.name] = shared
    return found


@dataclass(frozen=True)
class FindHours:
    """The work of finding the hours (since 1970) in which a file has some cards."""

    uuids: dict[str, list[str]]  # by name of the file
    first_day: int  # the number of the first and of the last day that matter
    last_day: int

    def __call__(self, file: HostFile) -> dict[str, list[int]]:
        query = """
            SELECT h.day_id * 24 + h.hour FROM card_hour h JOIN card c ON c.id = h.card_id
            WHERE c.uuid = :uuid AND h.day_id BETWEEN :first AND :last
            UNION SELECT day_id * 24 + hour FROM unpartitioned_hour
            WHERE gpu_uuid = :uuid AND day_id BETWEEN :first AND :last
        """
        days = {"first": self.first_day, "last": self.last_day}
        with open_rollups(file.path) as connection:
            return {
                uuid: [int(row[0]) for row in connection.execute(query, {"uuid": uuid, **days})]
                for uuid in self.uuids[file.name]
            }


def find_contested(hours: dict[str, dict[str, Any]]) -> dict[str, dict[str, list[int]]]:
    """The hours for which several files claim one card, by name of the file and uuid. `hours`: all that each claims."""
    claims = Counter((uuid, hour) for cards in hours.values() for uuid, some in cards.items() for hour in some)
    contested: dict[str, dict[str, list[int]]] = {}
    for name, cards in hours.items():
        for uuid, some in cards.items():
            if own := [hour for hour in some if claims[uuid, hour] > 1]:
                contested.setdefault(name, {})[uuid] = own
    return contested


def tell_contested(contested: dict[str, dict[str, list[int]]]) -> list[Problem]:
    """A problem for each host with such hours, which count for none of them."""
    claims: dict[tuple[str, int], list[str]] = defaultdict(list)
    for name, cards in contested.items():
        for uuid, hours in cards.items():
            for hour in hours:
                claims[uuid, hour].append(name)
    problems = []
    for name, cards in contested.items():
        also = dict.fromkeys(other for uuid, hours in cards.items() for hour in hours for other in claims[uuid, hour])
        others = first_of([other for other in also if other != name], MOST_SHOWN)
        total = sum(map(len, cards.values()))
        what = f"{plural(len(cards), 'card')} of it ({first_of(list(cards), 1)})"
        detail = f"{what} claimed by {others} too: {plural(total, 'hour')} of that count for neither"
        problems.append(Problem(name, SAME_CARD, detail, True))
    return problems
