"""A gpu-usage-audit database of any version from 1.0.2 to 1.8.0; versions differ in their columns.

Facts from its sources: a tick is one transaction whose rows share a text as time, in UTC. Cards are written
in the order of their index, and if one fails the tick is not written at all, so the position of a row is the
index where that has no column (before 1.1). A card whose process list was unavailable looks like one without
processes; since the daemon stores `usage_state`, that is NULL for such a card.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from itertools import groupby
from operator import itemgetter
from typing import Any

from gua_report.importing.foreign_file import Check
from gua_report.importing.gpu_usage_audit_runs import (
    Run,
    boot_of,
    find_telling_run,
    list_columns,
    read_devices,
    read_runs,
)
from gua_report.importing.source import Source
from gua_report.importing.tally import Tally
from gua_report.importing.values import LARGEST_PID, MOST_MIB, moment_ms, name, shown
from gua_report.window import is_day
from gua_sample.policy import STATUS_OK
from gua_sample.records import Card, CardFacts, Process, Tick, Usage

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
TICK = ("ts", "run_id")
CARD_COLUMNS = (*TICK, "gpu_uuid", "util_pct", "gpu_index", "memory_used_mb", "temperature_c", "power_w", "usage_state")
PROCESS_COLUMNS = (
    *TICK,
    "gpu_uuid",
    "pid",
    "mem_used_mb",
    "process_type",
    "loginuid_user",
    "owner_user",
    "process_name",
)

Row = tuple[Any, ...]


def find_problem(connection: sqlite3.Connection) -> str | None:
    """The reason why this is no gpu-usage-audit database, or None if it is one."""
    for table, needed in NEEDED.items():
        if missing := needed - list_columns(connection, table):
            return f"{table} has no {', '.join(sorted(missing))}" if len(missing) < len(needed) else f"no {table}"
    return None


def source_of(connection: sqlite3.Connection, check: Check, tally: Tally) -> Source:
    database = _Database(connection, tally)
    return Source(f"{KIND} ({database.schema()})", database.days(), database.read, check)


class _Database:
    def __init__(self, connection: sqlite3.Connection, tally: Tally) -> None:
        self._connection, self._tally = connection, tally
        self._present = {table: list_columns(connection, table) for table in NEEDED}
        self._devices = read_devices(connection)
        self._runs = read_runs(connection)
        self._telling_run = find_telling_run(connection)
        self._uuids = {table: self._list_uuids(table) for table in NEEDED}
        self._facts: dict[Row, CardFacts] = {}
        self._people: dict[Row, Process] = {}

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
                self._tally.leave("row", NO_TIME, shown(example), count)
        return days

    def read(self, day: str) -> list[Tick]:
        """The day's ticks in time order."""
        tick_of = itemgetter(0, 1)
        processes = {key: list(rows) for key, rows in groupby(self._rows("proc_sample", PROCESS_COLUMNS, day), tick_of)}
        ticks = []
        for key, rows in groupby(self._rows("gpu_sample", CARD_COLUMNS, day), tick_of):
            tick = self._tick(key, rows, processes.pop(key, []))
            if tick:
                ticks.append(tick)
        for (ts, _), orphans in processes.items():
            self._tally.leave("process row", ORPHANS, shown(ts), len(orphans))
        return sorted(ticks, key=lambda tick: tick.ts_ms)

    def _tick(self, key: Row, rows: Iterable[Row], processes: list[Row]) -> Tick | None:
        ts, run_id = key
        ts_ms = moment_ms(ts)
        if ts_ms is None:
            self._tally.leave("row", NO_TIME, shown(ts), len(list(rows)))
            return None
        run = self._run(run_id)
        usages, people = self._processes(processes)
        cards: dict[object, Card] = {}
        for position, row in enumerate(rows):
            uuid = row[2]
            if uuid in cards:
                self._tally.leave("row", "of a card that is there twice at a time", shown(ts))
            else:
                cards[uuid] = self._card(row, position, list(usages.pop(uuid, {}).values()))
        if usages:
            self._tally.leave("process row", ORPHANS, shown(ts), sum(map(len, usages.values())))
            present = {usage.pid for card in cards.values() for usage in card.usages}
            people = {pid: person for pid, person in people.items() if pid in present}
        boot, driver_version = run.boot, run.driver_version
        return Tick(ts_ms, run.interval_ms, boot, driver_version, None, None, list(cards.values()), people, [])

    def _card(self, row: Row, position: int, usages: list[Usage]) -> Card:
        _, run_id, uuid, utilization, index, used, temperature, power, usage_state = row
        no_list = usage_state is None and self._tells_state(run_id)
        key = (uuid, position if index is None else index, utilization is None, no_list)
        facts = self._facts.get(key)
        if facts is None:
            facts = self._facts[key] = self._describe(*key)
        source = None if utilization is None else "rate"
        return Card(facts, utilization, source, used, power, None, temperature, usages)

    def _describe(self, uuid: str, index: int, is_implausible: bool, no_list: bool) -> CardFacts:
        card_name, total = self._devices.get(uuid, (None, None))
        return CardFacts(
            uuid=name(uuid) or "",
            gpu_index=index,
            mig_index=None,
            name=card_name,
            parent_uuid=None,
            memory_total_mib=total,
            memory_reserved_mib=None,  # included in the memory in use
            persistence_mode=None,
            status=NO_LIST if no_list else STATUS_OK,
            missing="utilization:implausible" if is_implausible else None,
        )

    def _processes(self, rows: list[Row]) -> tuple[dict[object, dict[int, Usage]], dict[int, Process]]:
        """The usages by card and pid, and the processes by pid. A pid listed twice on a card counts once, with its
        largest memory."""
        usages: dict[object, dict[int, Usage]] = {}
        people: dict[int, Process] = {}
        for ts, _, uuid, pid, memory, type_, login, owner, command in rows:
            if pid is None:
                self._tally.leave("process row", "whose pid can't be", shown(ts))
                continue
            usage = Usage(pid, type_ if type_ in TYPES else TYPES[0], memory, None)
            of_card = usages.setdefault(uuid, {})
            of_card[pid] = _join(of_card[pid], usage) if pid in of_card else usage
            people[pid] = self._person(pid, login, owner, command, people.get(pid))
        return usages, people

    def _person(self, pid: int, login: object, owner: object, command: object, known: Process | None) -> Process:
        key = (pid, login, owner, command, known)
        if key not in self._people:
            person = Process(pid, None, None, None, name(owner), name(login), name(command), None)
            if known:  # the row of another card may have names that this one lacks
                person = person._replace(
                    user=known.user or person.user,
                    login_user=known.login_user or person.login_user,
                    command=known.command or person.command,
                )
            self._people[key] = person
        return self._people[key]

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

    def _run(self, run_id: object) -> Run:
        return self._runs.get(run_id) or self._runs.setdefault(run_id, Run(boot_of(f"run {run_id}"), None, None))

    def _tells_state(self, run_id: object) -> bool:
        return self._telling_run is not None and isinstance(run_id, int) and run_id >= self._telling_run


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
