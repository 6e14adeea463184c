"""A gpu-usage-audit database of any version from 1.0.2 to 1.8.0; versions differ in their columns.

Facts from its sources: a tick is one transaction whose rows share a text as time, in UTC. Cards are written
in the order of their index, and if one fails the tick is not written at all, so the position of a row is the
index where that has no column (before 1.1). A card whose process list was unavailable looks like one without
processes; since the daemon stores `usage_state`, that is NULL for such a card.
"""

import sqlite3
from collections.abc import Callable, Iterable, Iterator
from datetime import timezone
from functools import cache, lru_cache
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple

from gua_report.importing.intake import LARGEST_PID, MOST_MIB, Source, Tally, name, shown, whole
from gua_report.window import is_day, iso_ms
from gua_sample.partition_names import DAY_MS
from gua_sample.policy import STATUS_OK
from gua_sample.records import IMPORTED_BOOT, Boot, Card, CardFacts, Process, Tick, Usage
from gua_sample.safe_file import read_foreign_tables

KIND = "gpu-usage-audit database"
NEEDED = {"gpu_sample": {"ts", "gpu_uuid", "util_pct"}, "proc_sample": {"ts", "gpu_uuid", "pid", "mem_used_mb"}}
NO_LIST = "process_list_unavailable"
TYPES = ("compute", "graphics")
NO_TIME = "whose time can't be read"
ORPHANS = "without a row of their card"

# The smallest and largest valid value of each column. An invalid value is treated as missing.
NUMBERS = {
    "util_pct": (0, 100),
    "gpu_index": (0, 2**16),
    "memory_used_mb": (0, MOST_MIB),
    "temperature_c": (-300, 1000),
    "power_w": (0, 2**20),
    "pid": (1, LARGEST_PID),
    "mem_used_mb": (0, MOST_MIB),
}
SAMPLE = ("ts", "run_id", "gpu_uuid")
CARD = (*SAMPLE, "util_pct", "gpu_index", "memory_used_mb", "temperature_c", "power_w", "usage_state")
PROCESS = (*SAMPLE, "pid", "mem_used_mb", "process_type", "loginuid_user", "owner_user", "process_name")

Row = tuple[Any, ...]


class Run(NamedTuple):
    """One run of the gpu-usage-audit daemon. It stands for a boot, as the machine's boots are not stored."""

    boot: Boot
    interval_ms: int | None = None
    driver_version: str | None = None


def find_problem(connection: sqlite3.Connection) -> str | None:
    """The reason why this is no gpu-usage-audit database, or None if it is one."""
    for table, needed in NEEDED.items():
        if missing := needed - _list_columns(connection, table):
            return f"{table} has no {', '.join(sorted(missing))}" if len(missing) < len(needed) else f"no {table}"
    return None


def source_of(connection: sqlite3.Connection, check: Callable[[], None], tally: Tally) -> Source:
    """The source. `check` raises if it has changed, so that what was read is not valid."""
    database = _Database(connection, tally)

    def read(day: str) -> list[Tick]:
        ticks = database.read(day)
        check()
        return ticks

    host, *_ = _read_host(connection)
    recorded_on = f", recorded on {name(host)}" if name(host) else ""
    return Source(f"{KIND} ({database.schema()}{recorded_on})", database.days(), read)


