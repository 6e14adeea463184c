"""A closed day: a function of its own ticks and of nothing else. Only this module writes rollups.sqlite."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from hashlib import blake2b
from typing import Any

import numpy as np
import pandas as pd

from gua_report.rollups import schema
from gua_report.rollups.hourly_sums import CARD_SUMS, INSTANT_ONLY, roll_up
from gua_report.rollups.index import DAY_COLUMNS, Stored
from gua_report.rollups.reader import Day
from gua_report.ticks.classify import read_classified
from gua_report.ticks.coverage import SPAN_COLUMNS, find_spans
from gua_report.ticks.episodes import COLUMNS as EPISODE_COLUMNS
from gua_report.ticks.episodes import find_episodes
from gua_report.ticks.history import History
from gua_report.window import HOUR_MS, midnight_ms, number_of
from gua_sample.errors import StoreError
from gua_sample.partition_file import storage_error
from gua_sample.partition_names import DAY_MS
from gua_sample.policy import Policy
from gua_sample.safe_file import connect
from gua_sample.schema import find_missing

# Readers are short. One that stays open, such as a notebook, makes this run fail, and the next run continues.
BUSY_SECONDS = 30


def roll_up_day(history: History, day: str, policy: Policy) -> Day | None:
    """Roll up a day; None if it has no ticks, or is unreadable. Readers map identities to people."""
    start_ms, end_ms = midnight_ms(day), midnight_ms(day) + DAY_MS
    found = read_classified(history, start_ms, end_ms, policy, {})
    if found is None:
        return None
    return Day(roll_up(found, start_ms, end_ms), find_episodes(found), find_spans(history, [day]))


def fingerprint(day: Day) -> list[list[tuple[Any, ...]]]:
    """The contents of a day as whole numbers and texts, for a comparison."""
    rollup = day.rollup
    hours = rollup.cards[["hour_ms", "gpu_uuid", "state", "weight_ms", "gpu_ms", "energy_joules", "energy_ms"]]
    presences = rollup.identities[["hour_ms", "gpu_uuid", "identity", "state", "weight_ms", "gpu_ms"]]
    holds = rollup.holds.assign(share=rollup.holds["share"].astype(float) * 1e6)
    facts = rollup.card_facts[[*schema.CARD_FACTS, INSTANT_ONLY]]
    memory, others = _memory_mib(rollup.cards), (day.episodes[EPISODE_COLUMNS], day.spans[SPAN_COLUMNS])
    frames = (hours.assign(memory_mib=memory), presences, holds, rollup.unpartitioned, facts, *others)
    return [sorted(_rows(frame, frame), key=repr) for frame in frames]


def digest_sums(day: Day) -> str:
    """The digest of a day's contents, by which rot of the stored sums is found."""
    return blake2b(repr(fingerprint(day)).encode(errors="surrogatepass"), digest_size=16).hexdigest()


def _memory_mib(hours: pd.DataFrame) -> pd.Series[Any]:
    return hours["memory_mib_ms"].astype(float) / hours["memory_ms"].astype(float).where(hours["memory_ms"] > 0)


def _rows(frame: pd.DataFrame, names: Iterable[Any]) -> list[tuple[Any, ...]]:
    """The rows of these columns, as Python's own values: computed and stored ones are then spelled alike."""
    return list(zip(*(map(_plain, frame[name]) for name in names), strict=True))


