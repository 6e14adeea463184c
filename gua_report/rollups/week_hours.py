"""The hours of everybody in the closed days of a week, by plain SQL. Without pandas, for what answers at once."""

# No `from __future__ import annotations` here: it would make NamedTuple compile the text of every field.
import os
import sqlite3
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from gua_report.limits import WEEK_MS, Used, Week, week_before
from gua_report.people.identities import apply_mapping
from gua_report.rollups.index import ROWS, Stored, open_rollups, path_of, read_index
from gua_report.rollups.usable import find_usable
from gua_report.window import HOUR_MS, is_day, midnight_ms, number_of
from gua_sample.partition_names import DAY_MS, SUFFIX
from gua_sample.policy import IDLE_HELD, STATES, UNKNOWN, Policy

IDLE_HELD_CODE, UNKNOWN_CODE = STATES.index(IDLE_HELD), STATES.index(UNKNOWN)


class ClosedWeek(NamedTuple):
    week: Week
    people: dict[str, Used]  # by identity, as the configuration names people


def read_closed_week(
    data_dir: str, partitions: Iterable[str], policy: Policy, people: Mapping[str, str], now_ms: int
) -> ClosedWeek:
    """The hours of the 7 UTC days before today, as far as rollups have them; what they lack counts as not observed.

    `partitions`: the paths of the history's. Raises StoreError if the rollups can't be read.
    """
    start_ms, end_ms = week_before(now_ms // DAY_MS * DAY_MS)
    index, path = read_index(path_of(data_dir), damaged=[]), path_of(data_dir)
    # With the days beside them, on whose ticks the first and the last depend.
    by_day = {os.path.basename(one).removesuffix(SUFFIX): one for one in partitions}
    near = {day: one for day, one in by_day.items() if is_day(day) and start_ms - DAY_MS <= midnight_ms(day) <= end_ms}
    days = [day for day in _find_usable(index, near, policy) if start_ms <= midnight_ms(day) < end_ms]
    if not days:
        return ClosedWeek(Week(start_ms, end_ms, 0.0), {})
    with open_rollups(path) as connection:
        observed_ms = _read_observed_ms(connection, days)
        used = _read_hours(connection, days, people)
    return ClosedWeek(Week(start_ms, end_ms, min(1.0, observed_ms / WEEK_MS)), used)


def _find_usable(index: Mapping[str, Stored], partitions: Mapping[str, str], policy: Policy) -> Iterable[str]:
    """The stored days that a report would take as they are; the first tick of today is not looked at."""
    # A day that is beyond `partitions` counts as expired here, too, and is not asked for.
    expired = {day for day, stored in index.items() if stored.is_expired or day not in partitions}
    there = {day: path for day, path in partitions.items() if day not in expired}
    usable = find_usable(index, there, policy, lambda day: None)
    usable |= {day for day in expired if index[day].origin.policy == policy}
    return [day for day in usable if index[day].failed_check != ROWS]


def _where(days: list[str]) -> str:
    return f"WHERE day_id IN ({', '.join(str(number_of(day)) for day in days)})"


def _read_observed_ms(connection: sqlite3.Connection, days: list[str]) -> int:
    spans = f"SELECT max(0, min(end_ms, {DAY_MS}) - max(start_ms, 0)) AS ms FROM span {_where(days)} AND kind IS NULL"
    return int(connection.execute(f"SELECT coalesce(sum(ms), 0) FROM ({spans})").fetchone()[0])


def _read_hours(connection: sqlite3.Connection, days: list[str], people: Mapping[str, str]) -> dict[str, Used]:
    """The hours of everybody. Where two identities of one person were on a card in the same hour, only ticks can tell
    how much of that overlaps: such an hour is left out, and the sum is not whole."""
    sums: dict[int, list[int]] = {}
    names: dict[str, list[int]] = {}
    query = f"SELECT identity, text, state, sum(ms), min(ms), max(ms) FROM ({_rows(days)}) GROUP BY identity, state"
    for identity, text, state, total_ms, least_ms, most_ms in connection.execute(query):
        if not 0 <= state < len(STATES) or least_ms < 0 or most_ms > HOUR_MS:
            raise ValueError(f"{least_ms} to {most_ms} ms of an hour in state {state}")
        if identity not in sums:
            sums[identity] = [0] * len(STATES)
            names.setdefault(apply_mapping(text, people), []).append(identity)
        sums[identity][state] += total_ms
    used = {}
    for person, own in names.items():
        doubled = _read_doubled(connection, days, own) if len(own) > 1 else []
        for identity, state, doubled_ms in doubled:
            sums[identity][state] -= doubled_ms
        hours = [sum(sums[identity][state] for identity in own) / HOUR_MS for state in range(len(STATES))]
        used[person] = Used(sum(hours), hours[IDLE_HELD_CODE], hours[UNKNOWN_CODE], None, not doubled)
    return used


def _read_doubled(connection: sqlite3.Connection, days: list[str], own: list[int]) -> list[tuple[int, int, int]]:
    """Identity, state and milliseconds of the rows on cards and in hours that more than one of these identities has."""
    rows = f"({_rows(days)} AND identity IN ({', '.join(map(str, own))}))"
    cells = f"SELECT day_id, hour, card_id FROM {rows} GROUP BY 1, 2, 3 HAVING count(DISTINCT identity) > 1"
    query = f"SELECT identity, state, sum(ms) FROM {rows} WHERE (day_id, hour, card_id) IN ({cells}) GROUP BY 1, 2"
    return connection.execute(query).fetchall()


def _rows(days: list[str]) -> str:
    columns = "day_id, hour, card_id, identity, text, state, coalesce(gpu_ms, weight_ms) AS ms"
    return f"SELECT {columns} FROM identity_hour JOIN word ON word.id = identity {_where(days)}"
