"""Building a report from the rollups of a window's days."""

from __future__ import annotations

import socket
from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pandas as pd

from gua_report.config import RECLAIM_AFTER, Config
from gua_report.limits import WEEK_MS, Week, week_before
from gua_report.machine.notes import find_notes
from gua_report.people.containers import find_people
from gua_report.people.groups import find_memberships
from gua_report.rollups.hourly_sums import Rollup
from gua_report.rollups.reader import read_spans
from gua_report.summary import tables
from gua_report.summary.gather import Gathered, Progress, gather, gather_spans
from gua_report.summary.groups import sum_groups, sum_people
from gua_report.summary.intervals import overlap
from gua_report.summary.meant import (
    CURVE_MS,
    Moment,
    find_meant,
    freed_gpu_hours,
    meant_card_hours,
    meant_gpu_hours,
    with_meant,
)
from gua_report.summary.names import name_containers
from gua_report.summary.now import NewestTick, look_at_newest, read_now, with_beginnings, with_newest
from gua_report.summary.over_time import NOTHING, over_time
from gua_report.summary.plan import FROM_TICKS, DayPlan, Scope, WindowPart, find_grid, make_plan
from gua_report.summary.report import (
    LATE,
    LEFT_OUT,
    NEWER_RULE,
    OLDER_RULE,
    Notice,
    Report,
    never_saw_cards,
    nothing,
    spell_notice,
    unreadable,
)
from gua_report.summary.reserved_hours import Told, read_told, reserved_hours
from gua_report.summary.week import groups_and_limits, people_and_limits, read_week
from gua_report.ticks.coverage import EXPIRED, NOT_READABLE, find_gaps, gap_frame, length_of, mark_days
from gua_report.ticks.history import History
from gua_report.window import Window, midnight_ms, zone_name
from gua_sample.errors import CorruptPartition, GuaError, StoreError
from gua_sample.partition_names import DAY_MS, day_of
from gua_sample.policy import IDLE_HELD
from gua_sample.settings import duration_ms

# `gua rollup` may remove partitions that a report is about to read, or one turns out to be damaged whose day is stored:
# then the report starts again.
ATTEMPTS = 5
# The window before is compared with if at least this share of it was observed.
LEAST_OBSERVED_BEFORE = 0.9
RECLAIM_AFTER_MS = tuple(duration_ms(text) for text in RECLAIM_AFTER)


class Request(NamedTuple):
    window: Window
    config: Config
    reclaim_after_ms: tuple[int, ...]
    progress: Progress | None
    told: Told | None = None  # the reservations, if a source of them is configured
    has_times: bool = True  # whether what happened when is wanted, which takes a while; else those frames are empty
    now_ms: int | None = None  # no time to come was observed, unless the history is ahead of this clock


def build_report(
    data_dir: str,
    requested: Window,
    config: Config,
    reclaim_after_ms: tuple[int, ...] = RECLAIM_AFTER_MS,
    progress: Progress | None = None,
    told: Told | None = None,
    now_ms: int | None = None,
    has_times: bool = True,
) -> Report:
    """Build a report, which ends by `now_ms` unless ticks are younger. Raises NothingToReport if no tick is in it."""
    people = find_people(data_dir, config.people)
    told = told or read_told(config, requested.start_ms)
    request = Request(requested, config, reclaim_after_ms, progress, told, has_times, now_ms)
    unreadable: dict[str, StoreError] = {}
    for attempts_left in reversed(range(ATTEMPTS)):
        history = History(data_dir)
        plan = make_plan(history, config.policy, unreadable=unreadable)
        try:
            report = _build_from(history, plan, request)
            if not attempts_left or not _may_do_better(history, plan):
                return name_containers(report, people)
        except GuaError:
            if not attempts_left or not _may_do_better(history, plan):
                raise
        unreadable |= {day: history.errors[day] for day in plan.spare & history.errors.keys()}
    raise AssertionError("the last attempt returns or raises")


def _may_do_better(history: History, plan: DayPlan) -> bool:
    """Whether another attempt can read more."""
    return history.has_shrunk() or not plan.spare.isdisjoint(history.errors)


def _build_from(history: History, plan: DayPlan, request: Request) -> Report:
    history.forget(plan.expired)
    for make_smaller in (DayPlan.without_damaged, DayPlan.without_rollups):
        try:
            return _build(history, plan, request)
        except CorruptPartition as error:  # of the rollups: corrupt partitions are skipped
            plan = make_smaller(plan, error)
    return _build(history, plan, request)


