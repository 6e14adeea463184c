"""The state of every card and every process at every tick of a stretch of rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from gua_report.people.identities import apply_mapping, resolve
from gua_report.ticks.read_partition import Floats, Integers, Rows
from gua_sample.policy import (
    IDLE_HELD,
    LONGEST_GAP_INTERVALS,
    MOST_ACTIVE_FIRST,
    STATES,
    STATUS_OK,
    TRULY_IDLE,
    Policy,
    hold_together,
    is_idle,
    is_large,
    is_unattributed,
    rests,
)
from gua_sample.policy import card_states as decide

Booleans = npt.NDArray[np.bool_]

ABSENT = -1
# The facts that determine a process's identity.
IDENTITY_FACTS = ["uid", "login_uid", "user", "login_user", "cgroup"]
CODES = {state: code for code, state in enumerate(STATES)}
RANKS = np.array([-MOST_ACTIVE_FIRST.index(state) for state in STATES])


class Classified(NamedTuple):
    """Cards as tables of ticks by cards, processes as columns sorted by process, card and tick."""

    ticks: pd.DataFrame  # with interval, weight and joined
    cards: pd.DataFrame  # uuid, gpu_index, mig_index, name, memory_total_mib, parent_uuid: as last known
    states: Integers  # [tick, card]; ABSENT where there was no such card
    shares: Floats  # [tick, card]: of a physical GPU, for MIG instances
    energy_joules: Floats  # [tick, card]: the counter
    memory_used_mib: Floats  # [tick, card]
    unattributed: Booleans  # [tick, card]: whether memory is held that no process shows
    processes: pd.DataFrame  # tick, card, key, process, state, counts, memory_mib, sm_percent
    process_facts: pd.DataFrame  # `process` is a position in it; with identity, and `key` for pid and start


def classify(
    rows: Rows,
    ticks: pd.DataFrame,
    policy: Policy,
    people: Mapping[str, str],
    inside: tuple[int, int] | None = None,
) -> Classified:
    """Classify rows. `ticks` are the rows' ticks with their weights; `people` maps identities to people.

    The facts of cards are taken from the ticks from position inside[0] to before inside[1], if given, else from all.
    """
    code, cards = _cards(rows, inside)
    shape = len(ticks), len(cards)
    cell = rows.cards.tick * shape[1] + code[rows.cards.card]
    process_cell = rows.processes.tick * shape[1] + code[rows.processes.card]
    utilization, used, energy = (_table(shape, cell, values) for values in rows.cards[2:])
    failed = np.zeros(shape[0] * shape[1], bool)
    failed[cell] = (rows.card_facts["status"] != STATUS_OK).to_numpy()[rows.cards.card]
    total = _sums(shape, process_cell, rows.processes.memory_mib)
    masks = decide(utilization, failed, total, used, policy)
    states = np.full(shape[0] * shape[1], ABSENT, np.int64)
    for state, mask in masks.items():
        states[cell] = np.where(mask[cell], CODES[state], states[cell])
    unattributed = (states == CODES[IDLE_HELD]) & is_unattributed(used, total, policy)
    processes, process_facts = _processes(rows, ticks, process_cell, states, total, policy, shape[1], people)
    return Classified(
        ticks,
        cards,
        states.reshape(shape),
        _shares(rows, cards, code, cell, shape),
        energy.reshape(shape),
        used.reshape(shape),
        unattributed.reshape(shape),
        processes,
        process_facts,
    )


def _cards(rows: Rows, inside: tuple[int, int] | None) -> tuple[Integers, pd.DataFrame]:
    """The card of each set of facts, and the last known facts of each card. A lost card gives only its uuid."""
    code, uuids = pd.factorize(rows.card_facts["uuid"])
    told = rows.card_facts.assign(uuid=code)
    if inside is not None:
        within = (rows.cards.tick >= inside[0]) & (rows.cards.tick < inside[1])
        told = told.iloc[np.unique(rows.cards.card[within])]
    known = told.groupby("uuid", sort=True).last().reindex(range(len(uuids)))
    return code.astype(np.int64), known.reset_index(drop=True).assign(uuid=np.asarray(uuids, dtype=object))


def _table(shape: tuple[int, int], cell: Integers, values: Floats) -> Floats:
    table = np.full(shape[0] * shape[1], np.nan)
    table[cell] = values
    return table


def _sums(shape: tuple[int, int], cell: Integers, values: Floats) -> Floats:
    """The sum in each cell: 0 without values, NaN if one is unknown."""
    size = shape[0] * shape[1]
    known = ~np.isnan(values)
    sums = np.bincount(cell[known], weights=values[known], minlength=size).astype(float)
    sums[cell[~known]] = np.nan
    return sums


def _shares(rows: Rows, cards: pd.DataFrame, code: Integers, cell: Integers, shape: tuple[int, int]) -> Floats:
    """The share of each card in a physical GPU: 1, or for a tick's MIG instances in proportion to their memory."""
    shares = np.ones(shape[0] * shape[1])
    parents, _ = pd.factorize(cards["parent_uuid"])
    is_instance = parents >= 0
    if not is_instance.any():
        return shares.reshape(shape)
    total = cards["memory_total_mib"].to_numpy(dtype="float64")
    total = np.where(np.isnan(total), np.nanmean(total) if not np.isnan(total).all() else 1.0, total)
    tick, card = np.divmod(cell, shape[1])
    mine = is_instance[card]
    family = tick[mine] * (parents.max() + 1) + parents[card[mine]]
    sums = np.bincount(family, weights=total[card[mine]])
    shares[cell[mine]] = total[card[mine]] / sums[family]
    return shares.reshape(shape)


