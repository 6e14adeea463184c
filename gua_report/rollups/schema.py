"""The schema of rollups.sqlite: closed days as sums, in tables for the writer and in views for readers.

In tables, times are milliseconds after the day's midnight (UTC), so that they stay short. docs/schema.md describes
tables and views.
"""

from gua_sample.partition_names import DAY_MS
from gua_sample.policy import STATES

APPLICATION_ID = 0x67756172  # "guar"
VERSION = 1
FILE_NAME = "rollups.sqlite"

TABLES = {
    # The thresholds and the partition (its size and time of change) that the day was made from; whether it was read
    # back and found correct, and whether its ticks were removed since, or only compacted. The id is the number of days
    # since 1970-01-01, so that rows are in time order. `rule` is the number of the rule for states. Digests are those
    # of the partition's bytes and of the day's contents, taken when it was verified.
    "day": """
    CREATE TABLE day (
        id INTEGER PRIMARY KEY,
        day TEXT NOT NULL UNIQUE,
        utilization_percent REAL NOT NULL,
        process_memory_mib REAL NOT NULL,
        unattributed_memory_mib REAL NOT NULL,
        partition_bytes INTEGER NOT NULL,
        partition_changed_ns INTEGER NOT NULL,
        is_verified INTEGER NOT NULL,
        is_expired INTEGER NOT NULL,
        is_compact INTEGER NOT NULL,
        rule INTEGER,
        ticks_digest TEXT,
        sums_digest TEXT
    ) STRICT
    """,
    # Each distinct name, command, boot id, ... once.
    "word": "CREATE TABLE word (id INTEGER PRIMARY KEY, text TEXT NOT NULL UNIQUE) STRICT",
    "card": """
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
    # instant_only: see rollups/hourly_sums.py.
    "card_day": """
    CREATE TABLE card_day (
        day_id INTEGER NOT NULL,
        position INTEGER NOT NULL,
        card_id INTEGER NOT NULL,
        instant_only INTEGER,
        PRIMARY KEY (day_id, position)
    ) STRICT, WITHOUT ROWID
    """,
    # gpu_ms is NULL where it equals weight_ms, as for all cards except MIG instances; so is energy_ms, where energy is
    # known all the time.
    "card_hour": """
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
    "identity_hour": """
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
    "hold": """
    CREATE TABLE hold (
        day_id INTEGER NOT NULL,
        card_id INTEGER NOT NULL,
        start_ms INTEGER NOT NULL,
        end_ms INTEGER NOT NULL,
        share_millionths INTEGER,
        PRIMARY KEY (day_id, card_id, start_ms)
    ) STRICT, WITHOUT ROWID
    """,
    "episode": """
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
        slurm_job TEXT,
        PRIMARY KEY (day_id, position)
    ) STRICT, WITHOUT ROWID
    """,
    "span": """
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
    # What of a physical card no MIG instance covers.
    "unpartitioned_hour": """
    CREATE TABLE unpartitioned_hour (
        day_id INTEGER NOT NULL,
        hour INTEGER NOT NULL,
        gpu_uuid TEXT NOT NULL,
        gpu_ms INTEGER NOT NULL,
        PRIMARY KEY (day_id, hour, gpu_uuid)
    ) STRICT, WITHOUT ROWID
    """,
}
# Columns with their types, and a whole table, that were added later: earlier files lack them until the next write.
ADDED = {
    "day": {"rule": "INTEGER", "ticks_digest": "TEXT", "sums_digest": "TEXT"},
    "card_day": {"instant_only": "INTEGER"},
    "episode": {"slurm_job": "TEXT"},
    "unpartitioned_hour": {"day_id": "INTEGER", "hour": "INTEGER", "gpu_uuid": "TEXT", "gpu_ms": "INTEGER"},
}
ADDED_TABLE = "unpartitioned_hour"
# Columns that earlier files have, and that stand in the way of a write.
REMOVED = {"unpartitioned_hour": "crc"}
TABLE_NAMES = tuple(name for name in TABLES if name != ADDED_TABLE)
DAY_TABLES = tuple(name for name, sql in TABLES.items() if "day_id" in sql)
CARD_FACTS = ("uuid", "gpu_index", "mig_index", "name", "parent_uuid", "memory_total_mib", "status")
WORD_COLUMNS = (
    ("identity_hour", "identity"),
    ("episode", "command"),
    ("episode", "identity"),
    ("span", "boot_id"),
    ("span", "driver_version"),
    ("span", "kind"),
)
OBSERVED = "observed"  # the kind of a span in which cards were seen

