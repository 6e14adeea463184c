"""The Report: a window added up, which is all that renderers need."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pandas as pd

from gua_report.config import Config
from gua_report.limits import Week
from gua_report.people.containers import spell
from gua_report.people.groups import Memberships
from gua_report.summary.newest_failed import NewestFailed
from gua_report.summary.of_hosts import Fleet
from gua_report.window import Window, show
from gua_sample.containers import Container
from gua_sample.policy import Policy

if TYPE_CHECKING:
    from gua_report.summary.selection import Selection


@dataclass(frozen=True, repr=False)
class Report:
    """A report. Each frame has one row per item that it is named after; docs/notebooks.md describes the columns."""

    host: str
    driver_versions: list[str]
    requested: Window
    window: Window  # starts no earlier than the oldest sample
    timezone: str
    newest_ms: int  # the newest tick of all, in the window or not
    policy: Policy
    config: Config
    headline: pd.DataFrame  # by state: share, gpu_hours
    before: pd.DataFrame | None  # the headline of the window before, if enough of that was observed
    before_observed_share: float  # of the window before
    capacity: pd.DataFrame  # by state: gpu_hours, equivalent_gpus, energy_kwh, cost
    unpartitioned: pd.DataFrame  # by physical card with MIG on: what no instance covers, which is in none of the states
    energy_known_share: float | None
    reclaim: pd.DataFrame  # after_seconds, freed_gpu_hours
    gpus: pd.DataFrame
    identities: pd.DataFrame
    heatmap: pd.DataFrame
    timeline: pd.DataFrame  # by card and cell: seconds in each state
    timeline_holders: pd.DataFrame  # by card, cell and identity
    timeline_cell_seconds: float
    trend: pd.DataFrame  # by hour, day, week or month, as the window is long
    identity_days: pd.DataFrame
    reclaim_curve: pd.DataFrame  # as reclaim, for many times
    episodes: pd.DataFrame
    gaps: pd.DataFrame
    coverage_share: float
    observed_seconds: float
    from_ticks_seconds: float
    from_rollups_seconds: float
    warnings: list[str]  # partitions that were skipped
    notes: list[str] = field(default_factory=list)  # figures that are not exact, and why
    reservations: pd.DataFrame | None = None  # None: no source of them is configured
    reservation_problems: list[str] = field(default_factory=list)
    newest_failed: NewestFailed | None = None  # None: the newest tick saw cards
    unknown_now: list[str] = field(default_factory=list)  # uuids of cards whose state the newest tick does not tell
    instant_only: list[str] = field(default_factory=list)  # uuids of cards that were read at instants alone
    containers: dict[str, Container] = field(default_factory=dict)  # by identity: those that are known
    people_problems: list[str] = field(default_factory=list)  # names that are missing, and why
    meant_gpu_hours: float = 0.0  # idle-held hours of cards on which all that is held is meant
    now: pd.DataFrame | None = None  # by process, at the tick that tells who holds what; None: no tick does
    groups: pd.DataFrame | None = None  # None: no groups are configured
    memberships: Memberships | None = None
    selection: Selection | None = None  # None: the report is of everybody
    week: Week | None = None  # that limits are held against; None: no limits are configured
    limits: pd.DataFrame | None = None  # by identity, of everybody who was seen in that week
    group_limits: pd.DataFrame | None = None  # by group that has a limit
    fleet: Fleet | None = None  # None: the report is of one host
    compared: pd.DataFrame | None = None  # the headline of the hosts that `before` is of; None: of all

    @property
    def change(self) -> pd.Series[float] | None:
        """The shares by state, less those of the window before; None if that is not known."""
        now = self.headline if self.compared is None else self.compared
        return None if self.before is None else now["share"] - self.before["share"]

    @property
    def named_frames(self) -> dict[str, pd.DataFrame]:
        """The frames that name people, by the name of their field."""
        fields = ("identities", "identity_days", "timeline_holders", "episodes", "now", "reservations", "limits")
        return {name: frame for name in fields if (frame := getattr(self, name)) is not None}

    @property
    def knows_now(self) -> bool:
        """Whether it is known who holds what at the newest tick."""
        return self.newest_failed is None or self.newest_failed.is_near

    def who(self, identity: str) -> str:
        """The name that people are shown for an identity of the report, not clean: `ada? (docker: train-resnet)`."""
        return spell(identity, self.containers.get(identity))

    def __repr__(self) -> str:
        start, end = (show(ms, self.window.zone) for ms in (self.window.start_ms, self.window.end_ms))
        return f"<Report of {self.host}, {start} to {end} {self.timezone}>"
