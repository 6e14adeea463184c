"""rollups.sqlite: closed days as they were rolled up, written by `gua rollup` and read by every report."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from gua_report import rollup_schema as schema
from gua_report.columns import NOT_KNOWN, Integers, read_columns
from gua_report.coverage import SPAN_COLUMNS
from gua_report.episodes import COLUMNS as EPISODE_COLUMNS
from gua_report.partitions import open_database
from gua_report.rollup import CARD_KEY, CARD_SUMS, IDENTITY_KEY, Rollup
from gua_report.window import HOUR_MS, number_of
from gua_sample.errors import CorruptPartition
from gua_sample.partition import DAY_MS
from gua_sample.policy import STATES

CARD_FACTS = ("uuid", "gpu_index", "mig_index", "name", "parent_uuid", "memory_total_mib", "status")


class Day(NamedTuple):
    """All that a report needs of one or more whole UTC days. Identities are as resolved, not yet mapped to people."""

    rollup: Rollup
    episodes: pd.DataFrame
    spans: pd.DataFrame


def read_days(path: str, first: str, last: str) -> Day:
    """What is stored of the days from `first` to `last`. Raises CorruptPartition if the file is damaged."""
    with _open(path, first, last) as reader:
        rollup = Rollup(reader.cards(), reader.identities(), reader.holds(), reader.card_facts())
        return Day(rollup, reader.episodes(), reader.spans())


def read_spans(path: str, first: str, last: str) -> pd.DataFrame:
    """The same, of the spans alone."""
    with _open(path, first, last) as reader:
        return reader.spans()


def read_states(path: str, first: str, last: str) -> pd.DataFrame:
    """For how long cards were in each state, by hour: all that is wanted of a window before."""
    with _open(path, first, last) as reader:
        return reader.states()


@contextmanager
def _open(path: str, first: str, last: str) -> Iterator[_Reader]:
    try:
        with open_database(path, schema.APPLICATION_ID, schema.VERSION) as connection:
            yield _Reader(connection, number_of(first), number_of(last))
    except (IndexError, KeyError, OverflowError, TypeError, ValueError) as error:  # references to what is not there
        raise CorruptPartition(f"{path} is damaged ({error})") from error


class _Reader:
    def __init__(self, connection: sqlite3.Connection, first: int, last: int) -> None:
        self._connection, self._range = connection, (first, last)
        self._facts = pd.DataFrame(
            connection.execute(f"SELECT id, {', '.join(CARD_FACTS)} FROM card").fetchall(), columns=["id", *CARD_FACTS]
        )
        self._uuids = _lookup(self._facts["id"], self._facts["uuid"])
        words = connection.execute("SELECT id, text FROM word").fetchall()
        self._words = _lookup([row[0] for row in words], [row[1] for row in words])

    def cards(self) -> pd.DataFrame:
        names = ("day_id", "hour", "card_id", "state", "weight_ms", "gpu_ms", "energy_joules", "energy_ms")
        day, hour, card, state, weight, gpu, energy, energy_ms, memory = self._columns(
            "card_hour", *names, "memory_mib"
        )
        known = energy != NOT_KNOWN
        told = memory != NOT_KNOWN
        values: list[Any] = [day * DAY_MS + hour * HOUR_MS, _objects(self._uuids[card]), _objects(_STATES[state])]
        values += [weight]
        values += [np.where(gpu == NOT_KNOWN, weight, gpu).astype(float)]
        values += [
            np.where(known, energy, 0).astype(float),
            np.where(energy_ms == NOT_KNOWN, weight, energy_ms) * known,
        ]
        values += [np.where(told, memory, 0).astype(float) * weight, np.where(told, weight, 0)]
        return pd.DataFrame(dict(zip([*CARD_KEY, *CARD_SUMS], values, strict=True)))

    def states(self) -> pd.DataFrame:
        day, hour, state, weight, gpu = self._columns("card_hour", "day_id", "hour", "state", "weight_ms", "gpu_ms")
        values: list[Any] = [day * DAY_MS + hour * HOUR_MS, _objects(_STATES[state]), weight]
        values += [np.where(gpu == NOT_KNOWN, weight, gpu).astype(float)]
        return pd.DataFrame(dict(zip(["hour_ms", "state", "weight_ms", "gpu_ms"], values, strict=True)))

    def identities(self) -> pd.DataFrame:
        names = ("day_id", "hour", "card_id", "identity", "state", "weight_ms", "gpu_ms")
        day, hour, card, identity, state, weight, gpu = self._columns("identity_hour", *names)
        texts = (self._uuids[card], self._words[identity], _STATES[state])
        values: list[Any] = [day * DAY_MS + hour * HOUR_MS, *map(_objects, texts)]
        values += [weight, np.where(gpu == NOT_KNOWN, weight, gpu).astype(float)]
        return pd.DataFrame(dict(zip([*IDENTITY_KEY, "weight_ms", "gpu_ms"], values, strict=True)))

    def holds(self) -> pd.DataFrame:
        names = ("day_id", "card_id", "start_ms", "end_ms", "share_millionths")
        day, card, start, end, share = self._columns("hold", *names)
        midnight = day * DAY_MS
        return pd.DataFrame(
            {
                "gpu_uuid": _objects(self._uuids[card]),
                "start_ms": midnight + start,
                "end_ms": midnight + end,
                "share": np.where(share == NOT_KNOWN, 1e6, share) / 1e6,
            }
        )

    def episodes(self) -> pd.DataFrame:
        names = ("day_id", "card_id", "pid", "start_time_ms", "command", "identity", "start_ms", "end_ms")
        columns = self._columns("episode", *names, "peak_memory_mib", "joins_before", "joins_after")
        day, card, pid, born, command, identity, start, end, peak, before, after = columns
        midnight = day * DAY_MS
        values: list[Any] = [_objects(self._uuids[card]), pid, np.where(born == NOT_KNOWN, np.nan, born)]
        values += [_objects(self._text(command)), _objects(self._words[identity]), midnight + start, midnight + end]
        values += [np.where(peak == NOT_KNOWN, np.nan, peak), before.astype(bool), after.astype(bool)]
        return pd.DataFrame(dict(zip(EPISODE_COLUMNS, values, strict=True)))

    def spans(self) -> pd.DataFrame:
        names = ("day_id", "start_ms", "end_ms", "boot_id", "driver_version", "kind")
        day, start, end, boot, driver, kind = self._columns("span", *names)
        midnight = day * DAY_MS
        values = [midnight + start, midnight + end, self._words[boot], self._text(driver), self._text(kind)]
        return pd.DataFrame(dict(zip(SPAN_COLUMNS, values, strict=True)))

    def card_facts(self) -> pd.DataFrame:
        """As last known, in the order of days."""
        _, _, card = self._columns("card_day", "day_id", "position", "card_id")
        positions = pd.Series(np.arange(len(self._facts)), index=self._facts["id"]).reindex(card).to_numpy()
        facts = self._facts.iloc[positions].drop(columns="id").reset_index(drop=True)
        return facts.astype({"mig_index": "float64", "memory_total_mib": "float64"})

    def _columns(self, table: str, *names: str) -> list[Integers]:
        return read_columns(self._connection, f"{table} WHERE day_id BETWEEN ? AND ?", names, self._range)

    def _text(self, numbers: Integers) -> np.ndarray[Any, Any]:
        return self._words[np.where(numbers == NOT_KNOWN, 0, numbers)]


def _objects(values: np.ndarray[Any, Any]) -> pd.Series[Any]:
    """As they are: pandas 3 would look at each, and make a text of its own kind of it."""
    return pd.Series(values, dtype=object, copy=False)


_STATES = np.array(STATES, dtype=object)


def _lookup(ids: Iterable[int], values: Iterable[Any]) -> np.ndarray[Any, Any]:
    """An array in which each value stands at its id; None at 0, which is nobody's."""
    known = dict(zip(ids, values, strict=True))
    table = np.full(max(known, default=0) + 1, None, dtype=object)
    for number, value in known.items():
        table[number] = value
    return table
