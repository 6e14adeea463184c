"""What happened when: who held which card in each hour, the hours by state of each day, the days of each person.

All are sums of the same rollups as the rest of a report, so they are equal from ticks and from rollups.
"""

from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd

from gua_report.console.spelling import state_columns
from gua_report.rollups.hourly_sums import Rollup, roll_up
from gua_report.summary.intervals import MINUTE_MS, MONTH_MS, WEEK_MS, cell_of, choose_cell_ms, find_edges, observed_ms
from gua_report.summary.plan import Scope
from gua_report.summary.tables import add_rollups
from gua_report.ticks.arrays import Integers
from gua_report.ticks.classify import CODE_OF, read_classified
from gua_report.ticks.history import History
from gua_report.window import HOUR_MS, Window, split_days
from gua_sample.partition_names import DAY_MS, day_of
from gua_sample.policy import STATES, TRULY_IDLE

FINE_CELLS_MS = (MINUTE_MS, 5 * MINUTE_MS, 10 * MINUTE_MS, 15 * MINUTE_MS)
MOST_FINE_CELLS = 192  # so that windows under two days have them
CELLS_MS = (HOUR_MS, DAY_MS, WEEK_MS, MONTH_MS)
MOST_CELLS = 744  # the hours of a month
MOST_BARS = 45  # of the trend
MOST_DAYS = 62  # of a person
HOLDER_STATES = tuple(state for state in STATES if state != TRULY_IDLE)


# What is summed in each unit, and how much of it is one. Seconds are those of the card, or MIG instance, itself.
UNITS = {"seconds": ("weight_ms", 1000), "gpu_hours": ("gpu_ms", HOUR_MS)}
NAMES = ("timeline", "timeline_holders", "timeline_cell_seconds", "trend", "identity_days")  # fields of a Report
NOBODY = pd.DataFrame(columns=["identity"])
NOTHING = dict(zip(NAMES, (pd.DataFrame(), NOBODY, 0.0, pd.DataFrame(), NOBODY), strict=True))


def over_time(scope: Scope, sums: Rollup, facts: pd.DataFrame, gaps: pd.DataFrame) -> dict[str, Any]:
    window, fine_ms = scope.window, choose_cell_ms(scope.window.length_ms, FINE_CELLS_MS, MOST_FINE_CELLS)
    fine = _read_fine(scope, fine_ms) if window.length_ms < 2 * DAY_MS else None
    cell_ms = fine_ms if fine else choose_cell_ms(window.length_ms, CELLS_MS, MOST_CELLS)
    edges = find_edges(window, cell_ms)
    timeline = _timeline((fine or sums).cards, edges, facts)
    holders = _by_cell((fine or sums).identities, edges, ["gpu_uuid", "identity"], "seconds", HOLDER_STATES)
    trend, days = sum_trend(sums.cards, window, [gaps]), sum_identity_days(sums.identities, window)
    return dict(zip(NAMES, (timeline, holders, cell_ms / 1000, trend, days), strict=True))


def _read_fine(scope: Scope, cell_ms: int) -> Rollup | None:
    """The sums of a short window in cells below an hour; None if ticks of it have expired or are not readable."""
    window, plan = scope.window, scope.plan
    days = {day_of(ms) for ms in (window.start_ms, window.start_ms + DAY_MS, window.end_ms - 1)}
    if days & (plan.expired | plan.lost.keys()) or scope.history.warnings or not scope.history.has_ticks:
        return None
    # One of its own: what can't be read here is in the rollups, and no reason for a warning.
    history = History(scope.history.data_dir)
    parts = []
    for start_ms, end_ms in split_days(window.start_ms, window.end_ms):
        found = read_classified(history, start_ms, end_ms, scope.config.policy, scope.config.people)
        parts += [roll_up(found, start_ms, end_ms, (scope.grid[0] % cell_ms, cell_ms))] if found else []
    return add_rollups(parts) if parts and not history.warnings else None


def _timeline(cards: pd.DataFrame, edges: Integers, facts: pd.DataFrame) -> pd.DataFrame:
    found = _by_cell(cards, edges, ["gpu_uuid"], "seconds", STATES)
    known = facts.set_index("uuid").reindex(found["gpu_uuid"])
    found.insert(1, "gpu_index", known["gpu_index"].to_numpy())
    found.insert(2, "mig_index", known["mig_index"].to_numpy(dtype="float64"))
    order = ["gpu_index", "mig_index", "gpu_uuid", "start_ms"]
    return found.sort_values(order, ignore_index=True, na_position="first")


def sum_trend(cards: pd.DataFrame, window: Window, gaps: Iterable[pd.DataFrame | Integers]) -> pd.DataFrame:
    """The hours of each cell, and its observed time: `gaps` are those of each host."""
    edges = find_edges(window, choose_cell_ms(window.length_ms, CELLS_MS, MOST_BARS))
    start, end = edges[:-1], edges[1:]
    found = _by_cell(cards.assign(all=0), edges, ["all"], "gpu_hours", STATES)
    hours = found.set_index("start_ms").drop(columns=["all", "end_ms"]).reindex(start).fillna(0.0)
    seconds = sum(observed_ms(start, end, own) for own in gaps) / 1000
    times = {"start_ms": start, "end_ms": end, "observed_seconds": seconds}
    return pd.DataFrame({**times, **{str(name): hours[name].to_numpy() for name in hours}})


def find_days(window: Window) -> tuple[int, Integers]:
    """The length of a person's days, or weeks, and their edges."""
    cell_ms = choose_cell_ms(window.length_ms, CELLS_MS[1:], MOST_DAYS)
    return cell_ms, find_edges(window, cell_ms)


def sum_identity_days(identities: pd.DataFrame, window: Window) -> pd.DataFrame:
    return _by_cell(identities, find_days(window)[1], ["identity"], "gpu_hours", HOLDER_STATES)


def _by_cell(frame: pd.DataFrame, edges: Integers, key: list[str], unit: str, states: tuple[str, ...]) -> pd.DataFrame:
    codes, labels = zip(*(pd.factorize(frame[name], sort=True) for name in key), strict=True)
    cell = cell_of(edges, frame["hour_ms"].to_numpy(dtype=np.int64))
    sizes = [*map(len, labels), len(edges) - 1]
    found, row = np.unique(np.ravel_multi_index([*codes, cell], sizes), return_inverse=True)
    *places, cells = np.unravel_index(found, sizes)
    columns = {name: np.asarray(names)[place] for name, names, place in zip(key, labels, places, strict=True)}
    columns |= {"start_ms": edges[cells], "end_ms": edges[cells + 1]}
    summed, length_ms = UNITS[unit]
    state, values = frame["state"].to_numpy(dtype=np.int64), frame[summed].to_numpy(dtype="float64")
    for name, column in state_columns(unit, states).items():
        own = np.where(state == CODE_OF[name], values, 0.0)
        columns[column] = np.bincount(row, weights=own, minlength=len(found)) / length_ms
    return pd.DataFrame(columns)
