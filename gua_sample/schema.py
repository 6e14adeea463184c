"""The schema of a partition: tables for the writer, and the views that are its public interface (docs/schema.md).

A new column goes into ADDED, not into TABLES, and into its view, and leaves VERSION as it is. A fact of a card or
process is then a field in records.py; a value of each tick needs a place in partition_file.py.
"""

from collections.abc import Collection, Mapping
from sqlite3 import Connection

APPLICATION_ID = 0x67756173  # "guas"
VERSION = 1
OLDEST_SQLITE = (3, 37, 0)  # the first with STRICT tables

# Stored as positions, since 0 and 1 take no byte in a row.
UTILIZATION_SOURCES = ("rate", "samples", "gpm")

TABLES = (
    """
    CREATE TABLE session (
        id INTEGER PRIMARY KEY,
        boot_id TEXT NOT NULL,
        boot_time_ms INTEGER NOT NULL,
        driver_version TEXT
    ) STRICT
    """,
    """
    CREATE TABLE tick (
        id INTEGER PRIMARY KEY,
        ts_ms INTEGER NOT NULL UNIQUE,
        session_id INTEGER NOT NULL REFERENCES session,
        interval_ms INTEGER,
        nvml_ms INTEGER,
        error TEXT,
        pending_key INTEGER
    ) STRICT
    """,
    """
    CREATE TABLE card (
        id INTEGER PRIMARY KEY,
        uuid TEXT NOT NULL,
        gpu_index INTEGER NOT NULL,
        mig_index INTEGER,
        name TEXT,
        parent_uuid TEXT,
        memory_total_mib INTEGER,
        memory_reserved_mib INTEGER,
        persistence_mode INTEGER,
        status TEXT NOT NULL,
        missing TEXT,
        energy_base_joules INTEGER
    ) STRICT
    """,
    """
    CREATE TABLE card_sample (
        tick_id INTEGER NOT NULL REFERENCES tick,
        card_id INTEGER NOT NULL REFERENCES card,
        utilization_hundredths INTEGER,
        utilization_source INTEGER,
        memory_used_mib INTEGER,
        power_deciwatts INTEGER,
        energy_above_base_joules INTEGER,
        temperature_celsius INTEGER,
        PRIMARY KEY (tick_id, card_id)
    ) STRICT, WITHOUT ROWID
    """,
    """
    CREATE TABLE process (
        id INTEGER PRIMARY KEY,
        pid INTEGER NOT NULL,
        start_time_ms INTEGER,
        uid INTEGER,
        login_uid INTEGER,
        user TEXT,
        login_user TEXT,
        command TEXT,
        cgroup TEXT,
        type TEXT NOT NULL
    ) STRICT
    """,
    "CREATE INDEX process_pid ON process (pid)",
    """
    CREATE TABLE process_sample (
        tick_id INTEGER NOT NULL REFERENCES tick,
        card_id INTEGER NOT NULL REFERENCES card,
        process_id INTEGER NOT NULL REFERENCES process,
        memory_mib INTEGER,
        sm_percent INTEGER,
        PRIMARY KEY (tick_id, card_id, process_id)
    ) STRICT, WITHOUT ROWID
    """,
    """
    CREATE TABLE cursor (
        uuid TEXT PRIMARY KEY,
        session_id INTEGER NOT NULL REFERENCES session,
        gpu_index INTEGER NOT NULL,
        mig_index INTEGER,
        parent_uuid TEXT,
        samples_cursor INTEGER,
        processes_cursor INTEGER,
        uptime_ms INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID
    """,
)

TABLE_NAMES = ("session", "tick", "card", "card_sample", "process", "process_sample", "cursor")

# Columns that were added later, with their types, all nullable. A file of an older gua gets them at its next write;
# until then readers give NULL.
ADDED = {"card": {"compute_slices": "INTEGER", "most_compute_slices": "INTEGER", "parent_memory_mib": "INTEGER"}}

_SOURCE_NAME = "CASE s.utilization_source {} END".format(
    " ".join(f"WHEN {number} THEN '{name}'" for number, name in enumerate(UTILIZATION_SOURCES))
)

VIEWS = (
    """
    CREATE VIEW ticks AS
    SELECT t.ts_ms, t.interval_ms, n.boot_id, n.driver_version, t.nvml_ms, t.error
    FROM tick t JOIN session n ON n.id = t.session_id
    """,
    # The sum is 0 without any process, but NULL if the list, or one process's memory, is unknown.
    f"""
    CREATE VIEW card_ticks AS
    SELECT t.ts_ms, t.interval_ms, c.uuid AS gpu_uuid, c.gpu_index, c.name AS gpu_name, c.parent_uuid,
           s.utilization_hundredths / 100.0 AS utilization_percent,
           {_SOURCE_NAME} AS utilization_source,
           CASE WHEN c.status = 'ok' THEN (
               SELECT CASE WHEN count(*) = count(p.memory_mib) THEN coalesce(sum(p.memory_mib), 0) END
               FROM process_sample p
               WHERE p.tick_id = s.tick_id AND p.card_id = s.card_id
           ) END AS process_memory_mib,
           s.memory_used_mib, c.memory_reserved_mib, c.memory_total_mib,
           s.power_deciwatts / 10.0 AS power_watts,
           c.energy_base_joules + s.energy_above_base_joules AS energy_joules,
           s.temperature_celsius, c.persistence_mode, c.status, c.missing, c.mig_index,
           c.compute_slices, c.most_compute_slices, c.parent_memory_mib
    FROM tick t JOIN card_sample s ON s.tick_id = t.id JOIN card c ON c.id = s.card_id
    """,
    """
    CREATE VIEW process_ticks AS
    SELECT t.ts_ms, t.interval_ms, c.uuid AS gpu_uuid, c.gpu_index, p.pid, p.start_time_ms, p.uid, p.login_uid,
           p.user, p.login_user, p.command, p.cgroup, p.type, s.memory_mib, s.sm_percent
    FROM tick t JOIN process_sample s ON s.tick_id = t.id
    JOIN card c ON c.id = s.card_id JOIN process p ON p.id = s.process_id
    """,
)

VIEWS_BY_NAME = {statement.split()[2]: statement for statement in VIEWS}


def find_missing(connection: Connection, added: Mapping[str, Collection[str]]) -> dict[str, list[str]]:
    """The columns that the file's tables lack, by table; all if the table is missing."""
    missing = {}
    for table, columns in added.items():
        there = {row[1] for row in connection.execute(f"PRAGMA table_info({table})")}
        if lacking := [column for column in columns if column not in there]:
            missing[table] = lacking
    return missing


def begin(connection: Connection) -> None:
    for statement in TABLES:
        connection.execute(statement)
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    bring_up_to_date(connection)


def bring_up_to_date(connection: Connection) -> None:
    """Add the columns and views of this version to a partition of an older gua."""
    missing = find_missing(connection, ADDED)
    for table, columns in missing.items():
        for column in columns:
            connection.execute(f"ALTER TABLE {table} ADD COLUMN {column} {ADDED[table][column]}")
    if missing or connection.execute("PRAGMA user_version").fetchone()[0] < VERSION:
        connection.execute(f"PRAGMA user_version = {VERSION}")
        for name, statement in VIEWS_BY_NAME.items():
            connection.execute(f"DROP VIEW IF EXISTS {name}")
            connection.execute(statement)
