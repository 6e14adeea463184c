"""The weight of MIG instances: the share of each in its physical card, and what of that card no instance covers."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd

from gua_report.ticks.arrays import Booleans, Floats, Integers, pack
from gua_report.ticks.read_partition import Rows
from gua_sample.policy import STATUS_OK, UNPARTITIONED

# Shares of a card that add up to 1, such as seven sevenths, may miss it by the last bits of a float.
NOTHING = 1e-9


class Weighed(NamedTuple):
    shares: Floats  # of each card-tick: 1, or the share of a MIG instance in its physical card
    gpus: list[str]  # uuids of the physical cards with MIG on
    unpartitioned: Floats  # [tick, GPU]: what no instance covers; 0 where MIG is off, or that is not told


def weigh(rows: Rows, ticks: int) -> Weighed:
    """Weigh all card-ticks of a stretch of so many ticks.

    An instance weighs its compute slices over the card's most, else its memory over the card's. Those that tell neither
    (files of an older gua) divide the card by their memory, or what is left beside others that do.
    """
    facts = rows.card_facts
    unusable = (facts["status"] == UNPARTITIONED).to_numpy()
    gpu, gpus = pd.factorize(facts["parent_uuid"].where(facts["parent_uuid"].notna() | ~unusable, facts["uuid"]))
    shares, shape = np.ones(len(rows.cards.tick)), (ticks, len(gpus))
    if not len(gpus):
        return Weighed(shares, [], np.zeros(shape))
    own = np.flatnonzero(gpu[rows.cards.card] >= 0)
    fact = rows.cards.card[own]
    family = pack((rows.cards.tick[own], gpu[fact]), shape[1:])  # a tick and a physical card
    told, by_slices, memory = _told(facts, unusable)

    def sums(values: Floats | Booleans) -> Floats:
        return np.bincount(family, weights=values, minlength=ticks * len(gpus)).astype(float)

    share = told[fact]
    is_told = ~np.isnan(share)
    left = np.clip(1 - sums(np.where(is_told, share, 0.0)), 0.0, 1.0)
    guess = np.where(is_told, 0.0, _by_siblings(memory[fact], family, ticks * len(gpus)))
    # All instances of an older file together are the card; a single one that does not tell gets no more than is left.
    guess *= np.minimum(1.0, left / np.maximum(sums(guess), NOTHING))[family]
    shares[own] = np.where(is_told, share, guess)
    counts = sums(np.ones(len(own)))
    claimed = (counts > 0) & (sums(by_slices[fact]) == counts) & (left > NOTHING)
    return Weighed(shares, [str(uuid) for uuid in gpus], np.where(claimed, left, 0.0).reshape(shape))


def _told(facts: pd.DataFrame, unusable: Booleans) -> tuple[Floats, Booleans, Floats]:
    """For each set of facts: the share that it tells, else NaN; whether it is by slices; the memory.

    A failed instance tells nothing by itself: it has what it had on the same day.
    """
    told = pd.DataFrame(
        {
            "slices": _ratio(facts["compute_slices"], facts["most_compute_slices"]),
            "memory": _ratio(facts["memory_total_mib"], facts["parent_memory_mib"]),
            "mib": facts["memory_total_mib"].where(facts["memory_total_mib"] > 0),
        }
    )
    known = told.groupby([facts["partition"], facts["uuid"]], sort=False).transform("last")
    told = told.where(facts["status"] == STATUS_OK, told.fillna(known))
    slices = told["slices"].mask(unusable, 0.0)  # a card without any instance: none of it is covered
    return slices.fillna(told["memory"]).to_numpy(), slices.notna().to_numpy(), told["mib"].to_numpy()


def _ratio(part: pd.Series[float], whole: pd.Series[float]) -> pd.Series[float]:
    ratio = part / whole
    return ratio.where((ratio > 0) & (ratio <= 1))  # else a file makes no sense


def _by_siblings(memory: Floats, family: Integers, families: int) -> Floats:
    """The share of each instance in the memory of its family. Where it is not known, the mean of the family counts."""
    known = ~np.isnan(memory)
    count = np.bincount(family, weights=known, minlength=families)
    total = np.bincount(family, weights=np.where(known, memory, 0.0), minlength=families)
    mean = np.where(count > 0, total / np.maximum(count, 1), 1.0)
    memory = np.where(known, memory, mean[family])
    return memory / np.bincount(family, weights=memory, minlength=families)[family]
