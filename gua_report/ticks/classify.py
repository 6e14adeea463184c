"""The state of every card and every process from each tick of a day, or of a part of it, to the next.

The rule is in gua_sample/policy.py. Here stands what it is applied to: which tick is the other end of a tick's time,
and, of the processes, in sightings.py, who was only passing and who is alone on a card.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from gua_report.people.identities import UNATTRIBUTED, apply_mapping, resolve
from gua_report.ticks.arrays import Booleans, Floats, Integers
from gua_report.ticks.history import History
from gua_report.ticks.read_partition import Rows
from gua_report.ticks.sightings import Ends, judge_processes, see_processes
from gua_report.ticks.tick_weights import weigh
from gua_sample.identity import find_slurm_job
from gua_sample.partition_names import day_of
from gua_sample.policy import (
    IDLE_HELD,
    MOST_ACTIVE_FIRST,
    STATES,
    STATUS_OK,
    TICKS_AROUND,
    UNPARTITIONED,
    End,
    Policy,
    card_states,
    has_faded,
    is_over,
    is_unattributed,
    see_end,
)

ABSENT = -1
NO_PID = 0  # of what holds memory that no process shows
NOT_USABLE = len(STATES)  # the code of an unpartitioned card, which is in none of the states
# The facts that determine a process's identity.
IDENTITY_FACTS = ["uid", "login_uid", "user", "login_user", "cgroup"]
CODE_OF = {state: code for code, state in enumerate(STATES)}
RANKS = np.array([-MOST_ACTIVE_FIRST.index(state) for state in STATES])


class Classified(NamedTuple):
    """Cards as tables of ticks by cards, processes as columns sorted by process, card and tick."""

    rows: Rows
    ticks: pd.DataFrame  # with interval, weight and joined
    inside: slice  # the ticks asked for; the others are context
    cards: pd.DataFrame  # uuid, gpu_index, mig_index, name, ...: as last known inside; missing if not seen there
    states: Integers  # [tick, card]; ABSENT where there was no such card, NOT_USABLE where it was unpartitioned
    shares: Floats  # [tick, card]: of a physical GPU, for MIG instances
    energy_joules: Floats  # [tick, card]: the counter
    memory_used_mib: Floats  # [tick, card]
    unattributed: Booleans  # [tick, card]: whether memory is held that no process shows
    processes: pd.DataFrame  # tick, card, key, process, state, counts, memory_mib, sm_percent
    process_facts: pd.DataFrame  # `process` is a position in it; with identity, slurm_job, and `key` for pid and start
    mig_gpus: list[str]  # uuids of physical cards with MIG on
    unpartitioned: Floats  # [tick, those]: what no instance of them covers


def read_classified(
    history: History, start_ms: int, end_ms: int, policy: Policy, people: Mapping[str, str]
) -> Classified | None:
    """The ticks that reach into a time of one UTC day; None if there are none, or they can't be read."""
    day = day_of(start_ms)
    ticks = history.weighed_ticks_of(day)
    times = ticks["ts_ms"].to_numpy()
    (inside,) = np.nonzero((times + ticks["weight_ms"].to_numpy() > start_ms) & (times < end_ms))
    if not len(inside):
        return None
    # Whether a process is idle depends on the tick before too, and ticks without cards may lie between.
    first = max(0, int(inside[0]) - TICKS_AROUND)
    ticks = ticks.iloc[first : inside[-1] + 1 + TICKS_AROUND].reset_index(drop=True)
    rows = history.read(day, ticks)
    own = slice(int(inside[0]) - first, int(inside[-1]) + 1 - first)
    return None if rows is None else _classify(rows, ticks, own, policy, people)


