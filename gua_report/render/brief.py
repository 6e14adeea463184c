"""A report that fits a phone's mail: what to act on, held right now, the headline, the first people, little else."""

from __future__ import annotations

from gua_report.console.fitting import columns, fit
from gua_report.console.spelling import to_ascii
from gua_report.render import Options
from gua_report.render.attention import LEAST_COVERAGE
from gua_report.render.blocks import Section
from gua_report.render.page import Page, build_page
from gua_report.summary.report import Report

SECTIONS = ("headline", "identities", "coverage")
OF_FLEET = ("headline", "hosts", "identities", "not_used")
OF_PEOPLE = ("now", "identities", "coverage")  # instead, in a report of some people
WIDTH, TOP = 72, 5
# In characters, so that all of it has no more than 40 lines: three lines, two, one, and the title's part of one.
LONGEST_ATTENTION, LONGEST_PARAGRAPH, LONGEST_LINE, LONGEST_TITLE = 180, 134, 70, 34


def build_brief_page(report: Report, options: Options) -> Page:
    """The page with short paragraphs, without captions, and with the coverage and what was not used only if they
    matter."""
    sections = OF_PEOPLE if report.selection else OF_FLEET if report.fleet else SECTIONS
    page = build_page(report, options._replace(sections=sections, top=TOP))
    title, (machine, *others) = _fit(page.title, LONGEST_TITLE, options), page.header
    machine = _fit(machine, WIDTH - columns(title) - len(": "), options)
    return page._replace(
        title=title,
        attention=[_fit(line, LONGEST_ATTENTION, options) for line in page.attention],
        header=[machine, *(_fit(line, LONGEST_PARAGRAPH, options) for line in others)],
        sections=[_shorten(section, options) for section in page.sections if _matters(section, report)],
    )


def _matters(section: Section, report: Report) -> bool:
    if section.name == "not_used":
        return bool(section.blocks)
    return section.name != "coverage" or report.coverage_share < LEAST_COVERAGE or bool(report.warnings)


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
