"""A report of some people: of those in a group, or of one person. Nobody else is named in it."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import pandas as pd

from gua_report.people.identities import is_person
from gua_report.people.wanted import Wanted
from gua_report.summary.no_report import spell_window
from gua_report.summary.report import Report
from gua_sample.console import plural
from gua_sample.errors import GuaError, NothingToReport

LEAST_PEOPLE = 5  # of fewer, a median tells too much of each


class Median(NamedTuple):
    """What is usual among the people who were seen: containers, jobs and units are none."""

    people: int
    idle_held_gpu_hours: float
    idle_held_share: float  # NaN: of none it is known


class Selection(NamedTuple):
    """Whose report it is."""

    name: str
    is_group: bool
    is_reader: bool
    median: Median | None  # of all people, for a report of one of them; None: they are too few


def select(report: Report, wanted: Wanted) -> Report:
    """The report without everybody else. Raises NothingToReport if nobody of those asked for was seen."""
    is_group = wanted.people is None
    people = _find_members(report, wanted.name) if wanted.people is None else list(wanted.people)
    frames = {name: frame[frame["identity"].isin(people)] for name, frame in report.named_frames.items()}
    if not any(len(frame) for name, frame in frames.items() if name != "limits"):  # those are not of the window
        who = f"nobody of the group {wanted.name!r}" if is_group else f"nobody of the name {wanted.name!r}"
        raise NothingToReport(f"{who} was seen {spell_window(report.window)}: give a longer --since, or another name")
    members = report.memberships
    median = None if is_group else _find_median(report.identities, people)
    if members is not None:
        members = members._replace(of={who: members.of[who] for who in people if who in members.of}, problems=[])
    fleet = report.fleet
    if fleet is not None:
        fleet = fleet._replace(episodes={who: number for who, number in fleet.episodes.items() if who in people})
    return replace(
        report,
        fleet=fleet,
        **{name: frame.reset_index(drop=True) for name, frame in frames.items()},  # type: ignore[arg-type] # of frames
        groups=_row_of(report.groups, wanted.name) if is_group else None,
        group_limits=_row_of(report.group_limits, wanted.name) if is_group else None,
        memberships=members,
        containers={who: one for who, one in report.containers.items() if who in people},
        reservation_problems=count_problems(report),
        selection=Selection(wanted.name, is_group, wanted.is_reader, median),
    )


def _row_of(groups: pd.DataFrame | None, name: str) -> pd.DataFrame | None:
    return None if groups is None else groups[groups["group"] == name]


def _find_members(report: Report, group: str) -> list[str]:
    """The people of the group who were seen. Raises GuaError if it is not known who is in it."""
    if report.memberships is None:
        raise AssertionError("a group of the configuration is asked for, so there are memberships")
    if group in report.memberships.unknown:
        raise GuaError(f"not known who is in the group {group!r}: gua-report --section groups says why")
    return report.memberships.find_members(group)


def _find_median(identities: pd.DataFrame, people: list[str]) -> Median | None:
    """What is usual among all people, if one of these is a person too."""
    persons = identities[[is_person(who) for who in identities["identity"].tolist()]]
    if len(persons) < LEAST_PEOPLE or not any(map(is_person, people)):
        return None
    hours, share = persons["idle_held_gpu_hours"].median(), persons["idle_held_share"].median()
    return Median(len(persons), float(hours), float(share))


def count_problems(report: Report) -> list[str]:
    """A line in place of those on reservations, which may name people."""
    problems = plural(len(report.reservation_problems), "problem")
    return [f"{problems} in the sources of reservations"] if report.reservation_problems else []
