"""What could not be used of a fleet's hosts, and what is doubtful in them."""

from __future__ import annotations

import pandas as pd

from gua_report.render import Options
from gua_report.render.blocks import Block, Row, Section
from gua_report.render.sections.hosts import only_if_asked
from gua_report.render.values import Value, records
from gua_report.render.words import clean, count
from gua_report.summary.of_hosts import PROBLEM_COLUMNS as COLUMNS
from gua_report.summary.report import Report

NAME, TITLE = "not_used", "What could not be used"


def frame(report: Report) -> pd.DataFrame:
    return pd.DataFrame(columns=COLUMNS) if report.fleet is None else report.fleet.problems


def document(report: Report) -> list[dict[str, Value]] | None:
    return None if report.fleet is None else records(report.fleet.problems, COLUMNS)


def show(report: Report, options: Options) -> list[Section]:
    if report.fleet is None:
        return only_if_asked(NAME, TITLE, options)
    found = report.fleet.problems
    if not len(found):
        return [Section(NAME, TITLE, "Every host was used, and nothing of it is doubtful.", [])]
    blocks: list[Block] = [_spell(row) for row in found.head(options.top).to_dict("records")]
    if len(found) > options.top:
        rest = found.iloc[options.top :]
        kinds = ", ".join(f"{number:,} {clean(kind)}" for kind, number in rest["kind"].value_counts().items())
        blocks.append(f"and {len(rest):,} more ({kinds}); --section not_used --top 1000 has all")
    hosts = int(found[found["left_out"].astype(bool)]["host"].nunique())
    caption = (
        f"Of {count(hosts, 'host')} something is not in this report." if hosts else "All was used; some is doubtful."
    )
    return [Section(NAME, TITLE, caption, blocks)]


def _spell(row: Row) -> str:
    return f"{'Left out' if row['left_out'] else 'Doubtful'}: {clean(row['host'])}: {clean(row['detail'])}"
