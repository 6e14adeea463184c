"""What is known of the containers in a report, in the frames that name people."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pandas as pd

from gua_report.people.containers import COLUMNS, People, tell
from gua_sample.containers import Container

if TYPE_CHECKING:
    from gua_report.summary.report import Report


def name_containers(report: Report, people: People) -> Report:
    """The report with the containers that are known of those in it, and why others are not."""
    found: dict[str, Container] = {}
    for frame in report.named_frames.values() if people.containers.containers else ():
        for identity in frame["identity"].unique():
            if container := people.containers.find(identity):
                found[identity] = container
    return replace(
        report,
        identities=add_columns(report.identities, found),
        episodes=add_columns(report.episodes, found),
        containers=found,
        people_problems=[people.problem] if people.problem else [],
    )


def add_columns(frame: pd.DataFrame, containers: dict[str, Container]) -> pd.DataFrame:
    """The frame of identities with the columns that tell of their containers."""
    told = [tell(identity, containers.get(identity)) for identity in frame["identity"].tolist()]
    columns = [[one[place] for one in told] for place in range(len(COLUMNS))]
    # As objects: else None would become NaN.
    series = (pd.Series(values, index=frame.index, dtype=object) for values in columns)
    return frame.assign(**dict(zip(COLUMNS, series, strict=True)))