class _Database:
    def __init__(self, connection: sqlite3.Connection, tally: Tally) -> None:
        self._connection, self._tally = connection, tally
        self._present = {table: _list_columns(connection, table) for table in NEEDED}
        devices = _select(connection, "gpu_device", ("gpu_uuid", "name", "memory_total_mb"))
        self._devices = {uuid: (name(card_name), whole(total, 1, MOST_MIB)) for uuid, card_name, total in devices}
        self._runs = _read_runs(connection)
        # The first run whose daemon stored a usage_state: from then on, NULL means that there was no process list.
        told = "WHERE usage_state IS NOT NULL AND run_id IS NOT NULL ORDER BY run_id LIMIT 1"
        self._telling_run, _ = next(_select(connection, "gpu_sample", ("run_id", "usage_state"), told), (None, None))
        self._uuids = {table: self._list_uuids(table) for table in NEEDED}
        self._facts = cache(self._describe)

    def schema(self) -> str:
        present = self._present["gpu_sample"]
        if "run_id" not in present:
            return "schema of 1.0.2"
        return "schema of 1.8.0" if "usage_state" in present else "a schema between those of 1.0.2 and 1.8.0"

    def days(self) -> list[str]:
        """The days of the card rows, taken from the text of their times."""
        sql = "SELECT substr(ts, 1, 10), count(*), min(ts) FROM gpu_sample GROUP BY 1 ORDER BY 1"
        days = []
        for day, count, example in self._connection.execute(sql):
            if isinstance(day, str) and is_day(day):
                days.append(day)
            else:
                self._tally.leave("row", NO_TIME, shown(example), count=count)
        return days

    def read(self, day: str) -> list[Tick]:
        tick_of = itemgetter(0, 1)
        processes = {key: list(rows) for key, rows in groupby(self._rows("proc_sample", PROCESS, day), tick_of)}
        ticks = []
        for key, rows in groupby(self._rows("gpu_sample", CARD, day), tick_of):
            tick = self._tick(key, rows, processes.pop(key, []))
            if tick:
                ticks.append(tick)
        for (ts, _), orphans in processes.items():
            self._tally.leave("process row", ORPHANS, shown(ts), count=len(orphans))
        return sorted(ticks, key=lambda tick: tick.ts_ms)

    def _tick(self, key: Row, rows: Iterable[Row], processes: list[Row]) -> Tick | None:
        ts, run_id = key
        ts_ms = iso_ms(ts, timezone.utc)
        if ts_ms is None:
            self._tally.leave("row", NO_TIME, shown(ts), count=len(list(rows)))
            return None
        run = self._runs.get(run_id) or self._runs.setdefault(run_id, Run(_boot_of(f"run {run_id}")))
        usages, people = self._processes(processes)
        cards: dict[object, Card] = {}
        for position, row in enumerate(rows):
            uuid = row[2]
            if uuid in cards:
                self._tally.leave("row", "of a card that is there twice at a time", shown(ts))
            else:
                cards[uuid] = self._card(row, position, list(usages.pop(uuid, {}).values()))
        if usages:
            self._tally.leave("process row", ORPHANS, shown(ts), count=sum(map(len, usages.values())))
            present = {usage.pid for card in cards.values() for usage in card.usages}
            people = {pid: person for pid, person in people.items() if pid in present}
        boot, driver_version = run.boot, run.driver_version
        return Tick(ts_ms, run.interval_ms, boot, driver_version, None, None, list(cards.values()), people, [])

    def _card(self, row: Row, position: int, usages: list[Usage]) -> Card:
        _, run_id, uuid, utilization, index, used, temperature, power, usage_state = row
        first = self._telling_run
        tells_state = isinstance(run_id, int) and isinstance(first, int) and run_id >= first
        status = NO_LIST if usage_state is None and tells_state else STATUS_OK
        facts = self._facts(uuid, position if index is None else index, utilization is None, status)
        source = None if utilization is None else "rate"
        return Card(facts, utilization, source, used, power, None, temperature, usages)

    def _describe(self, uuid: str, index: int, is_implausible: bool, status: str) -> CardFacts:
        card_name, total = self._devices.get(uuid, (None, None))
        missing = "utilization:implausible" if is_implausible else None
        # The reserved memory is included in the memory in use.
        return CardFacts(name(uuid) or "", index, None, card_name, None, total, None, None, status, missing)

    def _processes(self, rows: list[Row]) -> tuple[dict[object, dict[int, Usage]], dict[int, Process]]:
        """The usages by card and pid, and the processes by pid. A pid listed twice on a card counts once, with its
        largest memory."""
        usages: dict[object, dict[int, Usage]] = {}
        people: dict[int, Process] = {}
        for ts, _, uuid, pid, memory, type_, login, owner, command in rows:
            if pid is None:
                self._tally.leave("process row", "whose pid makes no sense", shown(ts))
                continue
            usage = Usage(pid, type_ if type_ in TYPES else TYPES[0], memory, None)
            of_card = usages.setdefault(uuid, {})
            of_card[pid] = _join(of_card[pid], usage) if pid in of_card else usage
            people.setdefault(pid, _person(pid, login, owner, command))
        return usages, people

    def _rows(self, table: str, columns: tuple[str, ...], day: str) -> Iterator[Row]:
        """A day's rows, tick by tick in the order of writing. The index begins with uuids, so the query names them."""
        uuids, present = self._uuids[table], self._present[table]
        selected = ", ".join(_bounded(column) if column in present else "NULL" for column in columns)
        sql = (
            f"SELECT {selected} FROM {table} WHERE gpu_uuid IN ({', '.join('?' * len(uuids))})"
            f" AND ts >= ? AND ts < ? ORDER BY ts, {'run_id' if 'run_id' in present else 'NULL'}, rowid"
        )
        # "T" or a blank follows the day, and "U" sorts after both.
        return self._connection.execute(sql, (*uuids, day, day + "U"))

    def _list_uuids(self, table: str) -> list[str]:
        uuids = [row[0] for row in self._connection.execute(f"SELECT DISTINCT gpu_uuid FROM {table}")]
        for uuid in uuids:
            if name(uuid) is None:
                self._tally.leave("card", "without a name", shown(uuid))
        return [uuid for uuid in uuids if name(uuid) is not None]


