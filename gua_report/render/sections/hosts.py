"""The hosts of a fleet: their hours by state, and how much of each was observed. In no report of one host."""

from __future__ import annotations

import pandas as pd

from gua_report.render import Options
from gua_report.render.blocks import Bar, Block, Column, Row, Section, Table, figure, label
from gua_report.render.values import records
from gua_report.render.words import amount, clean, is_missing, percent
from gua_report.summary.of_hosts import HOST_COLUMNS, HOURS
from gua_report.summary.report import Report
from gua_sample.policy import ACTIVE, IDLE_HELD

COLUMNS = HOST_COLUMNS
NAME, TITLE = "hosts", "Hosts, by idle-held GPU-hours"
ONLY_FLEETS = "Only the report of a fleet has it: gua-report --fleet DIR."
BAR = Column("", lambda row: _bar(row), may_go=True)
HELD, AT_WORK = figure(IDLE_HELD, "idle_held_gpu_hours"), figure(ACTIVE, "active_gpu_hours")
ALL = figure("GPU-h", "gpu_hours")
SHARE = figure("share", "idle_held_share", percent)


def frame(report: Report) -> pd.DataFrame:
    return pd.DataFrame(columns=COLUMNS) if report.fleet is None else report.fleet.hosts


def document(report: Report) -> list[dict[str, object]] | None:
    return None if report.fleet is None else [dict(row) for row in records(report.fleet.hosts, COLUMNS)]


def show(report: Report, options: Options) -> list[Section]:
    if report.fleet is None:
        return only_if_asked(NAME, TITLE, options)
    found = report.fleet.hosts.sort_values(["idle_held_gpu_hours", "host"], ascending=[False, True], kind="stable")
    columns = [
        label("host", "host"),
        figure("GPUs", "cards", "{:,}".format),
        BAR,
        HELD,
        AT_WORK,
        ALL,
        SHARE,
        figure("observed", "coverage_share", percent),
        Column("newest day", lambda row: clean(row["newest_day"]), may_go=True),
        Column("gua", lambda row: "?" if is_missing(row["gua_version"]) else clean(row["gua_version"]), may_go=True),
    ]
    blocks: list[Block] = [Table(columns, found.head(options.top).to_dict("records"))]
    if len(found) > options.top:
        rest = found.iloc[options.top :]
        held, hours = amount(rest["idle_held_gpu_hours"].sum()), amount(rest["gpu_hours"].sum())
        blocks.append(f"and {len(rest):,} more: {held} of {hours} GPU-hours idle-held")
    least = found[found["coverage_share"] < found["coverage_share"].max()].sort_values("coverage_share").head(3)
    if len(least):
        told = [f"{clean(row['host'])} {percent(row['coverage_share'])}" for row in least.to_dict("records")]
        blocks.append(f"Observed least: {', '.join(told)}.")
    caption = "Share: idle-held, of the observed GPU time. Observed: from the host's first tick on."
    return [Section(NAME, TITLE, caption, blocks)]


def only_if_asked(name: str, title: str, options: Options) -> list[Section]:
    """The section of a report of one host: a line, if it was requested explicitly."""
    return [] if options.is_whole else [Section(name, title, ONLY_FLEETS, [])]


def _bar(row: Row) -> Bar:
    total = row["gpu_hours"]
    return Bar(tuple(0.0 if is_missing(row[name]) or not total else row[name] / total for name in HOURS))