def _plain(value: Any) -> Any:
    if value is None or value != value:
        return None
    return value if isinstance(value, str) else round(float(value))


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

    def write(self, day: str, made: Day, stored: Stored) -> None:
        rollup, episodes, spans = made
        facts = rollup.card_facts
        hours = rollup.cards.astype(dict.fromkeys(CARD_SUMS, float))
        knows_energy = hours["energy_ms"] > 0
        self._connection.execute("BEGIN IMMEDIATE")
        self._delete(number_of(day))
        (policy, *partition), *marks = stored
        self._insert("day", DAY_COLUMNS, [(number_of(day), day, *policy, *partition, *marks)])
        known = _rows(facts, schema.CARD_FACTS)
        cards = {one[0]: self._id_of("card", schema.CARD_FACTS, one) for one in known}
        frames = {
            "card_day": facts.rename(columns={"uuid": "gpu_uuid"}),
            "card_hour": hours.assign(
                energy_joules=hours["energy_joules"].where(knows_energy),
                energy_ms=_unless(hours["energy_ms"], hours["weight_ms"]).where(knows_energy),
                memory_mib=_memory_mib(hours),
            ),
            "identity_hour": rollup.identities,
            "hold": rollup.holds.assign(share_millionths=_unless(rollup.holds["share"] * 1e6, 1e6)),
            "episode": episodes,
            "span": spans,
            "unpartitioned_hour": rollup.unpartitioned,
        }
        for table, frame in frames.items():
            self._add(table, frame, number_of(day), cards)
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
        columns = ", ".join(f"{name} = ?" for name in values)
        rows = [(*values.values(), number_of(day)) for day in days]
        self._connection.execute("BEGIN IMMEDIATE")
        self._connection.executemany(f"UPDATE day SET {columns} WHERE id = ?", rows)
        self._connection.execute("COMMIT")

    def _begin(self) -> None:
        """Create the tables and views of a new file, or bring an earlier one up to date."""
        found = self._connection.execute("PRAGMA application_id").fetchone()[0]
        version = self._connection.execute("PRAGMA user_version").fetchone()[0]
        names = {row[0] for row in self._connection.execute("SELECT name FROM sqlite_master")}
        if found != schema.APPLICATION_ID and names:
            raise StoreError(f"{self.path} is a database of something else: move it away")
        if found == schema.APPLICATION_ID and version != schema.VERSION:
            raise StoreError(f"{self.path} has version {version}, this gua writes {schema.VERSION}: upgrade gua")
        if not names or find_missing(self._connection, schema.ADDED):
            self._bring_up_to_date()

    def _bring_up_to_date(self) -> None:
        self._connection.execute("BEGIN IMMEDIATE")
        for statement in schema.VIEWS:
            self._connection.execute(f"DROP VIEW IF EXISTS {statement.split()[2]}")
        for statement in schema.TABLES.values():
            self._connection.execute(statement.replace("TABLE", "TABLE IF NOT EXISTS", 1))
        for table, columns in find_missing(self._connection, schema.ADDED).items():
            for column in columns:
                self._connection.execute(f"ALTER TABLE {table} ADD COLUMN {column} {schema.ADDED[table][column]}")
        for table, column in schema.REMOVED.items():
            if column in self._columns_of(table):
                self._connection.execute(f"ALTER TABLE {table} DROP COLUMN {column}")
        for statement in schema.VIEWS:
            self._connection.execute(statement)
        self._connection.execute(f"PRAGMA application_id = {schema.APPLICATION_ID}")
        self._connection.execute(f"PRAGMA user_version = {schema.VERSION}")
        self._connection.execute("COMMIT")

    def _delete(self, number: int) -> None:
        self._connection.execute("DELETE FROM day WHERE id = ?", (number,))
        for table in schema.DAY_TABLES:
            self._connection.execute(f"DELETE FROM {table} WHERE day_id = ?", (number,))

    def _columns_of(self, table: str) -> list[str]:
        return [row[1] for row in self._connection.execute(f"PRAGMA table_info({table})")]

    def _insert(self, table: str, columns: Sequence[str], rows: list[tuple[Any, ...]]) -> None:
        insert = f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})"
        self._connection.executemany(insert, rows)

    def _add(self, table: str, frame: pd.DataFrame, number: int, cards: Mapping[str, int]) -> None:
        """Add the rows of a day: times as those after its midnight, cards and words as their ids."""
        found = frame.assign(day_id=number, position=range(len(frame)))
        if "hour_ms" in frame:
            found["hour"] = (frame["hour_ms"] - number * DAY_MS) // HOUR_MS
        if "weight_ms" in frame:
            found["gpu_ms"] = _unless(frame["gpu_ms"], frame["weight_ms"])
        if "start_ms" in frame:
            found[["start_ms", "end_ms"]] -= number * DAY_MS
        if "gpu_uuid" in frame:
            found["card_id"] = frame["gpu_uuid"].map(cards)
        for name in (name for of, name in schema.WORD_COLUMNS if of == table):
            found[name] = self._words(frame[name])
        columns = [name for name in self._columns_of(table) if name in found]  # a newer gua may have added some
        self._insert(table, columns, _rows(found, columns))

    def _words(self, texts: pd.Series[Any]) -> list[int | None]:
        distinct = dict.fromkeys(text for text in texts if isinstance(text, str))
        ids = {text: self._id_of("word", ("text",), (text,)) for text in distinct}
        return [ids.get(text) for text in texts]

    def _id_of(self, table: str, names: tuple[str, ...], values: tuple[Any, ...]) -> int:
        """The id of the row with these facts, which is inserted if there is none."""
        condition = " AND ".join(f"{name} IS ?" for name in names)
        row = self._connection.execute(f"SELECT id FROM {table} WHERE {condition}", values).fetchone()
        if row is None:
            self._insert(table, names, [values])
            row = self._connection.execute("SELECT last_insert_rowid()").fetchone()
        found: int = row[0]
        return found


def _unless(values: pd.Series[Any], usual: pd.Series[Any] | float) -> pd.Series[Any]:
    """The rounded values, without those that are the usual one: NULL takes no byte."""
    rounded = values.astype(float).round()
    return rounded.where(rounded.to_numpy() != np.round(np.asarray(usual, dtype=float)))
