"""On which days who held cards without work: a picture, or its numbers if they were requested."""

from __future__ import annotations

from itertools import pairwise

import pandas as pd

from gua_report.render import Options
from gua_report.render.blocks import Block, Column, Row, Section, Table, bar_of, figure
from gua_report.render.pictures.days import HELD, days_picture
from gua_report.render.pictures.time_axis import UNIT_NAMES, spell_span
from gua_report.render.sections.identities import ACTIVE_HOURS, HELD_HOURS, UNKNOWN_HOURS, hours_of
from gua_report.render.sections.timeline import with_times
from gua_report.render.words import clean
from gua_report.summary.cells import choose_cell_ms, find_edges, observed_ms
from gua_report.summary.over_time import CELLS_MS, MOST_DAYS
from gua_report.summary.report import Report
from gua_sample.policy import ACTIVE, IDLE_HELD, UNKNOWN

HOURS = [ACTIVE_HOURS, HELD_HOURS, UNKNOWN_HOURS]
COLUMNS = ["identity", "start", "end", *HOURS]


def frame(report: Report) -> pd.DataFrame:
    return with_times(report, report.identity_days)


def show(report: Report, options: Options) -> list[Section]:
    if options.is_whole and not options.pictures:
        return []
    zone, held = clean(report.timezone), (report.identities[HELD] > 0).any()
    if report.selection:
        pictures = [days_picture(report, options.top)] if options.pictures and held else []
        caption = f"GPU-hours by the clock of {zone}; a day that was not observed is unknown."
        return [Section("identity_days", "Day by day", caption, [*pictures, _table(report)])]
    blocks: list[Block] = [days_picture(report, options.top)] if held else ["Nobody held a card idle."]
    caption = f"When those with most idle-held GPU-hours had them. Days are those of {zone}."
    return [Section("identity_days", "Person by day", caption, blocks)]


def _table(report: Report) -> Table:
    """A row for each day, or week, of the window, with the hours of all who are in the report."""
    cell_ms = choose_cell_ms(report.window.length_ms, CELLS_MS[1:], MOST_DAYS)
    edges = find_edges(report.window, cell_ms)
    added = report.identity_days.groupby("start_ms")[HOURS].sum().reindex(edges[:-1], fill_value=0.0)
    if not report.fleet:  # whose gaps are each host's own
        added[observed_ms(edges[:-1], edges[1:], report.gaps) <= 0] = float("nan")
    longest = float(added.sum(axis=1).max())
    rows: list[Row] = [
        {"span": spell_span(*span, report.window), **hours}
        for span, hours in zip(pairwise(edges.tolist()), added.to_dict("records"), strict=True)
    ]
    columns = [
        Column(UNIT_NAMES[cell_ms], lambda row: row["span"]),
        Column("", lambda row: bar_of(hours_of(row), longest), may_go=True),
        figure(IDLE_HELD, HELD_HOURS),
        figure(ACTIVE, ACTIVE_HOURS),
    ]
    if (added[UNKNOWN_HOURS] > 0).any():
        columns.append(figure(UNKNOWN, UNKNOWN_HOURS))
    return Table(columns, rows)
