"""The pages of `gua page`: a week, a month and a year, with links between them."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from gua_report.config import Config
from gua_report.render import GROUPS, LONG_EPISODE, NONE, Options
from gua_report.render.attention import reasons
from gua_report.render.html import render, render_empty
from gua_report.summary.build import build_report
from gua_report.summary.names import number_people, with_groups, without_names
from gua_report.summary.report import Report
from gua_report.summary.reserved_hours import Told
from gua_report.window import Window
from gua_sample.errors import NothingToReport
from gua_sample.partition_names import DAY_MS
from gua_sample.settings import duration_ms

FILES = {"week": "index.html", "month": "month.html", "year": "year.html"}
DAYS = {"week": 7, "month": 30, "year": 365}


class PageSet(NamedTuple):
    data_dir: str
    config: Config
    now: Window  # any that ends now
    names: list[str]  # of the pages, the shortest window first
    links: tuple[str, ...]  # names of the pages that are there
    whose: str  # one of NAMES
    told: Told | None = None  # the reservations, if a source of them is configured


class Pages(NamedTuple):
    texts: dict[str, str]  # by name
    warnings: list[str]
    is_empty: bool  # nothing was observed in any of the windows


def window_of(name: str, now: Window) -> Window:
    """The window of a page: it starts at a full hour, so that rollups have all of it but today."""
    local = datetime.fromtimestamp(now.end_ms / 1000, now.zone)
    since_hour_ms = (local.minute * 60 + local.second) * 1000 + now.end_ms % 1000
    return now._replace(start_ms=now.end_ms - since_hour_ms - DAYS[name] * DAY_MS)


def make_pages(asked: PageSet) -> Pages:
    reports = {name: report for name in asked.names if (report := _build(asked, name)) is not None}
    warnings = dict.fromkeys(
        warning for report in reports.values() for warning in (*report.warnings, *report.people_problems)
    )
    if asked.whose == GROUPS:
        reports = {name: with_groups(report) for name, report in reports.items()}
    elif asked.whose == NONE:
        # Numbered by the longest window, which has everybody: a number is the same person on all of the pages.
        numbers = number_people(list(reversed(reports.values())))
        reports = {name: without_names(report, numbers) for name, report in reports.items()}
    texts = {name: _render(asked, name, reports.get(name)) for name in asked.names}
    return Pages(texts, list(warnings), not reports)


def _build(asked: PageSet, name: str) -> Report | None:
    try:
        return build_report(asked.data_dir, window_of(name, asked.now), asked.config, told=asked.told)
    except NothingToReport:
        return None


def _render(asked: PageSet, name: str, report: Report | None) -> str:
    options = Options(links=tuple((link, FILES[link]) for link in asked.links), link=FILES[name])
    if report is None:
        return render_empty(
            f"Nothing was observed in the last {DAYS[name]} days: no sampler was running here.", options
        )
    return render(report, options._replace(attention=tuple(reasons(report, duration_ms(LONG_EPISODE)))))
