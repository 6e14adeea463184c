"""The hours of everybody in the closed days of a week, by plain SQL. Without pandas, for what answers at once."""

import os
import sqlite3
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from gua_report.limits import WEEK_MS, Used, Week, week_before
from gua_report.people.identities import apply_mapping
from gua_report.rollups.index import find_current, find_expired, open_rollups, path_of, read_index
from gua_report.window import HOUR_MS, midnight_ms, number_of
from gua_sample.partition_names import DAY_MS, SUFFIX
from gua_sample.policy import IDLE_HELD, STATES, UNKNOWN, Policy

IDLE_HELD_CODE, UNKNOWN_CODE = STATES.index(IDLE_HELD), STATES.index(UNKNOWN)


class ClosedWeek(NamedTuple):
    week: Week
    people: dict[str, Used]  # by identity, as the configuration names people


def read_closed_week(
    data_dir: str, partitions: Iterable[str], policy: Policy, people: Mapping[str, str], now_ms: int
) -> ClosedWeek:
    """The hours of the 7 UTC days before today; what rollups lack counts as not observed."""
    start_ms, end_ms = week_before(now_ms // DAY_MS * DAY_MS)
    index, path = read_index(path_of(data_dir), damaged=[]), path_of(data_dir)
    by_day = {os.path.basename(one).removesuffix(SUFFIX): one for one in partitions}
    wanted = {day: stored for day, stored in index.items() if start_ms <= midnight_ms(day) < end_ms}
    expired = {day for day in find_expired(wanted, by_day) if wanted.pop(day).origin.policy == policy}
    days = find_current(wanted, by_day, policy) | expired
    if not days:
        return ClosedWeek(Week(start_ms, end_ms, 0.0), {})
    with open_rollups(path) as connection:
        observed_ms = _read_observed_ms(connection, days)
        used = _read_hours(connection, days, people)
    return ClosedWeek(Week(start_ms, end_ms, min(1.0, observed_ms / WEEK_MS)), used)


def _where(days: Collection[str]) -> str:
    return f"WHERE day_id IN ({', '.join(str(number_of(day)) for day in days)})"


def _read_observed_ms(connection: sqlite3.Connection, days: Collection[str]) -> int:
    spans = f"SELECT max(0, min(end_ms, {DAY_MS}) - max(start_ms, 0)) AS ms FROM span {_where(days)} AND kind IS NULL"
    return int(connection.execute(f"SELECT coalesce(sum(ms), 0) FROM ({spans})").fetchone()[0])


def _read_hours(connection: sqlite3.Connection, days: Collection[str], people: Mapping[str, str]) -> dict[str, Used]:
    """The hours of everybody. Where two identities of one person were on a card in the same hour, only ticks can tell
    how much of that overlaps: such an hour is left out, and the sum is not whole."""
    connection.create_function("person", 1, lambda text: apply_mapping(text, people))
    query = f"""
        WITH named AS MATERIALIZED (SELECT id, person(text) AS who FROM word),
        rows AS (
            SELECT who, state, coalesce(gpu_ms, weight_ms) AS ms,
                   min(identity) OVER cell <> max(identity) OVER cell AS is_doubled
            FROM identity_hour JOIN named ON id = identity {_where(days)}
            WINDOW cell AS (PARTITION BY who, day_id, hour, card_id)
        )
        SELECT who, state, is_doubled, sum(ms), min(ms), max(ms) FROM rows GROUP BY 1, 2, 3
    """
    hours: dict[str, list[float]] = {}
    doubled = set()
    for who, state, is_doubled, total_ms, least_ms, most_ms in connection.execute(query):
        if not 0 <= state < len(STATES) or least_ms < 0 or most_ms > HOUR_MS:
            raise ValueError(f"{least_ms} to {most_ms} ms of an hour in state {state}")
        hours.setdefault(who, [0.0] * len(STATES))[state] += 0 if is_doubled else total_ms / HOUR_MS
        doubled |= {who} if is_doubled else set()
    return {
        who: Used(sum(own), own[IDLE_HELD_CODE], own[UNKNOWN_CODE], None, who not in doubled)
        for who, own in hours.items()
    }
