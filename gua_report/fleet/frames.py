"""The frames of a fleet's report, from the sum of its hosts' parts. Shares and means are made here, after the sum."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from gua_report.config import Config
from gua_report.fleet.parts import EPISODE_COLUMNS, HOURS_A_WEEK, CardSums, Figures, HostSums, Part
from gua_report.people.groups import Memberships
from gua_report.summary.groups import PERSON_SUMS, sum_groups
from gua_report.summary.of_hosts import host_of
from gua_report.summary.over_time import HOLDER_STATES
from gua_report.summary.tables import IDENTITY_COLUMNS, cost_of, sort_identities, week_of
from gua_report.window import HOUR_MS
from gua_sample.policy import IDLE_HELD, STATES

MILLIONTHS = 1e6
JOULES_PER_KWH = 3.6e6
STATE_HOURS = {state: f"{state.replace('-', '_')}_gpu_hours" for state in STATES}


def headline(state_ms: Sequence[int]) -> pd.DataFrame:
    hours = pd.Series(state_ms, index=pd.Index(STATES, name="state"), dtype="float64") / HOUR_MS
    total = hours.sum()
    return pd.DataFrame({"share": hours / total if total else np.nan, "gpu_hours": hours})


def capacity(part: Part, config: Config) -> pd.DataFrame:
    """The hours by state. On average over a host's observed time, that is so many of its cards: these are added up."""
    sums = pd.DataFrame([part.figures["states"].get((state,), [0] * 4) for state in STATES], dtype="float64")
    sums.index = pd.Index(STATES, name="state")
    hours, energy_ms = sums[0] / HOUR_MS, sums[2]
    energy_kwh = (sums[1] / JOULES_PER_KWH).where((energy_ms > 0) | (hours == 0))
    equivalent = sum((_equivalent(*sums) for sums in _by_host(part.hosts).values()), np.zeros(len(STATES)))
    frame = pd.DataFrame({"gpu_hours": hours, "equivalent_gpus": equivalent, "energy_kwh": energy_kwh})
    return frame.assign(cost=cost_of(hours, energy_kwh, config))


def _by_host(hosts: list[HostSums]) -> dict[str, tuple[Sequence[int], int]]:
    """The time by state, and that observed, of each host: one that was reinstalled has several files."""
    found: dict[str, tuple[Sequence[int], int]] = {}
    for host in hosts:
        state_ms, observed_ms = found.get(host_of(host.name), ([0] * len(STATES), 0))
        added = [one + other for one, other in zip(state_ms, host.state_ms, strict=True)]
        found[host_of(host.name)] = added, observed_ms + host.observed_ms
    return found