def _processes(
    rows: Rows,
    ticks: pd.DataFrame,
    cell: Integers,
    states: Integers,
    total: Floats,
    policy: Policy,
    width: int,
    people: Mapping[str, str],
) -> tuple[pd.DataFrame, pd.DataFrame]:
    identities = [apply_mapping(identity, people) for identity in resolve_all(rows.process_facts)]
    facts = rows.process_facts.assign(identity=pd.Series(identities, dtype=object))
    # Pid and start identify a process; its other facts, such as the command name, may change.
    start, starts = pd.factorize(facts["start_time_ms"].fillna(-1))
    key_of, _ = pd.factorize(facts["pid"].to_numpy() * (len(starts) + 1) + start)
    key = key_of[rows.processes.process]
    tick = rows.processes.tick
    place = key * width + cell % width
    # Rows are in the order of ticks, unless one was written late; a stable sort keeps that order, and is faster.
    in_order = bool((np.diff(tick) >= 0).all())
    order = np.argsort(place, kind="stable") if in_order else np.lexsort((tick, place))
    key, tick, cell = key[order], tick[order], cell[order]
    memory = rows.processes.memory_mib[order]
    sm_percent = rows.processes.sm_percent[order]

    same = np.append(False, (key[1:] == key[:-1]) & (cell[1:] % width == cell[:-1] % width))
    times = ticks["ts_ms"].to_numpy()[tick]
    # Ticks are joined by the interval of the earlier one: at midnight, the later day's is not known yet.
    interval = ticks["interval_ms"].to_numpy()[np.append(tick[:1], tick[:-1])]
    recent = same & (np.diff(times, prepend=times[:1]) <= LONGEST_GAP_INTERVALS * interval)
    did_nothing_before = recent & np.append(False, sm_percent[:-1] == 0)

    large = is_large(memory, policy)
    has_large = np.zeros(len(states), bool)
    has_large[cell[large]] = True
    holds = large | hold_together(total[cell], has_large[cell], policy)
    idle = is_idle(states[cell] == CODES[IDLE_HELD], holds, rests(memory, sm_percent, policy), did_nothing_before)
    state = np.where(idle, CODES[IDLE_HELD], states[cell])
    # Such as a desktop beside an idle notebook, which holds the card.
    state = np.where(~idle & (state == CODES[IDLE_HELD]), CODES[TRULY_IDLE], state)
    frame = pd.DataFrame(
        {
            "tick": tick,
            "card": cell % width,
            "key": key,
            "process": rows.processes.process[order],
            "state": state,
            "counts": holds | (sm_percent > 0),
            "memory_mib": memory,
            "sm_percent": sm_percent,
        }
    )
    return frame, facts.assign(key=key_of)


def resolve_all(facts: pd.DataFrame) -> pd.Series[str]:
    """The identity of each row, from the columns `IDENTITY_FACTS`; each distinct set of facts is resolved once."""
    group = np.zeros(len(facts), dtype="int64")
    for column in IDENTITY_FACTS:
        # Not groupby: it drops, keeps or confuses missing values, depending on the column's type and pandas' version.
        codes, values = pd.factorize(facts[column])  # missing: -1
        group, _ = pd.factorize(group * (len(values) + 1) + codes + 1)
    # Groups are numbered in order of appearance, so the first rows give their identities in order.
    firsts = np.flatnonzero(~pd.Series(group).duplicated().to_numpy())
    distinct = facts[IDENTITY_FACTS].iloc[firsts].astype(object)
    identities = [
        resolve(_number(uid), _number(login_uid), _text(user), _text(login_user), _text(cgroup))
        for uid, login_uid, user, login_user, cgroup in distinct.itertuples(index=False, name=None)
    ]
    resolved = pd.Series(identities, dtype="str").take(group)
    return resolved.set_axis(facts.index).rename("identity")


def _number(value: Any) -> int | None:
    return None if pd.isna(value) else int(value)


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None
