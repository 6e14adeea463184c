"""A report without anybody's name, for pages that strangers may see: with numbers, or with groups instead."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pandas as pd

from gua_report.people.groups import NO_GROUP, Memberships
from gua_report.people.identities import NOBODY
from gua_report.summary.named_frames import add_columns
from gua_report.summary.report import Report
from gua_report.summary.selection import count_problems
from gua_report.summary.tables import IDENTITY_COLUMNS, sort_identities

TELLING = re.compile(r"\S*/\S+|\buid \d+")  # paths and users in warnings
SUMS = ("_hours", "_seconds", "_cost")  # ends of the columns that are added up


def number_people(reports: Sequence[Report]) -> dict[str, str]:
    """A name for everybody in the reports that tells nothing: person 1 is the first in the first of them."""
    found = dict.fromkeys(who for report in reports for who in report.identities["identity"])
    found |= dict.fromkeys(who for report in reports for who in _names(report))
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
    hidden = without_names(report, {who: members.first_group(who) for who in _names(report) if who not in NOBODY})
    frames: dict[str, Any] = {field: _add_up(field, frame) for field, frame in hidden.named_frames.items()}
    notes = [f"names are those of groups; {NO_GROUP} stands for everybody else"]
    if several := sum(len(groups) > 1 for groups in members.of.values()):
        people = "1 person is" if several == 1 else f"{several:,} people are"
        notes.append(f"{people} in several groups, and counted in the first of them")
    return replace(hidden, **frames, notes=[*hidden.notes, *notes, *members.problems])


def _names(report: Report) -> dict[str, None]:
    return dict.fromkeys(who for frame in report.named_frames.values() for who in frame["identity"].tolist())


def _add_up(field: str, frame: pd.DataFrame) -> pd.DataFrame:
    """The frame with one row for each name and what else is a key; episodes and processes stay as they are."""
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
