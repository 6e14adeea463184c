"""Fast reading of a partition's content into typed columns."""

import sqlite3
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from gua_report.ticks.arrays import Floats, Integers
from gua_sample.partition_names import DAY_MS
from gua_sample.records import MIG_FACTS
from gua_sample.settings import LONGEST_MS

NOT_KNOWN = -(2**63)  # stands for NULL on the way from SQLite to numpy
# Ids count from 1, so they are small, and arrays as long as the largest id are allocated.
LARGEST_ID = 1 << 24
# Limits of one day. Each card has a state at each tick; it gets a new set of facts when its status changes.
MOST_CARDS, MOST_ROWS = 1024, {"card": 50_000, "process": 500_000}
LARGEST_INDEX = 1 << 16
LARGEST_MIB = 1 << 32
LARGEST_NUMBER = 1 << 53  # that a float can hold

TICK_COLUMNS = ("ts_ms", "interval_ms", "boot_id", "boot_time_ms", "driver_version", "nvml_ms", "error")
CARD_FACTS = ("uuid", "gpu_index", "mig_index", "name", "parent_uuid", "memory_total_mib", "status", *MIG_FACTS)
NUMBERS = {"boot_time_ms", "energy_base_joules", "mig_index", "memory_total_mib", "start_time_ms", "uid", "login_uid"}
NUMBERS.update(MIG_FACTS)
LARGEST = {"id": LARGEST_ID, "pid": LARGEST_NUMBER, "gpu_index": LARGEST_INDEX}  # whole numbers, never missing
REQUIRED = {"uuid", "status", "type", "boot_id"}
PROCESS_FACTS = ("pid", "start_time_ms", "uid", "login_uid", "user", "login_user", "command", "cgroup", "type")


class CardRows(NamedTuple):
    tick: Integers  # position of the tick
    card: Integers  # position in the facts
    utilization_percent: Floats
    memory_used_mib: Floats
    energy_joules: Floats
    source: Integers  # the position of the utilization's source, or NOT_KNOWN


class ProcessRows(NamedTuple):
    tick: Integers
    card: Integers
    process: Integers  # position in the facts
    memory_mib: Floats
    sm_percent: Floats


class Rows(NamedTuple):
    """The content of some ticks of a day. Facts are frames of a few rows: a card has several if its facts change."""

    cards: CardRows
    card_facts: pd.DataFrame  # CARD_FACTS
    processes: ProcessRows
    process_facts: pd.DataFrame  # PROCESS_FACTS


def read_ticks(connection: sqlite3.Connection, midnight_ms: int) -> pd.DataFrame:
    """All ticks, in time order: TICK_COLUMNS and `id`. Raises ValueError if they can't be of the UTC day."""
    names = ("id", "ts_ms", "interval_ms", "nvml_ms", "session_id")
    row, ts_ms, interval, nvml, session = read_columns(connection, "tick", names, ())
    check_range(row, 0, LARGEST_ID, "a tick's id")
    check_range(ts_ms, midnight_ms, midnight_ms + DAY_MS - 1, "a tick's time")
    check_range(interval[interval != NOT_KNOWN], 1, LONGEST_MS, "an interval")
    check_range(nvml[nvml != NOT_KNOWN], 0, LONGEST_MS, "a time that NVML took")
    order = np.argsort(ts_ms, kind="stable")
    row, session = row[order], session[order]
    sessions = _facts(connection, "session", ("boot_id", "boot_time_ms", "driver_version"))
    at = _positions(sessions["id"].to_numpy(), session)
    if (at < 0).any():
        raise ValueError("a tick of no session")
    failed = _facts(connection, "tick WHERE error IS NOT NULL", ("error",))
    errors = np.full(len(row), None, dtype=object)
    errors[_positions(row, failed["id"].to_numpy())] = failed["error"]
    boot_time = sessions["boot_time_ms"].fillna(0).to_numpy()[at]
    boot_time[boot_time > ts_ms[order]] = 0  # after its own tick: the clock was set since, and nobody knows
    return pd.DataFrame(
        {
            "id": row,
            "ts_ms": ts_ms[order],
            "interval_ms": _plausible(interval, 1, LONGEST_MS)[order],
            "boot_id": pd.Series(sessions["boot_id"].to_numpy()[at], dtype=object),
            "boot_time_ms": boot_time,
            "driver_version": pd.Series(sessions["driver_version"].to_numpy()[at], dtype=object),
            "nvml_ms": _plausible(nvml, 0, LONGEST_MS)[order],
            "error": pd.Series(errors, dtype=object),
        }
    )


