"""Whom a report names: everybody with their containers, some people alone, or nobody."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import pandas as pd

from gua_report.people.containers import COLUMNS, People, tell
from gua_report.people.groups import NO_GROUP, Memberships
from gua_report.people.identities import NOBODY, Wanted, is_person
from gua_report.summary.report import Report, spell_window
from gua_report.summary.tables import IDENTITY_COLUMNS, sort_identities
from gua_sample.console import plural
from gua_sample.containers import Container
from gua_sample.errors import GuaError, NothingToReport

LEAST_PEOPLE = 5  # of fewer, a median tells too much of each
TELLING = re.compile(r"(?<!\S)\S*/\S+|\buid \d+")  # paths and users in warnings; never looked for from within a word
SUMS = ("_hours", "_seconds", "_cost")  # ends of the columns that are added up


class Median(NamedTuple):
    """What is usual among the people who were seen: containers, jobs and units are none."""

    people: int
    idle_held_gpu_hours: float
    idle_held_share: float  # NaN: of none it is known


class Selection(NamedTuple):
    name: str
    is_group: bool
    is_reader: bool
    median: Median | None  # of all people, for a report of one of them; None: they are too few


def name_containers(report: Report, people: People) -> Report:
    names = report.names if people.containers.containers else ()
    found = {who: container for who in names if (container := people.containers.find(who))}
    return replace(
        report,
        identities=add_columns(report.identities, found),
        episodes=add_columns(report.episodes, found),
        containers=found,
        people_problems=[people.problem] if people.problem else [],
    )


def add_columns(frame: pd.DataFrame, containers: dict[str, Container]) -> pd.DataFrame:
    told = [tell(identity, containers.get(identity)) for identity in frame["identity"].tolist()]
    columns = [[one[place] for one in told] for place in range(len(COLUMNS))]
    # As objects: else None would become NaN.
    series = (pd.Series(values, index=frame.index, dtype=object) for values in columns)
    return frame.assign(**dict(zip(COLUMNS, series, strict=True)))


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
    if report.memberships is None:
        raise AssertionError("a group of the configuration is asked for, so there are memberships")
    if group in report.memberships.unknown:
        raise GuaError(f"not known who is in the group {group!r}: gua-report --section groups says why")
    return report.memberships.find_members(group)


def _find_median(identities: pd.DataFrame, people: list[str]) -> Median | None:
    persons = identities[[is_person(who) for who in identities["identity"].tolist()]]
    if len(persons) < LEAST_PEOPLE or not any(map(is_person, people)):
        return None
    hours, share = persons["idle_held_gpu_hours"].median(), persons["idle_held_share"].median()
    return Median(len(persons), float(hours), float(share))


def count_problems(report: Report) -> list[str]:
    """A line in place of those on reservations, which may name people."""
    problems = plural(len(report.reservation_problems), "problem")
    return [f"{problems} in the sources of reservations"] if report.reservation_problems else []


def number_people(reports: Sequence[Report]) -> dict[str, str]:
    """A name for everybody in the reports that tells nothing: person 1 is the first in the first of them."""
    found = dict.fromkeys(who for report in reports for who in report.identities["identity"])
    found |= dict.fromkeys(who for report in reports for who in report.names)
    people = [who for who in found if who not in NOBODY]
    return {who: f"person {number}" for number, who in enumerate(people, start=1)}


def without_names(report: Report, names: Mapping[str, str]) -> Report:
    """The report with these names, and without anything else that may tell who somebody is: pids, jobs, commands,
    containers, reasons, paths."""
    frames: dict[str, Any] = {
        field: frame.assign(identity=[names.get(who, who) for who in frame["identity"]])
        for field, frame in report.named_frames.items()
    }
    for field in frames.keys() & {"episodes", "now"}:
        frames[field] = frames[field].assign(pid=None, command=None)
    frames["episodes"] = frames["episodes"].assign(slurm_job=None, meant_reason=None)
    frames["limits"] = None  # a limit of one's own tells who one is
    frames |= {field: add_columns(frames[field], {}) for field in ("identities", "episodes")}
    return replace(
        report,
        **frames,
        week=None,
        group_limits=None,
        groups=None,
        memberships=None,
        warnings=[TELLING.sub("...", text) for text in report.warnings],
        notes=[TELLING.sub("...", text) for text in report.notes],
        containers={},
        people_problems=[TELLING.sub("...", text) for text in report.people_problems],
        reservation_problems=count_problems(report),
    )


def with_groups(report: Report) -> Report:
    """The report with groups in place of people, whose rows are added up. Who is in several counts in the first."""
    members = report.memberships or Memberships({}, (), [])
    hidden = without_names(report, {who: members.first_group(who) for who in report.names if who not in NOBODY})
    frames: dict[str, Any] = {field: _add_up(field, frame) for field, frame in hidden.named_frames.items()}
    notes = [f"names are those of groups; {NO_GROUP} stands for everybody else"]
    if several := sum(len(groups) > 1 for groups in members.of.values()):
        people = "1 person is" if several == 1 else f"{several:,} people are"
        notes.append(f"{people} in several groups, and counted in the first of them")
    return replace(hidden, **frames, notes=[*hidden.notes, *notes, *members.problems])


def _add_up(field: str, frame: pd.DataFrame) -> pd.DataFrame:
    if field in ("episodes", "now") or not len(frame):
        return frame
    sums = [name for name in frame if str(name).endswith(SUMS)]
    key = [name for name in frame if name not in (*sums, "idle_held_share")]
    added = frame.groupby(key, dropna=False, sort=False)[sums].sum(min_count=1).reset_index()
    if field != "identities":
        return added
    used = added["active_gpu_hours"] + added["idle_held_gpu_hours"]
    share = added["idle_held_gpu_hours"] / used.where(used > 0)
    return add_columns(sort_identities(added.assign(idle_held_share=share)[IDENTITY_COLUMNS]), {})
