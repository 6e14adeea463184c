"""What hosts' figures add up to. A part is of one host or of many, and parts are added in any order.

All that adds up is a whole number: milliseconds, joules, counts. Shares and means are made from the sum.
"""

from __future__ import annotations

import json
from array import array
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from operator import add
from typing import Any, NamedTuple

from gua_report.fleet.typed import Kinds, typed
from gua_report.people.identities import is_person
from gua_report.window import number_of
from gua_sample.policy import STATES

Key = tuple[Any, ...]  # texts and whole numbers
Figures = dict[Key, Sequence[int]]


class Table(NamedTuple):
    """A table of figures: the types of its key, and how many numbers are added under each."""

    key: tuple[type, ...]
    width: int


TABLES = {
    "states": Table((str,), 4),  # gpu_ms, energy_joules, energy_ms, weight_ms
    "people": Table((str,), 10),  # by identity; PERSON_SUMS, meant gpu_ms, number of hosts, of episodes
    "week": Table((int,), 5),  # by hour; known, active and idle gpu_ms, free cards in millionths, hosts that know
    "trend": Table((int, int), 5),  # by start and end; gpu_ms by state, observed_ms
    "person_days": Table((str, int, int), 3),  # by person, start and end; gpu_ms that is active, idle-held, unknown
    "reclaim": Table((int,), 1),  # by idle time; freed gpu_ms
    "curve": Table((int,), 1),
    "gaps": Table((str,), 3),  # by kind; number, milliseconds, hosts
    "episodes": Table((), 2),  # of all; how many go on, meant gpu_ms of cards
    "drivers": Table((str,), 1),  # number of hosts
    "notes": Table((str,), 1),
}
HOURS_A_WEEK = 7 * 24
# Of a host and of all hosts: so many gaps, episodes that go on, others, and episodes of each person.
MOST_LISTED, MOST_OF_PERSON = 100, 5
# The columns of episodes and of gaps, with the types of their values.
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


CARD_KINDS: list[Kinds] = [(str,), (int,), (int, None), (str, None), (str, None), (list,), (int,), (int,), (bool,)]


class Unpartitioned(NamedTuple):
    uuid: str
    gpu_index: int
    gpu_ms: int


UNPARTITIONED_KINDS: list[Kinds] = [(str,), (int,), (int,)]


class HostSums(NamedTuple):
    """What is a host's own, and never added to another's."""

    name: str
    start_ms: int  # of its window, which begins with its oldest tick
    observed_ms: int
    newest_ms: int  # its newest tick
    state_ms: Sequence[int]
    before_ms: Sequence[int] | None  # by state, of the window before; None: too little of that was observed
    packed_cards: str  # CardSums as JSON, which takes a third of the memory: a fleet has thousands
    unpartitioned: list[Unpartitioned]
    lost: list[tuple[str, list[str]]]  # reasons, and the days that were left out for each
    doubtful: list[str]  # days whose figures may be wrong

    @property
    def cards(self) -> list[CardSums]:
        return [CardSums(*card) for card in json.loads(self.packed_cards)]


HOST_KINDS: list[Kinds] = [(str,), (int,), (int,), (int,), (list,), (list, None), (str,), (list,), (list,), (list,)]


def pack_cards(cards: list[CardSums]) -> str:
    return json.dumps(cards, separators=(",", ":"))


class Part(NamedTuple):
    hosts: list[HostSums]
    figures: dict[str, Figures]
    episodes: list[list[Any]]  # `first_episodes` in the order of the report: EPISODE_COLUMNS
    gaps: list[list[Any]]  # the longest first: GAP_COLUMNS


def nothing() -> Part:
    return Part([], {name: {} for name in TABLES}, [], [])


def add_part(total: Part, part: Part) -> Part:
    """Add a part to the total, which is changed."""
    total.hosts.extend(part.hosts)
    for name, figures in part.figures.items():
        own = total.figures[name]
        for key, values in figures.items():
            found = own.get(key)
            own[key] = values if found is None else _packed(map(add, found, values))
    episodes = first_episodes([*total.episodes, *part.episodes])
    gaps = sorted([*total.gaps, *part.gaps], key=rank_of_gap)[:MOST_LISTED]
    return total._replace(episodes=episodes, gaps=gaps)


def _packed(numbers: Iterable[int]) -> Sequence[int]:
    """The numbers in a third of a list's memory: a fleet has very many."""
    return array("q", numbers)


def first_episodes(episodes: list[list[Any]]) -> list[list[Any]]:
    """The longest of these that go on, the longest others, and the longest of each person."""
    ranked = sorted(episodes, key=_rank_of_episode)
    return [ranked[place] for place in find_first((row[4], bool(row[10])) for row in ranked)]


def find_first(episodes: Iterable[tuple[str, bool]]) -> list[int]:
    """The places of those to list among ordered episodes, of which these are whose each is, and whether it goes on."""
    seen: Counter[str | bool] = Counter()
    found = []
    for place, (identity, is_ongoing) in enumerate(episodes):
        seen.update([is_ongoing, identity])
        if seen[is_ongoing] <= MOST_LISTED or (is_person(identity) and seen[identity] <= MOST_OF_PERSON):
            found.append(place)
    return found


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

    Raises TypeError, ValueError or LookupError if it makes no sense: a file may have taken control of what sent it.
    """
    (found,), figures, episodes, gaps = value
    part = Part([_restore_host(found)], {}, _rows(episodes, EPISODE_COLUMNS), _rows(gaps, GAP_COLUMNS))
    if part.hosts[0].name != name or any(row[0] != name for row in [*part.episodes, *part.gaps]):
        raise ValueError("another host")
    for table, (key, width) in TABLES.items():
        kinds = [*((kind,) for kind in key), *[(int,)] * width]
        rows = [typed(row, kinds) for row in figures[table]]
        part.figures[table] = {tuple(row[: len(key)]): _packed(row[len(key) :]) for row in rows}
    if part.figures["states"].keys() != {(state,) for state in STATES} or not part.figures["episodes"]:
        raise ValueError("no sums")
    if any(slot >= HOURS_A_WEEK for (slot,) in part.figures["week"]):
        raise ValueError("no hour of a week")
    return part


def _restore_host(value: Any) -> HostSums:
    host = HostSums(*typed(value, HOST_KINDS))
    cards = host.cards
    for card in cards:
        typed(card, CARD_KINDS), _by_state(card.state_ms)
    unpartitioned = [Unpartitioned(*typed(one, UNPARTITIONED_KINDS)) for one in host.unpartitioned]
    for reason, days in host.lost:
        typed([reason, days[0]], [(str,), (str,)])
    for day in [*host.doubtful, *(day for _, days in host.lost for day in days)]:
        number_of(day)
    before_ms = None if host.before_ms is None else _by_state(host.before_ms)
    return host._replace(
        state_ms=_by_state(host.state_ms),
        before_ms=before_ms,
        packed_cards=pack_cards(cards),
        unpartitioned=unpartitioned,
    )


def _by_state(values: Any) -> Sequence[int]:
    return _packed(typed(values, [(int,)] * len(STATES)))


def _rows(rows: Any, columns: Mapping[str, Kinds]) -> list[list[Any]]:
    return [typed(row, columns.values()) for row in rows]
