"""A report as people read it: title, opening paragraphs and sections, for the formats to lay out."""

from __future__ import annotations

from typing import NamedTuple

import pandas as pd

from gua_report.console.spelling import duration, first_of
from gua_report.render import Options, sections
from gua_report.render.attention import MOST_NAMED, STALE_MS
from gua_report.render.blocks import Section
from gua_report.render.sections.episodes import unknown_now
from gua_report.render.words import clean, count, moment, percent
from gua_report.summary.of_hosts import Fleet
from gua_report.summary.report import Report
from gua_report.window import show


class Page(NamedTuple):
    title: str
    attention: list[str]  # a paragraph on what to act on, if there is anything
    header: list[str]  # paragraphs: the machine, the window, and reasons to doubt the rest
    sections: list[Section]


def build_page(report: Report, options: Options) -> Page:
    attention = [f"To act on: {'; '.join(options.attention)}"] if options.attention else []
    shown = [section for module in sections.chosen(options).values() for section in module.show(report, options)]
    return Page(_title(report), attention, _header(report), shown)


def _title(report: Report) -> str:
    whose = report.selection
    of = "" if whose is None else f" of {'group ' if whose.is_group else ''}{clean(whose.name)}"
    return f"GPU use{of} on {clean(report.host)}"


def _header(report: Report) -> list[str]:
    if report.fleet:
        return _header_of_fleet(report, report.fleet)
    zone = report.window.zone
    start, end = show(report.window.start_ms, zone), show(report.window.end_ms, zone)
    drivers = ", ".join(clean(version) for version in report.driver_versions) or "not known"
    lines = [
        f"{_cards(report)}, driver {drivers}",
        f"{start} to {end} {clean(report.timezone)}, {percent(report.coverage_share)} observed",
    ]
    if report.window.start_ms > report.requested.start_ms:
        lines.append(f"Asked for since {show(report.requested.start_ms, zone)}; the oldest sample is younger.")
    late_ms = report.window.end_ms - report.newest_ms
    if late_ms > STALE_MS:
        newest = moment(report.newest_ms, zone)
        lines.append(f"The sampler seems to have stopped: no tick since {newest}, {duration(late_ms / 1000)} earlier.")
    if why := unknown_now(report):
        lines.append(f"The driver does not work: {why}.")
    return lines


def _header_of_fleet(report: Report, fleet: Fleet) -> list[str]:
    """The hosts and the window; and, before anything else is read, what is not in it."""
    zone, shares = report.window.zone, fleet.hosts["coverage_share"]
    start, end = show(report.window.start_ms, zone), show(report.window.end_ms, zone)
    cards, versions = count(int(fleet.hosts["cards"].sum()), "GPU"), len(report.driver_versions)
    observed = percent(shares.min()) + (f" to {percent(shares.max())}" if shares.min() < shares.max() else "")
    lines = [
        f"{cards}, {count(versions, 'driver version')}",
        f"{start} to {end} {clean(report.timezone)}, {observed} of each host observed",
    ]
    if fleet.missing:
        named = clean(first_of(fleet.missing, MOST_NAMED))
        lines.append(f"Not in this report: {len(fleet.missing):,} of {count(fleet.expected, 'host')} ({named}).")
    if fleet.late:
        named = clean(first_of(fleet.late, MOST_NAMED))
        lines.append(f"Late: {count(len(fleet.late), 'host')}, whose last days were not collected ({named}).")
    rest = set(fleet.problems[fleet.problems["left_out"].astype(bool)]["host"]) - {*fleet.missing, *fleet.late}
    if rest:
        named = clean(first_of(sorted(rest), MOST_NAMED))
        lines.append(f"Not all was used of {count(len(rest), 'host')} ({named}): see what could not be used.")
    return lines


def _cards(report: Report) -> str:
    indexes = pd.concat([frame["index"].astype(float) for frame in (report.gpus, report.unpartitioned)])
    cards = indexes.nunique() + int(indexes.isna().sum())
    instances = int(report.gpus["mig_index"].notna().sum())
    return count(cards, "GPU") + (f" ({count(instances, 'MIG instance')})" if instances else "")
