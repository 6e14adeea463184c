"""Hourly sums of a day of ticks, from which every section of a report is made.

The report only adds these frames up, whether they were just computed or stored when the day was closed.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd

from gua_report.people.identities import UNATTRIBUTED
from gua_report.ticks.classify import ABSENT, CODES, RANKS, Classified
from gua_report.ticks.read_partition import Floats, Integers
from gua_report.ticks.tick_weights import Pieces, cut
from gua_report.window import HOUR_MS
from gua_sample.policy import IDLE_HELD, STATES, TRULY_IDLE

CARD_KEY = ["hour_ms", "gpu_uuid", "state"]  # a state is its position in STATES
# gpu_ms is scaled for MIG; energy_ms and memory_ms are the time for which energy and memory are known.
CARD_SUMS = ["weight_ms", "gpu_ms", "energy_joules", "energy_ms", "memory_mib_ms", "memory_ms"]
IDENTITY_KEY = ["hour_ms", "gpu_uuid", "identity", "state"]


class Rollup(NamedTuple):
    cards: pd.DataFrame  # CARD_KEY, CARD_SUMS
    identities: pd.DataFrame  # IDENTITY_KEY, weight_ms, gpu_ms
    holds: pd.DataFrame  # gpu_uuid, start_ms, end_ms, share: when a card was idle-held
    card_facts: pd.DataFrame  # uuid, gpu_index, mig_index, name, ...: as last known


def roll_up(
    day: Classified, inside: tuple[int, int], start_ms: int, end_ms: int, grid: tuple[int, int] = (0, HOUR_MS)
) -> Rollup:
    """The sums over the part of the day in the window; `grid` is the offset of hours from UTC's, and their length."""
    own = day.ticks.iloc[inside[0] : inside[1]]
    pieces = cut(own, start_ms, end_ms, *grid)
    pieces = pieces._replace(tick=pieces.tick + inside[0])
    return Rollup(
        _sum_cards(day, pieces),
        _sum_identities(day, pieces),
        clip_holds(_find_holds(day, inside), start_ms, end_ms),
        day.cards,
    )


def empty_rollup() -> Rollup:
    """The rollup of a time without any tick."""
    return Rollup(
        pd.DataFrame(columns=[*CARD_KEY, *CARD_SUMS]),
        pd.DataFrame(columns=[*IDENTITY_KEY, "weight_ms", "gpu_ms"]),
        pd.DataFrame(columns=["gpu_uuid", "start_ms", "end_ms", "share"]),
        pd.DataFrame(columns=["uuid", "gpu_index", "mig_index", "name", "parent_uuid", "memory_total_mib", "status"]),
    )


def clip_holds(holds: pd.DataFrame, start_ms: int, end_ms: int) -> pd.DataFrame:
    if not len(holds):
        return holds
    clipped = holds.assign(start_ms=holds["start_ms"].clip(start_ms), end_ms=holds["end_ms"].clip(upper=end_ms))
    return clipped[clipped["end_ms"] > clipped["start_ms"]]


def _sum_cards(day: Classified, pieces: Pieces) -> pd.DataFrame:
    hours, hour = np.unique(pieces.hour_ms, return_inverse=True)
    width = len(day.cards)
    states = day.states[pieces.tick]
    row, card = np.nonzero(states != ABSENT)
    code = (hour[row] * width + card) * len(STATES) + states[row, card]
    weight = pieces.weight_ms[row]
    tick_weight = day.ticks["weight_ms"].to_numpy()[pieces.tick[row]]
    energy = _energy_deltas(day)[pieces.tick[row], card] * (weight / tick_weight)
    known = ~np.isnan(energy)
    memory = day.memory_used_mib[pieces.tick[row], card]
    told = ~np.isnan(memory)
    sums = [
        weight,
        weight * day.shares[pieces.tick[row], card],
        np.where(known, energy, 0.0),
        np.where(known, weight, 0),
        np.where(told, memory * weight, 0.0),
        np.where(told, weight, 0),
    ]
    found, groups = _group(code, dict(zip(CARD_SUMS, sums, strict=True)))
    rest, state = np.divmod(found, len(STATES))
    hour_of, card_of = np.divmod(rest, width)
    keys = {
        "hour_ms": hours[hour_of],
        "gpu_uuid": day.cards["uuid"].to_numpy()[card_of],
        "state": state,
    }
    return pd.DataFrame({**keys, **groups})


