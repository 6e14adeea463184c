"""The tables that can be exported: plain values, with None for unknown ones, read from one file at a time."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping
from functools import cache, lru_cache
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple, TypeAlias

from gua_report.config import Config
from gua_report.people.identities import apply_mapping, resolve
from gua_sample.partition_names import day_of
from gua_sample.policy import NAN, STATES, STATUS_OK, Policy, card_states

Row: TypeAlias = tuple[Any, ...]  # of str, int, float and None


class Table(NamedTuple):
    columns: tuple[str, ...]
    # The rows between start (inclusive) and end (exclusive), in the order of time.
    read: Callable[[sqlite3.Connection, int, int, Config], Iterator[Row]]
    is_of_rollups: bool = False  # read from rollups.sqlite instead of partitions


# The columns of the views, spelled out: a column that a later version adds to a view is added here deliberately.
TICKS = ("ts_ms", "interval_ms", "boot_id", "driver_version", "nvml_ms", "error")
CARD_TICKS = (
    *("ts_ms", "interval_ms", "gpu_uuid", "gpu_index", "gpu_name", "parent_uuid"),
    *("utilization_percent", "utilization_source", "process_memory_mib", "memory_used_mib", "memory_reserved_mib"),
    *("memory_total_mib", "power_watts", "energy_joules", "temperature_celsius", "persistence_mode"),
    *("status", "missing", "mig_index", "compute_slices", "most_compute_slices", "parent_memory_mib"),
)
PROCESS_TICKS = (
    *("ts_ms", "interval_ms", "gpu_uuid", "gpu_index", "pid", "start_time_ms", "uid", "login_uid"),
    *("user", "login_user", "command", "cgroup", "type", "memory_mib", "sm_percent"),
)
DAILY = (
    *("timestamp", "user", "pid", "gpu", "usage"),  # spelled as in gpu_stats_service
    *("time_utc", "ts_ms", "gpu_uuid", "mig_index", "status", "state", "utilization_percent"),
    *("memory_used_mib", "memory_total_mib", "power_watts", "temperature_celsius"),
    *("identity", "login_user", "command", "type", "memory_mib", "sm_percent"),
)
# The columns of rollups.sqlite except the day, which is in the folder names of a Parquet export.
HOUR = ("hour_ms", "gpu_uuid", "gpu_index", "mig_index", "gpu_name")
CARD_HOURS = (
    *(*HOUR, "parent_uuid", "memory_total_mib", "state", "weight_ms", "gpu_hours"),
    *("energy_joules", "energy_ms", "memory_mib"),
)
IDENTITY_HOURS = (*HOUR, "identity", "state", "weight_ms", "gpu_hours")
EPISODE_DAYS = (
    *("start_ms", "end_ms", "gpu_uuid", "gpu_index", "mig_index", "gpu_name", "pid", "start_time_ms", "command"),
    *("identity", "seconds", "peak_memory_mib", "joins_before", "joins_after"),
)
SPANS = ("start_ms", "end_ms", "boot_id", "driver_version", "kind")

REAL = {"utilization_percent", "power_watts", "gpu_hours", "seconds"}
TEXT = {"boot_id", "driver_version", "error", "gpu_uuid", "gpu_name", "parent_uuid", "utilization_source", "status"}
TEXT |= {"missing", "state", "user", "login_user", "command", "cgroup", "type", "identity", "time_utc", "kind"}

STATE_FACTS = ("utilization_percent", "status", "process_memory_mib", "memory_used_mib")
IDENTITY_FACTS = ("uid", "login_uid", "user", "login_user", "cgroup")
ORDER = {
    "ticks": "ts_ms",
    "card_ticks": "ts_ms, gpu_index, mig_index",
    "process_ticks": "ts_ms, gpu_index, gpu_uuid, pid",
    "card_hours": "hour_ms, gpu_index, mig_index, gpu_uuid, state",
    "identity_hours": "hour_ms, gpu_index, mig_index, gpu_uuid, identity, state",
    "episode_days": "start_ms, gpu_index, mig_index, gpu_uuid, pid, start_time_ms",
    "spans": "start_ms",
}
DAILY_SQL = """
    SELECT t.ts_ms, s.card_id, s.utilization_hundredths / 100.0, s.memory_used_mib, s.power_deciwatts / 10.0,
           s.temperature_celsius, p.process_id, p.memory_mib, p.sm_percent
    FROM tick t JOIN card_sample s ON s.tick_id = t.id JOIN card c ON c.id = s.card_id
    LEFT JOIN process_sample p ON p.tick_id = s.tick_id AND p.card_id = s.card_id
    WHERE t.ts_ms >= ? AND t.ts_ms < ?
    ORDER BY t.ts_ms, c.gpu_index, c.mig_index, s.card_id, p.process_id
"""


def kind_of(column: str) -> type[str] | type[float] | type[int]:
    """The type of a column's values, for formats that declare it."""
    return str if column in TEXT else float if column in REAL else int


def read_ticks(connection: sqlite3.Connection, start_ms: int, end_ms: int, config: Config) -> Iterator[Row]:
    return _select(connection, "ticks", TICKS, start_ms, end_ms)


def read_card_ticks(connection: sqlite3.Connection, start_ms: int, end_ms: int, config: Config) -> Iterator[Row]:
    facts = itemgetter(*map(CARD_TICKS.index, STATE_FACTS))
    for row in _select(connection, "card_ticks", CARD_TICKS, start_ms, end_ms):
        yield *row, state_of(config.policy, *facts(row))


