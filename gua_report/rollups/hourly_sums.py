"""Hourly sums of a day of ticks, computed or stored, which every section of a report only adds up."""

from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from gua_report.ticks.arrays import Floats, Integers, spread
from gua_report.ticks.classify import ABSENT, CODE_OF, NOT_USABLE, RANKS, Classified
from gua_report.ticks.read_partition import CARD_FACTS
from gua_report.ticks.tick_weights import Pieces, cut
from gua_report.window import HOUR_MS
from gua_sample.partition_names import DAY_MS
from gua_sample.policy import IDLE_HELD, STATES, TRULY_IDLE
from gua_sample.schema import UTILIZATION_SOURCES

CARD_KEY = ["hour_ms", "gpu_uuid", "state"]  # a state is its position in STATES
# gpu_ms is scaled for MIG; energy_ms and memory_ms are the time for which energy and memory are known.
CARD_SUMS = ["weight_ms", "gpu_ms", "energy_joules", "energy_ms", "memory_mib_ms", "memory_ms"]
IDENTITY_KEY = ["hour_ms", "gpu_uuid", "identity", "state"]
IDENTITY_SUMS = ["weight_ms", "gpu_ms"]
# 1: utilization was read at instants alone, and some readings were above 0; 0: at instants alone, and none was;
# missing: some readings were means, or it is not known.
INSTANT_ONLY = "instant_only"
RATE = UTILIZATION_SOURCES.index("rate")
HOLD_COLUMNS = ["gpu_uuid", "start_ms", "end_ms", "share"]
UNPARTITIONED_COLUMNS = ["hour_ms", "gpu_uuid", "gpu_ms"]  # of a physical card with MIG on


class Rollup(NamedTuple):
    cards: pd.DataFrame  # CARD_KEY, CARD_SUMS
    identities: pd.DataFrame  # IDENTITY_KEY, IDENTITY_SUMS
    holds: pd.DataFrame  # HOLD_COLUMNS: when a card was idle-held
    card_facts: pd.DataFrame  # uuid, gpu_index, mig_index, name, ...: as last known; and INSTANT_ONLY
    unpartitioned: pd.DataFrame  # UNPARTITIONED_COLUMNS: what no MIG instance covers, outside of all states


def roll_up(day: Classified, start_ms: int, end_ms: int, grid: tuple[int, int] = (0, HOUR_MS)) -> Rollup:
    """The sums over a part of the day; `grid` is the offset of hours from UTC's, and their length."""
    pieces = cut(day.ticks.iloc[day.inside], start_ms, end_ms, *grid)
    pieces = pieces._replace(tick=pieces.tick + day.inside.start)
    seen = (day.states[day.inside] != ABSENT).any(axis=0)
    return Rollup(
        _sum_cards(day, pieces),
        _sum_identities(day, pieces),
        clip_holds(_find_holds(day), start_ms, end_ms),
        day.cards.assign(**{INSTANT_ONLY: _find_instant_only(day, pieces)})[seen].astype({"gpu_index": "int64"}),
        _sum_unpartitioned(day, pieces),
    )


def empty_rollup() -> Rollup:
    return Rollup(
        pd.DataFrame(columns=[*CARD_KEY, *CARD_SUMS]),
        pd.DataFrame(columns=[*IDENTITY_KEY, *IDENTITY_SUMS]),
        pd.DataFrame(columns=HOLD_COLUMNS),
        pd.DataFrame(columns=[*CARD_FACTS, INSTANT_ONLY]),
        pd.DataFrame(columns=UNPARTITIONED_COLUMNS),
    )


def _find_instant_only(day: Classified, pieces: Pieces) -> Floats:
    rows = day.rows
    is_wanted = np.zeros(len(day.ticks), bool)
    is_wanted[pieces.tick] = True
    told = is_wanted[rows.cards.tick] & ~np.isnan(rows.cards.utilization_percent)
    card = pd.Index(day.cards["uuid"]).get_indexer(rows.card_facts["uuid"])[rows.cards.card[told]]
    busy, means = (
        np.bincount(card, weights=marks[told], minlength=len(day.cards)) > 0
        for marks in (rows.cards.utilization_percent > 0, rows.cards.source != RATE)
    )
    return np.where(means, np.nan, busy.astype(float))


def clip_holds(holds: pd.DataFrame, start_ms: int, end_ms: int) -> pd.DataFrame:
    if not len(holds) or (holds["start_ms"].min() >= start_ms and holds["end_ms"].max() <= end_ms):
        return holds
    clipped = holds.assign(start_ms=holds["start_ms"].clip(start_ms), end_ms=holds["end_ms"].clip(upper=end_ms))
    return clipped[clipped["end_ms"] > clipped["start_ms"]]


def _sum_cards(day: Classified, pieces: Pieces) -> pd.DataFrame:
    states = day.states[pieces.tick]
    row, card = np.nonzero((states != ABSENT) & (states != NOT_USABLE))
    tick, weight = pieces.tick[row], pieces.weight_ms[row]
    energy = _energy_deltas(day)[tick, card] * (weight / day.ticks["weight_ms"].to_numpy()[tick])
    known = ~np.isnan(energy)
    memory = day.memory_used_mib[tick, card]
    told = ~np.isnan(memory)
    sums = [
        weight,
        weight * day.shares[tick, card],
        np.where(known, energy, 0.0),
        np.where(known, weight, 0),
        np.where(told, memory * weight, 0.0),
        np.where(told, weight, 0),
    ]
    hours, hour = np.unique(pieces.hour_ms, return_inverse=True)
    codes = [hour[row], card, day.states[tick, card]]
    labels = [hours, day.cards["uuid"].to_numpy(), np.arange(len(STATES))]
    return _group(CARD_KEY, codes, labels, dict(zip(CARD_SUMS, sums, strict=True)))


