"""The state of every card and every process from each tick of a stretch of rows to the next.

The rule is in gua_sample/policy.py. Here stands what it is applied to: which tick is the other end of a tick's time,
and, of the processes, in sightings.py, who was only passing and who is alone on a card.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from gua_report.people.identities import apply_mapping, resolve
from gua_report.ticks.arrays import Booleans, Floats, Integers, pack
from gua_report.ticks.history import Stretch
from gua_report.ticks.mig_shares import weigh
from gua_report.ticks.read_partition import Rows
from gua_report.ticks.sightings import Ends, judge_processes, see_processes
from gua_sample.identity import find_slurm_job
from gua_sample.policy import (
    IDLE_HELD,
    MOST_ACTIVE_FIRST,
    STATES,
    STATUS_OK,
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


def classify(stretch: Stretch, policy: Policy, people: Mapping[str, str]) -> Classified:
    """Classify the rows of a stretch. `people` maps identities to people."""
    rows, ticks, inside = stretch
    card_of, cards = _cards(rows, inside)
    shape = len(ticks), len(cards)
    cell = pack((rows.cards.tick, card_of[rows.cards.card]), shape[1:])
    process_cell = pack((rows.processes.tick, card_of[rows.processes.card]), shape[1:])
    utilization, used, energy = (_table(shape, cell, values, np.nan) for values in rows.cards[2:])
    failed = _table(shape, cell, (rows.card_facts["status"] != STATUS_OK).to_numpy()[rows.cards.card], False)
    seen = _table(shape, cell, True, False)
    total = _sums(shape, process_cell, rows.processes.memory_mib)

    begin = see_end(utilization, failed, total, used, policy)
    ends = _find_ends(ticks, seen & ~begin.is_dark)
    process_facts = _process_facts(rows, people)
    sightings = see_processes(stretch, process_facts, process_cell, total, ends, policy)
    hidden = is_unattributed(used, total, policy)
    holds_on = hidden | sightings.holds_on | ~sightings.has_passing
    end = _other_end(begin, ends)
    faded = ends.before & has_faded(np.roll(utilization, 1, axis=0), utilization)
    was_over = ends.after & is_over(faded, end.utilization_percent, ticks["interval_ms"].to_numpy()[:, None])
    decided = card_states(begin, end, holds_on, was_over, policy)
    states = np.full(shape, ABSENT, np.int64)
    for state, mask in decided.items():
        states[mask & seen] = CODE_OF[state]
    weighed = weigh(rows, len(ticks))
    not_usable = _table(shape, cell, (rows.card_facts["status"] == UNPARTITIONED).to_numpy()[rows.cards.card], False)
    return Classified(
        rows,
        ticks,
        inside,
        cards,
        np.where(not_usable, NOT_USABLE, states),
        _table(shape, cell, weighed.shares, 1.0),
        energy,
        used,
        (states == CODE_OF[IDLE_HELD]) & hidden,
        judge_processes(sightings, decided, begin.is_dark, ends, policy),
        process_facts,
        weighed.gpus,
        weighed.unpartitioned,
    )


def _find_ends(ticks: pd.DataFrame, tells: Booleans) -> Ends:
    """Which ticks have ticks beside them that tell of the card, so that they can be judged together."""
    both = ticks["joined"].to_numpy(dtype=bool)[:-1, None] & tells[:-1] & tells[1:]
    nothing = np.zeros((1, tells.shape[1]), bool)
    return Ends(before=np.concatenate((nothing, both)), after=np.concatenate((both, nothing)))


def _other_end(begin: End, ends: Ends) -> End:
    """What the other end of each tick's time tells; the tick itself, if it has no other end."""
    return End(*(np.where(ends.after, np.roll(column, -1, axis=0), column) for column in begin))


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


def _sums(shape: tuple[int, int], cell: Integers, values: Floats) -> Floats:
    """The sum in each cell: 0 without values, NaN if one is unknown."""
    sums = np.bincount(cell, weights=values, minlength=shape[0] * shape[1])
    return sums.astype(float).reshape(shape)


def _process_facts(rows: Rows, people: Mapping[str, str]) -> pd.DataFrame:
    """The facts of processes, with identities mapped to people, Slurm jobs, and a key for pid and start time."""
    facts = rows.process_facts
    identities = pd.Series([apply_mapping(identity, people) for identity in resolve_all(facts)], dtype=object)
    # Other facts of a process, such as the command name, may change.
    start, starts = pd.factorize(facts["start_time_ms"].fillna(-1))
    key, _ = pd.factorize(pack((facts["pid"].to_numpy(), start), [len(starts) + 1]))
    cgroups = facts["cgroup"].tolist()
    jobs = {cgroup: find_slurm_job(cgroup) for cgroup in set(cgroups) if isinstance(cgroup, str)}
    slurm_job = pd.Series([jobs.get(cgroup) for cgroup in cgroups], dtype=object)
    return facts.assign(identity=identities, slurm_job=slurm_job, key=key)


def resolve_all(facts: pd.DataFrame) -> pd.Series[str]:
    """The identity of each row, from the columns `IDENTITY_FACTS`; each distinct set of facts is resolved once."""
    known = facts[IDENTITY_FACTS].astype(object)
    rows = list(known.where(known.notna(), None).itertuples(index=False, name=None))
    identities = {row: _resolve(*row) for row in dict.fromkeys(rows)}
    return pd.Series([identities[row] for row in rows], index=facts.index, dtype="str", name="identity")


def _resolve(uid: float | None, login_uid: float | None, *texts: str | None) -> str:
    return resolve(None if uid is None else int(uid), None if login_uid is None else int(login_uid), *texts)
