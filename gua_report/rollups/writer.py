"""Writing rollups.sqlite. This module has the only SQL that changes it."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from typing import Any

import pandas as pd

from gua_report.rollups import schema
from gua_report.rollups.digests import digest_rows, with_crc
from gua_report.rollups.hourly_sums import CARD_KEY, CARD_SUMS, IDENTITY_KEY, INSTANT_ONLY
from gua_report.rollups.index import MARKS, ROWS, Beside, Edges, Stored
from gua_report.rollups.reader import Day
from gua_report.ticks.coverage import SPAN_COLUMNS
from gua_report.ticks.episodes import COLUMNS as EPISODE_COLUMNS
from gua_report.window import HOUR_MS, number_of
from gua_sample.errors import StoreError
from gua_sample.partition_file import storage_error
from gua_sample.partition_names import DAY_MS
from gua_sample.safe_file import connect
from gua_sample.schema import find_missing

# Readers are short. One that stays open, such as a notebook, makes this run fail, and the next run continues.
BUSY_SECONDS = 30


class RollupWriter:
    """Context manager that opens or creates the file. One day is one transaction."""

    def __init__(self, path: str) -> None:
        self.path = path
        try:
            self._connection = connect(self.path, "rwc", BUSY_SECONDS)
            with ExitStack() as failing:
                failing.callback(self._connection.close)
                self._connection.execute("PRAGMA secure_delete = ON")  # expired names must not remain in the file
                self._begin()
                failing.pop_all()
        except (sqlite3.Error, UnicodeDecodeError, OSError) as error:
            raise storage_error(error, self.path) from error

    def __enter__(self) -> RollupWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        self._connection.close()
        if isinstance(error, sqlite3.Error):
            raise storage_error(error, self.path) from error

    def write(
        self, day: str, made: Day, stored: Stored, edges: Edges | None = None, beside: Iterable[Beside] = ()
    ) -> None:
        """Store the day, replacing its earlier rollup, and the current edge keys for its neighbours.

        Both are one transaction, so that a killed run leaves no stale day that is not marked as such. The digest of the
        rows is taken, or compared with the one that `stored` has from another file.
        """
        number = number_of(day)
        self._connection.execute("BEGIN IMMEDIATE")
        self._delete(number)
        policy, *partition = stored.origin
        marks = (int(getattr(stored, mark)) for mark in MARKS)
        added = (getattr(stored, name) for name in schema.ADDED["day"])
        self._insert("day", [(number, day, *policy, *partition, *marks, *added)])
        if edges is not None:
            now = (None, None) if stored.is_stale else edges
            self._insert("edge", [(number, *edges, *now)])
        for neighbour, side, key in beside:
            self._connection.execute(f"UPDATE edge SET {side}_now = ? WHERE day_id = ?", (key, number_of(neighbour)))
        facts = made.rollup.card_facts[list(schema.CARD_FACTS)].astype(object)
        cards = [
            dict(zip(schema.CARD_FACTS, values, strict=True)) for values in facts.itertuples(index=False, name=None)
        ]
        by_uuid = {card["uuid"]: self._id_of("card", card) for card in cards}
        instant_only = map(_whole, made.rollup.card_facts[INSTANT_ONLY])
        places = zip(range(len(by_uuid)), by_uuid.values(), instant_only, strict=True)
        self._insert("card_day", [(number, *place) for place in places])
        self._insert("card_hour", _card_hours(number, made.rollup.cards, by_uuid))
        self._insert("identity_hour", self._identity_hours(number, made.rollup.identities, by_uuid))
        midnight = number * DAY_MS
        self._insert(
            "hold",
            [
                (number, by_uuid[uuid], start - midnight, end - midnight, _unless(round(share * 1e6), 1_000_000))
                for uuid, start, end, share in made.rollup.holds.itertuples(index=False, name=None)
            ],
        )
        self._insert("episode", self._episodes(number, made.episodes, by_uuid))
        self._insert(
            "span",
            [
                (number, start - midnight, end - midnight, *map(self._word, words))
                for start, end, *words in made.spans[SPAN_COLUMNS].itertuples(index=False, name=None)
            ],
        )
        self._insert("unpartitioned_hour", _unpartitioned_hours(number, made.rollup.unpartitioned))
        digest = digest_rows(self._connection, number)
        if stored.rows_digest is None:
            self._connection.execute("UPDATE day SET rows_digest = ? WHERE id = ?", (digest, number))
        elif stored.rows_digest != digest:
            self._connection.execute("UPDATE day SET failed_check = ? WHERE id = ?", (ROWS, number))
        self._connection.execute("COMMIT")

    def roll_back(self) -> None:
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")

    def delete(self, days: Iterable[str]) -> None:
        """Delete days, and the names and cards that only these days used."""
        self._connection.execute("BEGIN IMMEDIATE")
        for day in days:
            self._delete(number_of(day))
        used = " UNION ".join(
            f"SELECT {column} FROM {table} WHERE {column} IS NOT NULL" for table, column in schema.WORD_COLUMNS
        )
        self._connection.execute(f"DELETE FROM word WHERE id NOT IN ({used})")
        self._connection.execute("DELETE FROM card WHERE id NOT IN (SELECT card_id FROM card_day)")
        self._connection.execute("COMMIT")

    def mark(self, days: Iterable[str], **values: Any) -> None:
        """Set these columns of the table `day` for these days."""
        columns = ", ".join(f"{name} = ?" for name in values)
        rows = [(*values.values(), number_of(day)) for day in days]
        self._connection.execute("BEGIN IMMEDIATE")
        self._connection.executemany(f"UPDATE day SET {columns} WHERE id = ?", rows)
        self._connection.execute("COMMIT")

    def _begin(self) -> None:
        """Create the tables and views of a new file, or add those that a file of an older gua lacks."""
        found = self._connection.execute("PRAGMA application_id").fetchone()[0]
        version = self._connection.execute("PRAGMA user_version").fetchone()[0]
        names = {row[0] for row in self._connection.execute("SELECT name FROM sqlite_master")}
        if found != schema.APPLICATION_ID and names:
            raise StoreError(f"{self.path} is a database of something else: move it away")
        if found == schema.APPLICATION_ID and version != schema.VERSION:
            raise StoreError(f"{self.path} has version {version}, this gua writes {schema.VERSION}: upgrade gua")
        missing = find_missing(self._connection, schema.ADDED)
        if names and not missing:
            return
        self._connection.execute("BEGIN IMMEDIATE")
        for table, statement in schema.TABLES.items():
            if table not in names:
                self._connection.execute(statement)
            else:
                for column in missing.get(table, ()):
                    kind = schema.columns_of(table)[column]
                    self._connection.execute(f"ALTER TABLE {table} ADD COLUMN {column} {kind}")
        for statement in schema.VIEWS:
            self._connection.execute(f"DROP VIEW IF EXISTS {statement.split()[2]}")
            self._connection.execute(statement)
        self._connection.execute(f"PRAGMA application_id = {schema.APPLICATION_ID}")
        self._connection.execute(f"PRAGMA user_version = {schema.VERSION}")
        self._connection.execute("COMMIT")

    def _delete(self, number: int) -> None:
        self._connection.execute("DELETE FROM day WHERE id = ?", (number,))
        for table in (*schema.DAY_TABLES, *schema.ADDED_TABLES):
            self._connection.execute(f"DELETE FROM {table} WHERE day_id = ?", (number,))

    def _insert(self, table: str, rows: list[tuple[Any, ...]]) -> None:
        if rows:
            columns = list(schema.columns_of(table))[: len(rows[0])]
            marks = ", ".join("?" * len(columns))
            self._connection.executemany(f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({marks})", rows)

    def _id_of(self, table: str, facts: Mapping[str, Any]) -> int:
        """The id of the row with these facts, which is inserted if there is none."""
        values = tuple(map(_known, facts.values()))
        condition = " AND ".join(f"{name} IS ?" for name in facts)
        row = self._connection.execute(f"SELECT id FROM {table} WHERE {condition}", values).fetchone()
        if row is None:
            marks = ", ".join("?" * len(values))
            insert = f"INSERT INTO {table} ({', '.join(facts)}) VALUES ({marks})"
            row = (self._connection.execute(insert, values).lastrowid,)
        found: int = row[0]
        return found

    def _word(self, text: Any) -> int | None:
        return None if _known(text) is None else self._id_of("word", {"text": text})

    def _identity_hours(
        self, number: int, identities: pd.DataFrame, by_uuid: Mapping[str, int]
    ) -> list[tuple[Any, ...]]:
        rows = []
        names = [*IDENTITY_KEY, "weight_ms", "gpu_ms"]
        words = {name: self._word(name) for name in dict.fromkeys(identities["identity"].tolist())}
        for hour, uuid, identity, state, weight, gpu in identities[names].itertuples(index=False, name=None):
            key = (number, (hour - number * DAY_MS) // HOUR_MS, by_uuid[uuid], words[identity], state)
            rows.append((*key, round(weight), _unless(round(gpu), round(weight))))
        return rows

    def _episodes(self, number: int, episodes: pd.DataFrame, by_uuid: Mapping[str, int]) -> list[tuple[Any, ...]]:
        midnight = number * DAY_MS
        rows: list[tuple[Any, ...]] = []
        for uuid, pid, born, command, identity, start, end, peak, before, after, job in (
            episodes[EPISODE_COLUMNS].astype(object).itertuples(index=False, name=None)
        ):
            who = (by_uuid[uuid], pid, _whole(born), self._word(command), self._word(identity))
            times = (start - midnight, end - midnight, _whole(peak), int(before), int(after))
            rows.append((number, len(rows), *who, *times, _known(job)))
        return rows


def _card_hours(number: int, cards: pd.DataFrame, by_uuid: Mapping[str, int]) -> list[tuple[Any, ...]]:
    rows = []
    names = [*CARD_KEY, *CARD_SUMS]
    for hour, uuid, state, weight, gpu, joules, energy_ms, memory, memory_ms in cards[names].itertuples(
        index=False, name=None
    ):
        whole = round(weight)
        rows.append(
            (
                number,
                (hour - number * DAY_MS) // HOUR_MS,
                by_uuid[uuid],
                state,
                whole,
                _unless(round(gpu), whole),
                round(joules) if energy_ms else None,
                _unless(round(energy_ms), whole) if energy_ms else None,
                round(memory / memory_ms) if memory_ms else None,
            )
        )
    return rows


def _unpartitioned_hours(number: int, unpartitioned: pd.DataFrame) -> list[tuple[Any, ...]]:
    return [
        with_crc(number, int(hour - number * DAY_MS) // HOUR_MS, uuid, round(gpu_ms))
        for hour, uuid, gpu_ms in unpartitioned.itertuples(index=False, name=None)
    ]


def _unless(value: int, usual: int) -> int | None:
    """The value, or None if it is the usual one: NULL takes no byte."""
    return None if value == usual else value


def _known(value: Any) -> Any:
    """The value, or None if it is one of the values by which pandas says that it is not known."""
    return None if value is None or value != value else value


def _whole(value: Any) -> int | None:
    return None if _known(value) is None else int(value)
