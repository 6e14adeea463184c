"""What `gua mail` sends: the report in brief, its page, and a subject that says the most important."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from gua_report.config import Config
from gua_report.render import Options, brief, html, text
from gua_report.render.attention import LEAST_COVERAGE, MOST_UNKNOWN, has_stopped, reasons
from gua_report.render.words import clean, count, is_missing
from gua_report.summary.build import build_report
from gua_report.summary.report import Report
from gua_report.summary.reserved_hours import Told
from gua_report.window import Window
from gua_sample.policy import IDLE_HELD, UNKNOWN


class MailRequest(NamedTuple):
    """A mail that is asked for."""

    data_dir: str
    config: Config
    window: Window
    longest_ms: int  # from this length on, an idle-held episode is something to act on
    told: Told | None  # the reservations, if a source of them is configured


class MailParts(NamedTuple):
    subject: str
    text: str
    page: str
    warnings: list[str]
    is_clean: bool  # there is nothing to act on


def make_mail(asked: MailRequest) -> MailParts:
    """The parts of a mail, all from one report."""
    report = build_report(asked.data_dir, asked.window, asked.config, told=asked.told)
    attention = tuple(reasons(report, asked.longest_ms))
    in_brief = Options(width=brief.WIDTH, brief=True, attention=attention)
    return MailParts(
        subject_of(report),
        text.render(replace(report, warnings=[]), in_brief),  # which would cut them, and show one
        html.render(report, Options(attention=attention)),
        [*report.warnings, *report.people_problems, *report.reservation_problems],
        not attention,
    )


def subject_of(report: Report) -> str:
    """The subject: lab7: 28 % idle-held, 6 held now. What is not known is said to be."""
    idle_held, unknown = (report.headline["share"][state] for state in (IDLE_HELD, UNKNOWN))
    parts = ["idle-held time not known" if is_missing(idle_held) else f"{_percent(idle_held)} idle-held"]
    if unknown > MOST_UNKNOWN:
        parts.append(f"{_percent(unknown)} unknown")
    if has_stopped(report):
        parts.insert(0, "sampler stopped")
    elif not report.knows_now:
        parts.insert(0, "not known who holds what")
    else:
        parts.append(_held_now(report))
    if report.coverage_share < LEAST_COVERAGE:
        parts.append(f"{_percent(report.coverage_share)} observed")
    return f"{clean(report.host)}: {', '.join(parts)}"


def _held_now(report: Report) -> str:
    held, unknown = int(report.episodes["ongoing"].sum()), len(report.unknown_now)
    if not unknown:
        return f"{held or 'none'} held now"
    return f"{held or 'none'} known to be held now, {count(unknown, 'card')} unknown"


def _percent(share: float) -> str:
    """A share in whole percent, which is rounded neither to 0 nor to 100."""
    rounded = f"{share * 100:.0f} %"
    if rounded == "0 %" and share > 0:
        return "<1 %"
    return ">99 %" if rounded == "100 %" and share < 1 else rounded
