"""Building a report from the rollups of a window's days. Renderers need nothing else."""

from __future__ import annotations

import shlex
import socket
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime

import pandas as pd

from gua_report.config import RECLAIM_AFTER, Config
from gua_report.console.spelling import span_of_days
from gua_report.reservations.sources import is_configured
from gua_report.rollups.hourly_sums import empty_rollup
from gua_report.summary import tables
from gua_report.summary.gather import Progress, Sums
from gua_report.summary.reclaim import freed_gpu_hours
from gua_report.summary.reserved_hours import Told, read_told, reserved_hours
from gua_report.summary.usable_days import TICKS, Archive, Segment
from gua_report.ticks.coverage import EXPIRED, find_gaps, mark_unreadable
from gua_report.ticks.history import History
from gua_report.window import HOUR_MS, Window, midnight_ms, show, zone_name
from gua_sample.errors import CorruptPartition, GuaError, NothingToReport, StoreError
from gua_sample.partition_names import DAY_MS, day_of
from gua_sample.policy import Policy
from gua_sample.settings import duration_ms

# `gua rollup` may remove partitions that a report is about to read: then the report starts again.
ATTEMPTS = 5
RECLAIM_AFTER_MS = tuple(duration_ms(text) for text in RECLAIM_AFTER)


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
    before: pd.DataFrame | None  # the headline of the window before, if that was observed
    capacity: pd.DataFrame  # by state: gpu_hours, equivalent_gpus, energy_kwh, cost
    energy_known_share: float | None
    reclaim: pd.DataFrame  # after_seconds, freed_gpu_hours
    gpus: pd.DataFrame
    identities: pd.DataFrame
    heatmap: pd.DataFrame
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

    def __repr__(self) -> str:
        start, end = (show(ms, self.window.zone) for ms in (self.window.start_ms, self.window.end_ms))
        return f"<Report of {self.host}, {start} to {end} {self.timezone}>"


def build_report(
    data_dir: str,
    requested: Window,
    config: Config,
    reclaim_after_ms: tuple[int, ...] = RECLAIM_AFTER_MS,
    progress: Progress | None = None,
    told: Told | None = None,
) -> Report:
    """Build a report. Raises NothingToReport if no tick is in the window. `told`: reservations, if already read."""
    if told is None and is_configured(config):
        told = read_told(config, requested.start_ms)
    for attempt in range(ATTEMPTS):
        history = History(data_dir)
        try:
            archive = Archive(data_dir, history.paths, config.policy, history.first_ms)
            history.forget(archive.expired)
            report = _from(history, archive, data_dir, requested, config, reclaim_after_ms, progress, told)
        except GuaError:
            if attempt == ATTEMPTS - 1 or not history.has_shrunk():
                raise
        else:
            if attempt == ATTEMPTS - 1 or not history.has_shrunk():
                return report
    raise AssertionError("the last attempt returns or raises")


def _from(
    history: History,
    archive: Archive,
    data_dir: str,
    requested: Window,
    config: Config,
    reclaim_after_ms: tuple[int, ...],
    progress: Progress | None,
    told: Told | None,
) -> Report:
    try:
        return _build(history, archive, data_dir, requested, config, reclaim_after_ms, progress, told)
    except CorruptPartition as error:  # of the rollups: corrupt partitions are skipped
        archive.close_days(error)
    try:
        return _build(history, archive, data_dir, requested, config, reclaim_after_ms, progress, told)
    except CorruptPartition as error:
        archive.close(error)
        return _build(history, archive, data_dir, requested, config, reclaim_after_ms, progress, told)