def _build(history: History, plan: DayPlan, request: Request) -> Report:
    outermost_ms = _outermost_ms(history, plan)
    if not outermost_ms or min(outermost_ms) >= request.window.end_ms:
        raise unreadable(history) if history.warnings else nothing(history.data_dir, request.window)
    if request.now_ms is not None and max(outermost_ms) <= request.now_ms:
        request = request._replace(window=request.window.until(request.now_ms))
    window = request.window._replace(start_ms=max(request.window.start_ms, min(outermost_ms)))
    before = request.window.before()
    grid = find_grid(window._replace(start_ms=window.before().start_ms))
    windows = [before, window] if min(outermost_ms) < before.end_ms else [window]
    scope = Scope(history, plan.for_grid(grid), request.config, windows, grid)
    spans = gather_spans(scope)
    if not _in_window(spans, window).any():
        raise nothing(history.data_dir, request.window, find_notices(plan, window))
    observed = spans[pd.isna(spans["kind"])]
    if not _in_window(observed, window).any():
        raise never_saw_cards(history, window, find_notices(plan, window))
    newest = look_at_newest(history, plan, window, max(outermost_ms))
    if _observed_share(spans, before) < LEAST_OBSERVED_BEFORE:
        scope = scope._replace(windows=[window])  # nothing will be compared
    gathered = gather(scope, spans, request.progress)
    if not gathered.rollups[window] and history.warnings:
        raise unreadable(history)
    sums = tables.add_rollups(gathered.rollups[window])
    report = _add_up(request, scope, gathered, sums, spans, newest)
    if request.told is not None:
        facts, people = tables.last_facts(sums.card_facts), report.identities["identity"].tolist()
        hours, problems = reserved_hours(scope, request.told, facts, people)
        report = replace(report, reservations=hours, reservation_problems=problems)
    if request.config.limits.are_set:
        report = _with_limits(report, scope, min(outermost_ms), newest)
    return _with_groups(report, sums) if request.config.groups else report


def _with_limits(report: Report, scope: Scope, first_ms: int, newest: NewestTick) -> Report:
    start_ms, end_ms = week_before(report.window.end_ms)
    if report.requested.start_ms == start_ms:  # the window is the week
        week, identities = Week(start_ms, end_ms, report.observed_seconds * 1000 / WEEK_MS), report.identities
    else:
        week, identities = read_week(scope, first_ms, newest, _moment(report.window, newest))
    return replace(report, week=week, limits=people_and_limits(week, identities, report.config))


def _with_groups(report: Report, sums: Rollup) -> Report:
    memberships = find_memberships(report.config.groups, report.names, report.config.people)
    report = replace(report, memberships=memberships, groups=sum_groups(sum_people(sums), memberships, report.config))
    if report.week is None or report.limits is None:
        return report
    return replace(report, group_limits=groups_and_limits(report.limits, memberships, report.config, report.week))


def _outermost_ms(history: History, plan: DayPlan) -> list[int]:
    times = history.outermost_ms() + [midnight_ms(day) for day in plan.lost]
    expired = sorted(plan.expired & plan.days)
    for day in expired[:1] + expired[-1:]:
        spans = read_spans(plan.path, day, day)
        # Under an older rule, a day's last tick reaches into the next day.
        ends = (spans["end_ms"] - 1).clip(upper=midnight_ms(day) + DAY_MS - 1)
        times += [int(ms) for ms in (*spans["start_ms"], *ends)]
    return times


