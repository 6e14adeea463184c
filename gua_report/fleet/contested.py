"""One card on two hosts in the same hours: nobody knows whose these are, so they count for neither."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from gua_report.console.spelling import first_of
from gua_report.fleet.host_files import HostFile
from gua_report.fleet.look import Look
from gua_report.fleet.suspicions import MOST_SHOWN, SAME_CARD, Problem
from gua_report.rollups.hourly_sums import Rollup
from gua_report.rollups.index import open_rollups, read_index
from gua_report.window import HOUR_MS, number_of
from gua_sample.console import plural
from gua_sample.partition_names import DAY_MS
from gua_sample.policy import RULE, Policy

NO_CARD = "unknown:"  # what the uuid of a card begins with that could not tell it
Contested = dict[str, dict[str, list[int]]]  # by name of the file and uuid: hours since 1970


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
    policy: Policy  # days under others are in no report, and claim nothing

    def __call__(self, file: HostFile) -> dict[str, list[int]]:
        index = read_index(file.path, damaged=[])
        used = {number_of(day) for day, one in index.items() if (one.rule, one.origin.policy) == (RULE, self.policy)}
        query = """
            SELECT h.day_id * 24 + h.hour FROM card_hour h JOIN card c ON c.id = h.card_id
            WHERE c.uuid = :uuid AND h.weight_ms > 0 AND h.day_id BETWEEN :first AND :last
            UNION SELECT day_id * 24 + hour FROM unpartitioned_hour
            WHERE gpu_uuid = :uuid AND gpu_ms > 0 AND day_id BETWEEN :first AND :last
        """
        days = {"first": self.first_day, "last": self.last_day}
        with open_rollups(file.path) as connection:
            return {
                uuid: [
                    int(hour)
                    for (hour,) in connection.execute(query, {"uuid": uuid, **days})
                    if hour * HOUR_MS // DAY_MS in used
                ]
                for uuid in self.uuids[file.name]
            }


def find_contested(hours: dict[str, dict[str, Any]]) -> Contested:
    """The hours for which several files claim one card. `hours` are all that each claims: nonsense is no claim."""
    hours = {name: cards for name, cards in hours.items() if _is_claim(cards)}
    claims = Counter((uuid, hour) for cards in hours.values() for uuid, some in cards.items() for hour in some)
    contested: Contested = {}
    for name, cards in hours.items():
        for uuid, some in cards.items():
            if own := [hour for hour in some if claims[uuid, hour] > 1]:
                contested.setdefault(name, {})[uuid] = own
    return contested


def _is_claim(cards: Any) -> bool:
    """Whether a child's answer is hours by uuid; it is None where a file could not be read."""
    if not isinstance(cards, dict):
        return False
    return all(isinstance(hours, list) and all(type(hour) is int for hour in hours) for hours in cards.values())


def tell_contested(contested: Contested) -> list[Problem]:
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


def without_contested(sums: Rollup, contested: Mapping[str, Iterable[int]]) -> Rollup:
    """The sums without the hours for which another host claims the same card."""
    if not contested:
        return sums
    claimed = {(uuid, hour * HOUR_MS) for uuid, hours in contested.items() for hour in hours}

    def rest(frame: pd.DataFrame) -> pd.DataFrame:
        keys = zip(frame["gpu_uuid"].tolist(), (frame["hour_ms"] // HOUR_MS * HOUR_MS).tolist(), strict=True)
        return frame[[key not in claimed for key in keys]]

    return sums._replace(
        cards=rest(sums.cards),
        identities=rest(sums.identities),
        holds=_cut_holds(sums.holds, claimed),
        unpartitioned=rest(sums.unpartitioned) if len(sums.unpartitioned) else sums.unpartitioned,
    )


def _cut_holds(holds: pd.DataFrame, claimed: set[tuple[str, int]]) -> pd.DataFrame:
    rows = []
    for uuid, start_ms, end_ms, share in holds.itertuples(index=False, name=None):
        for hour_ms in range(start_ms // HOUR_MS * HOUR_MS, end_ms, HOUR_MS):
            if (uuid, hour_ms) not in claimed:
                rows.append((uuid, max(start_ms, hour_ms), min(end_ms, hour_ms + HOUR_MS), share))
    return pd.DataFrame(rows, columns=holds.columns)


def uncontested_episodes(episodes: pd.DataFrame, contested: Mapping[str, Iterable[int]]) -> pd.DataFrame:
    """The episodes without those on a card that another host claims meanwhile."""
    if not contested:
        return episodes
    times = zip(episodes["gpu_uuid"], episodes["start_ms"], episodes["end_ms"], strict=True)
    return episodes[[not _meets(contested.get(uuid, ()), start, end) for uuid, start, end in times]]


def _meets(hours: Iterable[int], start_ms: int, end_ms: int) -> bool:
    return any(start_ms < (hour + 1) * HOUR_MS and end_ms > hour * HOUR_MS for hour in hours)
