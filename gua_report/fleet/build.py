"""Building the report of a fleet: look at each host's file, map each to its part, add the parts up."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import pandas as pd

from gua_report.config import Config
from gua_report.console.spelling import first_of, span_of_days
from gua_report.console.terminal import tracked
from gua_report.fleet import frames, suspicions
from gua_report.fleet.contested import Contested, FindHours, find_contested, find_shared_cards, tell_contested
from gua_report.fleet.host_files import expected_hosts, list_hosts
from gua_report.fleet.host_part import MapHost
from gua_report.fleet.hosts_table import break_down, hosts_table
from gua_report.fleet.in_children import map_in_children
from gua_report.fleet.look import Look
from gua_report.fleet.look_at_hosts import Executor, Looked, look_at_hosts
from gua_report.fleet.parts import Part, add_part, nothing, restore_part
from gua_report.fleet.suspicions import Problem, due_ms, end_ms
from gua_report.machine.child import understanding
from gua_report.people.groups import find_memberships
from gua_report.summary.build import LEAST_OBSERVED_BEFORE, RECLAIM_AFTER_MS
from gua_report.summary.gather import Progress
from gua_report.summary.named_frames import add_columns
from gua_report.summary.no_report import spell_window
from gua_report.summary.of_hosts import GAP_COLUMNS, HOST, PROBLEM_COLUMNS, Fleet, host_of, is_earlier
from gua_report.summary.report import Report
from gua_report.window import HOUR_MS, Window, zone_name
from gua_sample.console import plural
from gua_sample.errors import NothingToReport, StoreError
from gua_sample.partition_names import DAY_MS
from gua_sample.policy import IDLE_HELD, STATES, Policy

MOST_SHOWN = 3


class FleetRequest(NamedTuple):
    """A fleet's report that is asked for."""

    folder: str
    window: Window
    config: Config
    pattern: str | None = None  # of hosts' names
    by: str = HOST
    reclaim_after_ms: tuple[int, ...] = RECLAIM_AFTER_MS
    is_open: bool = True  # whether the window ends now, so that it can end with the newest closed day instead
    keeps_length: bool = True  # whether it begins that much earlier then
    progress: Progress | None = None
    now_ms: int | None = None  # for tests


class Mapped(NamedTuple):
    """All hosts of a fleet, looked at and added up."""

    window: Window
    common: Window  # begins with the oldest tick of all hosts
    total: Part
    looked: Looked
    problems: list[Problem]  # all that is left out, or doubtful


def build_fleet_report(request: FleetRequest, executor: Executor = map_in_children) -> Report:
    """Build the report of a fleet. Raises NothingToReport, or StoreError, if nothing of any host is in the window."""
    mapped = map_fleet(request, executor)
    if not mapped.total.hosts:
        raise _why_none(mapped)
    return _put_together(request, mapped)


