"""What a fleet's report has beside the tables of every report: those of hosts, and of their hours by group, person or
model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from gua_report.console.spelling import first_of
from gua_report.fleet.host_files import GroupsOfHosts, Look, groups_of
from gua_report.fleet.suspicions import MOST_SHOWN, SAME_CARD, Problem
from gua_report.fleet.together import PERSON_HOURS
from gua_report.people.groups import NO_GROUP
from gua_report.summary import tables
from gua_report.summary.groups import PERSON_SUMS
from gua_report.summary.of_hosts import BREAKDOWN_COLUMNS, GROUP, HOURS, MODEL, PERSON, host_of
from gua_report.ticks.classify import CODE_OF
from gua_report.window import HOUR_MS
from gua_sample.console import plural
from gua_sample.policy import ACTIVE, IDLE_HELD, STATES, UNKNOWN

SUMS = ["cards", "gpu_hours", *HOURS]
HELD, AT_WORK = (HOURS[STATES.index(state)] for state in (IDLE_HELD, ACTIVE))
MOST_COMPARED = 20  # hosts with the same card
NO_CARD = "unknown:"  # what the uuid of a card begins with that could not tell it
Frames = Mapping[str, pd.DataFrame]


def same_cards(claims: pd.DataFrame) -> list[Problem]:
    """Hosts with cards that another has at the same time: nobody knows whose hours these are."""
    told = claims[~claims["uuid"].astype(str).str.startswith(NO_CARD)].sort_values(["host", "uuid"])
    told = told.drop_duplicates(["host", "uuid"])
    # Not all with all: a thousand hosts that were cloned would be a million pairs for each card.
    pairs = told.merge(told.groupby("uuid").head(MOST_COMPARED), on="uuid", suffixes=("", "_other"))
    is_same = (pairs["start_ms"] <= pairs["end_ms_other"]) & (pairs["start_ms_other"] <= pairs["end_ms"])
    problems = []
    for host, own in pairs[is_same & (pairs["host"] != pairs["host_other"])].groupby("host"):
        uuids, others = own["uuid"].unique().tolist(), first_of(own["host_other"].unique().tolist(), MOST_SHOWN)
        what = f"{plural(len(uuids), 'card')} of it ({first_of(uuids, 1)}) claimed by {others} too, in the same days"
        detail = f"{what}: hours of both are counted, though one of them is wrong"
        problems.append(Problem(str(host), SAME_CARD, detail, False))
    return problems


def add_hosts_facts(frames: Frames, looks: Mapping[str, Look], groups: GroupsOfHosts, end_ms: int) -> pd.DataFrame:
    hosts = frames["hosts"].sort_values("host", ignore_index=True)
    names = hosts["host"].tolist()
    # Physical cards: MIG instances are parts of one.
    indexes = tables.concat([frames[name][["host", "index"]] for name in ("gpus", "unpartitioned")])
    cards = indexes.drop_duplicates().groupby("host").size().reindex(names, fill_value=0)
    total = hosts[HOURS].sum(axis=1)
    length_ms = end_ms - hosts["start_ms"]
    return hosts.assign(
        groups=[", ".join(groups_of(name, groups)) for name in names],
        cards=cards.to_numpy(),
        gpu_hours=total,
        idle_held_share=hosts[HELD] / total.where(total > 0),
        observed_seconds=hosts["observed_ms"] / 1000,
        coverage_share=hosts["observed_ms"] / length_ms.where(length_ms > 0),
        first_day=[looks[name].first_day for name in names],
        newest_day=[looks[name].newest_day for name in names],
        gua_version=pd.Series([looks[name].version for name in names], dtype=object),
        machine=pd.Series([looks[name].machine for name in names], dtype=object),
    )


def count_on_average(hosts: pd.DataFrame) -> pd.Series[float]:
    """The cards in each state on average; a reinstalled host has several files."""
    sums = hosts.groupby(hosts["host"].map(host_of))[[*HOURS, "observed_ms"]].sum()
    cards = sums[HOURS].div(sums["observed_ms"].where(sums["observed_ms"] > 0) / HOUR_MS, axis=0).sum()
    return pd.Series(cards.to_numpy(), index=pd.Index(STATES, name="state"))


def headline_of(hours: Sequence[float]) -> pd.DataFrame:
    return tables.headline(pd.DataFrame({"state": range(len(STATES)), "gpu_ms": np.array(hours) * HOUR_MS}))


def presences_of(people: pd.DataFrame) -> pd.DataFrame:
    states = np.repeat([CODE_OF[state] for state in (ACTIVE, IDLE_HELD, UNKNOWN)], len(people))
    gpu_ms = np.concatenate([people[name].to_numpy(dtype="float64") for name in PERSON_SUMS[:3]])
    return pd.DataFrame({"identity": people["identity"].tolist() * 3, "state": states, "gpu_ms": gpu_ms})


def heatmap(week: pd.DataFrame) -> pd.DataFrame:
    found = week.set_index("slot").reindex(range(tables.HOURS_A_WEEK)).astype("float64")
    active = found["active_ms"] / found["known_ms"].where(found["known_ms"] > 0)
    return tables.week_of(active, found["free_gpus"].where(found["observed_ms"] > 0))


def break_down(by: str, hosts: pd.DataFrame, frames: Frames, groups: GroupsOfHosts) -> pd.DataFrame:
    """Hours by group, person or model; the table of hosts has those by host."""
    if by == GROUP:
        found = _by_group(hosts, groups)
    elif by == MODEL:
        found = _by_model(frames["gpus"])
    elif by == PERSON:
        found = _by_person(frames["people"])
    else:
        return pd.DataFrame(columns=BREAKDOWN_COLUMNS)
    used = found["gpu_hours"] if by != PERSON else found[AT_WORK] + found[HELD]
    found = found.assign(idle_held_share=found[HELD] / used.where(used > 0)).rename_axis("name").reset_index()
    order = [HELD, "gpu_hours", "name"]
    return found.sort_values(order, ascending=[False, False, True], ignore_index=True)[BREAKDOWN_COLUMNS]


def _by_group(hosts: pd.DataFrame, groups: GroupsOfHosts) -> pd.DataFrame:
    """A host that is in two groups counts in both; whoever is in none is in a row of its own."""
    member = [groups_of(name, groups) or [NO_GROUP] for name in hosts["host"].tolist()]
    found = hosts.assign(name=pd.Series(member, hosts.index, dtype=object)).explode("name").groupby("name")
    names = [*groups, *([NO_GROUP] if [NO_GROUP] in member else [])]
    return found[SUMS].sum().assign(hosts=found.size()).reindex(names, fill_value=0)


def _by_model(gpus: pd.DataFrame) -> pd.DataFrame:
    named = gpus.assign(name=gpus["name"].fillna("unknown"))
    found, cards = named.groupby("name"), named.drop_duplicates(["name", "host", "index"])
    return found[SUMS[1:]].sum().assign(hosts=found["host"].nunique(), cards=cards.groupby("name").size())


def _by_person(people: pd.DataFrame) -> pd.DataFrame:
    hours = people.set_index("identity")[PERSON_SUMS[:3]] / HOUR_MS
    named = hours.set_axis(PERSON_HOURS, axis=1).reindex(columns=HOURS)
    return named.assign(hosts=people["hosts"].to_numpy(), cards=np.nan, gpu_hours=hours.sum(axis=1))
