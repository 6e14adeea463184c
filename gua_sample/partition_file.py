"""Writing to one partition. Only this module and schema have SQL that changes a partition."""

import os
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from gua_sample import schema
from gua_sample.errors import CorruptPartition, PartitionBusy, StoreError
from gua_sample.partition_names import DAY_MS, SQLITE_MAGIC
from gua_sample.records import MIG_FACTS, Boot, Card, CardFacts, Cursor, Previous, Process, Tick
from gua_sample.safe_file import (
    Deadline,
    check_tables,
    connect,
    connect_unchecked,
    is_begun,
    read_header,
    visit_seconds,
)

# Time to wait for readers before the tick is kept beside the partition. It is short, since a writer
# that waits to commit locks new readers out.
BUSY_SECONDS = 2.0
# Limit of CPU time for writing one tick: a hundred times what it needs.
TICK_SECONDS = 0.1
MOST_CARDS = 4096
IN_MEMORY = ":memory:"
# Columns are always named: a newer gua may have added some.
CARD = ", ".join(CardFacts._fields)
PROCESS = ", ".join((*Process._fields, "type"))
CARD_SAMPLE = (
    "tick_id, card_id, utilization_hundredths, utilization_source, memory_used_mib, power_deciwatts,"
    " energy_above_base_joules, temperature_celsius"
)
PROCESS_SAMPLE = "tick_id, card_id, process_id, memory_mib, sm_percent"
CURSOR = "uuid, gpu_index, mig_index, parent_uuid, samples_cursor, processes_cursor, uptime_ms"

# SQLite's messages for problems outside of the file. All others (malformed, no such table, a text
# that can't be decoded, ...) mean that its content is damaged.
AROUND_THE_FILE = ("readonly", "unable to open", "disk I/O error", "out of memory")


def storage_error(error: OSError | sqlite3.Error | UnicodeDecodeError, path: str) -> StoreError:
    """The error as a StoreError that says what to do."""
    check = "check its owner, mode and mount, or give another --data-dir"
    if isinstance(error, OSError):
        return StoreError(f"{path} can't be used ({error.strerror}): {check}")
    text = str(error)
    if text == "interrupted":  # by its deadline
        return CorruptPartition(f"{path} takes too long to read: is it damaged?")
    if "locked" in text:
        return PartitionBusy(f"{path} is held by another process")
    if "full" in text:
        return StoreError(f"no space left for {path}: free some, or give another --data-dir; what it holds is safe")
    # A damaged header can make SQLite call a writable file read-only.
    writable = os.access(path, os.W_OK) and os.access(os.path.dirname(path), os.W_OK)
    if any(words in text for words in AROUND_THE_FILE) and not ("readonly" in text and writable):
        return StoreError(f"{path} can't be used ({text}): {check}")
    return CorruptPartition(f"{path} is not usable ({text})")


