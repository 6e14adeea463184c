"""The sums of each group: hours, energy and cost of its people, from the same rollups as the rest of a report."""

from __future__ import annotations

import numpy as np
import pandas as pd

from gua_report.config import Config
from gua_report.people.groups import NO_GROUP, Memberships
from gua_report.people.identities import is_person
from gua_report.rollups.hourly_sums import Rollup
from gua_report.summary.tables import cost_of, state_codes
from gua_report.ticks.arrays import Floats, Integers, pack
from gua_report.ticks.classify import CODE_OF
from gua_report.window import HOUR_MS
from gua_sample.policy import ACTIVE, IDLE_HELD, UNKNOWN

JOULES_PER_KWH = 3.6e6
GROUP_COLUMNS = [
    "group",
    "people",
    "gpu_hours",
    "active_gpu_hours",
    "idle_held_gpu_hours",
    "unknown_gpu_hours",
    "idle_held_share",
    "energy_kwh",
    "idle_held_cost",
]


# What is known of a person's hours: GPU time by state, energy, and the time for which that is known.
PERSON_SUMS = ["active_ms", "idle_held_ms", "unknown_ms", "joules", "told_ms", "idle_held_joules", "idle_held_told_ms"]


def sum_people(sums: Rollup) -> pd.DataFrame:
    """PERSON_SUMS of each identity, which is the index."""
    person, names = pd.factorize(sums.identities["identity"], use_na_sentinel=False)
    joules, told_ms = _find_energy(sums.identities, sums.cards)
    gpu_ms, state = sums.identities["gpu_ms"].to_numpy(dtype="float64"), state_codes(sums.identities)
    is_idle = state == CODE_OF[IDLE_HELD]
    columns = [gpu_ms * (state == CODE_OF[one]) for one in (ACTIVE, IDLE_HELD, UNKNOWN)]
    columns += [joules, told_ms, joules * is_idle, told_ms * is_idle]
    added = [np.bincount(person, values, len(names)) for values in columns]
    return pd.DataFrame(dict(zip(PERSON_SUMS, added, strict=True)), index=[str(who) for who in names])


def sum_groups(people: pd.DataFrame, memberships: Memberships, config: Config) -> pd.DataFrame:
    """A row for each group, those with the most idle-held hours first; last, if there is anybody, those in none.

    `people` are the sums of everybody who was seen. Who is in two groups counts in both. Of a group whose members are
    not all known, nothing is known.
    """
    names = [str(who) for who in people.index]
    groups = [*config.groups, NO_GROUP]
    number, member = _pairs(names, groups, memberships)

    def add_up(values: Floats) -> pd.Series[float]:
        """The sums by group of a value for each person."""
        return pd.Series(np.bincount(number, values[member], len(groups)), groups)

    added = {name: add_up(people[name].to_numpy(dtype="float64")) for name in PERSON_SUMS}
    active, idle, unknown = (added[name] / HOUR_MS for name in PERSON_SUMS[:3])
    hours, used = active + idle + unknown, active + idle
    # Where no reading tells, energy is unknown; where there are no hours, it is 0.
    energy = (added["joules"] / JOULES_PER_KWH).where((added["told_ms"] > 0) | (hours == 0))
    idle_energy = (added["idle_held_joules"] / JOULES_PER_KWH).where((added["idle_held_told_ms"] > 0) | (idle == 0))
    is_counted = np.array([is_person(who) or who in memberships.of for who in names], dtype="float64")
    columns = [add_up(is_counted), hours, active, idle, unknown]
    columns += [idle / used.where(used > 0), energy, cost_of(idle, idle_energy, config)]
    return _rank(pd.DataFrame(dict(zip(GROUP_COLUMNS[1:], columns, strict=True)), dtype="float64"), memberships)


def _rank(frame: pd.DataFrame, memberships: Memberships) -> pd.DataFrame:
    """The rows in order, with what is not known as such, and without those in no group if there are none."""
    frame[frame.index.isin(memberships.unknown)] = np.nan
    frame.insert(0, "group", frame.index.to_numpy(dtype=object))
    is_rest = frame["group"] == NO_GROUP
    order = ["idle_held_gpu_hours", "gpu_hours", "group"]
    ranked = frame[~is_rest].sort_values(order, ascending=[False, False, True], kind="stable")
    return pd.concat([ranked, frame[is_rest & (frame["gpu_hours"] > 0)]], ignore_index=True)


def _pairs(names: list[str], groups: list[str], memberships: Memberships) -> tuple[Integers, Integers]:
    """The positions of groups and of the people in them, a pair for each membership."""
    place = {group: position for position, group in enumerate(groups)}
    found = [
        (place[group], person) for person, who in enumerate(names) for group in memberships.of.get(who, (NO_GROUP,))
    ]
    pairs = np.array(found, dtype=np.int64).reshape(-1, 2)
    return pairs[:, 0], pairs[:, 1]


def _find_energy(presences: pd.DataFrame, cards: pd.DataFrame) -> tuple[Floats, Floats]:
    """The joules of each row of presences as far as known, and its milliseconds if they are.

    They are by the card's mean power in that hour, while it was in the state that the person was in; without a reading
    then, by that of the whole window.
    """
    own = len(cards)
    card, uuids = pd.factorize(cards["gpu_uuid"])
    of_person, theirs = pd.factorize(presences["gpu_uuid"])
    # Each presence is on a card that was seen in that hour.
    cell = np.concatenate((card, pd.Index(uuids).get_indexer(theirs)[of_person]))
    hour, _ = pd.factorize(np.concatenate([frame["hour_ms"].to_numpy(dtype=np.int64) for frame in (cards, presences)]))
    always = pack((cell, np.concatenate((state_codes(cards), state_codes(presences)))), [len(CODE_OF)])
    then = pack((hour, always), [len(uuids) * len(CODE_OF)])
    energy, known_ms = (cards[name].to_numpy(dtype="float64") for name in ("energy_joules", "energy_ms"))
    power = _mean_power(then, energy, known_ms)[own:]
    power = np.where(np.isnan(power), _mean_power(always, energy, known_ms)[own:], power)
    weight_ms = presences["weight_ms"].to_numpy(dtype="float64")
    is_known = ~np.isnan(power)
    return np.where(is_known, power * weight_ms, 0.0), np.where(is_known, weight_ms, 0.0)


def _mean_power(key: Integers, joules: Floats, known_ms: Floats) -> Floats:
    """Joules a millisecond of each row's key, by the first rows, which have readings; NaN where there are none."""
    found, place = np.unique(key, return_inverse=True)
    own = place[: len(joules)]
    sums, times = (np.bincount(own, values, len(found)) for values in (joules, known_ms))
    power = np.divide(sums, times, out=np.full(len(found), np.nan), where=times > 0)
    mean: Floats = power[place]
    return mean
