"""Hours reserved, used as reserved, reserved and idle, and used without a reservation: per person and card, from ticks.

Reservations begin and end anywhere in an hour, so the stored hourly sums of closed days are too coarse.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from typing import NamedTuple

import numpy as np
import pandas as pd

from gua_report.config import Config
from gua_report.console.spelling import span_of_days
from gua_report.people.identities import UNATTRIBUTED, apply_mapping
from gua_report.reservations.reservation import Book, Reservation
from gua_report.reservations.sources import name_strays, names_of, read_book
from gua_report.rollups.hourly_sums import presences
from gua_report.ticks.classify import ABSENT, CODES, Classified, classify
from gua_report.ticks.history import History
from gua_report.ticks.read_partition import Integers
from gua_report.window import HOUR_MS, Window
from gua_sample.partition_names import DAY_MS, day_of
from gua_sample.policy import ACTIVE, IDLE_HELD, TRULY_IDLE

KEYS = ["identity", "gpu_uuid", "gpu_index", "mig_index"]
SUMS = ["reserved_hours", "used_hours", "idle_hours", "idle_held_hours", "unknown_hours", "unreserved_hours"]
RESERVATION_COLUMNS = KEYS + SUMS

NOT_THERE = -1
Interval = tuple[int, int]
Key = tuple[str, str]  # a person, and the uuid of a card
Indexes = dict[str, int | None]  # by uuid


class Told(NamedTuple):
    """The reservations from all sources, and the problems in reading them."""

    book: Book
    problems: list[str]


class Reserved(NamedTuple):
    hours: pd.DataFrame  # RESERVATION_COLUMNS
    problems: list[str]  # reservations that are unreadable or make no sense


class Sums:
    """Milliseconds of one person on one card."""

    def __init__(self) -> None:
        self.reserved = self.used = self.free = self.held = self.unreserved = 0

    def to_act_on(self) -> int:
        return self.free + self.held + self.unreserved

    def hours(self) -> list[float]:
        """Hours in the order of SUMS. Unknown is reserved time that the driver did not report or nobody observed."""
        idle = self.free + self.held
        unknown = self.reserved - self.used - idle
        return [ms / HOUR_MS for ms in (self.reserved, self.used, idle, self.held, unknown, self.unreserved)]


def read_told(config: Config, since_ms: int) -> Told:
    """The reservations since `since_ms`, and the problems in reading them."""
    problems: list[str] = []
    return Told(read_book(config, since_ms, problems.append), problems)


def reserved_hours(
    history: History,
    window: Window,
    config: Config,
    told: Told,
    gpus: pd.DataFrame,
    identities: Collection[str],
    expired: Collection[str],
) -> Reserved:
    """Sum up reserved hours. `gpus` and `identities` are the report's, `expired` the days whose ticks are gone."""
    book, problems = told.book, list(told.problems)
    wanted = [one for one in book.reservations if one.end_ms > window.start_ms and one.start_ms < window.end_ms]
    indexes: Indexes = {
        uuid: None if pd.isna(index) else int(index) for uuid, index in zip(gpus["uuid"], gpus["index"], strict=True)
    }
    name_strays(wanted, indexes, identities, config.people, problems.append)
    if gone := [day for day, _, _ in _days(window) if day in expired]:
        problems.append(f"ticks have expired: who used what in {span_of_days(gone)} is not known here")
    sums: defaultdict[Key, Sums] = defaultdict(Sums)
    for _, start_ms, end_ms in _days(window):
        found = _classify_part(history, start_ms, end_ms, config)
        if found is not None:
            indexes = _move(indexes, _indexes(*found))
        own = _intervals(wanted, indexes, start_ms, end_ms, config)
        for key, intervals in own.items():
            sums[key].reserved += sum(end - start for start, end in intervals)
        if found is not None:
            _add_part(sums, *found, own, start_ms, end_ms)
    return Reserved(_table(sums, gpus, book.is_complete), problems)