def read_process_ticks(connection: sqlite3.Connection, start_ms: int, end_ms: int, config: Config) -> Iterator[Row]:
    facts, identity_of = itemgetter(*map(PROCESS_TICKS.index, IDENTITY_FACTS)), identities(config.people)
    for row in _select(connection, "process_ticks", PROCESS_TICKS, start_ms, end_ms):
        yield *row, identity_of(*facts(row))


def read_daily(connection: sqlite3.Connection, start_ms: int, end_ms: int, config: Config) -> Iterator[Row]:
    """A row for each process on each card at each tick, and one for a card without processes.

    Reads the tables, not the views: looking up a process once, not at each tick, takes half the time.
    """
    facts = "id, gpu_index, uuid, mig_index, status, memory_total_mib"
    cards = {number: known for number, *known in connection.execute(f"SELECT {facts} FROM card")}
    processes = _known_processes(connection, config.people)
    samples = connection.execute(DAILY_SQL, (start_ms, end_ms))
    for (ts_ms, number), group in groupby(samples, key=itemgetter(0, 1)):
        usages = list(group)
        utilization, used, power, temperature = usages[0][2:6]
        gpu, uuid, mig_index, status, total = cards[number]
        memories = [usage[7] for usage in usages if usage[6] is not None]
        held = None if None in memories else sum(memories)
        state = state_of(config.policy, utilization, status, held, used)
        second = ts_ms // 1000
        percent = None if utilization is None else round(utilization)
        card = (clock(second), ts_ms, uuid, mig_index, status, state, utilization, used, total, power, temperature)
        for usage in usages:
            process, memory, sm_percent = usage[6:]
            owner, pid, who = processes[process]
            yield second, owner, pid, gpu, percent, *card, *who, memory, sm_percent


def _known_processes(connection: sqlite3.Connection, people: Mapping[str, str]) -> dict[int | None, Row]:
    """The facts of each process id: owner, pid, and a tuple of the others; all None for no process."""
    identity_of = identities(people)
    known: dict[int | None, Row] = {None: (None, None, (None,) * 4)}
    facts = "id, pid, uid, login_uid, user, login_user, cgroup, command, type"
    for number, pid, uid, login_uid, user, login_user, cgroup, command, kind in connection.execute(
        f"SELECT {facts} FROM process"
    ):
        owner = str(uid) if user is None and uid is not None else user
        identity = identity_of(uid, login_uid, user, login_user, cgroup)
        known[number] = (owner, pid, (identity, login_user, command, kind))
    return known


def rolled_up(view: str, columns: tuple[str, ...]) -> Table:
    """A table of rollups.sqlite, whose first column is the time. Queries also name the days, which begin the key."""

    def read(connection: sqlite3.Connection, start_ms: int, end_ms: int, config: Config) -> Iterator[Row]:
        days = (day_of(start_ms), day_of(end_ms - 1))
        rows = _select(connection, view, columns, start_ms, end_ms, "day BETWEEN ? AND ? AND", days)
        if "identity" not in columns:
            return rows
        from gua_report.people.identities import apply_mapping

        where = columns.index("identity")
        return ((*row[:where], apply_mapping(row[where], config.people), *row[where + 1 :]) for row in rows)

    return Table(columns, read, is_of_rollups=True)


# Keys are the names on the command line.
TABLES = {
    "card_ticks": Table((*CARD_TICKS, "state"), read_card_ticks),
    "process_ticks": Table((*PROCESS_TICKS, "identity"), read_process_ticks),
    "ticks": Table(TICKS, read_ticks),
    "csv": Table(DAILY, read_daily),
    "card_hours": rolled_up("card_hours", CARD_HOURS),
    "identity_hours": rolled_up("identity_hours", IDENTITY_HOURS),
    "episode_days": rolled_up("episode_days", EPISODE_DAYS),
    "spans": rolled_up("spans", SPANS),
}
OTHER_NAMES = {"rollups": "card_hours"}


def state_of(
    policy: Policy, utilization: float | None, status: str, process_memory: float | None, memory_used: float | None
) -> str:
    """The state of a card with these STATE_FACTS."""
    states = card_states(
        NAN if utilization is None else utilization,
        status != STATUS_OK,
        NAN if process_memory is None else process_memory,
        NAN if memory_used is None else memory_used,
        policy,
    )
    return next(state for state in STATES if states[state])


def identities(people: Mapping[str, str]) -> Callable[..., str]:
    """A function from a process's IDENTITY_FACTS to its identity."""

    @cache  # a process has the same facts at each tick
    def identity_of(*facts: Any) -> str:
        return apply_mapping(resolve(*facts), people)

    return identity_of


@lru_cache(maxsize=1)
def clock(second: int) -> str:
    """The UTC time in a form that spreadsheets recognise."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(second))


def _select(
    connection: sqlite3.Connection,
    view: str,
    columns: tuple[str, ...],
    start_ms: int,
    end_ms: int,
    condition: str = "",
    values: tuple[str, ...] = (),
) -> Iterator[Row]:
    when = columns[0]
    sql = f"SELECT {', '.join(columns)} FROM {view} WHERE {condition} {when} >= ? AND {when} < ? ORDER BY {ORDER[view]}"
    return connection.execute(sql, (*values, start_ms, end_ms))
