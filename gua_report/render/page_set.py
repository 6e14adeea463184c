"""The pages of `gua page`: a week, a month and a year, with links between them."""

from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from typing import NamedTuple

from gua_report.render import GROUPS, LONG_EPISODE, NONE, Options
from gua_report.render.attention import reasons
from gua_report.render.html import render, render_empty
from gua_report.summary.names import number_people, with_groups, without_names
from gua_report.summary.report import Report
from gua_report.window import Window
from gua_sample.errors import NothingToReport
from gua_sample.partition_names import DAY_MS
from gua_sample.settings import duration_ms

FILES = {"week": "index.html", "month": "month.html", "year": "year.html"}
DAYS = {"week": 7, "month": 30, "year": 365}


class Pages(NamedTuple):
    texts: dict[str, str]  # by name
    warnings: list[str]
    is_empty: bool  # nothing was observed in any of the windows


def window_of(name: str, now: Window) -> Window:
    """The window of a page: it starts at a full hour, so that rollups have all of it but today."""
    local = datetime.fromtimestamp(now.end_ms / 1000, now.zone)
    since_hour_ms = (local.minute * 60 + local.second) * 1000 + now.end_ms % 1000
    return now._replace(start_ms=now.end_ms - since_hour_ms - DAYS[name] * DAY_MS)


def make_pages(build: Callable[[Window], Report], now: Window, names: list[str], links: list[str], whose: str) -> Pages:
    """The pages of these names, the shortest window first. `build` makes its report; `whose` is one of NAMES."""
    reports: dict[str, Report] = {}
    for name in names:
        with suppress(NothingToReport):
            reports[name] = build(window_of(name, now))
    found = [warning for report in reports.values() for warning in (*report.warnings, *report.people_problems)]
    if whose == GROUPS:
        reports = {name: with_groups(report) for name, report in reports.items()}
    elif whose == NONE:
        # Numbered by the longest window, which has everybody: a number is the same person on all of the pages.
        numbers = number_people(list(reversed(reports.values())))
        reports = {name: without_names(report, numbers) for name, report in reports.items()}
    texts = {name: _render(name, reports.get(name), links) for name in names}
    return Pages(texts, list(dict.fromkeys(found)), not reports)


def _render(name: str, report: Report | None, links: list[str]) -> str:
    options = Options(links=tuple((link, FILES[link]) for link in links), link=FILES[name])
    if report is None:
        nothing = f"Nothing was observed in the last {DAYS[name]} days: no sampler was running here."
        return render_empty(nothing, options)
    return render(report, options._replace(attention=tuple(reasons(report, duration_ms(LONG_EPISODE)))))
