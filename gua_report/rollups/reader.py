"""Reading rollups.sqlite, in which `gua rollup` stores closed days."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Mapping
from copy import copy
from types import UnionType
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from gua_report.rollups.hourly_sums import (
    CARD_KEY,
    CARD_SUMS,
    HOLD_COLUMNS,
    IDENTITY_KEY,
    IDENTITY_SUMS,
    INSTANT_ONLY,
    UNPARTITIONED_COLUMNS,
    Rollup,
)
from gua_report.rollups.index import open_rollups
from gua_report.rollups.schema import CARD_FACTS
from gua_report.ticks.arrays import Integers
from gua_report.ticks.coverage import SPAN_COLUMNS
from gua_report.ticks.episodes import COLUMNS as EPISODE_COLUMNS
from gua_report.ticks.read_partition import LARGEST_NUMBER, NOT_KNOWN, check_range, read_columns
from gua_report.window import HOUR_MS, number_of
from gua_sample.partition_names import DAY_MS
from gua_sample.policy import STATES
from gua_sample.settings import LONGEST_MS

HOURS = "(day_id * 24 + hour)"  # since 1970
# Hour, card and state are packed into one number, because every column slows a year's report down.
STATE_BITS, CARD_BITS = (len(STATES) - 1).bit_length(), 24
# NULL if a value does not fit: in a damaged file, one card must not be taken for another.
PLACE = (
    f"iif(card_id >> {CARD_BITS} = 0 AND state >> {STATE_BITS} = 0,"
    f" ({HOURS} << {CARD_BITS + STATE_BITS}) | (card_id << {STATE_BITS}) | state, NULL)"
)
MOST_UNUSED_IDS = 1_000_000  # ids of expired names
# All others are texts.
FACT_TYPES = {"gpu_index": "int64", "mig_index": "float64", "memory_total_mib": "float64"}
START_MS, END_MS = (f"day_id * {DAY_MS} + {name}" for name in ("start_ms", "end_ms"))
GPU_MS = "coalesce(gpu_ms, weight_ms)"
ENERGY_MS = "iif(energy_joules IS NULL, 0, coalesce(energy_ms, weight_ms))"

Columns = Mapping[str, np.ndarray[Any, Any]]  # of a frame


class Day(NamedTuple):
    """All that a report needs of one or more whole UTC days. Identities are not yet mapped to people."""

    rollup: Rollup
    episodes: pd.DataFrame
    spans: pd.DataFrame


def read_days(path: str, first: str, last: str) -> Day:
    with open_rollups(path) as connection:
        return day_of_columns(Reader(connection, number_of(first), number_of(last)).day())


def read_spans(path: str, first: str, last: str) -> pd.DataFrame:
    return _read(path, first, last, Reader.spans)


def read_states(path: str, first: str, last: str) -> pd.DataFrame:
    return _read(path, first, last, Reader.states)


def read_episodes(path: str, first: str, last: str) -> pd.DataFrame:
    return _read(path, first, last, Reader.episodes)


def _read(path: str, first: str, last: str, what: Callable[[Reader], Columns]) -> pd.DataFrame:
    """What a method of Reader gives of these stored days. Raises CorruptPartition."""
    with open_rollups(path) as connection:
        return frame_of(what(Reader(connection, number_of(first), number_of(last))))


def frame_of(columns: Columns) -> pd.DataFrame:
    """A frame of the columns, whose texts stay objects: pandas 3 would convert each to its own type."""
    return pd.DataFrame(
        {
            name: pd.Series(values, dtype=object, copy=False) if values.dtype == object else values
            for name, values in columns.items()
        }
    )


def day_of_columns(read: Mapping[str, Columns]) -> Day:
    frames = {name: frame_of(columns) for name, columns in read.items()}
    return Day(Rollup(*(frames[name] for name in Rollup._fields)), frames["episodes"], frames["spans"])


class Reader:
    """Reads whole columns of the stored days from one number to another.

    Cards and identities are called what these functions make of their names: a fleet calls them after their hosts.
    """

    def __init__(
        self,
        connection: sqlite3.Connection,
        first: int,
        last: int,
        name_card: Callable[[str], str] = str,
        name_identity: Callable[[str], str] = str,
    ) -> None:
        self._connection, self._range, self._name_card = connection, (first, last), name_card
        rows = connection.execute(f"SELECT id, {', '.join(CARD_FACTS)} FROM card").fetchall()
        self._facts = dict(zip(("id", *CARD_FACTS), zip(*rows, strict=True), strict=True)) if rows else {}
        for name in CARD_FACTS:
            if name not in FACT_TYPES and not all(isinstance(one, str | None) for one in self._facts.get(name, ())):
                raise TypeError(f"no text for {name}")
        self._uuids = _lookup(zip(self._facts.get("id", ()), self._named("uuid"), strict=True))
        self._words = _lookup(connection.execute("SELECT id, text FROM word"))
        self._identities = np.array([word and name_identity(word) for word in self._words], dtype=object)

    def between(self, first: int, last: int) -> Reader:
        """A reader of other days of the same file."""
        other = copy(self)
        other._range = first, last
        return other

    def day(self) -> dict[str, Columns]:
        """All that a report needs, by the names of Rollup and Day."""
        return {
            **{name: getattr(self, name)() for name in Rollup._fields},
            "episodes": self.episodes(),
            "spans": self.spans(),
        }

    def cards(self) -> Columns:
        found, (energy, energy_ms, memory) = self._hours("card_hour", "energy_joules", ENERGY_MS, "memory_mib")
        check_range(energy_ms, 0, HOUR_MS, "a part of an hour")
        check_range(energy[energy != NOT_KNOWN], 0, LARGEST_NUMBER, "energy")  # less than none would be others' loss
        told = memory != NOT_KNOWN
        found["energy_joules"] = np.where(energy == NOT_KNOWN, 0, energy).astype(float)
        found["energy_ms"] = energy_ms
        found["memory_mib_ms"] = np.where(told, memory, 0).astype(float) * found["weight_ms"]
        found["memory_ms"] = np.where(told, found["weight_ms"], 0)
        return {name: found[name] for name in (*CARD_KEY, *CARD_SUMS)}

    def states(self) -> Columns:
        """The time of all cards together in each state, by hour."""
        of_state = f"coalesce(sum({GPU_MS}) FILTER (WHERE state = {{0}}), 0) AS state_{{0}}"
        selected = ", ".join([f"{HOURS} AS hours", *map(of_state.format, range(len(STATES)))])
        source = f"(SELECT {selected} FROM card_hour WHERE day_id BETWEEN ? AND ? GROUP BY day_id, hour)"
        names = ("hours", *map("state_{}".format, range(len(STATES))))
        hour, *sums = read_columns(self._connection, source, names, self._range)
        hours, states = np.tile(hour * HOUR_MS, len(STATES)), np.repeat(np.arange(len(STATES)), len(hour))
        return {"hour_ms": hours, "state": states, "gpu_ms": np.concatenate(sums).astype(float)}

    def identities(self) -> Columns:
        found, (identity,) = self._hours("identity_hour", "identity")
        found["identity"] = _at(self._identities, identity)
        return {name: found[name] for name in (*IDENTITY_KEY, *IDENTITY_SUMS)}

    def holds(self) -> Columns:
        card, start, end, share = self._columns("hold", "card_id", START_MS, END_MS, "share_millionths")
        self._check_times(start, end)
        check_range(share[share != NOT_KNOWN], 0, 1_000_000, "a share")
        values = [_at(self._uuids, card), start, end, np.where(share == NOT_KNOWN, 1e6, share) / 1e6]
        return dict(zip(HOLD_COLUMNS, values, strict=True))

    def episodes(self) -> Columns:
        names = ("card_id", "pid", "start_time_ms", "command", "identity", START_MS, END_MS, "peak_memory_mib")
        columns = self._columns("episode", *names, "joins_before", "joins_after")
        card, pid, born, command, identity, start, end, peak, before, after = columns
        self._check_times(start, end)
        values: list[Any] = [_at(self._uuids, card), pid, np.where(born == NOT_KNOWN, np.nan, born)]
        values += [self._text(command), _at(self._identities, identity), start, end]
        values += [np.where(peak == NOT_KNOWN, np.nan, peak), before.astype(bool), after.astype(bool)]
        values.append(self._texts("episode", "slurm_job", str | None))
        return dict(zip(EPISODE_COLUMNS, values, strict=True))

    def spans(self) -> Columns:
        names = (START_MS, END_MS, "boot_id", "driver_version", "kind")
        start, end, boot, driver, kind = self._columns("span", *names)
        self._check_times(start, end)
        values = [start, end, _at(self._words, boot), self._text(driver), self._text(kind)]
        return dict(zip(SPAN_COLUMNS, values, strict=True))

    def card_facts(self) -> Columns:
        """The last known facts of each day's cards, in the order of days."""
        card, instant_only, day = self._columns("card_day", "card_id", INSTANT_ONLY, "day_id")
        ids = np.array(self._facts.get("id", ()), dtype=np.int64)
        place = np.full(len(self._uuids), -1)
        place[ids] = np.arange(len(ids))
        place = _at(place, card)
        check_range(place, 0, len(ids), "a card")
        facts = {name: np.array(self._named(name), dtype=FACT_TYPES.get(name, object))[place] for name in CARD_FACTS}
        facts[INSTANT_ONLY] = np.where(instant_only == NOT_KNOWN, np.nan, instant_only)
        return {**facts, "day_ms": day * DAY_MS}

    def unpartitioned(self) -> Columns:
        hours, gpu_ms = self._columns("unpartitioned_hour", HOURS, "gpu_ms")
        check_range(hours, self._range[0] * 24, self._range[1] * 24 + 23, "an hour")
        check_range(gpu_ms, 0, HOUR_MS, "a part of an hour")
        texts = self._texts("unpartitioned_hour", "gpu_uuid", str)
        uuids = np.array([self._name_card(uuid) for uuid in texts], dtype=object)
        return dict(zip(UNPARTITIONED_COLUMNS, (hours * HOUR_MS, uuids, gpu_ms.astype(float)), strict=True))

    def _hours(self, table: str, *names: str) -> tuple[dict[str, np.ndarray[Any, Any]], list[Integers]]:
        """Hour, card, state and times of the rows; and the columns of these names."""
        place, weight, gpu, *others = self._columns(table, PLACE, "weight_ms", GPU_MS, *names)
        hours, cards = place >> (CARD_BITS + STATE_BITS), (place >> STATE_BITS) & ((1 << CARD_BITS) - 1)
        for milliseconds in (weight, gpu):
            check_range(milliseconds, 0, HOUR_MS, "a part of an hour")
        check_range(hours, self._range[0] * 24, self._range[1] * 24 + 23, "an hour, a card or a state")
        key = {"hour_ms": hours * HOUR_MS, "gpu_uuid": _at(self._uuids, cards)}
        times = {"state": place & ((1 << STATE_BITS) - 1), "weight_ms": weight, "gpu_ms": gpu.astype(float)}
        return {**key, **times}, others

    def _columns(self, table: str, *names: str) -> list[Integers]:
        return read_columns(self._connection, f"{table} WHERE day_id BETWEEN ? AND ?", names, self._range)

    def _texts(self, table: str, name: str, kind: type | UnionType) -> np.ndarray[Any, Any]:
        rows = self._connection.execute(f"SELECT {name} FROM {table} WHERE day_id BETWEEN ? AND ?", self._range)
        texts = [text for (text,) in rows]
        if not all(isinstance(text, kind) for text in texts):
            raise TypeError(f"no text for {name}")
        return np.array(texts, dtype=object)

    def _named(self, name: str) -> list[Any]:
        """A column of facts, with cards called what they are to be called."""
        values = self._facts.get(name, ())
        return [value and self._name_card(value) for value in values] if "uuid" in name else [*values]

    def _text(self, numbers: Integers) -> np.ndarray[Any, Any]:
        return _at(self._words, np.where(numbers == NOT_KNOWN, 0, numbers), may_be_none=True)

    def _check_times(self, start: Integers, end: Integers) -> None:
        """Raise ValueError if a start is outside of the days asked for; the last tick of a day may end later."""
        first, last = self._range
        check_range(start, first * DAY_MS, (last + 1) * DAY_MS, "a time")
        check_range(end - start, 0, LONGEST_MS, "a length of time")


def _lookup(found: Iterable[tuple[int, Any]]) -> np.ndarray[Any, Any]:
    """An array with the text of each row at the position of its id; None at 0, which is no id."""
    rows = [*found]
    ids = [number for number, _ in rows]
    largest = max(ids, default=0)
    if largest > MOST_UNUSED_IDS + 4 * len(ids) or min(ids, default=1) < 1:
        raise ValueError(f"an id of {largest} among {len(ids)}")
    table = np.full(largest + 1, None, dtype=object)
    for number, value in rows:
        if not isinstance(value, str):
            raise TypeError("no text for a name")
        table[number] = value
    return table


def _at(table: np.ndarray[Any, Any], numbers: Integers, may_be_none: bool = False) -> np.ndarray[Any, Any]:
    """The values at these ids. Raises ValueError or IndexError if an id is out of range."""
    check_range(numbers, 0 if may_be_none else 1, len(table), "an id")
    return table[numbers]
