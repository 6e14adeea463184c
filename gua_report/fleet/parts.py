"""What hosts' figures add up to. A part is of one host or of many, and parts are added in any order.

All that adds up is a whole number: milliseconds, joules, counts. Shares and means are made from the sum.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

Key = tuple[Any, ...]  # texts and whole numbers
Figures = dict[Key, list[int]]

# The figures that add up: how long the key is, and what is added.
# states: by state; gpu_ms, energy_joules, energy_ms, weight_ms
# people: by identity; PERSON_SUMS, meant gpu_ms, number of hosts
# week: by hour of the week; known, active and idle gpu_ms, free cards in millionths, hosts that know
# trend: by start and end; gpu_ms by state, observed_ms
# person_days: by person, start and end; gpu_ms that is active, idle-held, unknown
# reclaim, curve: by idle time; freed gpu_ms
# gaps: by kind; number, milliseconds, hosts
# episodes: of all; number, ongoing, meant gpu_ms of cards
# drivers, notes: by text; number of hosts
KEYS = {
    "states": 1,
    "people": 1,
    "week": 1,
    "trend": 2,
    "person_days": 3,
    "reclaim": 1,
    "curve": 1,
    "gaps": 1,
    "episodes": 0,
    "drivers": 1,
    "notes": 1,
}
MOST_LISTED = 100  # episodes, and gaps: so many of a host and of all hosts
# The columns of episodes, with the types of their values; that of None may be missing too.
EPISODE_COLUMNS = {
    "host": (str,),
    "gpu_uuid": (str,),
    "gpu_index": (int, None),
    "mig_index": (int, None),
    "identity": (str,),
    "pid": (int,),
    "command": (str, None),
    "start_ms": (int,),
    "end_ms": (int,),
    "peak_memory_mib": (float, None),
    "ongoing": (bool, None),
    "meant_seconds": (float,),
    "meant_reason": (str, None),
    "meant_until_ms": (float, None),
    "meant_now": (bool, None),
    "slurm_job": (str, None),
}
GAP_COLUMNS = {"host": (str,), "start_ms": (int,), "end_ms": (int,), "kind": (str,)}


class CardSums(NamedTuple):
    uuid: str
    gpu_index: int
    mig_index: int | None
    name: str | None
    parent_uuid: str | None
    state_ms: list[int]  # in the order of STATES
    idle_held_joules: int
    idle_held_energy_ms: int
    is_instant_only: bool


class Unpartitioned(NamedTuple):
    uuid: str
    gpu_index: int
    gpu_ms: int


class HostSums(NamedTuple):
    """What is a host's own, and never added to another's."""

    name: str
    start_ms: int  # of its window, which begins with its oldest tick
    observed_ms: int
    newest_ms: int  # its newest tick
    state_ms: list[int]
    before_ms: list[int] | None  # by state, of the window before; None: too little of that was observed
    cards: list[CardSums]
    unpartitioned: list[Unpartitioned]
    lost: list[tuple[str, list[str]]]  # reasons, and the days that were left out for each
    doubtful: list[str]  # days whose figures may be wrong


class Part(NamedTuple):
    hosts: list[HostSums]
    figures: dict[str, Figures]
    episodes: list[list[Any]]  # the first MOST_LISTED in the order of the report: EPISODE_COLUMNS
    gaps: list[list[Any]]  # the longest first: GAP_COLUMNS


def nothing() -> Part:
    return Part([], {name: {} for name in KEYS}, [], [])


def add_part(total: Part, part: Part) -> Part:
    """Add a part to the total, which is changed."""
    total.hosts.extend(part.hosts)
    for name, figures in part.figures.items():
        own = total.figures[name]
        for key, values in figures.items():
            found = own.get(key)
            own[key] = values if found is None else [one + other for one, other in zip(found, values, strict=True)]
    episodes = sorted([*total.episodes, *part.episodes], key=_rank_of_episode)[:MOST_LISTED]
    gaps = sorted([*total.gaps, *part.gaps], key=rank_of_gap)[:MOST_LISTED]
    return total._replace(episodes=episodes, gaps=gaps)


def _rank_of_episode(episode: list[Any]) -> Key:
    """Ongoing ones first, then the longest: the report's own order, and then by host."""
    host, gpu_uuid, _, _, _, pid, _, start_ms, end_ms, _, is_ongoing = episode[:11]
    return not is_ongoing, start_ms - end_ms, host, gpu_uuid, pid, start_ms


def rank_of_gap(gap: list[Any]) -> Key:
    host, start_ms, end_ms, _ = gap
    return start_ms - end_ms, start_ms, host


def to_plain(part: Part) -> list[Any]:
    """The part as lists, for JSON: a key and its values are one row."""
    figures = {name: [[*key, *values] for key, values in found.items()] for name, found in part.figures.items()}
    return [part.hosts, figures, part.episodes, part.gaps]


def restore_part(name: str, value: Any) -> Part:
    """The part of the host of that name from its JSON form.

    Raises TypeError, ValueError or KeyError if it makes no sense: a file may have taken control of what sent it.
    """
    (found,), figures, episodes, gaps = value
    host = HostSums(*found)
    cards = [CardSums(*card) for card in host.cards]
    host = host._replace(cards=cards, unpartitioned=[Unpartitioned(*one) for one in host.unpartitioned])
    numbers = [host.start_ms, host.observed_ms, host.newest_ms, *host.state_ms, *(host.before_ms or [])]
    numbers += [number for card in cards for number in (card.gpu_index, *card.state_ms, *card[6:8])]
    part = Part([host], {}, _typed(episodes, EPISODE_COLUMNS), _typed(gaps, GAP_COLUMNS))
    for table, width in KEYS.items():
        part.figures[table] = {tuple(row[:width]): row[width:] for row in figures[table]}
        numbers += [number for row in figures[table] for number in row[width:]]
    if host.name != name or any(row[0] != name for row in [*part.episodes, *part.gaps]):
        raise ValueError("another host")
    if not all(type(number) is int for number in numbers):
        raise TypeError("no number")
    return part


def _typed(rows: Any, columns: Mapping[str, tuple[type | None, ...]]) -> list[list[Any]]:
    """The rows, if each value has the type of its column. Raises TypeError otherwise."""
    for row in rows:
        for item, kinds in zip(row, columns.values(), strict=True):
            if type(item) not in kinds and not (item is None and None in kinds):
                raise TypeError("no such value")
    return list(rows)
