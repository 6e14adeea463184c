"""Databases of gpu-usage-audit, written like its daemon does."""

import sqlite3
from contextlib import closing
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any, NamedTuple

from tests.lab import SECOND_MS, at

# Long past, because ticks of the future are not imported.
FIRST_SEEN_MS = at("2026-10-05")
NOON_MS = at("2026-10-05 12:00")

OLD_TABLES = """
    CREATE TABLE host (hostname TEXT, env_kind TEXT, driver_version TEXT, first_seen DATETIME, last_seen DATETIME);
    CREATE TABLE gpu_sample (ts DATETIME NOT NULL, gpu_uuid TEXT NOT NULL, util_pct INTEGER NOT NULL);
    CREATE TABLE proc_sample (ts DATETIME NOT NULL, gpu_uuid TEXT NOT NULL, pid INTEGER NOT NULL,
                              mem_used_mb INTEGER NOT NULL, loginuid_user TEXT);
"""
NEW_TABLES = """
    CREATE TABLE host (hostname TEXT, env_kind TEXT, driver_version TEXT, first_seen DATETIME, last_seen DATETIME);
    CREATE TABLE daemon_run (id INTEGER PRIMARY KEY AUTOINCREMENT, started_at DATETIME, interval_seconds REAL);
    CREATE TABLE gpu_sample (ts DATETIME NOT NULL, gpu_uuid TEXT NOT NULL, util_pct INTEGER NOT NULL, run_id INTEGER,
                             usage_state TEXT, gpu_index INTEGER, memory_used_mb INTEGER, temperature_c INTEGER,
                             power_w INTEGER);
    CREATE TABLE proc_sample (ts DATETIME NOT NULL, gpu_uuid TEXT NOT NULL, pid INTEGER NOT NULL, mem_used_mb INTEGER,
                              loginuid_user TEXT, owner_user TEXT, run_id INTEGER, gpu_index INTEGER,
                              process_name TEXT, process_type TEXT NOT NULL DEFAULT 'compute');
    CREATE TABLE gpu_device (gpu_uuid TEXT, name TEXT, memory_total_mb INTEGER, first_seen TEXT, last_seen TEXT);
"""
INDEXES = """
    CREATE INDEX idx_gpu_sample_uuid_ts ON gpu_sample (gpu_uuid, ts);
    CREATE INDEX idx_proc_sample_uuid_ts ON proc_sample (gpu_uuid, ts);
"""


class Seen(NamedTuple):
    """A card at a tick, as gpu-usage-audit sees it."""

    utilization: Any = 0
    processes: tuple[tuple[Any, ...], ...] = ()  # pid, memory, login user, owner, command, type
    used: Any = 500
    uuid: Any = None
    state: Any = "idle"


class PeerDatabase:
    """A gpu-usage-audit database, written as its daemon writes: a transaction for each tick."""

    def __init__(self, path: Path, is_old: bool = False) -> None:
        self.path, self.is_old = path, is_old
        self.run_id: int | None = None
        with self.open() as connection:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.executescript((OLD_TABLES if is_old else NEW_TABLES) + INDEXES)
            host = ("lab7", "bare", "570.86.10", text_of(FIRST_SEEN_MS), text_of(NOON_MS))
            connection.execute("INSERT INTO host VALUES (?, ?, ?, ?, ?)", host)

    def open(self) -> closing[sqlite3.Connection]:
        return closing(sqlite3.connect(self.path, isolation_level=None))

    def start(self, started_ms: int, interval_seconds: Any = 30.0) -> None:
        sql = "INSERT INTO daemon_run (started_at, interval_seconds) VALUES (?, ?)"
        with self.open() as connection:
            self.run_id = connection.execute(sql, (text_of(started_ms), interval_seconds)).lastrowid

    def add(self, moments: list[Any], *cards: Seen) -> None:
        """Add a tick with these cards at each of these times, which may be texts."""
        with self.open() as connection:
            connection.execute("BEGIN")
            for moment in moments:
                self._add_tick(connection, text_of(moment) if isinstance(moment, int) else moment, cards)
            connection.execute("COMMIT")

    def _add_tick(self, connection: sqlite3.Connection, ts: Any, cards: tuple[Seen, ...]) -> None:
        for index, card in enumerate(cards):
            uuid = f"GPU-{index}" if card.uuid is None else card.uuid
            row: tuple[Any, ...] = (ts, uuid, card.utilization)
            if not self.is_old:
                row += (self.run_id, card.state, index, card.used, 41, 77)
            connection.execute(f"INSERT INTO gpu_sample VALUES ({', '.join('?' * len(row))})", row)
            for process in card.processes:
                pid, memory, login, owner, command, kind = (
                    process + ("u1", None, "python", "compute")[len(process) - 2 :]
                )
                row = (ts, uuid, pid, memory, login)
                if not self.is_old:
                    row += (owner, self.run_id, index, command, kind)
                connection.execute(f"INSERT INTO proc_sample VALUES ({', '.join('?' * len(row))})", row)


def text_of(ts_ms: int) -> str:
    """A time as the daemon writes it, to the microsecond."""
    moment = datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(milliseconds=ts_ms, microseconds=7)
    return moment.isoformat()


def times(start_ms: int, count: int, every_ms: int = 30 * SECOND_MS) -> list[Any]:
    """Times at equal intervals, in milliseconds."""
    return [start_ms + number * every_ms for number in range(count)]