class Writer:
    """Opens or creates a partition. All failures leave the file as it was."""

    def __init__(self, path: str) -> None:
        if sqlite3.sqlite_version_info < schema.OLDEST_SQLITE:
            oldest = ".".join(map(str, schema.OLDEST_SQLITE))
            raise StoreError(f"SQLite {oldest} or newer is needed, this Python has {sqlite3.sqlite_version}")
        self._path = path
        self._ids: dict[tuple[object, ...], int] = {}
        self._cards: dict[CardFacts, tuple[int, int | None]] = {}
        try:
            if path == IN_MEMORY:
                self._connection = connect_unchecked(path, "rwc", BUSY_SECONDS)
            else:
                # A killed writer never damages the first bytes, so no journal can repair them. SQLite would use the
                # journal up trying, even if it belongs to a new file that another run has just put in this one's place.
                with suppress(FileNotFoundError):
                    header = read_header(path)
                    if header and not header.startswith(SQLITE_MAGIC):
                        raise CorruptPartition(f"{path} is not usable (file is not a database)")
                self._connection = connect(path, "rwc", BUSY_SECONDS)
            self._deadline = Deadline(self._connection, visit_seconds(path))
        except (sqlite3.Error, UnicodeDecodeError, OSError) as error:
            raise storage_error(error, path) from error
        self._execute = self._connection.execute

    def __enter__(self) -> "Writer":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        self._connection.close()  # an open transaction is rolled back
        if isinstance(error, sqlite3.Error | UnicodeDecodeError):
            raise storage_error(error, self._path) from error

    def check(self) -> None:
        """Raise NewerPartition or CorruptPartition if no tick can be added to this file.

        As any first read does, it rolls back the transaction of a killed writer.
        """
        with self._reading():
            self._is_begun()

    def previous(self) -> Previous | None:
        """What the newest tick left for the next one. No lock outlives this call."""
        with self._reading():
            if not self._is_begun():
                return None
            session = self._execute(
                "SELECT boot_id, boot_time_ms, driver_version, (SELECT ts_ms FROM tick ORDER BY id DESC LIMIT 1)"
                " FROM session"
                " ORDER BY id = (SELECT max(session_id) FROM cursor) DESC, id DESC LIMIT 1"
            ).fetchone()
            if session is None:
                return None
            boot_id, boot_time_ms, driver_version, ts_ms = check_types(session, str, int, (str, None), (int, None))
            rows = self._execute(f"SELECT {CURSOR} FROM cursor LIMIT {MOST_CARDS}").fetchall()
            types = str, int, (int, None), (str, None), (int, None), (int, None), int
            cursors = [Cursor(*check_types(row, *types)) for row in rows]
            if any(cursor.mig_index is not None for cursor in cursors):
                shares = self._mig_shares()
                cursors = [cursor._replace(**shares.get(cursor.uuid, {})) for cursor in cursors]
        return Previous(Boot(boot_id, boot_time_ms), driver_version, cursors, ts_ms)

    def _mig_shares(self) -> dict[str, dict[str, Any]]:
        """The MIG_FACTS that instances last told, by uuid; none in a file of an older gua."""
        if schema.find_missing(self._connection, schema.ADDED):
            return {}
        told = f"SELECT uuid, {', '.join(MIG_FACTS)} FROM card WHERE compute_slices IS NOT NULL ORDER BY id"
        rows = [check_types(row, str, *((int, None),) * len(MIG_FACTS)) for row in self._execute(told)]
        return {uuid: dict(zip(MIG_FACTS, facts, strict=True)) for uuid, *facts in rows}

    def names(self) -> dict[int, str]:
        """The stored names of users, by uid. No lock outlives this call."""
        with self._reading():
            if not self._is_begun():
                return {}
            users = "SELECT uid, user FROM process WHERE user IS NOT NULL"
            logins = "SELECT login_uid, login_user FROM process WHERE login_user IS NOT NULL"
            rows = self._execute(f"{users} UNION {logins}").fetchall()
            return dict(check_types(row, (int, None), str) for row in rows)

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """Raise damage of any kind as CorruptPartition."""
        try:
            yield
        except (ArithmeticError, LookupError, TypeError, ValueError) as error:
            raise CorruptPartition(f"{self._path} is damaged ({type(error).__name__}: {error})") from error

    def write(self, keyed: Iterable[tuple[Tick, int]], ticks: Iterable[Tick]) -> None:
        """Add ticks whose keys are not stored yet, then ticks without a key, in one transaction.

        The last tick without a key leaves its cursors for the next run.
        """
        tick = None
        self._execute("BEGIN IMMEDIATE")
        if self._is_begun():
            schema.bring_up_to_date(self._connection)
        else:
            schema.begin(self._connection)
        known: set[int] | None = None
        for late, key in keyed:
            if known is None:  # all at once, because they have no index
                known = {row[0] for row in self._execute("SELECT pending_key FROM tick")}
            if key not in known:
                known.add(key)  # there may be a copy of a kept tick's file
                self._add_tick(late, key)
        for tick in ticks:
            self._add_tick(tick, None)
        if tick and tick.cursors:
            rows = [(*cursor[:7], self._session_id(tick)) for cursor in tick.cursors]
            self._execute("DELETE FROM cursor")
            self._insert_all("cursor", f"{CURSOR}, session_id", rows, "INSERT OR REPLACE")
        self._execute("COMMIT")

    def _is_begun(self) -> bool:
        """Whether there is a schema yet. Raises StoreError if it is not ours."""
        if not is_begun(self._connection, self._path, "a partition", schema.APPLICATION_ID, schema.VERSION):
            return False
        check_tables(self._connection, self._path, schema.TABLE_NAMES)
        return True

    def _add_tick(self, tick: Tick, pending_key: int | None) -> None:
        self._deadline.allow(TICK_SECONDS)
        ts_ms = tick.ts_ms
        # Times are unique: if one is taken, use the next free one within the day.
        step = 1 if ts_ms % DAY_MS < DAY_MS // 2 else -1
        while self._execute("SELECT 1 FROM tick WHERE ts_ms = ?", (ts_ms,)).fetchone():
            ts_ms += step
        tick_id = self._execute(
            "INSERT INTO tick (ts_ms, session_id, interval_ms, nvml_ms, error, pending_key) VALUES (?, ?, ?, ?, ?, ?)",
            (ts_ms, self._session_id(tick), tick.interval_ms, tick.nvml_ms, tick.error, pending_key),
        ).lastrowid
        card_rows, process_rows = [], []
        for card in tick.cards:
            card_id, energy_base = self._card_id(card)
            card_rows.append((tick_id, card_id, *_card_values(card, energy_base)))
            for usage in card.usages:
                process_id = self._find("process", PROCESS, (*tick.processes[usage.pid], usage.type))
                process_rows.append((tick_id, card_id, process_id, usage.memory_mib, usage.sm_percent))
        self._insert_all("card_sample", CARD_SAMPLE, card_rows)
        self._insert_all("process_sample", PROCESS_SAMPLE, process_rows)

    def _session_id(self, tick: Tick) -> int:
        key = tick.boot.id, tick.driver_version
        return self._find("session", "boot_id, driver_version", key, ", boot_time_ms", (tick.boot.time_ms,))

    def _card_id(self, card: Card) -> tuple[int, int | None]:
        """The id of this set of facts, and the base that its energy counter is stored relative to."""
        if not self._cards:
            with self._reading():  # all of them: whatever is damaged in one is found
                for card_id, base, *facts in self._execute(f"SELECT id, energy_base_joules, {CARD} FROM card"):
                    check_types((card_id, base), int, (int, None))
                    self._cards[CardFacts(*facts)] = card_id, base
        card_id, base = self._cards.get(card.facts, (None, card.energy_joules))
        if card_id is None:
            card_id = self._insert("card", f"{CARD}, energy_base_joules", (*card.facts, base))
        elif base is None and card.energy_joules is not None:
            base = card.energy_joules
            self._execute("UPDATE card SET energy_base_joules = ? WHERE id = ?", (base, card_id))
        self._cards[card.facts] = card_id, base
        return card_id, base

    def _find(
        self, table: str, columns: str, key: tuple[Any, ...], more: str = "", values: tuple[Any, ...] = ()
    ) -> int:
        """The id of the row with these values, which is added with more of them if it is missing."""
        place = table, *key
        if place not in self._ids:
            same = " AND ".join(f"{column} IS ?" for column in columns.split(", "))
            row = self._execute(f"SELECT id FROM {table} WHERE {same}", key).fetchone()
            self._ids[place] = row[0] if row else self._insert(table, columns + more, (*key, *values))
        return self._ids[place]

    def _insert(self, table: str, columns: str, values: tuple[object, ...]) -> int:
        marks = ", ".join("?" * len(values))
        row_id = self._execute(f"INSERT INTO {table} ({columns}) VALUES ({marks})", values).lastrowid
        assert row_id is not None  # it is None only before the first INSERT
        return row_id

    def _insert_all(self, table: str, columns: str, rows: list[Any], how: str = "INSERT") -> None:
        marks = ", ".join("?" * (columns.count(",") + 1))
        self._connection.executemany(f"{how} INTO {table} ({columns}) VALUES ({marks})", rows)


def check_types(row: tuple[Any, ...], *kinds: Any) -> tuple[Any, ...]:
    """The row, if its values have these types; a pair with None allows NULL. Else raises TypeError."""
    for value, kind in zip(row, kinds, strict=True):
        is_right = isinstance(value, kind[0]) or value is None if isinstance(kind, tuple) else isinstance(value, kind)
        if not is_right:
            raise TypeError(f"{str(value)[:20]!r} is no value for that column")
    return row


def _card_values(card: Card, energy_base: int | None) -> tuple[int | None, ...]:
    percent, source = card.utilization_percent, card.utilization_source
    energy, power = card.energy_joules, card.power_watts
    return (
        None if percent is None else round(percent * 100),
        None if source is None else schema.UTILIZATION_SOURCES.index(source),
        card.memory_used_mib,
        None if power is None else round(power * 10),
        None if energy is None or energy_base is None else energy - energy_base,
        card.temperature_celsius,
    )
