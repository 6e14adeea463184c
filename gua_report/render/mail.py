"""What `gua mail` sends: the report in brief, its page, and a subject that says the most important."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from gua_report.config import Config
from gua_report.console.fitting import wrap
from gua_report.console.spelling import duration
from gua_report.people.identities import Wanted
from gua_report.render import MOST_UNKNOWN, OF_PEOPLE, SECTIONS, Options, html, text
from gua_report.render.attention import has_stopped, reasons
from gua_report.render.limits import find_over
from gua_report.render.page import WIDTH
from gua_report.render.values import clean, count, is_missing, percent
from gua_report.summary.build import build_report
from gua_report.summary.names import select
from gua_report.summary.of_hosts import Fleet
from gua_report.summary.report import Report, spell_window
from gua_report.summary.reserved_hours import Told
from gua_report.window import LEAST_COVERAGE, Window
from gua_sample.errors import GuaError, NothingToReport
from gua_sample.policy import IDLE_HELD, UNKNOWN


class MailRequest(NamedTuple):
    data_dir: str  # empty for a fleet
    config: Config
    window: Window
    longest_ms: int  # from this length on, an idle-held episode is something to act on
    told: Told | None  # the reservations, if a source of them is configured
    groups: tuple[str, ...] = ()  # whose heads get a mail of their own


class MailParts(NamedTuple):
    subject: str
    text: str
    page: str
    warnings: list[str]
    is_clean: bool  # there is nothing to act on


class GroupMail(NamedTuple):
    parts: MailParts | None
    problem: str | None  # why there is none


class Mails(NamedTuple):
    administrator: MailParts
    groups: dict[str, GroupMail]  # by name


def make_mails(asked: MailRequest) -> Mails:
    return make_mails_of(build_report(asked.data_dir, asked.window, asked.config, told=asked.told), asked)


def make_mails_of(report: Report, asked: MailRequest) -> Mails:
    problems = report.memberships.problems if report.memberships else []
    warnings = [*report.warnings, *report.people_problems, *report.reservation_problems, *problems]
    groups = {group: _make_group_mail(report, asked, group) for group in asked.groups}
    return Mails(_make_mail(report, asked, SECTIONS, warnings), groups)


def _make_group_mail(report: Report, asked: MailRequest, group: str) -> GroupMail:
    """The mail to the head of the group. Warnings, which may name others, are left to the administrator."""
    try:
        selected = select(report, Wanted(group))
    except NothingToReport:
        return GroupMail(_nobody_seen(report, group), None)
    except GuaError as error:
        return GroupMail(None, str(error))
    sections = tuple(name for name in OF_PEOPLE if name != "reservations" or report.reservations is not None)
    return GroupMail(_make_mail(selected, asked, sections, []), None)


def _nobody_seen(report: Report, group: str) -> MailParts:
    said = f"Nobody of the group {clean(group)} was seen on a card {spell_window(report.window)}."
    if not report.fleet:
        said += f" {percent(report.coverage_share)} of the time was observed."
    lines = "".join(f"{line}\n" for line in wrap(said, WIDTH))
    is_seen = report.coverage_share >= LEAST_COVERAGE and report.knows_now and not has_stopped(report)
    return MailParts(f"{_whose(report, group)}: nobody seen on a card", lines, "", [], is_seen and not report.warnings)


def _make_mail(report: Report, asked: MailRequest, sections: tuple[str, ...], warnings: list[str]) -> MailParts:
    attention = tuple(reasons(report, asked.longest_ms))
    in_brief = Options(width=WIDTH, brief=True, attention=attention)
    return MailParts(
        subject_of(report),
        text.render(replace(report, warnings=[]), in_brief),  # which would cut them, and show one
        html.render(report, Options(sections=sections, attention=attention)),
        warnings,
        not attention,
    )


def _whose(report: Report, group: str | None) -> str:
    return clean(report.host) if group is None else f"{clean(report.host)}, {clean(group)}"


def _find_shares(report: Report) -> tuple[float, float]:
    if report.selection is None or report.groups is None:
        return report.headline["share"][IDLE_HELD], report.headline["share"][UNKNOWN]
    hours = report.groups.iloc[0]
    return hours["idle_held_share"], hours["unknown_gpu_hours"] / hours["gpu_hours"] if hours["gpu_hours"] else 0.0


def subject_of(report: Report) -> str:
    """The subject: lab7: 28 % idle-held, 6 held now. What is not known is said to be."""
    idle_held, unknown = _find_shares(report)
    parts = ["idle-held time not known" if is_missing(idle_held) else f"{_percent(idle_held)} idle-held"]
    if not report.has_headline:
        parts = [f"only {duration(report.observed_seconds)} observed"]
    elif unknown > MOST_UNKNOWN:
        parts.append(f"{_percent(unknown)} unknown")
    if report.fleet:
        parts = [*_about_hosts(report.fleet), *parts]
    elif has_stopped(report):
        parts.insert(0, "sampler stopped")
    elif not report.knows_now:
        parts.insert(0, "not known who holds what")
    else:
        parts.append(_held_now(report))
    if over := sum(map(len, find_over(report))):
        parts.append(f"{over} over limit")
    if report.has_headline and report.coverage_share < LEAST_COVERAGE:
        parts.append(f"{_percent(report.coverage_share)} observed")
    return f"{_whose(report, report.selection.name if report.selection else None)}: {', '.join(parts)}"


def _about_hosts(fleet: Fleet) -> list[str]:
    missing = [f"{len(fleet.missing):,} of {count(fleet.expected, 'host')} missing"] if fleet.missing else []
    if fleet.is_complete:
        return missing
    return ["incomplete", *missing, *([f"{len(fleet.late):,} late"] if fleet.late else [])]


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