def _sum_unpartitioned(day: Classified, pieces: Pieces) -> pd.DataFrame:
    if not day.mig_gpus:
        return pd.DataFrame(columns=UNPARTITIONED_COLUMNS)
    row, gpu = np.nonzero(day.unpartitioned[pieces.tick])
    weight = pieces.weight_ms[row] * day.unpartitioned[pieces.tick[row], gpu]
    hours, hour = np.unique(pieces.hour_ms, return_inverse=True)
    labels = [hours, np.array(day.mig_gpus, dtype=object)]
    return _group(UNPARTITIONED_COLUMNS[:2], [hour[row], gpu], labels, {"gpu_ms": weight})


def _energy_deltas(day: Classified) -> Floats:
    """The energy that each card used in each tick's time; NaN if a counter is missing or was restarted.

    Between midnight and a day's first tick, and between its last one and midnight, it goes on at the nearest rate.
    """
    times, weights = (day.ticks[name].to_numpy() for name in ("ts_ms", "weight_ms"))
    joined, is_lead = (day.ticks[name].to_numpy(dtype=bool) for name in ("joined", "is_lead"))
    deltas = np.full(day.energy_joules.shape, np.nan)
    deltas[:-1] = np.diff(day.energy_joules, axis=0)
    deltas[~joined | is_lead] = np.nan
    deltas[deltas < 0] = np.nan
    lead = np.flatnonzero(is_lead[:-1])
    tail = np.flatnonzero(~joined[1:] & ((times + weights)[1:] % DAY_MS == 0)) + 1
    for here, near in ((lead, lead + 1), (tail, tail - 1)):
        deltas[here] = deltas[near] * (weights[here] / weights[near])[:, None]
    return deltas


def _sum_identities(day: Classified, pieces: Pieces) -> pd.DataFrame:
    tick, card, identity, state, names = presences(day)
    # Repeat each presence for each piece of its tick.
    count = np.bincount(pieces.tick, minlength=len(day.ticks))
    first = np.cumsum(count) - count
    row, nth = spread(count[tick])
    piece = first[tick[row]] + nth
    weight = pieces.weight_ms[piece]
    sums = [weight, weight * day.shares[tick[row], card[row]]]
    hours, hour = np.unique(pieces.hour_ms, return_inverse=True)
    codes = [hour[piece], card[row], identity[row], state[row]]
    labels = [hours, day.cards["uuid"].to_numpy(), names, np.arange(len(STATES))]
    return _group(IDENTITY_KEY, codes, labels, dict(zip(IDENTITY_SUMS, sums, strict=True)))


def presences(
    day: Classified,
) -> tuple[Integers, Integers, Integers, Integers, np.ndarray[tuple[int], np.dtype[np.object_]]]:
    """Columns (tick, card, identity, most active state), and the names of identities."""
    rows = day.processes[day.processes["counts"] & (day.processes["state"] != CODE_OF[TRULY_IDLE])]
    code_of, names = pd.factorize(day.process_facts["identity"].to_numpy(dtype=object))
    tick, card, process, state = (rows[name].to_numpy() for name in ("tick", "card", "process", "state"))
    identity = code_of[process]
    place = np.ravel_multi_index((tick, card, identity), (len(day.ticks), len(day.cards), len(names)))
    order = np.lexsort((RANKS[state], place))
    best = order[np.append(place[order][1:] != place[order][:-1], True)] if len(order) else order
    return tick[best], card[best], identity[best], state[best], np.asarray(names, dtype=object)


def _find_holds(day: Classified) -> pd.DataFrame:
    """Runs of joined idle-held ticks, without unattributed memory, which no holder could release."""
    held = (day.states[day.inside] == CODE_OF[IDLE_HELD]) & ~day.unattributed[day.inside]
    card, tick = np.nonzero(held.T)
    if not len(card):
        return pd.DataFrame(columns=HOLD_COLUMNS)
    shares, ticks = day.shares[day.inside], day.ticks.iloc[day.inside]
    times, weights, joined = (ticks[name].to_numpy() for name in ("ts_ms", "weight_ms", "joined"))
    goes_on = (card[1:] == card[:-1]) & (tick[1:] == tick[:-1] + 1) & joined[tick[:-1]]
    goes_on &= shares[tick[1:], card[1:]] == shares[tick[:-1], card[:-1]]
    first, last = np.flatnonzero(np.append(True, ~goes_on)), np.flatnonzero(np.append(~goes_on, True))
    columns = [
        day.cards["uuid"].to_numpy()[card[first]],
        times[tick[first]],
        times[tick[last]] + weights[tick[last]],
        shares[tick[first], card[first]],
    ]
    return pd.DataFrame(dict(zip(HOLD_COLUMNS, columns, strict=True)))


def _group(key: list[str], codes: list[Integers], labels: list[Any], columns: dict[str, Any]) -> pd.DataFrame:
    """The sums of the columns by key. `codes` are positions in the labels of each name in the key."""
    sizes = [*map(len, labels)]
    found, group = np.unique(np.ravel_multi_index(codes, sizes), return_inverse=True)
    keys = {name: names[code] for name, names, code in zip(key, labels, np.unravel_index(found, sizes), strict=True)}
    sums = {name: np.bincount(group, weights=values, minlength=len(found)) for name, values in columns.items()}
    return pd.DataFrame({**keys, **sums})
