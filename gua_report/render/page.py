"""A report as people read it, in full or in brief: title, opening paragraphs, sections; for the formats to lay out."""

from typing import NamedTuple

import pandas as pd

from gua_report.console.fitting import columns, fit
from gua_report.console.spelling import duration, first_of, to_ascii
from gua_report.render import MOST_NAMED, Options, sections
from gua_report.render.attention import has_stopped
from gua_report.render.blocks import Section
from gua_report.render.sections.held import unknown_now
from gua_report.render.values import clean, count, moment, percent
from gua_report.summary.of_hosts import Fleet
from gua_report.summary.report import Report
from gua_report.window import LEAST_COVERAGE, show

# A report that fits a phone's mail has what to act on, held right now, the headline, the first people, little else.
BRIEF_SECTIONS = ("headline", "identities", "coverage")
BRIEF_OF_FLEET = ("headline", "hosts", "identities", "not_used")
BRIEF_OF_PEOPLE = ("now", "identities", "coverage")  # instead, in a report of some people
WIDTH, TOP_IN_BRIEF = 72, 5
# In characters, so that all of it has no more than 40 lines: three lines, two, one, and the title's part of one.
LONGEST_ATTENTION, LONGEST_PARAGRAPH, LONGEST_LINE, LONGEST_TITLE = 180, 134, 70, 34


class Page(NamedTuple):
    title: str
    attention: list[str]  # a paragraph on what to act on, if there is anything
    header: list[str]  # paragraphs: the machine, the window, and reasons to doubt the rest
    sections: list[Section]


def build_page(report: Report, options: Options) -> Page:
    if options.brief:
        return _build_brief_page(report, options)
    attention = [f"To act on: {'; '.join(options.attention)}"] if options.attention else []
    shown = [section for kind in sections.chosen(options) for section in kind.show(report, options)]
    whose = report.selection
    of = "" if whose is None else f" of {'group ' if whose.is_group else ''}{clean(whose.name)}"
    return Page(f"GPU use{of} on {clean(report.host)}", attention, _header(report), shown)


def _header(report: Report) -> list[str]:
    """The machine and the window; and, before anything else is read, what is not in it."""
    zone, fleet, window = report.window.zone, report.fleet, report.window
    if fleet:
        shares, versions = fleet.hosts["coverage_share"], count(len(report.driver_versions), "driver version")
        machine = f"{count(int(fleet.hosts['cards'].sum()), 'GPU')}, {versions}"
        observed = percent(shares.min()) + (f" to {percent(shares.max())}" if shares.min() < shares.max() else "")
        observed += " of each host"
    else:
        drivers = ", ".join(clean(version) for version in report.driver_versions) or "not known"
        machine, observed = f"{_cards(report)}, driver {drivers}", percent(report.coverage_share)
    start, end = show(window.start_ms, zone), show(window.end_ms, zone)
    lines = [machine, f"{start} to {end} {clean(report.timezone)}, {observed} observed"]
    if window.start_ms > report.requested.start_ms:
        lines.append(f"Asked for since {show(report.requested.start_ms, zone)}; the oldest sample is younger.")
    if fleet:
        return [*lines, *_missing_of(fleet)]
    if has_stopped(report):
        newest, earlier = moment(report.newest_ms, zone), duration((window.end_ms - report.newest_ms) / 1000)
        lines.append(f"The sampler seems to have stopped: no tick since {newest}, {earlier} earlier.")
    if why := unknown_now(report):
        lines.append(f"The driver does not work: {why}.")
    return lines


def _missing_of(fleet: Fleet) -> list[str]:
    groups = fleet.missing, fleet.late, fleet.partly_used
    (missing, late, rest), named = map(len, groups), [clean(first_of(some, MOST_NAMED)) for some in groups]
    lines = (
        f"Not in this report: {missing:,} of {count(fleet.expected, 'host')} ({named[0]}).",
        f"Late: {count(late, 'host')}, whose last days were not collected ({named[1]}).",
        f"Not all was used of {count(rest, 'host')} ({named[2]}): see what could not be used.",
    )
    return [line for line, some in zip(lines, groups, strict=True) if some]


def _cards(report: Report) -> str:
    indexes = pd.concat([frame["index"].astype(float) for frame in (report.gpus, report.unpartitioned)])
    cards = indexes.nunique() + int(indexes.isna().sum())
    instances = int(report.gpus["mig_index"].notna().sum())
    return count(cards, "GPU") + (f" ({count(instances, 'MIG instance')})" if instances else "")


def _build_brief_page(report: Report, options: Options) -> Page:
    """The page with short paragraphs, without captions; coverage and what was not used are there if they matter."""
    has_coverage = report.coverage_share < LEAST_COVERAGE or bool(report.warnings)
    sections = BRIEF_OF_PEOPLE if report.selection else BRIEF_OF_FLEET if report.fleet else BRIEF_SECTIONS
    page = build_page(report, options._replace(brief=False, sections=sections, top=TOP_IN_BRIEF))
    machine, *others = page.header
    title = _fit(page.title, max(LONGEST_TITLE, WIDTH - len(": ") - columns(machine)), options)
    machine = _fit(machine, WIDTH - columns(title) - len(": "), options)
    return page._replace(
        title=title,
        attention=[_fit(line, LONGEST_ATTENTION, options) for line in page.attention],
        header=[machine, *(_fit(line, LONGEST_PARAGRAPH, options) for line in others)],
        sections=[
            _shorten(section, options)
            for section in page.sections
            if {"not_used": bool(section.blocks), "coverage": has_coverage}.get(section.name, True)
        ],
    )


def _shorten(section: Section, options: Options) -> Section:
    """The section without its caption, every title and text of it in one line."""
    blocks = [_fit(block, LONGEST_LINE, options) if isinstance(block, str) else block for block in section.blocks]
    if section.name == "identities":
        blocks = blocks[:1]
    elif section.name == "coverage":
        said = [block for block in blocks if isinstance(block, str)]
        blocks = [*said[:1], *[text for text in said if text.startswith("Warning")][:1]]
    return section._replace(title=_fit(section.title, WIDTH, options), caption="", blocks=blocks)


def _fit(text: str, size: int, options: Options) -> str:
    # Made ASCII first: a letter may take ten characters then.
    return fit(to_ascii(text) if options.ascii else text, size, options.ascii)
