"""A fleet's report as commands and notebooks ask for it. Without pandas until it is built."""

from __future__ import annotations

import os
from contextlib import closing
from typing import TYPE_CHECKING, NamedTuple

from gua_report.console.terminal import Progress
from gua_report.summary.of_hosts import HOST
from gua_sample.errors import GuaError

if TYPE_CHECKING:
    from gua_report.config import Config
    from gua_report.summary.report import Report
    from gua_report.window import Window


class AskedFleet(NamedTuple):
    folder: str
    window: Window
    config: Config
    pattern: str | None = None  # of hosts' names
    by: str = HOST
    scheduler: str | None = None  # of a Dask cluster: its address, or its file
    since: str | None = None  # as the user typed it
    start: str | None = None
    end: str | None = None
    wait_ms: int = 60_000  # for a worker of the cluster
    reclaim_after_ms: tuple[int, ...] | None = None  # None: as a host's report has it
    progress: Progress | None = None
    now_ms: int | None = None  # for tests

    @property
    def is_open(self) -> bool:
        """Whether the window ends now, so that it can end with the newest closed day instead."""
        return self.end is None

    @property
    def keeps_length(self) -> bool:
        """Whether the window is so many days, rather than since a time."""
        is_time = self.since is not None and self.since[4:5] == "-"
        return self.start is None and not is_time


def refuse_root() -> None:
    """Raise GuaError as root: no host is trusted with root's rights."""
    if os.geteuid() == 0:
        raise GuaError(
            "a fleet's files are those of many hosts, and root does not read them: run this as the user who collects"
            " them, such as: runuser -u gua-collect -- COMMAND"
        )


def ask_fleet(asked: AskedFleet) -> Report:
    """Build the report, in children of this process or on an existing Dask cluster."""
    from gua_report.fleet.build import build_fleet_report

    if asked.scheduler is None:
        return build_fleet_report(asked)
    from gua_report.fleet.executors import Cluster

    with closing(Cluster(asked.scheduler, asked.wait_ms / 1000)) as cluster:
        return build_fleet_report(asked, cluster.map)
