"""The hours of the week before the end of a window, and how people and groups stand against the limits."""

from typing import Any

import numpy as np
import pandas as pd

from gua_report.config import Config, Limit
from gua_report.limits import OVER, UNSURE, WEEK_MS, Standing, Used, Week, judge, limit_of, tell, week_before
from gua_report.machine.notes import find_notes
from gua_report.people.groups import Memberships
from gua_report.summary import tables
from gua_report.summary.gather import gather, gather_spans
from gua_report.summary.meant import Moment, find_meant, meant_gpu_hours
from gua_report.summary.now import NewestTick, with_newest
from gua_report.summary.plan import Scope
from gua_report.ticks.arrays import Floats
from gua_report.ticks.coverage import find_gaps, length_of
from gua_sample.partition_names import day_of

# In the order of Used, and of Limit.
HOURS = ["week_gpu_hours", "week_idle_held_gpu_hours", "week_unknown_gpu_hours", "week_meant_gpu_hours"]
LIMITS = ["limit_idle_held_gpu_hours", "limit_gpu_hours"]
LIMIT_COLUMNS = [*HOURS, *LIMITS, "limit_share", "over_limit"]


def read_week(scope: Scope, first_ms: int, newest: NewestTick, moment: Moment) -> tuple[Week, pd.DataFrame]:
    """The week before the window's end, and its identities as in a Report. `first_ms`: the history's first tick."""
    start_ms, end_ms = week_before(scope.window.end_ms)
    window = scope.window._replace(start_ms=max(start_ms, first_ms))
    scope = scope._replace(windows=[window])
    spans = gather_spans(scope)
    gathered = gather(scope, spans, None)
    scope = scope._replace(plan=gathered.plan)
    presences = tables.add_rollups(gathered.rollups[window]).identities
    episodes = with_newest(gathered.episodes, newest)
    notes = find_notes(scope.config, episodes["identity"].unique().tolist())
    meant = find_meant(episodes, notes, moment)
    meant_hours = meant_gpu_hours(presences, episodes, meant, window, scope)
    spans = spans[~spans["start_ms"].map(day_of).isin(scope.history.unreadable - gathered.plan.days)]
    week = Week(start_ms, end_ms, 1 - length_of(find_gaps(spans, start_ms, end_ms)) / WEEK_MS)
    return week, tables.identities(presences, meant_hours, scope.config)


def find_standings(row: dict[Any, Any], week: Week) -> list[Standing]:
    limit = Limit(*(None if pd.isna(row[name]) else row[name] for name in LIMITS))
    return judge(find_used(row), limit, week)


def find_used(row: dict[Any, Any]) -> Used:
    return Used(*(row[name] for name in HOURS))


def tell_over(limits: pd.DataFrame, week: Week, until: str) -> dict[str, list[str]]:
    over = limits[limits["over_limit"].eq(True)].to_dict("records")
    return {
        row["identity"]: [
            tell(one, find_used(row), week, until) for one in find_standings(row, week) if one.verdict == OVER
        ]
        for row in over
    }


def people_and_limits(week: Week, identities: pd.DataFrame, config: Config) -> pd.DataFrame:
    names = identities["identity"].tolist()
    hours = identities[["gpu_hours", "idle_held_gpu_hours", "unknown_gpu_hours", "meant_gpu_hours"]]
    limits = [limit_of(who, config.limits, config.people) for who in names]
    return _stand("identity", names, hours.to_numpy(dtype="float64"), limits, week)


def groups_and_limits(people: pd.DataFrame, memberships: Memberships, config: Config, week: Week) -> pd.DataFrame:
    names = list(config.limits.groups)
    hours = np.full((len(names), len(HOURS)), np.nan)
    for number, group in enumerate(names):
        if group not in memberships.unknown:
            hours[number] = people[people["identity"].isin(memberships.find_members(group))][HOURS].sum()
    return _stand("group", names, hours, list(config.limits.groups.values()), week)


def _stand(key: str, names: list[str], hours: Floats, limits: list[Limit], week: Week) -> pd.DataFrame:
    """The frame with LIMIT_COLUMNS; the last two tell of the limit that is worst."""
    frame = pd.DataFrame(hours, columns=HOURS)
    frame.insert(0, key, pd.Series(names, dtype=object))
    frame[LIMITS] = np.array(limits, dtype="float64").reshape(-1, len(LIMITS))
    worst = [next(iter(find_standings(row, week)), None) for row in frame.to_dict("records")]
    frame["limit_share"] = pd.Series([one.share if one else np.nan for one in worst], dtype="float64")
    # As objects, since None is not known.
    is_over = [None if one is None or one.verdict == UNSURE else one.verdict == OVER for one in worst]
    frame["over_limit"] = pd.Series(is_over, dtype=object)
    return frame