def map_fleet(request: FleetRequest, executor: Executor = map_in_children) -> Mapped:
    """Map each host to its part, add these up, and find what is left out or doubtful: for reports and gua fleet status.

    Raises NothingToReport if there is no host, or the window has no whole day.
    """
    now_ms = request.now_ms or time.time_ns() // 1_000_000
    config, progress = request.config, request.progress
    listed = list_hosts(request.folder, request.pattern, expected_hosts(config.hosts))
    looked = look_at_hosts(listed, executor, now_ms)
    window = _choose_window(request, looked.looks.values(), now_ms) if looked.files else request.window
    late = suspicions.find_late(looked.looks.values(), min(window.end_ms, now_ms // DAY_MS * DAY_MS))
    looked = _leave_others(looked._replace(problems=[*looked.problems, *late]), window)
    if not looked.files:
        return Mapped(window, window, nothing(), looked, looked.problems)
    contested = _find_contested(looked, window, config.policy, executor)
    # Cards are known by now: a thousand hosts have many.
    looked = looked._replace(looks={name: look._replace(uuids=[]) for name, look in looked.looks.items()})
    first_ms = min(look.first_ms for look in looked.looks.values())
    common = window._replace(start_ms=max(window.start_ms, min(first_ms, window.end_ms - 1)))
    newest_days = {name: look.newest_day for name, look in looked.looks.items()}
    exempt = dict(config.exempt)
    work = MapHost(
        window, common, config.policy, dict(config.people), exempt, request.reclaim_after_ms, newest_days, contested
    )
    problems = [*looked.problems, *tell_contested(contested)]
    total = nothing()
    for _, outcome in zip(tracked(looked.files, progress), executor(looked.files, work), strict=True):
        problem = outcome.problem
        try:
            with understanding():
                total = total if problem else add_part(total, restore_part(outcome.file.name, outcome.value))
        except StoreError as error:
            problem = str(error)
        if problem:
            problems.append(Problem(outcome.file.name, suspicions.UNUSABLE, problem, True))
    total = total._replace(hosts=sorted(total.hosts, key=lambda host: host.name))
    problems += [problem for host in total.hosts for problem in _left_out(host.name, host.lost, host.doubtful)]
    return Mapped(window, common, total, looked, problems)


def _why_none(mapped: Mapped) -> NothingToReport | StoreError:
    """Why there is nothing to add up: it is the first day of all hosts, and nothing is wrong, or something is."""
    problems, is_left_out = mapped.problems, any(problem.is_left_out for problem in mapped.problems)
    if not mapped.looked.looks and not is_left_out:
        return NothingToReport("no day of any host is over yet: hosts publish whole UTC days, the first one tomorrow")
    if not mapped.looked.looks:
        return StoreError("nothing can be used: " + _spell(problems))
    kind = StoreError if is_left_out and mapped.looked.files else NothingToReport
    return kind(f"nothing of any host {spell_window(mapped.window)}: {_spell(problems)}")


def _choose_window(request: FleetRequest, looks: Iterable[Look], now_ms: int) -> Window:
    """The window that was asked for; one that ends now ends with the newest day that is due, or that all hosts have."""
    window, midnight = request.window, now_ms // DAY_MS * DAY_MS
    if not request.is_open or window.end_ms <= midnight:
        return window
    everywhere = min((end_ms(look) for look in looks if not is_earlier(look.name)), default=midnight)
    end = max(due_ms(now_ms), min(everywhere, midnight))
    start = window.start_ms - (window.end_ms - end if request.keeps_length else 0)
    if start >= end:
        raise NothingToReport(f"hosts publish whole days, and none is over {spell_window(window)}: give --since 2d")
    return window._replace(start_ms=start, end_ms=end)


def _leave_others(looked: Looked, window: Window) -> Looked:
    """Leave out the files that have no day of the window: nothing is missed of them, unless they are late."""
    files, problems = [], []
    for file in looked.files:
        look = looked.looks[file.name]
        if look.first_ms < window.end_ms and end_ms(look) > window.start_ms:
            files.append(file)
        elif file.name == file.host:
            detail = f"no day in the window: it has {look.first_day} to {look.newest_day}"
            problems.append(Problem(file.name, suspicions.NO_DAY, detail, False))
    return looked._replace(files=files, problems=[*looked.problems, *problems])


def _find_contested(looked: Looked, window: Window, policy: Policy, executor: Executor) -> Contested:
    """The hours of the window for which several hosts claim one card."""
    shared = find_shared_cards(looked.looks.values())
    if not shared:
        return {}
    work = FindHours(shared, window.start_ms // DAY_MS, (window.end_ms - 1) // DAY_MS, policy)
    files = [file for file in looked.files if file.name in shared]
    return find_contested({outcome.file.name: outcome.value for outcome in executor(files, work)})


def _left_out(name: str, lost: Sequence[tuple[str, list[str]]], doubtful: list[str]) -> Iterator[Problem]:
    for reason, days in lost:
        yield Problem(name, suspicions.DAYS, f"left out: {span_of_days(days)}, {reason}", True)
    if doubtful:
        detail = f"files had changed on its disk (gua doctor --deep there): {span_of_days(doubtful)} may be wrong"
        yield Problem(name, suspicions.DOUBTFUL, detail, False)


def _spell(problems: Sequence[Problem]) -> str:
    return first_of(sorted(f"{problem.host}: {problem.detail}" for problem in problems), MOST_SHOWN)


def _put_together(request: FleetRequest, mapped: Mapped) -> Report:
    window, common, total, looked, problems = mapped
    config, figures = request.config, total.figures
    people = frames.people(total)
    memberships = find_memberships(config.groups, people.index.tolist(), config.people) if config.groups else None
    before_ms, compared_ms, before_share = _sum_before(total)
    state_ms = [figures["states"][(state,)][0] for state in STATES]
    headline = frames.headline(state_ms)
    ongoing, meant_ms = figures["episodes"][()]
    fleet = _describe(request, common, total, looked, problems)
    return Report(
        host=plural(len(fleet.hosts), "host"),
        driver_versions=sorted(str(version) for (version,) in figures["drivers"]),
        requested=request.window,
        window=common,
        timezone=zone_name(window.zone, window.end_ms),
        newest_ms=max(host.newest_ms for host in total.hosts),
        policy=config.policy,
        config=config,
        headline=headline,
        before=None if before_ms is None else frames.headline(before_ms),
        compared=frames.headline(compared_ms),
        before_observed_share=before_share,
        capacity=frames.capacity(total, config),
        unpartitioned=frames.unpartitioned(total),
        energy_known_share=frames.energy_known_share(total),
        reclaim=frames.reclaim(figures["reclaim"]),
        gpus=frames.gpus(total.hosts, config),
        identities=add_columns(frames.identities(people, config), {}),
        heatmap=frames.heatmap(figures["week"]),
        timeline=pd.DataFrame(columns=["gpu_uuid", "start_ms", "end_ms"]),  # hosts' own reports have theirs
        timeline_holders=pd.DataFrame(columns=["gpu_uuid", "identity", "start_ms", "end_ms"]),
        timeline_cell_seconds=0.0,
        trend=frames.trend(figures["trend"], len(total.hosts)),
        identity_days=frames.identity_days(figures["person_days"]),
        reclaim_curve=frames.reclaim(figures["curve"]),
        episodes=add_columns(frames.episodes(total), {}),
        gaps=frames.gaps(total),
        coverage_share=float("nan"),  # it is each host's own, and never one number
        observed_seconds=sum(host.observed_ms for host in total.hosts) / 1000,
        from_ticks_seconds=0.0,
        from_rollups_seconds=sum(host.observed_ms for host in total.hosts) / 1000,
        warnings=[],
        notes=[f"{plural(hosts, 'host')}: {note}" for (note,), (hosts,) in sorted(figures["notes"].items())],
        instant_only=[card.uuid for host in total.hosts for card in host.cards if card.is_instant_only],
        meant_gpu_hours=min(meant_ms / HOUR_MS, float(headline["gpu_hours"][IDLE_HELD])),
        groups=frames.groups(people, memberships, config) if memberships else None,
        memberships=memberships,
        fleet=fleet._replace(ongoing=ongoing),
    )


def _sum_before(total: Part) -> tuple[list[int] | None, list[int], float]:
    """The time of each state in the window before, and in this window, of the hosts of which the former is known.

    The share is that of this window's time which is theirs.
    """
    known = [host for host in total.hosts if host.before_ms is not None]
    before_ms = [sum(host.before_ms[state] for host in known if host.before_ms) for state in range(len(STATES))]
    compared_ms = [sum(host.state_ms[state] for host in known) for state in range(len(STATES))]
    now_ms = sum(sum(host.state_ms) for host in total.hosts)
    share = sum(compared_ms) / now_ms if now_ms else 0.0
    return (before_ms if known and share >= LEAST_OBSERVED_BEFORE else None), compared_ms, share


def _describe(request: FleetRequest, window: Window, total: Part, looked: Looked, problems: list[Problem]) -> Fleet:
    groups: Mapping[str, tuple[str, ...]] = request.config.hosts
    table = hosts_table(total.hosts, looked.looks, window, groups)
    used = {host_of(host.name) for host in total.hosts}
    gaps = [(kind, number, ms / 1000, hosts) for (kind,), (number, ms, hosts) in sorted(total.figures["gaps"].items())]
    rows = sorted(problems, key=lambda problem: (not problem.is_left_out, problem.host, problem.kind))
    return Fleet(
        request.folder,
        len(looked.hosts),
        [host for host in looked.hosts if host not in used],
        sorted(problem.host for problem in problems if problem.kind == suspicions.LATE),
        table,
        request.by,
        break_down(request.by, table, total.hosts, frames.people(total), groups),
        pd.DataFrame(rows, columns=PROBLEM_COLUMNS),
        pd.DataFrame(gaps, columns=GAP_COLUMNS),
        {str(who): numbers[-1] for (who,), numbers in total.figures["people"].items()},
        0,
    )
