"""The hours of each group, their energy and what they cost."""

from __future__ import annotations

import pandas as pd

from gua_report.people.groups import NO_GROUP
from gua_report.render import Options
from gua_report.render.blocks import Block, Column, Section, Table, bar_of, figure, label
from gua_report.render.limits import add_limits, caption_of, columns_with, limit_column
from gua_report.render.sections.capacity import currency_of
from gua_report.render.sections.identities import ACTIVE_HOURS, COST, HELD_HOURS, UNKNOWN_HOURS, hours_of
from gua_report.render.values import records
from gua_report.render.words import MISSING, clean, is_missing, number, percent
from gua_report.summary.groups import GROUP_COLUMNS as COLUMNS
from gua_report.summary.report import Report
from gua_sample.policy import ACTIVE, IDLE_HELD, UNKNOWN

NAME, TITLE = "groups", "Groups, by idle-held GPU-hours"


def frame(report: Report) -> pd.DataFrame:
    if report.groups is None:
        return pd.DataFrame(columns=COLUMNS)
    return add_limits(report.groups, report.group_limits)


def columns(report: Report) -> list[str]:
    return columns_with(COLUMNS, report.group_limits)


def document(report: Report) -> list[dict[str, object]] | None:
    return None if report.groups is None else [dict(row) for row in records(frame(report), columns(report))]


def show(report: Report, options: Options) -> list[Section]:
    """The section; if no groups are configured, only when it was requested explicitly."""
    found, members = frame(report), report.memberships
    if report.groups is None or members is None:
        if options.is_whole:
            return []
        return [Section(NAME, TITLE, "None are configured: see [groups] in gua.toml.", [])]
    is_rest = found["group"] == NO_GROUP
    groups = found[~is_rest]
    rows = [*groups.head(options.top).to_dict("records"), *found[is_rest].to_dict("records")]
    blocks: list[Block] = [Table(_columns(report, found), rows)] if rows else ["Nobody was seen using a card."]
    if len(groups) > options.top:
        blocks.append(f"and {len(groups) - options.top:,} more groups")
    if several := sum(len(own) > 1 for own in members.of.values()):
        people = "1 person is" if several == 1 else f"{several:,} people are"
        blocks.append(f"{people} in more than one group: who is in two counts in both.")
    blocks += [f"Warning: {clean(problem)}" for problem in members.problems]
    return [Section(NAME, TITLE, _caption(report, found), blocks)]


def _columns(report: Report, found: pd.DataFrame) -> list[Column]:
    longest = float(found["gpu_hours"].max())
    shown_columns = [
        label("group", "group"),
        figure("people", "people", lambda value: MISSING if is_missing(value) else f"{int(value):,}"),
        Column("", lambda row: bar_of(hours_of(row), longest), may_go=True),
        figure(IDLE_HELD, HELD_HOURS),
        figure(ACTIVE, ACTIVE_HOURS),
    ]
    if (found[UNKNOWN_HOURS] > 0).any():
        shown_columns.append(figure(UNKNOWN, UNKNOWN_HOURS))
    shown_columns += [figure("share", "idle_held_share", percent), figure("kWh", "energy_kwh")]
    if priced := currency_of(report):
        shown_columns.append(figure(priced, COST))
    return shown_columns + limit_column(report, found)


def _caption(report: Report, found: pd.DataFrame) -> str:
    held = number(report.policy.process_memory_mib)
    parts = [
        f"GPU-hours of those in it, on any card, a shared one in full; idle-held: over {held} MiB and no work done",
        "share: of active and idle-held",
        "kWh: as far as known, by the card's mean power in the same state",
    ]
    if currency := currency_of(report):
        energy = " and their energy" if report.config.price_per_kwh is not None else ""
        parts.append(f"{currency}: of idle-held hours{energy}")
    return "; ".join(parts) + caption_of(report, found) + "."