_STATE_NAME = "CASE h.state {} END".format(
    " ".join(f"WHEN {number} THEN '{name}'" for number, name in enumerate(STATES))
)
_HOUR_MS = DAY_MS // 24
_CARD = "c.uuid AS gpu_uuid, c.gpu_index, c.mig_index, c.name AS gpu_name"
_HOUR = f"h.day_id * {DAY_MS} + h.hour * {_HOUR_MS} AS hour_ms, d.day"
_TIMES = f"s.day_id * {DAY_MS} + s.start_ms AS start_ms, s.day_id * {DAY_MS} + s.end_ms AS end_ms"
_HOURS = f"h.weight_ms, coalesce(h.gpu_ms, h.weight_ms) / {_HOUR_MS}.0 AS gpu_hours"
_ONE_PROCESS = "PARTITION BY gpu_uuid, pid, start_time_ms"

# A query by `day` uses the key of the table; a query by times makes SQLite scan the whole table.
VIEWS = (
    f"""
    CREATE VIEW days AS
    SELECT day, id * {DAY_MS} AS start_ms, utilization_percent, process_memory_mib, unattributed_memory_mib,
           partition_bytes, partition_changed_ns, is_verified, is_expired, is_compact,
           {", ".join(ADDED["day"])}
    FROM day
    """,
    # energy_joules is NULL, and energy_ms 0, if energy is never known in the hour.
    f"""
    CREATE VIEW card_hours AS
    SELECT {_HOUR}, {_CARD}, c.parent_uuid, CAST(c.memory_total_mib AS INTEGER) AS memory_total_mib,
           {_STATE_NAME} AS state, {_HOURS}, h.energy_joules,
           CASE WHEN h.energy_joules IS NULL THEN 0 ELSE coalesce(h.energy_ms, h.weight_ms) END AS energy_ms,
           h.memory_mib
    FROM day d JOIN card_hour h ON h.day_id = d.id JOIN card c ON c.id = h.card_id
    """,
    f"""
    CREATE VIEW identity_hours AS
    SELECT {_HOUR}, {_CARD}, w.text AS identity, {_STATE_NAME} AS state, {_HOURS}
    FROM day d JOIN identity_hour h ON h.day_id = d.id JOIN card c ON c.id = h.card_id JOIN word w ON w.id = h.identity
    """,
    f"""
    CREATE VIEW holds AS
    SELECT {_TIMES}, d.day, {_CARD}, coalesce(s.share_millionths, 1000000) / 1000000.0 AS share
    FROM day d JOIN hold s ON s.day_id = d.id JOIN card c ON c.id = s.card_id
    """,
    f"""
    CREATE VIEW episode_days AS
    SELECT {_TIMES}, d.day, {_CARD}, s.pid, s.start_time_ms, w.text AS command, i.text AS identity,
           (s.end_ms - s.start_ms) / 1000.0 AS seconds, s.peak_memory_mib, s.joins_before, s.joins_after, s.slurm_job
    FROM day d JOIN episode s ON s.day_id = d.id JOIN card c ON c.id = s.card_id
    JOIN word i ON i.id = s.identity LEFT JOIN word w ON w.id = s.command
    """,
    # Joined pieces have the same number; the last one gives facts that may have changed, such as the command.
    f"""
    CREATE VIEW episodes AS
    SELECT first_ms AS start_ms, end_ms, gpu_uuid, gpu_index, mig_index, gpu_name, pid, start_time_ms, command,
           identity, (end_ms - first_ms) / 1000.0 AS seconds, peak_mib AS peak_memory_mib,
           first_joins AS joins_before, joins_after, slurm_job
    FROM (
        SELECT *, min(start_ms) OVER piece AS first_ms, max(peak_memory_mib) OVER piece AS peak_mib,
               first_value(joins_before) OVER piece AS first_joins, lead(end_ms) OVER piece AS next_ms
        FROM (
            SELECT *, sum(NOT goes_on) OVER ({_ONE_PROCESS} ORDER BY start_ms) AS number
            FROM (
                SELECT *, joins_before AND lag(joins_after, 1, 0) OVER process
                    AND start_ms <= lag(end_ms) OVER process AS goes_on
                FROM episode_days
                WINDOW process AS ({_ONE_PROCESS} ORDER BY start_ms)
            )
        )
        WINDOW piece AS ({_ONE_PROCESS}, number ORDER BY start_ms)
    )
    WHERE next_ms IS NULL
    """,
    f"""
    CREATE VIEW spans AS
    SELECT {_TIMES}, d.day, b.text AS boot_id, v.text AS driver_version, coalesce(k.text, '{OBSERVED}') AS kind
    FROM day d JOIN span s ON s.day_id = d.id JOIN word b ON b.id = s.boot_id
    LEFT JOIN word v ON v.id = s.driver_version LEFT JOIN word k ON k.id = s.kind
    """,
    f"""
    CREATE VIEW unpartitioned_hours AS
    SELECT {_HOUR}, h.gpu_uuid, h.gpu_ms / {_HOUR_MS}.0 AS gpu_hours
    FROM day d JOIN unpartitioned_hour h ON h.day_id = d.id
    """,
)