def _days(window: Window) -> Iterator[tuple[str, int, int]]:
    """The UTC days of the window, with the start and end of the part in it."""
    for number in range(window.start_ms // DAY_MS, (window.end_ms - 1) // DAY_MS + 1):
        start_ms = number * DAY_MS
        yield day_of(start_ms), max(start_ms, window.start_ms), min(start_ms + DAY_MS, window.end_ms)


def _classify_part(
    history: History, start_ms: int, end_ms: int, config: Config
) -> tuple[Classified, tuple[int, int]] | None:
    """The states in the time asked for, and the positions of the ticks that reach into it; None without ticks."""
    timeline = history.timeline(history.days_of(start_ms, end_ms))
    times = timeline["ts_ms"].to_numpy(dtype=np.int64)
    ends = times + timeline["weight_ms"].to_numpy(dtype=np.int64)
    (inside,) = np.nonzero((ends > start_ms) & (times < end_ms))
    stretch = history.read(timeline, int(inside[0]), int(inside[-1]) + 1) if len(inside) else None
    if stretch is None:
        return None
    return classify(stretch.rows, stretch.ticks, config.policy, config.people), stretch.inside


def _indexes(day: Classified, inside: tuple[int, int]) -> Indexes:
    """The indexes of that day's cards, by uuid. If two cards had the same index, the one seen last has it."""
    seen = day.states[slice(*inside)] != ABSENT
    last = np.where(seen.any(axis=0), len(seen) - 1 - np.argmax(seen[::-1], axis=0), -1)
    facts = zip(day.cards["uuid"], day.cards["gpu_index"], day.cards["mig_index"], last.tolist(), strict=True)
    found: dict[tuple[int, int | None], tuple[int, str]] = {}
    for uuid, index, mig_index, position in facts:
        place = int(index), None if pd.isna(mig_index) else int(mig_index)
        if position >= 0 and position > found.get(place, (-1, ""))[0]:
            found[place] = position, uuid
    return {uuid: place[0] for place, (_, uuid) in found.items()}


def _move(before: Indexes, today: Indexes) -> Indexes:
    """The indexes as of today. A missing card keeps its index, by which it may be reserved, until another has it."""
    kept = {uuid: None if index in today.values() else index for uuid, index in before.items()}
    return {**kept, **today}


def _intervals(
    reservations: list[Reservation], indexes: Indexes, start_ms: int, end_ms: int, config: Config
) -> dict[Key, list[Interval]]:
    """The reserved times of each person and card, in order. Overlapping reservations count once."""
    found: defaultdict[Key, list[Interval]] = defaultdict(list)
    called: defaultdict[str, list[str]] = defaultdict(list)
    for uuid, index in indexes.items():
        for name in names_of(uuid, index):
            called[name].append(uuid)
    for one in reservations:
        start, end = max(one.start_ms, start_ms), min(one.end_ms, end_ms)
        if start < end:
            for uuid in called.get(one.gpu, ()):
                found[apply_mapping(one.user, config.people), uuid].append((start, end))
    return {key: _merge(intervals) for key, intervals in found.items()}


def _merge(intervals: Iterable[Interval]) -> list[Interval]:
    merged: list[Interval] = []
    for start, end in sorted(intervals):
        if merged and start <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        else:
            merged.append((start, end))
    return merged


def _add_part(
    sums: defaultdict[Key, Sums],
    day: Classified,
    inside: tuple[int, int],
    own: dict[Key, list[Interval]],
    start_ms: int,
    end_ms: int,
) -> None:
    """Add used, idle and unreserved time between two times within one day."""
    ticks = day.ticks.iloc[slice(*inside)]
    times = ticks["ts_ms"].to_numpy(dtype=np.int64)
    begin = np.maximum(times, start_ms)
    end = np.maximum(begin, np.minimum(times + ticks["weight_ms"].to_numpy(dtype=np.int64), end_ms))
    shape = len(day.ticks), len(day.cards)
    column = {uuid: position for position, uuid in enumerate(day.cards["uuid"])}
    tick, card, identity, state, names = presences(day)
    at_work = np.zeros(shape, bool)
    at_work[tick[state == CODES[ACTIVE]], card[state == CODES[ACTIVE]]] = True
    there: dict[Key, Integers] = {}
    for pair in np.unique(identity * shape[1] + card).tolist():
        who, where = divmod(pair, shape[1])
        states = np.full(shape[0], NOT_THERE, np.int64)
        mine = (identity == who) & (card == where)
        states[tick[mine]] = state[mine]
        there[str(names[who]), day.cards["uuid"].iloc[where]] = states[slice(*inside)]
    for key in {*own, *there}:
        who, uuid = key
        if uuid not in column:
            continue
        on_card = day.states[slice(*inside), column[uuid]]
        states = there.get(key, np.full(len(times), NOT_THERE, np.int64))
        covered = _covered(begin, end, own.get(key, []))
        working, holding = states == CODES[ACTIVE], states == CODES[IDLE_HELD]
        # On an active card without a visible worker, the person who reserved it may be working.
        without_them = (on_card == CODES[ACTIVE]) & at_work[slice(*inside), column[uuid]]
        without_them |= (on_card == CODES[IDLE_HELD]) | (on_card == CODES[TRULY_IDLE])
        sums[key].used += int(covered[working].sum())
        sums[key].held += int(covered[holding].sum())
        sums[key].free += int(covered[(states == NOT_THERE) & without_them].sum())
        if who == UNATTRIBUTED:  # the memory may belong to anyone who reserved the card
            covered = _covered(begin, end, _merge(one for (_, on), some in own.items() if on == uuid for one in some))
        sums[key].unreserved += int((end - begin - covered)[working | holding].sum())


def _covered(begin: Integers, end: Integers, intervals: list[Interval]) -> Integers:
    """The part of each tick's time that lies in the intervals."""
    covered = np.zeros(len(begin), np.int64)
    for start_ms, end_ms in intervals:
        covered += np.maximum(0, np.minimum(end, end_ms) - np.maximum(begin, start_ms))
    return covered


def _table(sums: dict[Key, Sums], gpus: pd.DataFrame, is_complete: bool) -> pd.DataFrame:
    """The sums as a table, with most to act on first. Unreserved hours are unknown if reservations are missing."""
    places = dict(zip(gpus["uuid"], zip(gpus["index"], gpus["mig_index"], strict=True), strict=True))
    rows = []
    for (who, uuid), found in sorted(sums.items(), key=lambda item: (-item[1].to_act_on(), item[0])):
        hours = found.hours()
        if any(hours):
            rows.append([who, uuid, *places.get(uuid, (None, None)), *hours])
    frame = pd.DataFrame(rows, columns=RESERVATION_COLUMNS)
    return frame if is_complete else frame.assign(unreserved_hours=np.nan)
