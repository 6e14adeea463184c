"""A day's edges are weighed by its neighbours' ticks: which of these are missing, and which days still need them."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from gua_report.rollups.index import Stored
from gua_report.rollups.reader import read_days
from gua_report.rollups.usable import with_neighbours
from gua_report.ticks.history import History
from gua_report.window import midnight_ms
from gua_sample.errors import CorruptPartition, NewerPartition
from gua_sample.partition_names import DAY_MS, day_of

Index = Mapping[str, Stored]


def beside(day: str) -> tuple[str, str]:
    """The day before and the day after."""
    return day_of(midnight_ms(day) - DAY_MS), day_of(midnight_ms(day) + DAY_MS)


def missing_edges(history: History, index: Index, day: str) -> list[bool]:
    """Whether the ticks of the day before, and of the day after, are missing: a rollup would lack that edge."""
    found = []
    for near in beside(day):
        history.ticks_of(near)  # marks the day as unreadable if it is
        found.append(near in (history.unreadable if near in history.paths else index))
    return found


def can_be_mended(history: History, index: Index, day: str) -> bool:
    """Whether a rollup made now would fit its neighbours better than the stored one."""
    stored = index[day]
    return stored.is_stale or (stored.lacks_edge and not any(missing_edges(history, index, day)))


def episodes_before(history: History, index: Index, day: str, path: str) -> pd.DataFrame | None:
    """The episodes of the previous day stored in the file at `path`, if its ticks are missing; else None."""
    before = beside(day)[0]
    if before not in index or not missing_edges(history, index, day)[0]:
        return None
    return read_days(path, before, before).episodes


def are_neighbours(history: History, index: Index, day: str, other: str) -> bool:
    """Whether no known day between the two is unreadable or without a file at present."""
    hidden = history.unreadable | (index.keys() - history.paths.keys())
    return not any(min(day, other) < between < max(day, other) for between in hidden)


def find_awaited(history: History, index: Index, due: set[str]) -> set[str]:
    """The days whose ticks must stay: beside a day that is due, or beside one that perhaps can be read later."""
    awaited = with_neighbours(due, history.days)
    for day in history.days:
        trouble = [history.errors[near] for near in beside(day) if near in history.errors]
        may_pass = any(not isinstance(error, CorruptPartition | NewerPartition) for error in trouble)
        if may_pass and day in index and index[day].lacks_edge:
            awaited.add(day)
    return awaited


def find_wanted_edges(history: History, index: Index, expiring: set[str]) -> set[str]:
    """The expired days whose edge files are needed, as a neighbouring day still has its ticks."""
    expired = {day for day, stored in index.items() if stored.is_expired} | expiring
    there = set(history.days) - expiring
    return {day for day in expired if there.intersection(beside(day))}
