"""The Report: a window added up, all that renderers need; or why there is none, in a line with what to do next."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

import pandas as pd

from gua_report.config import Config
from gua_report.console.spelling import span_of_days
from gua_report.limits import Week
from gua_report.people.containers import spell
from gua_report.people.groups import Memberships
from gua_report.summary.now import NewestFailed
from gua_report.summary.of_hosts import Fleet
from gua_report.ticks.coverage import DRIVER_ERROR
from gua_report.ticks.history import History
from gua_report.window import Window, show
from gua_sample.containers import Container
from gua_sample.errors import NothingToReport, StoreError
from gua_sample.policy import Policy

if TYPE_CHECKING:
    from gua_report.summary.names import Selection

# What limits the figures of a report. Words are made of it when it is shown.
LEFT_OUT, LATE, WARNING = "left out", "late", "warning"
OLDER_RULE, NEWER_RULE = "older rule", "newer rule"
CUT_HOURS, UTC_HOURS, CLASHES = "cut hours", "full hours", "clashes"
WORDS = {
    LEFT_OUT: "left out: {span}, {detail}",
    LATE: "ticks of {span} came when those of the day had expired: they are not counted",
    WARNING: "{detail}",
    OLDER_RULE: "{why}: states of {span} are by an older rule",
    NEWER_RULE: "{why}: states of {span} are by a newer rule (upgrade gua here)",
    CUT_HOURS: "{why}: of the hour of {detail}, which the window cuts, a share is taken instead",
    UTC_HOURS: "{why}: by hour of day, older days are as UTC's full hours cut them",
    CLASHES: "{why}: where one person had two identities at a time, both count",
}
LEAST_SECONDS = 600  # observed: shares of less say nothing about a machine


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
    def has_headline(self) -> bool:
        return self.observed_seconds >= LEAST_SECONDS

    @property
    def named_frames(self) -> dict[str, pd.DataFrame]:
        fields = ("identities", "identity_days", "timeline_holders", "episodes", "now", "reservations", "limits")
        return {name: frame for name in fields if (frame := getattr(self, name)) is not None}

    @property
    def names(self) -> list[str]:
        """The identities in all of these frames, each once."""
        return [*dict.fromkeys(who for frame in self.named_frames.values() for who in frame["identity"].tolist())]

    @property
    def knows_now(self) -> bool:
        return self.newest_failed is None or self.newest_failed.is_near

    @property
    def told_ms(self) -> int:
        """The tick that tells who is on which card: the last that saw cards, else the newest."""
        failed = self.newest_failed
        return self.newest_ms if failed is None or failed.seen_ms is None else failed.seen_ms

    def who(self, identity: str) -> str:
        """The name that people are shown for an identity of the report, not clean: `ada? (docker: train-resnet)`."""
        return spell(identity, self.containers.get(identity))

    def __repr__(self) -> str:
        start, end = (show(ms, self.window.zone) for ms in (self.window.start_ms, self.window.end_ms))
        return f"<Report of {self.host}, {start} to {end} {self.timezone}>"


class Notice(NamedTuple):
    kind: str  # of WORDS
    days: Sequence[str] = ()
    detail: str = ""


def spell_notice(notice: Notice) -> str:
    """The notice for who has the ticks, or had them."""
    said = _fill_in(notice, "ticks have expired")
    return f"{said}, and the ticks have expired" if notice.kind == LEFT_OUT else said


def spell_published(notice: Notice) -> str:
    """The notice for who reads a published file: there were never ticks beside it."""
    return _fill_in(notice, "only sums are published")


def _fill_in(notice: Notice, why: str) -> str:
    span = span_of_days(list(notice.days)) if notice.days else ""
    return WORDS[notice.kind].format(span=span, detail=notice.detail, why=why)


def unreadable(history: History) -> StoreError:
    return StoreError("nothing can be read: " + "; ".join(history.warnings))


def nothing(data_dir: str, window: Window, notices: Sequence[Notice] = ()) -> NothingToReport:
    advice = f"run {spell_doctor(data_dir)} to see why, or give a longer --since, or another --data-dir"
    said = [*map(spell_notice, notices)] or [f"no ticks {spell_window(window)}: {advice}"]
    return NothingToReport("; ".join(said))


def never_saw_cards(history: History, window: Window, notices: Sequence[Notice]) -> NothingToReport:
    """For a window in which the driver failed at every tick, with the error of the last one."""
    ticks = (history.ticks_of(day) for day in history.days_of(window.start_ms, window.end_ms)[::-1])
    errors = (day[day["ts_ms"] < window.end_ms]["error"].dropna().tolist() for day in ticks)
    error = next((some[-1] for some in errors if some), DRIVER_ERROR)
    why = (
        f"no card was seen {spell_window(window)}, as the driver failed ({error}): run {spell_doctor(history.data_dir)}"
    )
    return NothingToReport("; ".join([why, *map(spell_notice, notices)]))


def spell_window(window: Window) -> str:
    start, end = (datetime.fromtimestamp(ms / 1000, window.zone) for ms in (window.start_ms, window.end_ms))
    return f"from {start:%Y-%m-%d %H:%M} to {end:%Y-%m-%d %H:%M %Z}"


def spell_doctor(data_dir: str) -> str:
    return f"gua doctor --data-dir {shlex.quote(data_dir)}"