def _classify(rows: Rows, ticks: pd.DataFrame, inside: slice, policy: Policy, people: Mapping[str, str]) -> Classified:
    card_of, cards = _cards(rows, inside)
    shape = len(ticks), len(cards)
    samples = rows.cards, rows.processes
    cell, process_cell = (np.ravel_multi_index((some.tick, card_of[some.card]), shape) for some in samples)
    utilization, used, energy = (_table(shape, cell, values, np.nan) for values in rows.cards[2:5])
    status = rows.card_facts["status"].to_numpy()[rows.cards.card]
    failed = _table(shape, cell, status != STATUS_OK, False)
    seen = _table(shape, cell, True, False)
    # 0 without values, NaN if one is unknown.
    total = np.bincount(process_cell, rows.processes.memory_mib, shape[0] * shape[1]).astype(float).reshape(shape)

    begin = see_end(utilization, failed, total, used, policy)
    # Ticks beside each other that tell of a card can be judged together.
    tells, nothing = seen & ~begin.is_dark, np.zeros((1, shape[1]), bool)
    both = ticks["joined"].to_numpy(dtype=bool)[:-1, None] & tells[:-1] & tells[1:]
    ends = Ends(before=np.concatenate((nothing, both)), after=np.concatenate((both, nothing)))
    process_facts = _process_facts(rows, people)
    intervals = ticks["interval_ms"].to_numpy()
    sightings = see_processes(rows.processes, intervals, process_facts, process_cell, total, ends, policy)
    hidden = is_unattributed(used, total, policy)
    holds_on = hidden | sightings.holds_on | ~sightings.has_passing
    # What the other end of each tick's time tells; the tick itself, if it has no other end.
    end = End(*(np.where(ends.after, np.roll(column, -1, axis=0), column) for column in begin))
    faded = ends.before & has_faded(np.roll(utilization, 1, axis=0), utilization)
    was_over = ends.after & is_over(faded, end.utilization_percent, intervals[:, None])
    decided = card_states(begin, end, holds_on, was_over, policy)
    states = np.full(shape, ABSENT, np.int64)
    for state, mask in decided.items():
        states[mask & seen] = CODE_OF[state]
    unattributed = (states == CODE_OF[IDLE_HELD]) & hidden
    judged = judge_processes(sightings, decided, begin.is_dark, ends, policy)
    processes, process_facts = _add_unattributed(judged, process_facts, unattributed, used - total)
    states[_table(shape, cell, status == UNPARTITIONED, False)] = NOT_USABLE
    share, gpus, unpartitioned = weigh(rows, len(ticks))
    tables = states, _table(shape, cell, share, 1.0), energy, used, unattributed
    return Classified(rows, ticks, inside, cards, *tables, processes, process_facts, gpus, unpartitioned)


def _cards(rows: Rows, inside: slice) -> tuple[Integers, pd.DataFrame]:
    """The card of each set of facts, and the last known facts of each card. A lost card gives only its uuid."""
    card_of, uuids = pd.factorize(rows.card_facts["uuid"])
    told = np.zeros(len(card_of), bool)
    told[rows.cards.card[(rows.cards.tick >= inside.start) & (rows.cards.tick < inside.stop)]] = True
    known = rows.card_facts.assign(uuid=card_of)[told].groupby("uuid", sort=True).last().reindex(range(len(uuids)))
    return card_of.astype(np.int64), known.reset_index(drop=True).assign(uuid=np.asarray(uuids, dtype=object))


def _table(shape: tuple[int, int], cell: Integers, values: Any, otherwise: Any) -> Any:
    table = np.full(shape, otherwise)
    table.ravel()[cell] = values
    return table


def _process_facts(rows: Rows, people: Mapping[str, str]) -> pd.DataFrame:
    facts = rows.process_facts
    identities = pd.Series([apply_mapping(identity, people) for identity in resolve_all(facts)], dtype=object)
    # Other facts of a process, such as the command name, may change.
    numbers: dict[tuple[int, float], int] = {}
    processes = zip(facts["pid"], facts["start_time_ms"].fillna(-1), strict=True)
    key = np.array([numbers.setdefault(one, len(numbers)) for one in processes], dtype=np.int64)
    cgroups = facts["cgroup"].tolist()
    jobs = {cgroup: find_slurm_job(cgroup) for cgroup in set(cgroups) if isinstance(cgroup, str)}
    slurm_job = pd.Series([jobs.get(cgroup) for cgroup in cgroups], dtype=object)
    return facts.assign(identity=identities, slurm_job=slurm_job, key=key)


def _add_unattributed(
    processes: pd.DataFrame, facts: pd.DataFrame, unattributed: Booleans, hidden_mib: Floats
) -> tuple[pd.DataFrame, pd.DataFrame]:
    card, tick = np.nonzero(unattributed.T)
    if not len(tick):
        return processes, facts
    key = int(facts["key"].max()) + 1 if len(facts) else 0  # the last one, as processes are in order of keys
    hidden = pd.DataFrame(
        {
            "tick": tick,
            "card": card,
            "key": key,
            "process": len(facts),
            "state": CODE_OF[IDLE_HELD],
            "counts": True,
            "memory_mib": hidden_mib[tick, card],
            "sm_percent": np.nan,
        }
    )
    nobody = pd.DataFrame([{"pid": NO_PID, "identity": UNATTRIBUTED, "key": key}]).reindex(columns=facts.columns)
    both = [(processes, hidden), (facts, nobody)]
    found = [pd.concat([one for one in frames if len(one)], ignore_index=True) for frames in both]
    return found[0], found[1]


def resolve_all(facts: pd.DataFrame) -> pd.Series[str]:
    columns = ([None if pd.isna(value) else value for value in facts[name]] for name in IDENTITY_FACTS)
    rows = list(zip(*columns, strict=True))
    identities = {row: _resolve(*row) for row in dict.fromkeys(rows)}
    return pd.Series([identities[row] for row in rows], index=facts.index, dtype="str", name="identity")


def _resolve(uid: float | None, login_uid: float | None, *texts: str | None) -> str:
    return resolve(None if uid is None else int(uid), None if login_uid is None else int(login_uid), *texts)