def read_rows(connection: sqlite3.Connection, ticks: pd.DataFrame) -> Rows:
    """The partition's rows of some consecutive ticks from `read_ticks`."""
    for table, most in MOST_ROWS.items():
        if connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0] > most:
            raise ValueError(f"more than {most:,} rows in {table}")
    card_facts = _facts(connection, "card", ("energy_base_joules", *CARD_FACTS))
    if max(card_facts["uuid"].nunique(), card_facts["parent_uuid"].nunique()) > MOST_CARDS:
        raise ValueError(f"more than {MOST_CARDS:,} cards")
    known = {"tick_id": ticks["id"].to_numpy(), "card_id": card_facts.pop("id").to_numpy()}
    base = card_facts.pop("energy_base_joules").to_numpy(dtype="float64")
    where, wanted = _where(connection, ticks)
    names = ["utilization_hundredths", "memory_used_mib", "energy_above_base_joules", "utilization_source"]
    columns = _read_samples(connection, f"card_sample {where}", known, names, wanted)
    tick, card, hundredths, used, energy, source = columns
    utilization, used_mib = _plausible(hundredths, 0, 10_000) / 100, _plausible(used, 0, LARGEST_MIB)
    joules = _plausible(energy, -LARGEST_NUMBER, LARGEST_NUMBER) + base[card]
    cards = CardRows(tick, card, utilization, used_mib, joules, source)
    only = f"WHERE id IN (SELECT process_id FROM process_sample {where})" if where else ""
    process_facts = _facts(connection, f"process {only}", PROCESS_FACTS, wanted)
    known["process_id"] = process_facts.pop("id").to_numpy()
    names = ["memory_mib", "sm_percent"]
    tick, card, process, memory, sm = _read_samples(connection, f"process_sample {where}", known, names, wanted)
    processes = ProcessRows(tick, card, process, _plausible(memory, 0, LARGEST_MIB), _plausible(sm, 0, 100))
    return Rows(cards, card_facts, processes, process_facts)


def _read_samples(
    connection: sqlite3.Connection, source: str, known: dict[str, Integers], names: list[str], parameters: Sequence[int]
) -> list[Integers]:
    columns = read_columns(connection, source, (*known, *names), parameters)
    positions = [_positions(ids, column) for ids, column in zip(known.values(), columns, strict=False)]
    keep = positions[0] >= 0  # a tick may have been written after the ticks were read
    if not all((found[keep] >= 0).all() for found in positions[1:]):
        raise ValueError("a sample of a card or a process that is not there")
    return [column[keep] for column in (*positions, *columns[len(known) :])]


def _where(connection: sqlite3.Connection, ticks: pd.DataFrame) -> tuple[str, tuple[int, ...]]:
    """The SQL condition for samples of these ticks; empty for a whole partition, which is fastest."""
    (count,) = connection.execute("SELECT count(*) FROM tick").fetchone()
    if len(ticks) >= count:
        return "", ()
    within = int(ticks["ts_ms"].iloc[0]), int(ticks["ts_ms"].iloc[-1])
    return "WHERE tick_id IN (SELECT id FROM tick WHERE ts_ms BETWEEN ? AND ?)", within


def with_lead(rows: Rows) -> Rows:
    """The rows with those of the second tick repeated for the first, which is the time before it."""
    return rows._replace(cards=CardRows(*_with_lead(*rows.cards)), processes=ProcessRows(*_with_lead(*rows.processes)))


def _with_lead(*columns: Any) -> list[Any]:
    second = np.flatnonzero(columns[0] == 1)
    repeated = [np.concatenate((column[second], column)) for column in columns]
    repeated[0][: len(second)] = 0
    return repeated


def _facts(
    connection: sqlite3.Connection, table: str, columns: Sequence[str], parameters: Sequence[int] = ()
) -> pd.DataFrame:
    rows = connection.execute(f"SELECT id, {', '.join(columns)} FROM {table}", parameters).fetchall()
    by_column = list(zip(*rows, strict=True)) or [()] * (len(columns) + 1)
    return pd.DataFrame({name: _fact(name, values) for name, values in zip(("id", *columns), by_column, strict=True)})


def _fact(name: str, values: Sequence[Any]) -> Any:
    """A typed column of facts. Raises ValueError or TypeError if a value is invalid for its name."""
    if name in LARGEST:
        column = np.array(values, dtype="int64")
        check_range(column, 0, LARGEST[name], name)
        return column
    if name in NUMBERS:
        numbers = np.array(values, dtype="float64")
        if not (np.isnan(numbers) | (np.abs(numbers) <= LARGEST_NUMBER)).all():
            raise ValueError(f"{name} out of range")
        return numbers
    for value in set(values):
        if not isinstance(value, str) and (value is not None or name in REQUIRED):
            raise TypeError(f"no text for {name}")
    return pd.Series(values, dtype=object)


def read_columns(
    connection: sqlite3.Connection, source: str, columns: Sequence[str], parameters: Sequence[int]
) -> list[Integers]:
    """Whole columns of integers, NULL as NOT_KNOWN. Joined into texts: half the time of rows, without the GIL."""
    selected = ", ".join(f"group_concat(coalesce({column}, {NOT_KNOWN}))" for column in columns)
    texts = connection.execute(f"SELECT {selected} FROM {source}", parameters).fetchone()
    return [_parse(text, column) for text, column in zip(texts, columns, strict=True)]


def _parse(text: str | None, column: str) -> Integers:
    if not text:
        return np.empty(0, np.int64)
    with suppress(ValueError, DeprecationWarning):
        values = np.fromstring(text, dtype=np.int64, sep=",")
        if len(values) == text.count(",") + 1:  # older versions of numpy stop at an invalid value without an error
            return values
    raise ValueError(f"{column} holds what is no whole number")


def _positions(known: Integers, ids: Integers) -> Integers:
    for numbers in (known, ids):
        check_range(numbers, 0, LARGEST_ID, "an id")
    positions = np.full(max(int(known.max(initial=0)), int(ids.max(initial=0))) + 1, -1, np.int64)
    positions[known] = np.arange(len(known))
    return positions[ids]


def check_range(values: Integers, least: int, most: int, what: str) -> None:
    if len(values) and not least <= int(values.min()) <= int(values.max()) <= most:
        raise ValueError(f"{what} out of range")


def _plausible(values: Integers, least: int, most: int) -> Floats:
    """The values as floats; implausible ones are NaN, like those that the driver does not give."""
    return np.where((values < least) | (values > most), np.nan, values)
