"""What `gua mail` sends: the report in brief, its page, and a subject that says the most important."""

from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

from gua_report.console.fitting import wrap
from gua_report.console.spelling import duration
from gua_report.people.identities import Wanted
from gua_report.render import MOST_UNKNOWN, OF_PEOPLE, SECTIONS, Options, html, text
from gua_report.render.attention import has_stopped, reasons
from gua_report.render.limits import find_over
from gua_report.render.page import WIDTH
from gua_report.render.values import clean, count, is_missing, percent
from gua_report.summary.names import select
from gua_report.summary.of_hosts import Fleet
from gua_report.summary.report import Report, spell_window
from gua_report.window import LEAST_COVERAGE
from gua_sample.errors import GuaError, NothingToReport
from gua_sample.policy import IDLE_HELD, UNKNOWN

UNIT = " %"  # of subjects


class MailParts(NamedTuple):
    subject: str
    text: str
    page: str
    warnings: list[str]
    is_clean: bool  # there is nothing to act on


class Mails(NamedTuple):
    administrator: MailParts
    groups: dict[str, MailParts | str]  # by name; a text says why there is none


def make_mails(report: Report, longest_ms: int, groups: Iterable[str] = ()) -> Mails:
    """The mails to the administrator and the heads. From `longest_ms` on, an idle-held episode is to act on."""
    problems = report.memberships.problems if report.memberships else []
    warnings = [*report.warnings, *report.people_problems, *report.reservation_problems, *problems]
    of_groups = {group: _make_group_mail(report, longest_ms, group) for group in groups}
    return Mails(_make_mail(report, longest_ms, SECTIONS, warnings), of_groups)


def _make_group_mail(report: Report, longest_ms: int, group: str) -> MailParts | str:
    """The mail to the head of the group. Warnings, which may name others, are left to the administrator."""
    try:
        selected = select(report, Wanted(group))
    except NothingToReport:
        return _nobody_seen(report, group)
    except GuaError as error:
        return str(error)
    sections = tuple(name for name in OF_PEOPLE if name != "reservations" or report.reservations is not None)
    return _make_mail(selected, longest_ms, sections, [])


def _nobody_seen(report: Report, group: str) -> MailParts:
    said = f"Nobody of the group {clean(group)} was seen on a card {spell_window(report.window)}."
    if not report.fleet:
        said += f" {percent(report.coverage_share)} of the time was observed."
    lines = "".join(f"{line}\n" for line in wrap(said, WIDTH))
    is_seen = report.coverage_share >= LEAST_COVERAGE and report.knows_now and not has_stopped(report)
    return MailParts(f"{_whose(report, group)}: nobody seen on a card", lines, "", [], is_seen and not report.warnings)


def _make_mail(report: Report, longest_ms: int, sections: tuple[str, ...], warnings: list[str]) -> MailParts:
    attention = tuple(reasons(report, longest_ms))
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
    parts = ["idle-held time not known" if is_missing(idle_held) else f"{percent(idle_held, 0, UNIT)} idle-held"]
    if not report.has_headline:
        parts = [f"only {duration(report.observed_seconds)} observed"]
    elif unknown > MOST_UNKNOWN:
        parts.append(f"{percent(unknown, 0, UNIT)} unknown")
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
        parts.append(f"{percent(report.coverage_share, 0, UNIT)} observed")
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
