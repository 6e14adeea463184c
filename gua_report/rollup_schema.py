"""rollups.sqlite: closed days as sums. Times are milliseconds after the day's midnight (UTC), so that they stay short.

docs/schema.md describes the tables.
"""

APPLICATION_ID = 0x67756172  # "guar"
VERSION = 1
FILE_NAME = "rollups.sqlite"

TABLES = (
    # What the day was made from (the partition's size and time of change) and under which thresholds; whether it
    # was read back and found right. Its id is the number of days since 1970-01-01: rows lie in the order of time.
    """
    CREATE TABLE day (
        id INTEGER PRIMARY KEY,
        day TEXT NOT NULL UNIQUE,
        utilization_percent REAL NOT NULL,
        process_memory_mib REAL NOT NULL,
        unattributed_memory_mib REAL NOT NULL,
        partition_bytes INTEGER NOT NULL,
        partition_changed_ns INTEGER NOT NULL,
        is_verified INTEGER NOT NULL
    ) STRICT
    """,
    # Names, commands, boot ids, ...: each text once.
    "CREATE TABLE word (id INTEGER PRIMARY KEY, text TEXT NOT NULL UNIQUE) STRICT",
    """
    CREATE TABLE card (
        id INTEGER PRIMARY KEY,
        uuid TEXT NOT NULL,
        gpu_index INTEGER NOT NULL,
        mig_index INTEGER,
        name TEXT,
        parent_uuid TEXT,
        memory_total_mib REAL,
        status TEXT
    ) STRICT
    """,
    """
    CREATE TABLE card_day (
        day_id INTEGER NOT NULL,
        position INTEGER NOT NULL,
        card_id INTEGER NOT NULL,
        PRIMARY KEY (day_id, position)
    ) STRICT, WITHOUT ROWID
    """,
    # gpu_ms is NULL where it is weight_ms, as for all but MIG instances; energy_ms where energy is known all the time.
    """
    CREATE TABLE card_hour (
        day_id INTEGER NOT NULL,
        hour INTEGER NOT NULL,
        card_id INTEGER NOT NULL,
        state INTEGER NOT NULL,
        weight_ms INTEGER NOT NULL,
        gpu_ms INTEGER,
        energy_joules INTEGER,
        energy_ms INTEGER,
        memory_mib INTEGER,
        PRIMARY KEY (day_id, hour, card_id, state)
    ) STRICT, WITHOUT ROWID
    """,
    """
    CREATE TABLE identity_hour (
        day_id INTEGER NOT NULL,
        hour INTEGER NOT NULL,
        card_id INTEGER NOT NULL,
        identity INTEGER NOT NULL,
        state INTEGER NOT NULL,
        weight_ms INTEGER NOT NULL,
        gpu_ms INTEGER,
        PRIMARY KEY (day_id, hour, card_id, identity, state)
    ) STRICT, WITHOUT ROWID
    """,
    """
    CREATE TABLE hold (
        day_id INTEGER NOT NULL,
        card_id INTEGER NOT NULL,
        start_ms INTEGER NOT NULL,
        end_ms INTEGER NOT NULL,
        share_millionths INTEGER,
        PRIMARY KEY (day_id, card_id, start_ms)
    ) STRICT, WITHOUT ROWID
    """,
    """
    CREATE TABLE episode (
        day_id INTEGER NOT NULL,
        position INTEGER NOT NULL,
        card_id INTEGER NOT NULL,
        pid INTEGER NOT NULL,
        start_time_ms INTEGER,
        command INTEGER,
        identity INTEGER NOT NULL,
        start_ms INTEGER NOT NULL,
        end_ms INTEGER NOT NULL,
        peak_memory_mib INTEGER,
        joins_before INTEGER NOT NULL,
        joins_after INTEGER NOT NULL,
        PRIMARY KEY (day_id, position)
    ) STRICT, WITHOUT ROWID
    """,
    """
    CREATE TABLE span (
        day_id INTEGER NOT NULL,
        start_ms INTEGER NOT NULL,
        end_ms INTEGER NOT NULL,
        boot_id INTEGER NOT NULL,
        driver_version INTEGER,
        kind INTEGER,
        PRIMARY KEY (day_id, start_ms)
    ) STRICT, WITHOUT ROWID
    """,
)
