"""How people and groups stand against their limits: a column of the sections about them, and sentences."""

import pandas as pd

from gua_report.limits import KINDS, Week, spell_hours, tell
from gua_report.render.blocks import Column, Row
from gua_report.render.values import MISSING, clean, is_missing, moment, number, percent
from gua_report.summary.report import Report
from gua_report.summary.week import LIMIT_COLUMNS, LIMITS, find_standings, find_used

TITLE, TELLING = "of limit", "limit_share"


def add_limits(frame: pd.DataFrame, limits: pd.DataFrame | None) -> pd.DataFrame:
    if limits is None:
        return frame
    key = str(limits.columns[0])
    # Not by `merge`, which would turn the None of an empty frame into NaN.
    told = limits.set_index(key).reindex(frame[key].tolist())
    return frame.assign(**{name: told[name].to_numpy() for name in LIMIT_COLUMNS})


def limit_column(report: Report, frame: pd.DataFrame) -> list[Column]:
    week = report.week
    if week is None or TELLING not in frame or not frame[TELLING].notna().any():
        return []
    return [Column(TITLE, lambda row: _cell(row, week), right=True)]


def _cell(row: Row, week: Week) -> str:
    """The share of the limit in whole percent: over 100 if it is over, and never else."""
    share, is_over = row.get(TELLING), row.get("over_limit")
    if share is None or is_missing(share):
        has_limit = any(not is_missing(row.get(name)) for name in LIMITS)
        return MISSING if has_limit else ""
    rounded = max(int(share * 100), 101) if is_over is True else min(int(share * 100), 100)
    return f"≥ {rounded}%" if is_missing(is_over) or not week.is_observed else f"{rounded}%"


def caption_of(report: Report, frame: pd.DataFrame) -> str:
    """What the column is based on, to follow a semicolon."""
    if report.week is None or not limit_column(report, frame):
        return ""
    at_least = "" if report.week.is_observed else f", {percent(report.week.observed_share)} of which were observed"
    until = moment(report.week.end_ms, report.window.zone)
    return f"; {TITLE}: the 7 days up to {until}{at_least}, against the limits in gua.toml"


def tell_limits(report: Report) -> list[str]:
    whose, week = report.selection, report.week
    if whose is None or week is None or report.limits is None:
        return []
    rows = report.group_limits if whose.is_group else report.limits
    who = f"the group {clean(whose.name)}" if whose.is_group else None if whose.is_reader else clean(whose.name)
    until = moment(week.end_ms, report.window.zone)
    return [
        tell(standing, find_used(row), week, until, who)
        for row in ([] if rows is None else rows.to_dict("records"))
        for standing in find_standings(row, week)
    ]


def find_over(report: Report) -> tuple[list[str], list[str]]:
    """The people and the groups over a limit, by how much, and of which hours; those who are farthest over first."""
    return _name_over(report, report.limits), _name_over(report, report.group_limits)


def _name_over(report: Report, limits: pd.DataFrame | None) -> list[str]:
    week = report.week
    if limits is None or week is None:
        return []
    over = limits[limits["over_limit"].eq(True)].sort_values("limit_share", ascending=False, kind="stable")
    found = []
    for row in over.to_dict("records"):
        worst = find_standings(row, week)[0]
        name = clean(row["group"] if "group" in row else report.who(row["identity"]))
        found.append(f"{name} {spell_hours(worst.hours)} of {number(worst.limit_hours)} {KINDS[worst.kind]}")
    return found