def _read_runs(connection: sqlite3.Connection) -> dict[object, Run]:
    """The runs by id. None stands for rows without a run, such as all rows of 1.0.2.

    Only the host's current driver version is stored, with each tick: only the run of the newest tick is known to have
    had it.
    """
    _, version, first_seen, _ = _read_host(connection)
    runs: dict[object, Run] = {None: Run(_boot_of(first_seen))}
    for run_id, started_at, seconds in _select(connection, "daemon_run", ("id", "started_at", "interval_seconds")):
        interval_ms = whole(seconds * 1000 if isinstance(seconds, int | float) else None, 1, DAY_MS)
        runs[run_id] = Run(_boot_of(started_at), interval_ms)
    (last,) = next(_select(connection, "gpu_sample", ("run_id",), "ORDER BY rowid DESC LIMIT 1"), (None,))
    runs[last] = runs.get(last, Run(_boot_of(f"run {last}")))._replace(driver_version=name(version))
    return runs


def _read_host(connection: sqlite3.Connection) -> Row:
    columns = ("hostname", "driver_version", "first_seen", "last_seen")
    return next(_select(connection, "host", columns, "ORDER BY last_seen DESC LIMIT 1"), (None,) * len(columns))


def _boot_of(began: object) -> Boot:
    return Boot(f"{IMPORTED_BOOT}gpu-usage-audit:{name(began) or 'unknown'}", iso_ms(began, timezone.utc) or 0)


def _select(connection: sqlite3.Connection, table: str, columns: tuple[str, ...], rest: str = "") -> Iterator[Row]:
    """The rows of a table; none if it lacks one of the columns."""
    if not _list_columns(connection, table).issuperset(columns):
        return iter(())
    return connection.execute(f"SELECT {', '.join(columns)} FROM {table} {rest}")


def _list_columns(connection: sqlite3.Connection, table: str) -> set[str]:
    """The columns of a plain table; none for anything else, as a small file can hold an endless view."""
    if table not in read_foreign_tables(connection, "the source"):
        return set()
    return {row[1] for row in connection.execute(f"PRAGMA table_info({table})")}


@lru_cache(4096)  # a process has the same names at each tick
def _person(pid: int, login: object, owner: object, command: object) -> Process:
    return Process(pid, None, None, None, name(owner), name(login), name(command), None)


def _bounded(column: str) -> str:
    if column not in NUMBERS:
        return column
    lowest, highest = NUMBERS[column]
    can_be = f"typeof({column}) IN ('integer', 'real') AND {column} BETWEEN {lowest} AND {highest}"
    return f"CASE WHEN {can_be} THEN CAST({column} AS INTEGER) END"


def _join(one: Usage, other: Usage) -> Usage:
    memories = [usage.memory_mib for usage in (one, other) if usage.memory_mib is not None]
    type_ = one.type if one.type == other.type else "+".join(TYPES)
    return Usage(one.pid, type_, max(memories, default=None), None)
