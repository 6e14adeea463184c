"""The sums of each group: hours, energy and cost of its people, from the same rollups as the rest of a report."""

import numpy as np
import pandas as pd

from gua_report.config import Config
from gua_report.people.groups import NO_GROUP, Memberships
from gua_report.people.identities import is_person
from gua_report.rollups.hourly_sums import Rollup
from gua_report.summary.tables import cost_of, known_kwh, state_codes
from gua_report.ticks.arrays import Floats
from gua_report.ticks.classify import CODE_OF
from gua_report.window import HOUR_MS
from gua_sample.policy import ACTIVE, IDLE_HELD, UNKNOWN

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


def sum_people(sums: Rollup, with_energy: bool = True) -> pd.DataFrame:
    person, names = pd.factorize(sums.identities["identity"], use_na_sentinel=False)
    nothing = np.zeros(len(person))
    joules, told_ms = _find_energy(sums.identities, sums.cards) if with_energy else (nothing, nothing)
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
    of, names = memberships.of, [str(who) for who in people.index]
    member = people[PERSON_SUMS].assign(
        people=[is_person(who) or who in of for who in names],
        group=pd.Series([of.get(who, (NO_GROUP,)) for who in names], people.index, dtype=object),
    )
    sums = member.explode("group").astype(dict.fromkeys([*PERSON_SUMS, "people"], "float64")).groupby("group").sum()
    added = sums.reindex([*config.groups, NO_GROUP], fill_value=0.0)
    active, idle, unknown = (added[name] / HOUR_MS for name in PERSON_SUMS[:3])
    hours, used = active + idle + unknown, active + idle
    energy = known_kwh(added["joules"], added["told_ms"], hours)
    idle_energy = known_kwh(added["idle_held_joules"], added["idle_held_told_ms"], idle)
    columns = [added["people"], hours, active, idle, unknown]
    columns += [idle / used.where(used > 0), energy, cost_of(idle, idle_energy, config)]
    return _rank(pd.DataFrame(dict(zip(GROUP_COLUMNS[1:], columns, strict=True)), dtype="float64"), memberships)


def _rank(frame: pd.DataFrame, memberships: Memberships) -> pd.DataFrame:
    """The rows in order; last those in no group, if there are any."""
    frame[frame.index.isin(memberships.unknown)] = np.nan
    frame = frame.rename_axis("group").reset_index().astype({"group": object})
    is_rest = frame["group"] == NO_GROUP
    order = ["idle_held_gpu_hours", "gpu_hours", "group"]
    ranked = frame[~is_rest].sort_values(order, ascending=[False, False, True], kind="stable")
    return pd.concat([ranked, frame[is_rest & (frame["gpu_hours"] > 0)]], ignore_index=True)


def _find_energy(presences: pd.DataFrame, cards: pd.DataFrame) -> tuple[Floats, Floats]:
    """The joules of each row of presences as far as known, and its milliseconds if they are.

    They are by the card's mean power in that hour, while it was in the state that the person was in; without a reading
    then, by that of the whole window.
    """
    read = cards[cards["energy_ms"] > 0]
    power = np.full(len(presences), np.nan)
    for key in (["hour_ms", "gpu_uuid", "state"], ["gpu_uuid", "state"]):
        sums = read.groupby(key)[["energy_joules", "energy_ms"]].sum().reindex(pd.MultiIndex.from_frame(presences[key]))
        mean = (sums["energy_joules"] / sums["energy_ms"]).to_numpy(dtype="float64")
        power = np.where(np.isnan(power), mean, power)
    weight_ms = presences["weight_ms"].to_numpy(dtype="float64")
    is_known = ~np.isnan(power)
    return np.where(is_known, power * weight_ms, 0.0), np.where(is_known, weight_ms, 0.0)
