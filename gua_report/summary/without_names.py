"""A report without anybody's name, for pages that strangers may see."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pandas as pd

from gua_report.people.identities import UNATTRIBUTED
from gua_report.summary.build import Report
from gua_sample.identity import UNKNOWN

NOBODY = (UNATTRIBUTED, UNKNOWN)  # names of none, which stay
PATH = re.compile(r"\S*/\S+")


def number_people(reports: Sequence[Report]) -> dict[str, str]:
    """A name for everybody in the reports that tells nothing: person 1 is the first in the first of them."""
    found = dict.fromkeys(who for report in reports for who in report.identities["identity"])
    found |= dict.fromkeys(who for report in reports for frame in _frames(report).values() for who in frame["identity"])
    people = [who for who in found if who not in NOBODY]
    return {who: f"person {number}" for number, who in enumerate(people, start=1)}


def without_names(report: Report, names: dict[str, str]) -> Report:
    """The report with these names, and without anything else that may tell who somebody is: pids, commands, paths."""
    frames: dict[str, Any] = {
        field: frame.assign(identity=[names.get(who, who) for who in frame["identity"]])
        for field, frame in _frames(report).items()
    }
    frames["episodes"] = frames["episodes"].assign(pid=None, command=None)
    problems = [f"{len(report.reservation_problems)} in the sources of reservations"]
    return replace(
        report,
        **frames,
        warnings=[PATH.sub("...", text) for text in report.warnings],
        notes=[PATH.sub("...", text) for text in report.notes],
        reservation_problems=problems if report.reservation_problems else [],
    )


def _frames(report: Report) -> dict[str, pd.DataFrame]:
    """The frames that name people, by the name of their field."""
    fields = ("identities", "identity_days", "timeline_holders", "episodes", "reservations")
    return {field: getattr(report, field) for field in fields if getattr(report, field) is not None}