def _energy_deltas(day: Classified) -> Floats:
    """The energy that each card used from each tick to the next; NaN if a counter is missing or was restarted."""
    deltas = np.full(day.energy_joules.shape, np.nan)
    deltas[:-1] = np.diff(day.energy_joules, axis=0)
    deltas[~day.ticks["joined"].to_numpy()] = np.nan
    deltas[deltas < 0] = np.nan
    return deltas


def _sum_identities(day: Classified, pieces: Pieces) -> pd.DataFrame:
    tick, card, identity, state, names = presences(day)
    # Repeat each presence for each piece of its tick.
    count = np.bincount(pieces.tick, minlength=len(day.ticks))
    begin = np.cumsum(count) - count
    times = count[tick]
    piece = np.repeat(begin[tick], times) + np.arange(times.sum()) - np.repeat(np.cumsum(times) - times, times)
    row = np.repeat(np.arange(len(tick)), times)
    hours, hour = np.unique(pieces.hour_ms, return_inverse=True)
    code = ((hour[piece] * len(day.cards) + card[row]) * len(names) + identity[row]) * len(STATES) + state[row]
    weight = pieces.weight_ms[piece]
    sums = {"weight_ms": weight, "gpu_ms": weight * day.shares[tick[row], card[row]]}
    found, groups = _group(code, sums)
    rest, state_of = np.divmod(found, len(STATES))
    rest, identity_of = np.divmod(rest, len(names))
    hour_of, card_of = np.divmod(rest, len(day.cards))
    keys = {
        "hour_ms": hours[hour_of],
        "gpu_uuid": day.cards["uuid"].to_numpy()[card_of],
        "identity": names[identity_of],
        "state": state_of,
    }
    return pd.DataFrame({**keys, **groups})


def presences(
    day: Classified,
) -> tuple[Integers, Integers, Integers, Integers, np.ndarray[tuple[int], np.dtype[np.object_]]]:
    """Presences as columns (tick, card, identity, state) and the names of identities.

    An identity is present once per tick and card, in the most active of its processes' states.
    """
    rows = day.processes[day.processes["counts"] & (day.processes["state"] != CODES[TRULY_IDLE])]
    identities = day.process_facts["identity"].to_numpy(dtype=object)
    code_of, names = pd.factorize(np.append(identities, UNATTRIBUTED))
    hidden_tick, hidden_card = np.nonzero(day.unattributed)
    tick = np.append(rows["tick"].to_numpy(), hidden_tick)
    card = np.append(rows["card"].to_numpy(), hidden_card)
    identity = np.append(code_of[rows["process"].to_numpy()], np.full(len(hidden_tick), code_of[-1]))
    state = np.append(rows["state"].to_numpy(), np.full(len(hidden_tick), CODES[IDLE_HELD]))
    place = (tick * len(day.cards) + card) * len(names) + identity
    order = np.lexsort((RANKS[state], place))
    best = order[np.append(place[order][1:] != place[order][:-1], True)] if len(order) else order
    return tick[best], card[best], identity[best], state[best], np.asarray(names, dtype=object)


def _find_holds(day: Classified, inside: tuple[int, int]) -> pd.DataFrame:
    """Each card's runs of joined idle-held ticks, without unattributed memory, which no holder could release."""
    own = slice(*inside)
    held = (day.states[own] == CODES[IDLE_HELD]) & ~day.unattributed[own]
    shares = day.shares[own]
    ticks = day.ticks.iloc[inside[0] : inside[1]]
    times, weights = ticks["ts_ms"].to_numpy(), ticks["weight_ms"].to_numpy()
    joined = ticks["joined"].to_numpy()
    card, tick = np.nonzero(held.T)
    if not len(card):
        return pd.DataFrame(columns=["gpu_uuid", "start_ms", "end_ms", "share"])
    goes_on = (card[1:] == card[:-1]) & (tick[1:] == tick[:-1] + 1) & joined[tick[:-1]]
    goes_on &= shares[tick[1:], card[1:]] == shares[tick[:-1], card[:-1]]
    first, last = np.flatnonzero(np.append(True, ~goes_on)), np.flatnonzero(np.append(~goes_on, True))
    return pd.DataFrame(
        {
            "gpu_uuid": day.cards["uuid"].to_numpy()[card[first]],
            "start_ms": times[tick[first]],
            "end_ms": times[tick[last]] + weights[tick[last]],
            "share": shares[tick[first], card[first]],
        }
    )


def _group(code: Integers, columns: dict[str, np.ndarray]) -> tuple[Integers, dict[str, np.ndarray]]:
    """The distinct codes, and the sums of each column by code."""
    found, group = np.unique(code, return_inverse=True)
    return found, {name: np.bincount(group, weights=values, minlength=len(found)) for name, values in columns.items()}
