"""The sections of a report: every format takes them from here.

A new one is a SectionKind among the KINDS of a module in this folder, and its name in SECTIONS of gua_report/render.
"""

from __future__ import annotations

from gua_report.render import SECTIONS, Options
from gua_report.render.blocks import SectionKind
from gua_report.render.sections import cards, held, people, times
from gua_report.render.values import Value, records
from gua_report.summary.report import Report
from gua_report.summary.week import LIMIT_COLUMNS

MODULES = (held, cards, people, times)
KINDS: dict[str, SectionKind] = {kind.name: kind for module in MODULES for kind in module.KINDS}


def chosen(options: Options) -> list[SectionKind]:
    return [KINDS[name] for name in SECTIONS if name in options.sections]


def table_of(kind: SectionKind, report: Report) -> tuple[list[str], list[dict[str, Value]] | None]:
    """The names of the columns of a section's table, and its rows; None if the report has none."""
    frame = kind.frame(report)
    if frame is None:
        return kind.columns, None
    host = ["host"] if "host" in frame and "host" not in kind.columns else []
    columns = [*host, *kind.columns, *(name for name in LIMIT_COLUMNS if name in frame)]
    return columns, records(frame, columns, report.window.zone)