def _build(
    history: History,
    archive: Archive,
    data_dir: str,
    requested: Window,
    config: Config,
    reclaim_after_ms: tuple[int, ...],
    progress: Progress | None,
    told: Told | None,
) -> Report:
    oldest_ms, newest_ms = _outermost(history, archive)
    if oldest_ms is None or newest_ms is None or not oldest_ms < requested.end_ms:
        raise unreadable(history) if history.warnings else nothing(data_dir, requested)
    window = requested._replace(start_ms=max(requested.start_ms, oldest_ms))
    before = requested.before()
    has_before = oldest_ms < before.end_ms
    grid = _grid(window._replace(start_ms=window.before().start_ms))
    sums = Sums(history, archive, config, [before, window] if has_before else [window], grid)
    spans = sums.spans()
    if not ((spans["start_ms"] < window.end_ms) & (spans["end_ms"] > window.start_ms)).any():
        notes = _left_out(archive, window)
        raise NothingToReport("; ".join(notes)) if notes else nothing(data_dir, requested)
    sums.add(progress)
    report = _put_together(sums, spans, history, requested, window, before, newest_ms, config, reclaim_after_ms)
    if told is None:
        return report
    people = report.identities["identity"].tolist()
    hours, problems = reserved_hours(history, window, config, told, report.gpus, people, archive.expired)
    return replace(report, reservations=hours, reservation_problems=problems)


def _outermost(history: History, archive: Archive) -> tuple[int | None, int | None]:
    """The times of the oldest and the newest tick; for an expired day, by its spans."""
    times = [ms for ms in (history.oldest_ms(), history.newest_ms()) if ms is not None]
    times += [midnight_ms(day) for day in archive.lost]
    expired = sorted(archive.expired & archive.days)
    for day in expired[:1] + expired[-1:]:
        found = archive.read_spans(midnight_ms(day), midnight_ms(day))
        if found is not None and len(found):
            times += [int(found["start_ms"].min()), int(found["end_ms"].max()) - 1]
    return min(times, default=None), max(times, default=None)


def unreadable(history: History) -> StoreError:
    return StoreError("nothing can be read: " + "; ".join(history.warnings))


def nothing(data_dir: str, window: Window) -> NothingToReport:
    start, end = (datetime.fromtimestamp(ms / 1000, window.zone) for ms in (window.start_ms, window.end_ms))
    return NothingToReport(
        f"no ticks from {start:%Y-%m-%d %H:%M} to {end:%Y-%m-%d %H:%M %Z}: run gua doctor --data-dir"
        f" {shlex.quote(data_dir)} to see why, or give a longer --since, or another --data-dir"
    )


def _put_together(
    sums: Sums,
    spans: pd.DataFrame,
    history: History,
    requested: Window,
    window: Window,
    before: Window,
    newest_ms: int,
    config: Config,
    reclaim_after_ms: tuple[int, ...],
) -> Report:
    if not sums.rollups[window] and history.warnings:
        raise unreadable(history)
    # There are no rollups if only the end of a run that failed late reaches into the window.
    rollups = sums.rollups[window] or [empty_rollup()]
    cards = tables.concat([rollup.cards for rollup in rollups])
    facts = tables.concat([rollup.card_facts for rollup in rollups]).groupby("uuid", sort=False).last().reset_index()
    holds = tables.concat([rollup.holds for rollup in rollups])
    all_episodes = sums.episodes
    # A day with readable ticks but unreadable rows was not observed.
    spans = spans[~spans["start_ms"].map(day_of).isin(history.unreadable - sums.archive.days)]
    gaps = mark_unreadable(find_gaps(spans, window.start_ms, window.end_ms), _whole_days(history.unreadable))
    gaps = mark_unreadable(gaps, _whole_days(sums.archive.lost), EXPIRED)
    observed_ms = window.length_ms - int((gaps["end_ms"] - gaps["start_ms"]).sum())
    from_rollups_ms = _observed_from(sums.segments, gaps, window)
    headline = tables.headline(cards)
    earlier = tables.concat([rollup.cards for rollup in sums.rollups.get(before, [])])
    in_window = spans[(spans["start_ms"] < window.end_ms) & (spans["end_ms"] > window.start_ms)]
    energy_ms, weight_ms = cards["energy_ms"].sum(), cards["weight_ms"].sum()
    return Report(
        host=socket.gethostname(),
        driver_versions=sorted(set(in_window["driver_version"].dropna())),
        requested=requested,
        window=window,
        timezone=zone_name(window.zone, window.end_ms),
        newest_ms=newest_ms,
        policy=config.policy,
        config=config,
        headline=headline,
        before=tables.headline(earlier) if len(earlier) else None,
        capacity=tables.capacity(cards, observed_ms, config),
        energy_known_share=float(energy_ms / weight_ms) if weight_ms else None,
        reclaim=freed_gpu_hours(holds, all_episodes, window, reclaim_after_ms),
        gpus=tables.gpus(cards, facts),
        identities=tables.identities(tables.concat([rollup.identities for rollup in rollups])),
        heatmap=tables.heatmap(cards, window),
        episodes=tables.episodes(all_episodes, window, newest_ms, facts),
        gaps=gaps,
        coverage_share=observed_ms / window.length_ms,
        observed_seconds=observed_ms / 1000,
        from_ticks_seconds=(observed_ms - from_rollups_ms) / 1000,
        from_rollups_seconds=from_rollups_ms / 1000,
        warnings=history.warnings,
        notes=[*sums.archive.warnings, *_inexact(sums, window)],
    )


