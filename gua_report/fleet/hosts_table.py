"""The tables of hosts, and of their hours by group of hosts, by person, or by model of the card."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import pandas as pd

from gua_report.fleet.host_files import GroupsOfHosts, groups_of
from gua_report.fleet.look import Look
from gua_report.fleet.parts import HostSums
from gua_report.people.groups import NO_GROUP
from gua_report.summary.groups import PERSON_SUMS
from gua_report.summary.of_hosts import BREAKDOWN_COLUMNS, GROUP, HOST_COLUMNS, HOURS, MODEL, PERSON
from gua_report.window import HOUR_MS, Window
from gua_sample.policy import ACTIVE, IDLE_HELD, STATES

SUMS = ["cards", "gpu_hours", *HOURS]


def hosts_table(
    hosts: Iterable[HostSums], looks: Mapping[str, Look], window: Window, groups: GroupsOfHosts
) -> pd.DataFrame:
    """A row for each host that is in the report."""
    rows = []
    for host in hosts:
        look, total = looks[host.name], sum(host.state_ms)
        length_ms = window.end_ms - host.start_ms
        rows.append(
            (
                *(host.name, ", ".join(groups_of(host.name, groups)), _count_cards(host)),
                *(ms / HOUR_MS for ms in (total, *host.state_ms)),
                host.state_ms[STATES.index(IDLE_HELD)] / total if total else np.nan,
                *(host.observed_ms / 1000, host.observed_ms / length_ms if length_ms > 0 else np.nan),
                *(look.first_day, look.newest_day, look.version, look.machine),
            )
        )
    return pd.DataFrame(rows, columns=HOST_COLUMNS)


def _count_cards(host: HostSums) -> int:
    """The number of physical cards: MIG instances are parts of one."""
    return len({card.gpu_index for card in host.cards} | {one.gpu_index for one in host.unpartitioned})


def break_down(
    by: str, table: pd.DataFrame, hosts: Iterable[HostSums], people: pd.DataFrame, groups: GroupsOfHosts
) -> pd.DataFrame:
    """Hours by group of hosts, by person or by model; nothing if they are by host, as the table of hosts has these."""
    if by == GROUP:
        rows = _by_group(table, groups)
    elif by == MODEL:
        rows = _by_model(hosts)
    elif by == PERSON:
        rows = _by_person(people)
    else:
        return pd.DataFrame(columns=BREAKDOWN_COLUMNS)
    frame = pd.DataFrame(rows, columns=BREAKDOWN_COLUMNS[:-1])
    used = frame["gpu_hours"] if by != PERSON else frame[HOURS[STATES.index(ACTIVE)]] + frame["idle_held_gpu_hours"]
    frame["idle_held_share"] = frame["idle_held_gpu_hours"] / used.where(used > 0)
    order = ["idle_held_gpu_hours", "gpu_hours", "name"]
    return frame.sort_values(order, ascending=[False, False, True], ignore_index=True)


def _by_group(table: pd.DataFrame, groups: GroupsOfHosts) -> list[tuple[object, ...]]:
    """A host that is in two groups counts in both; whoever is in none is in a row of its own."""
    rows = []
    member = {name: groups_of(name, groups) or [NO_GROUP] for name in table["host"].tolist()}
    for group in [*groups, NO_GROUP]:
        own = table[[group in member[name] for name in table["host"].tolist()]]
        if len(own) or group != NO_GROUP:
            rows.append((group, len(own), *(float(own[name].sum()) for name in SUMS)))
    return rows


def _by_model(hosts: Iterable[HostSums]) -> list[tuple[object, ...]]:
    ms: dict[str, list[int]] = {}
    seen: dict[str, tuple[set[str], set[tuple[str, int]]]] = {}
    for host in hosts:
        for card in host.cards:
            model = card.name or "unknown"
            own = ms.setdefault(model, [0] * len(STATES))
            ms[model] = [one + more for one, more in zip(own, card.state_ms, strict=True)]
            names, cards = seen.setdefault(model, (set(), set()))
            names.add(host.name)
            cards.add((host.name, card.gpu_index))
    return [
        (model, len(seen[model][0]), len(seen[model][1]), sum(own) / HOUR_MS, *(one / HOUR_MS for one in own))
        for model, own in ms.items()
    ]


def _by_person(people: pd.DataFrame) -> list[tuple[object, ...]]:
    hours = [(people[name] / HOUR_MS).tolist() for name in PERSON_SUMS[:3]]
    rows = zip(people.index, people["hosts"], *hours, strict=True)
    return [
        (who, int(hosts), np.nan, active + idle + unknown, active, idle, np.nan, unknown)
        for who, hosts, active, idle, unknown in rows
    ]
