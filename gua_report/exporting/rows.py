"""The tables that can be exported: plain values, with None for unknown ones, read from one file at a time."""

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from itertools import groupby, islice
from operator import itemgetter
from typing import Any, NamedTuple, TypeAlias

from gua_report.config import Config
from gua_report.people.containers import COLUMNS as CONTAINER_COLUMNS
from gua_report.people.containers import People, find_people, tell
from gua_report.people.identities import apply_mapping, resolve
from gua_report.rollups.index import ROLLUPS
from gua_report.ticks.open_partition import PARTITION, open_database, use_own_views
from gua_sample.containers import Container
from gua_sample.identity import find_slurm_job
from gua_sample.partition_names import day_of
from gua_sample.policy import NAN, STATUS_OK, UNPARTITIONED, Policy, card_states, chosen, see_end

Row: TypeAlias = tuple[Any, ...]  # of str, int, float and None
Bounds: TypeAlias = tuple[int, int]  # start and end in milliseconds
Rows: TypeAlias = Iterable[Row]

MOST_ROWS = 5_000_000  # of one day, in memory at once


class Rules(NamedTuple):
    policy: Policy
    names: Mapping[str, str]  # of people, by identity
    people: People


class Table(NamedTuple):
    columns: tuple[str, ...]
    # The rows between start (inclusive) and end (exclusive), in the order of time.
    read: Callable[[sqlite3.Connection, Bounds, Rules], Rows]
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
    *("identity", "login_user", "command", "type", "memory_mib", "sm_percent", *CONTAINER_COLUMNS, "slurm_job"),
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
    *("identity", "seconds", "peak_memory_mib", "joins_before", "joins_after", "slurm_job"),
)
SPANS = ("start_ms", "end_ms", "boot_id", "driver_version", "kind")

REAL = {"utilization_percent", "power_watts", "gpu_hours", "seconds"}
TEXT = {"boot_id", "driver_version", "error", "gpu_uuid", "gpu_name", "parent_uuid", "utilization_source", "status"}
TEXT |= {"missing", "state", "user", "login_user", "command", "cgroup", "type", "identity", "time_utc", "kind"}
TEXT |= {*CONTAINER_COLUMNS, "slurm_job"}

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
# From the tables, not the views: looking up a card and a process once, not at each tick, takes half the time.
DAILY_SQL = """
    SELECT datetime(t.ts_ms / 1000, 'unixepoch'), t.ts_ms, s.card_id, s.utilization_hundredths / 100.0,
           s.memory_used_mib, s.power_deciwatts / 10.0, s.temperature_celsius, p.process_id, p.memory_mib, p.sm_percent
    FROM tick t JOIN card_sample s ON s.tick_id = t.id JOIN card c ON c.id = s.card_id
    LEFT JOIN process_sample p ON p.tick_id = s.tick_id AND p.card_id = s.card_id
    WHERE t.ts_ms >= ? AND t.ts_ms < ?
    ORDER BY t.ts_ms, c.gpu_index, c.mig_index, s.card_id, p.process_id
"""


def find_rules(data_dir: str, config: Config) -> Rules:
    return Rules(config.policy, config.people, find_people(data_dir, config.people))


def read_rows(path: str, name: str, bounds: Bounds, rules: Rules) -> list[Row]:
    """A table's rows within the bounds: of a day at most, as all of them are read, so that no writer waits for whoever
    takes them. Raises StoreError, if a value is not of its column's type, too.
    """
    table = TABLES[name]
    kind = ROLLUPS if table.is_of_rollups else PARTITION
    with open_database(path, kind) as connection:
        connection.text_factory = cache(bytes.decode)  # in memory, a name that recurs at each tick is there once
        use_own_views(connection, kind)
        rows = list(islice(table.read(connection, bounds, rules), MOST_ROWS + 1))
        if len(rows) > MOST_ROWS:
            raise ValueError(f"over {MOST_ROWS:,} rows in a day")
        for column, values in zip(table.columns, zip(*rows, strict=True), strict=False):
            if not set(map(type, values)) <= {kind_of(column), type(None)}:
                raise TypeError(f"{column} is no {kind_of(column).__name__}")
    return rows


def batches(rows: list[Row], size: int) -> Iterator[list[Row]]:
    return (rows[start : start + size] for start in range(0, len(rows), size))


def kind_of(column: str) -> type[str] | type[float] | type[int]:
    return str if column in TEXT else float if column in REAL else int


def read_card_ticks(connection: sqlite3.Connection, bounds: Bounds, rules: Rules) -> Rows:
    facts, find_state = itemgetter(*map(CARD_TICKS.index, STATE_FACTS)), states(rules.policy)
    return ((*row, find_state(*facts(row))) for row in _select(connection, "card_ticks", CARD_TICKS, bounds))


def read_process_ticks(connection: sqlite3.Connection, bounds: Bounds, rules: Rules) -> Rows:
    facts, find_owner = itemgetter(*map(PROCESS_TICKS.index, IDENTITY_FACTS)), owners(rules)
    return ((*row, *find_owner(*facts(row))) for row in _select(connection, "process_ticks", PROCESS_TICKS, bounds))