def _whole_days(days: Iterable[str]) -> list[tuple[int, int]]:
    return [(midnight_ms(day), midnight_ms(day) + DAY_MS) for day in sorted(days)]


def _inexact(sums: Sums, window: Window) -> list[str]:
    """Notes on figures that are no longer exact, since ticks have expired."""
    notes = []
    if sums.cut_hours:
        hours = ", ".join(show(ms, window.zone) for ms in sums.cut_hours)
        notes.append(f"ticks have expired: of the hour of {hours}, which the window cuts, a share is taken instead")
    return notes + _left_out(sums.archive, window) + sums.notes


def _left_out(archive: Archive, window: Window) -> list[str]:
    touched = (day_of(window.start_ms), day_of(window.end_ms - 1))
    lost = {day: why for day, why in archive.lost.items() if touched[0] <= day <= touched[1]}
    notes = []
    for reason in dict.fromkeys(lost.values()):
        days = span_of_days(sorted(day for day, why in lost.items() if why == reason))
        notes.append(f"left out: {days}, {reason}, and the ticks have expired")
    inexact = sorted(day for day in archive.inexact if touched[0] <= day <= touched[1])
    if inexact:
        notes.append(f"not exact at midnight, as ticks beside them are gone or came late: {', '.join(inexact)}")
    late = [day for day in archive.late if touched[0] <= day <= touched[1]]
    if late:
        notes.append(f"ticks of {span_of_days(late)} came when those of the day had expired: they are not counted")
    return notes


def _observed_from(segments: list[Segment], gaps: pd.DataFrame, window: Window) -> int:
    """The observed milliseconds of the window that are not from ticks."""
    total = 0
    for start, end, source in segments:
        start, end = max(start, window.start_ms), min(end, window.end_ms)
        if source != TICKS and start < end:
            missing = gaps["end_ms"].clip(start, end) - gaps["start_ms"].clip(start, end)
            total += end - start - int(missing.sum())
    return total


def _grid(window: Window) -> tuple[int, int]:
    """The offset of the zone's hours from UTC's, and the length to cut by: if offsets differ, quarters of an hour."""
    offsets = {_offset_ms(ts_ms, window) for ts_ms in (*range(window.start_ms, window.end_ms, DAY_MS), window.end_ms)}
    begins = {-offset % HOUR_MS for offset in offsets}
    return (begins.pop(), HOUR_MS) if len(begins) == 1 else (0, HOUR_MS // 4)


def _offset_ms(ts_ms: int, window: Window) -> int:
    offset = datetime.fromtimestamp(ts_ms / 1000, window.zone).utcoffset()
    return round(offset.total_seconds() * 1000) if offset else 0
