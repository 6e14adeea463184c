"""The sections of a report: every format takes them from here.

A new one is a SectionKind in the table below, and its name in SECTIONS of gua_report/render, in the same place.
"""

from collections.abc import Callable
from typing import NamedTuple

import pandas as pd

from gua_report.render import Options
from gua_report.render.blocks import Section
from gua_report.render.sections import cards, held, people, times
from gua_report.render.values import Value, records
from gua_report.summary.groups import GROUP_COLUMNS
from gua_report.summary.of_hosts import BREAKDOWN_COLUMNS, HOST_COLUMNS, PROBLEM_COLUMNS
from gua_report.summary.report import Report
from gua_report.summary.reserved_hours import RESERVATION_COLUMNS
from gua_report.summary.week import LIMIT_COLUMNS


class SectionKind(NamedTuple):
    name: str  # as in --section
    columns: list[str]  # of its table: in the report of a fleet the host may stand before them, and limits after them
    show: Callable[[Report, Options], list[Section]]  # for people; none if there is nothing to say
    document: Callable[[Report], object] | None = None  # for JSON, unless it is the table's rows; None is left out
    frame: Callable[[Report], pd.DataFrame | None] | None = None  # that table, unless it is the report's of that name


def _of_fleet(name: str) -> Callable[[Report], pd.DataFrame | None]:
    return lambda report: getattr(report.fleet, name, None)


KINDS = (
    SectionKind("headline", held.HEADLINE_COLUMNS, held.show_headline, held.document_headline, held.frame_of_headline),
    SectionKind("now", held.NOW, held.show_now, held.document_now),
    SectionKind("timeline", times.TIMELINE_COLUMNS, times.show_timeline, times.document_timeline),
    SectionKind("trend", times.TREND_COLUMNS, times.show_trend),
    SectionKind("capacity", cards.CAPACITY, cards.show_capacity, cards.document_capacity, cards.frame_of_capacity),
    SectionKind("hosts", HOST_COLUMNS, cards.show_hosts, None, _of_fleet("hosts")),
    SectionKind("breakdown", BREAKDOWN_COLUMNS, cards.show_breakdown, cards.document_breakdown, _of_fleet("breakdown")),
    SectionKind("gpus", cards.GPU_COLUMNS, cards.show_gpus, cards.document_gpus),
    SectionKind("identities", people.PERSON_COLUMNS, people.show_identities, None, people.frame_of_identities),
    SectionKind("groups", GROUP_COLUMNS, people.show_groups, None, people.frame_of_groups),
    SectionKind("identity_days", people.DAY_COLUMNS, people.show_identity_days),
    SectionKind("heatmap", times.HEATMAP_COLUMNS, times.show_heatmap),
    SectionKind("episodes", held.EPISODE_COLUMNS, held.show_episodes),
    SectionKind("coverage", times.GAPS, times.show_coverage, times.document_coverage, times.frame_of_gaps),
    SectionKind("reservations", RESERVATION_COLUMNS, people.show_reservations, people.document_reservations),
    SectionKind("not_used", PROBLEM_COLUMNS, cards.show_not_used, None, _of_fleet("problems")),
)


def chosen(options: Options) -> list[SectionKind]:
    return [kind for kind in KINDS if kind.name in options.sections]


def table_of(kind: SectionKind, report: Report) -> tuple[list[str], list[dict[str, Value]] | None]:
    """The names of the columns of a section's table, and its rows; None if the report has none."""
    frame: pd.DataFrame | None = kind.frame(report) if kind.frame else getattr(report, kind.name)
    if frame is None:
        return kind.columns, None
    host = ["host"] if "host" in frame and "host" not in kind.columns else []
    columns = [*host, *kind.columns, *(name for name in LIMIT_COLUMNS if name in frame)]
    return columns, records(frame, columns, report.window.zone)