def read_daily(connection: sqlite3.Connection, bounds: Bounds, rules: Rules) -> Rows:
    """A row for each process on each card at each tick, and one for a card without processes."""
    facts = "id, gpu_index, uuid, mig_index, status, memory_total_mib"
    cards = {card_id: known for card_id, *known in connection.execute(f"SELECT {facts} FROM card")}
    processes = _known_processes(connection, rules)
    find_state = states(rules.policy)
    for sample, group in groupby(connection.execute(DAILY_SQL, bounds), key=itemgetter(slice(7))):
        clock, ts_ms, card_id, utilization, used, power, temperature = sample
        gpu, uuid, mig_index, status, total = cards[card_id]
        usages = [row[7:] for row in group]
        memories = [memory for process_id, memory, _ in usages if process_id is not None]
        state = find_state(utilization, status, None if None in memories else sum(memories), used)
        percent = None if utilization is None else round(utilization)
        card = (clock, ts_ms, uuid, mig_index, status, state, utilization, used, total, power, temperature)
        for process_id, memory, sm_percent in usages:
            owner, pid, who, around = processes[process_id]
            yield ts_ms // 1000, owner, pid, gpu, percent, *card, *who, memory, sm_percent, *around


def _known_processes(connection: sqlite3.Connection, rules: Rules) -> dict[int | None, Row]:
    find_owner = owners(rules)
    known: dict[int | None, Row] = {None: (None, None, (None,) * 4, (None,) * (len(CONTAINER_COLUMNS) + 1))}
    rows = connection.execute(f"SELECT id, pid, command, type, {', '.join(IDENTITY_FACTS)} FROM process")
    for process_id, pid, command, kind, *facts in rows:
        uid, _, user, login_user, _ = facts
        identity, *around = find_owner(*facts)
        owner = str(uid) if user is None and uid is not None else user
        known[process_id] = (owner, pid, (identity, login_user, command, kind), around)
    return known


def plain(view: str, columns: tuple[str, ...], is_of_rollups: bool = False) -> Table:
    """A view's rows as they are, but identities as people, and with their containers."""
    has_people = "identity" in columns

    def read(connection: sqlite3.Connection, bounds: Bounds, rules: Rules) -> Rows:
        rows = _select(connection, view, columns, bounds, is_of_rollups)
        if not has_people:
            return rows
        where = columns.index("identity")

        @cache
        def find_owner(identity: str) -> Row:
            return _told(identity, rules, rules.people.containers.find(identity))

        named = ((row, *find_owner(row[where])) for row in rows)
        return ((*row[:where], who, *row[where + 1 :], *container) for row, who, *container in named)

    return Table((*columns, *CONTAINER_COLUMNS) if has_people else columns, read, is_of_rollups)


# Keys are the names on the command line.
TABLES = {
    "card_ticks": Table((*CARD_TICKS, "state"), read_card_ticks),
    "process_ticks": Table((*PROCESS_TICKS, "identity", *CONTAINER_COLUMNS, "slurm_job"), read_process_ticks),
    "ticks": plain("ticks", TICKS),
    "csv": Table(DAILY, read_daily),
    "card_hours": plain("card_hours", CARD_HOURS, is_of_rollups=True),
    "identity_hours": plain("identity_hours", IDENTITY_HOURS, is_of_rollups=True),
    "episode_days": plain("episode_days", EPISODE_DAYS, is_of_rollups=True),
    "spans": plain("spans", SPANS, is_of_rollups=True),
}
OTHER_NAMES = {"rollups": "card_hours"}


def states(policy: Policy) -> Callable[..., str]:
    @cache  # most cards have the same facts at many ticks
    def find_state(
        utilization: float | None, status: str, process_memory: float | None, memory_used: float | None
    ) -> str:
        if status == UNPARTITIONED:
            return UNPARTITIONED
        percent, held, used = (NAN if value is None else value for value in (utilization, process_memory, memory_used))
        end = see_end(percent, status != STATUS_OK, held, used, policy)
        return chosen(card_states(end, end, True, policy=policy))

    return find_state


def owners(rules: Rules) -> Callable[..., Row]:
    @cache  # a process has the same facts at each tick
    def find_owner(*facts: Any) -> Row:
        cgroup = facts[-1]
        return *_told(resolve(*facts), rules, rules.people.containers.find_around(cgroup)), find_slurm_job(cgroup)

    return find_owner


def _told(identity: str, rules: Rules, container: Container | None) -> Row:
    identity = apply_mapping(identity, rules.names)
    return identity, *tell(identity, container)


def _select(
    connection: sqlite3.Connection, view: str, columns: tuple[str, ...], bounds: Bounds, is_of_rollups: bool = False
) -> Iterator[Row]:
    start_ms, end_ms = bounds
    # The key of rollups begins with the day.
    days = f"day BETWEEN '{day_of(start_ms)}' AND '{day_of(end_ms - 1)}' AND" if is_of_rollups else ""
    when = f"{days} {columns[0]} >= ? AND {columns[0]} < ?"
    return connection.execute(f"SELECT {', '.join(columns)} FROM {view} WHERE {when} ORDER BY {ORDER[view]}", bounds)
