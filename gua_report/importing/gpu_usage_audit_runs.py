"""Contents of a gpu-usage-audit database besides its samples: runs of its daemon, cards, the host."""

from __future__ import annotations

import sqlite3
from typing import NamedTuple

from gua_report.importing.values import MOST_MIB, moment_ms, name, whole
from gua_sample.records import IMPORTED_BOOT, Boot
from gua_sample.safe_file import read_foreign_tables

BOOT_PREFIX = IMPORTED_BOOT + "gpu-usage-audit:"
LONGEST_INTERVAL_MS = 86_400_000


class Run(NamedTuple):
    """One run of the gpu-usage-audit daemon."""

    boot: Boot
    interval_ms: int | None
    driver_version: str | None


def read_runs(connection: sqlite3.Connection) -> dict[object, Run]:
    """The runs by id. None stands for rows without a run, such as all rows of 1.0.2.

    Only the host's current driver version is stored: only the last run is known to have had it.
    """
    first_seen, version = _read_host(connection)
    runs: dict[object, Run] = {None: Run(boot_of(first_seen), None, None)}
    if {"id", "started_at", "interval_seconds"} <= list_columns(connection, "daemon_run"):
        rows = connection.execute("SELECT id, started_at, interval_seconds FROM daemon_run ORDER BY id").fetchall()
        for run_id, started_at, seconds in rows:
            interval_ms = whole(seconds * 1000 if isinstance(seconds, int | float) else None, 1, LONGEST_INTERVAL_MS)
            runs[run_id] = Run(boot_of(started_at), interval_ms, version if run_id == rows[-1][0] else None)
    return runs


def boot_of(began: object) -> Boot:
    """A boot that stands for a run of the daemon, as the database does not store the machine's boots."""
    return Boot(BOOT_PREFIX + (name(began) or "unknown"), moment_ms(began) or 0)


def find_telling_run(connection: sqlite3.Connection) -> int | None:
    """The first run whose daemon stored a usage_state: from then on, NULL means that there was no process list."""
    if not {"usage_state", "run_id"} <= list_columns(connection, "gpu_sample"):
        return None
    found = connection.execute("SELECT min(run_id) FROM gpu_sample WHERE usage_state IS NOT NULL").fetchone()[0]
    return found if isinstance(found, int) else None


def read_devices(connection: sqlite3.Connection) -> dict[object, tuple[str | None, int | None]]:
    """Name and total memory of each card by uuid."""
    if not {"gpu_uuid", "name", "memory_total_mb"} <= list_columns(connection, "gpu_device"):
        return {}
    rows = connection.execute("SELECT gpu_uuid, name, memory_total_mb FROM gpu_device")
    return {uuid: (name(card_name), whole(total, 1, MOST_MIB)) for uuid, card_name, total in rows}


def _read_host(connection: sqlite3.Connection) -> tuple[object, str | None]:
    """The time when the host was first seen, and its driver version."""
    if not {"first_seen", "last_seen", "driver_version"} <= list_columns(connection, "host"):
        return None, None
    sql = "SELECT first_seen, driver_version FROM host ORDER BY last_seen DESC LIMIT 1"
    found = connection.execute(sql).fetchone()
    return (found[0], name(found[1])) if found else (None, None)


def list_columns(connection: sqlite3.Connection, table: str) -> set[str]:
    """The columns of a plain table; none for anything else, as a small file can hold an endless view."""
    if table not in read_foreign_tables(connection, "the source"):
        return set()
    return {row[1] for row in connection.execute(f"PRAGMA table_info({table})")}