def _equivalent(state_ms: Sequence[int], observed_ms: int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return np.array(state_ms, dtype="float64") / observed_ms if observed_ms else np.zeros(len(state_ms))


def energy_known_share(part: Part) -> float | None:
    known_ms, all_ms = (sum(row[place] for row in part.figures["states"].values()) for place in (2, 3))
    return known_ms / all_ms if all_ms else None


def unpartitioned(part: Part) -> pd.DataFrame:
    rows = [
        (
            host.name,
            one.uuid,
            one.gpu_index,
            one.gpu_ms / HOUR_MS,
            one.gpu_ms / host.observed_ms if host.observed_ms else 0,
        )
        for host in part.hosts
        for one in host.unpartitioned
    ]
    frame = pd.DataFrame(rows, columns=["host", "uuid", "index", "gpu_hours", "equivalent_gpus"])
    return frame.astype({"gpu_hours": "float64", "equivalent_gpus": "float64"})


def reclaim(figures: Figures) -> pd.DataFrame:
    rows = [(after_ms / 1000, freed_ms / HOUR_MS) for (after_ms,), (freed_ms,) in sorted(figures.items())]
    return pd.DataFrame(rows, columns=["after_seconds", "freed_gpu_hours"], dtype="float64")


def gpus(hosts: list[HostSums], config: Config) -> pd.DataFrame:
    """All cards, by host and then in the order of a host's own report."""
    rows = [_card(host.name, card) for host in hosts for card in host.cards]
    names = ["host", "uuid", "index", "mig_index", "name", "parent_uuid", "gpu_hours"]
    names += [column for state in STATES for column in (STATE_HOURS[state], f"{state.replace('-', '_')}_share")]
    frame = pd.DataFrame(rows, columns=[*names, "joules", "energy_ms"])
    numbers = [*names[6:], "mig_index", "joules", "energy_ms"]
    frame = frame.astype(dict.fromkeys(numbers, "float64"))
    hours = frame[STATE_HOURS[IDLE_HELD]]
    energy_kwh = (frame["joules"] / JOULES_PER_KWH).where((frame["energy_ms"] > 0) | (hours == 0))
    frame["idle_held_cost"] = cost_of(hours, energy_kwh, config).to_numpy(dtype="float64")
    return frame.drop(columns=["joules", "energy_ms"])


def _card(host: str, card: CardSums) -> tuple[object, ...]:
    total = sum(card.state_ms)
    shares = [ms / total if total else np.nan for ms in card.state_ms]
    pairs = zip((ms / HOUR_MS for ms in card.state_ms), shares, strict=True)
    states = [value for pair in pairs for value in pair]
    facts = (card.uuid, card.gpu_index, card.mig_index, card.name, card.parent_uuid)
    return host, *facts, total / HOUR_MS, *states, card.idle_held_joules, card.idle_held_energy_ms


def people(part: Part) -> pd.DataFrame:
    """PERSON_SUMS of each identity, which is the index, with meant_ms and hosts."""
    names = [str(who) for (who,) in part.figures["people"]]
    columns = [*PERSON_SUMS, "meant_ms", "hosts", "episodes"]
    return pd.DataFrame(list(part.figures["people"].values()), names, columns, dtype="float64")


def identities(sums: pd.DataFrame, config: Config) -> pd.DataFrame:
    active, idle, unknown = (sums[name] / HOUR_MS for name in PERSON_SUMS[:3])
    used = active + idle
    price = np.nan if config.price_per_gpu_hour is None else config.price_per_gpu_hour
    columns = [used + unknown, active, idle, unknown, idle / used.where(used > 0), idle * price]
    columns.append(sums["meant_ms"] / HOUR_MS)
    frame = pd.DataFrame({"identity": sums.index.to_numpy(dtype=object)})
    for name, values in zip(IDENTITY_COLUMNS[1:], columns, strict=True):
        frame[name] = values.to_numpy()
    return sort_identities(frame)


def groups(sums: pd.DataFrame, memberships: Memberships, config: Config) -> pd.DataFrame:
    return sum_groups(sums[PERSON_SUMS], memberships, config)


def heatmap(figures: Figures) -> pd.DataFrame:
    active, free = (pd.Series(np.nan, index=range(HOURS_A_WEEK)) for _ in range(2))
    for (slot,), (known_ms, active_ms, _, free_millionths, hosts) in figures.items():
        if known_ms:
            active[slot] = active_ms / known_ms
        if hosts:
            free[slot] = free_millionths / MILLIONTHS
    return week_of(active, free)


def trend(figures: Figures, hosts: int) -> pd.DataFrame:
    """The hours of each cell. A cell's observed time is the mean of the hosts'."""
    hours = list(STATE_HOURS.values())
    rows = [
        (*cell, observed_ms / 1000 / max(hosts, 1), *(ms / HOUR_MS for ms in state_ms))
        for cell, (*state_ms, observed_ms) in sorted(figures.items())
    ]
    return pd.DataFrame(rows, columns=["start_ms", "end_ms", "observed_seconds", *hours])


def identity_days(figures: Figures) -> pd.DataFrame:
    hours = [STATE_HOURS[state] for state in HOLDER_STATES]
    rows = [(*key, *(ms / HOUR_MS for ms in values)) for key, values in sorted(figures.items())]
    frame = pd.DataFrame(rows, columns=["identity", "start_ms", "end_ms", *hours])
    return frame.astype({"start_ms": "int64", "end_ms": "int64", **dict.fromkeys(hours, "float64")})


def episodes(part: Part) -> pd.DataFrame:
    frame = pd.DataFrame(part.episodes, columns=list(EPISODE_COLUMNS))
    kinds = {"pid": "int64", "start_ms": "int64", "end_ms": "int64"}
    kinds |= dict.fromkeys(("gpu_index", "mig_index", "peak_memory_mib", "meant_seconds", "meant_until_ms"), "float64")
    kinds |= dict.fromkeys(("gpu_uuid", "identity", "command", "meant_reason", "slurm_job"), "object")
    frame = frame.astype(kinds)
    frame["seconds"] = (frame["end_ms"] - frame["start_ms"]) / 1000
    return frame


def gaps(part: Part) -> pd.DataFrame:
    """The longest gaps of all hosts, by host and time."""
    frame = pd.DataFrame(part.gaps, columns=["host", "start_ms", "end_ms", "kind"])
    frame = frame.astype({"start_ms": "int64", "end_ms": "int64"})
    return frame.sort_values(["host", "start_ms"], ignore_index=True)[["start_ms", "end_ms", "kind", "host"]]
