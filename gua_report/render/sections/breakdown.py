"""A fleet's hours by group of hosts, by person across hosts, or by model of the card: --by."""

from __future__ import annotations

import pandas as pd

from gua_report.render import Options
from gua_report.render.blocks import Block, Section, Table, figure, label
from gua_report.render.sections.hosts import ALL, AT_WORK, BAR, HELD, SHARE, only_if_asked
from gua_report.render.values import records
from gua_report.render.words import MISSING, is_missing
from gua_report.summary.of_hosts import BREAKDOWN_COLUMNS as COLUMNS
from gua_report.summary.of_hosts import GROUP, HOST, MODEL, PERSON
from gua_report.summary.report import Report

NAME, TITLE = "breakdown", "By group, person or model"
TITLES = {GROUP: "By group of hosts", PERSON: "By person, on all hosts", MODEL: "By model"}
CAPTIONS = {
    GROUP: "Groups are those of [hosts]; a host in two of them counts in both.",
    PERSON: "A person is one person by name; containers, jobs and users without a name are those of one host.",
    MODEL: "Share: idle-held, of the observed GPU time.",
}


def frame(report: Report) -> pd.DataFrame:
    return pd.DataFrame(columns=COLUMNS) if report.fleet is None else report.fleet.breakdown


def document(report: Report) -> dict[str, object] | None:
    if report.fleet is None or report.fleet.by == HOST:
        return None
    return {"by": report.fleet.by, "rows": records(report.fleet.breakdown, COLUMNS)}


def show(report: Report, options: Options) -> list[Section]:
    if report.fleet is None:
        return only_if_asked(NAME, TITLE, options)
    by, found = report.fleet.by, report.fleet.breakdown
    if by == HOST:
        return [] if options.is_whole else [Section(NAME, TITLE, "Choose one with --by group, person or model.", [])]
    whole = "{:,.0f}".format
    columns = [
        label(by, "name"),
        figure("hosts", "hosts", whole),
        figure("GPUs", "cards", lambda cards: MISSING if is_missing(cards) else whole(cards)),
        BAR,
        HELD,
        AT_WORK,
        ALL,
        SHARE,
    ]
    columns = [column for column in columns if by != PERSON or column.title != "GPUs"]
    blocks: list[Block] = [Table(columns, found.head(options.top).to_dict("records"))]
    blocks += [f"and {len(found) - options.top:,} more"] if len(found) > options.top else []
    return [Section(NAME, TITLES[by], CAPTIONS[by], blocks)]