def _add_up(
    request: Request, scope: Scope, gathered: Gathered, sums: Rollup, spans: pd.DataFrame, newest: NewestTick
) -> Report:
    window, config, history, plan = scope.window, scope.config, scope.history, gathered.plan
    cards, identities, holds, card_facts, unpartitioned = sums
    facts = tables.last_facts(card_facts)
    earlier = [rollup.cards for other in scope.windows[:-1] for rollup in gathered.rollups[other] if len(rollup.cards)]
    # A day with readable ticks but unreadable rows was not observed.
    spans = spans[~spans["start_ms"].map(day_of).isin(history.unreadable - plan.days)]
    kinds = {**dict.fromkeys(plan.lost, EXPIRED), **dict.fromkeys(history.unreadable, NOT_READABLE)}
    marked = mark_days(find_gaps(spans, window.start_ms, window.end_ms), kinds)
    gaps, observed_ms = gap_frame(marked), window.length_ms - length_of(marked)
    before_share = _observed_share(spans, request.window.before())
    now = None if newest.seen_ms is None else read_now(history, config, newest.seen_ms)
    from_rollups_ms = _observed_from_rollups_ms(gathered.parts, gaps, window)
    found = with_newest(gathered.episodes, newest)
    notes, moment = find_notes(config, found["identity"].unique().tolist()), _moment(window, newest)
    meant = find_meant(found, notes, moment)
    meant_hours = meant_gpu_hours(identities, found, meant, window, scope._replace(plan=plan))
    episodes = tables.episodes(with_meant(found, meant, moment), window, facts)
    energy_ms, weight_ms = cards["energy_ms"].sum(), cards["weight_ms"].sum()
    headline = tables.headline(cards)
    meant_on_cards = meant_card_hours(holds, found, meant, window)
    return Report(
        host=socket.gethostname(),
        driver_versions=sorted(set(spans[_in_window(spans, window)]["driver_version"].dropna())),
        requested=request.window,
        window=window,
        timezone=zone_name(window.zone, window.end_ms),
        newest_ms=newest.ts_ms,
        policy=config.policy,
        config=config,
        headline=headline,
        before=tables.headline(tables.concat(earlier)) if earlier and before_share >= LEAST_OBSERVED_BEFORE else None,
        before_observed_share=before_share,
        capacity=tables.capacity(cards, observed_ms, config),
        unpartitioned=tables.unpartitioned(unpartitioned, facts, observed_ms),
        energy_known_share=float(energy_ms / weight_ms) if weight_ms else None,
        reclaim=freed_gpu_hours(holds, found, meant, window, request.reclaim_after_ms),
        gpus=tables.gpus(cards, facts, config),
        identities=tables.identities(identities, meant_hours, config),
        heatmap=tables.heatmap(cards, window, scope.grid[1], gaps),
        **(over_time(scope, sums, facts, gaps) if request.has_times else NOTHING),
        reclaim_curve=freed_gpu_hours(holds, found, meant, window, CURVE_MS),
        episodes=episodes,
        gaps=gaps,
        coverage_share=observed_ms / window.length_ms,
        observed_seconds=observed_ms / 1000,
        from_ticks_seconds=(observed_ms - from_rollups_ms) / 1000,
        from_rollups_seconds=from_rollups_ms / 1000,
        warnings=history.warnings,
        notes=[*plan.warnings, *map(spell_notice, [*gathered.notices, *find_notices(plan, window)]), *notes.problems],
        newest_failed=newest.failed,
        unknown_now=now.unknown if now else [],
        instant_only=tables.instant_only(card_facts),
        # In an hour that is taken in proportion, the sum may be less than what is known of the holds.
        meant_gpu_hours=min(meant_on_cards, float(headline["gpu_hours"][IDLE_HELD])),
        now=with_beginnings(now.processes, episodes) if now else None,
    )


def _moment(window: Window, newest: NewestTick) -> Moment:
    return Moment(max(window.end_ms, newest.seen_ms or 0), window.end_ms)


def _observed_share(spans: pd.DataFrame, window: Window) -> float:
    return 1 - length_of(find_gaps(spans, window.start_ms, window.end_ms)) / window.length_ms


def _in_window(spans: pd.DataFrame, window: Window) -> pd.Series[bool]:
    return (spans["start_ms"] < window.end_ms) & (spans["end_ms"] > window.start_ms)


def find_notices(plan: DayPlan, window: Window) -> list[Notice]:
    """The window's days that are missing, or made by another rule, since ticks have expired."""
    reasons = dict.fromkeys(plan.lost.values())
    found: list[tuple[str, Iterable[str], str]] = [
        (LEFT_OUT, [day for day, why in plan.lost.items() if why == reason], reason) for reason in reasons
    ]
    found += [(OLDER_RULE, plan.of_older_rule, ""), (NEWER_RULE, plan.of_newer_rule, ""), (LATE, plan.late, "")]
    first, last = day_of(window.start_ms), day_of(window.end_ms - 1)
    touched = [(kind, sorted(day for day in days if first <= day <= last), detail) for kind, days, detail in found]
    return [Notice(kind, tuple(days), detail) for kind, days, detail in touched if days]


def _observed_from_rollups_ms(parts: list[WindowPart], gaps: pd.DataFrame, window: Window) -> int:
    stored = [part[:2] for part in parts if part.source != FROM_TICKS]
    start, end = np.clip(np.array(stored, np.int64).reshape(-1, 2).T, window.start_ms, window.end_ms)
    return int((end - start - overlap(gaps[["start_ms", "end_ms"]].to_numpy(np.int64), start, end)).sum())
