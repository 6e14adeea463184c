"""Building the report of a fleet: look at each host's file, map each to its part, add the parts up."""

import time
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import pandas as pd

from gua_report.config import Config
from gua_report.console.spelling import first_of
from gua_report.console.terminal import tracked
from gua_report.fleet import suspicions
from gua_report.fleet.asked import AskedFleet
from gua_report.fleet.executors import Executor, map_in_children
from gua_report.fleet.fleet_tables import (
    Frames,
    add_hosts_facts,
    break_down,
    count_on_average,
    headline_of,
    heatmap,
    presences_of,
    same_cards,
)
from gua_report.fleet.host_files import Look, expected_hosts, list_hosts
from gua_report.fleet.sums import SumHosts, Total
from gua_report.fleet.suspicions import MOST_SHOWN, Looked, Problem, due_ms, end_ms, look_at_hosts
from gua_report.people.groups import find_memberships
from gua_report.summary import tables
from gua_report.summary.build import LEAST_OBSERVED_BEFORE, RECLAIM_AFTER_MS
from gua_report.summary.groups import sum_groups
from gua_report.summary.names import add_columns
from gua_report.summary.of_hosts import (
    GAP_COLUMNS,
    HOST_COLUMNS,
    HOURS,
    PROBLEM_COLUMNS,
    Fleet,
    host_of,
    is_earlier,
)
from gua_report.summary.report import LEFT_OUT, Notice, Report, spell_published, spell_window
from gua_report.window import Window, zone_name
from gua_sample.console import plural
from gua_sample.errors import NothingToReport, StoreError
from gua_sample.partition_names import DAY_MS
from gua_sample.policy import IDLE_HELD

MOST_TOGETHER, MOST_DAYS_TOGETHER = 32, 1000  # hosts in a child, and their days


class Mapped(NamedTuple):
    window: Window
    common: Window  # begins with the oldest tick of all hosts
    frames: Frames
    notes: list[str]
    looked: Looked
    problems: list[Problem]  # all that is left out, or doubtful


def build_fleet_report(asked: AskedFleet, executor: Executor = map_in_children) -> Report:
    """Build the report. Raises NothingToReport or StoreError if nothing is in the window."""
    mapped = map_fleet(asked, executor)
    if not mapped.frames:
        raise _why_none(mapped)
    return _put_together(asked, mapped)


def map_fleet(asked: AskedFleet, executor: Executor = map_in_children) -> Mapped:
    """Add up the frames of all hosts, and find what is left out or doubtful: for reports and gua fleet status.

    Raises NothingToReport if there is no host, or the window has no whole day.
    """
    now_ms = asked.now_ms or time.time_ns() // 1_000_000
    config, progress = asked.config, asked.progress
    listed = list_hosts(asked.folder, asked.pattern, expected_hosts(config.hosts))
    looked = look_at_hosts(listed, executor, now_ms)
    window = _choose_window(asked, looked.looks.values(), now_ms) if looked.files else asked.window
    late = suspicions.find_late(looked.looks.values(), min(window.end_ms, now_ms // DAY_MS * DAY_MS))
    looked = _leave_others(looked._replace(problems=[*looked.problems, *late]), window)
    first_ms = min((looked.looks[file.name].first_ms for file in looked.files), default=window.start_ms)
    common = window._replace(start_ms=max(window.start_ms, min(first_ms, window.end_ms - 1)))
    # People's notes are on their hosts.
    people, exempt = dict(config.people), dict(config.exempt)
    of_hosts = Config(config.policy, *config[1:4], people, groups=dict(config.groups), exempt=exempt)
    newest_days = {name: look.newest_day for name, look in looked.looks.items()}
    work = SumHosts(window, common, of_hosts, asked.reclaim_after_ms or RECLAIM_AFTER_MS, newest_days)
    total, problems, notices = Total(), looked.problems[:], Counter[Notice]()
    together = max(1, min(MOST_TOGETHER, MOST_DAYS_TOGETHER * DAY_MS // window.length_ms))
    outcomes = executor(looked.files, work, together)
    for outcome in tracked(outcomes, progress, -(-len(looked.files) // together)):
        problems += [
            Problem(outcome.files[at].name, suspicions.UNUSABLE, why, True) for at, why in outcome.problems.items()
        ]
        frames, told = outcome.value or ({}, [])
        total.add(frames)
        for file, notice in told:
            if notice.kind == LEFT_OUT:
                problems.append(Problem(file.name, suspicions.DAYS, spell_published(notice), True))
            else:
                notices[notice] += 1
    found = total.frames
    problems += same_cards(found["claims"]) if found else []
    notes = [f"{plural(hosts, 'host')}: {spell_published(notice)}" for notice, hosts in notices.items()]
    return Mapped(window, common, found, sorted(notes), looked, problems)


def _why_none(mapped: Mapped) -> NothingToReport | StoreError:
    problems, is_left_out = mapped.problems, any(problem.is_left_out for problem in mapped.problems)
    if not mapped.looked.looks and not is_left_out:
        return NothingToReport("no day of any host is over yet: hosts publish whole UTC days, the first one tomorrow")
    if not mapped.looked.looks:
        return StoreError("nothing can be used: " + _spell(problems))
    kind = StoreError if is_left_out and mapped.looked.files else NothingToReport
    return kind(f"nothing of any host {spell_window(mapped.window)}: {_spell(problems)}")


def _choose_window(asked: AskedFleet, looks: Iterable[Look], now_ms: int) -> Window:
    """The window that was asked for; one that ends now ends with the newest day that is due, or that all hosts have."""
    window, midnight = asked.window, now_ms // DAY_MS * DAY_MS
    if not asked.is_open or window.end_ms <= midnight:
        return window
    everywhere = min((end_ms(look) for look in looks if not is_earlier(look.name)), default=midnight)
    end = max(due_ms(now_ms), min(everywhere, midnight))
    start = window.start_ms - (window.end_ms - end if asked.keeps_length else 0)
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


def _spell(problems: Sequence[Problem]) -> str:
    return first_of(sorted(f"{problem.host}: {problem.detail}" for problem in problems), MOST_SHOWN)


def _put_together(asked: AskedFleet, mapped: Mapped) -> Report:
    window, common, frames, notes, looked, problems = mapped
    config, people, trend = asked.config, frames["people"], frames["trend"]
    hosts = add_hosts_facts(frames, looked.looks, config.hosts, common.end_ms)
    names = people["identity"].tolist()
    memberships = find_memberships(config.groups, names, config.people) if config.groups else None
    meant = dict(zip(names, people["meant_gpu_hours"].tolist(), strict=True))
    before, compared, before_share = _sum_before(hosts)
    headline, states = tables.headline(frames["states"]), frames["states"]
    observed_seconds = float(hosts["observed_seconds"].sum())
    return Report(
        host=plural(len(hosts), "host"),
        driver_versions=sorted(frames["drivers"]["driver_version"]),
        requested=asked.window,
        window=common,
        timezone=zone_name(window.zone, window.end_ms),
        newest_ms=int(hosts["newest_ms"].max()),
        policy=config.policy,
        config=config,
        headline=headline,
        before=before,
        compared=compared,
        before_observed_share=before_share,
        capacity=tables.capacity(states, 0, config).assign(equivalent_gpus=count_on_average(hosts)),
        unpartitioned=_by_host(frames["unpartitioned"]),
        energy_known_share=states["energy_ms"].sum() / states["weight_ms"].sum() if states["weight_ms"].any() else None,
        reclaim=frames["reclaim"],
        gpus=_by_host(frames["gpus"]).drop(columns="is_instant_only"),
        identities=add_columns(tables.identities(presences_of(people), meant, config), {}),
        heatmap=heatmap(frames["week"]),
        timeline=pd.DataFrame(columns=["gpu_uuid", "start_ms", "end_ms"]),  # hosts' own reports have theirs
        timeline_holders=pd.DataFrame(columns=["gpu_uuid", "identity", "start_ms", "end_ms"]),
        timeline_cell_seconds=0.0,
        trend=trend.assign(observed_seconds=trend["observed_seconds"] / hosts["host"].map(host_of).nunique()),
        identity_days=frames["identity_days"],
        reclaim_curve=frames["reclaim_curve"],
        episodes=add_columns(frames["episodes"], {}),
        gaps=frames["gaps"].sort_values(["host", "start_ms"], ignore_index=True),
        coverage_share=float("nan"),  # it is each host's own, and never one number
        observed_seconds=observed_seconds,
        from_ticks_seconds=0.0,
        from_rollups_seconds=observed_seconds,
        warnings=[],
        notes=notes,
        instant_only=frames["gpus"]["uuid"][frames["gpus"]["is_instant_only"]].tolist(),
        meant_gpu_hours=min(float(states["meant_gpu_hours"].sum()), float(headline["gpu_hours"][IDLE_HELD])),
        groups=sum_groups(people.set_index("identity"), memberships, config) if memberships else None,
        memberships=memberships,
        fleet=_describe(asked, frames, hosts, looked, problems),
    )


def _by_host(frame: pd.DataFrame) -> pd.DataFrame:
    """The rows by host, and of each in the order of its own report."""
    return frame.sort_values("host", kind="stable", ignore_index=True)


def _sum_before(hosts: pd.DataFrame) -> tuple[pd.DataFrame | None, pd.DataFrame, float]:
    """The headline of the window before, and of this window, of the hosts of which the former is known.

    The share is that of this window's time which is theirs.
    """
    known = hosts[hosts["before_unknown_gpu_hours"].notna()]
    now_hours = hosts["gpu_hours"].sum()
    share = float(known["gpu_hours"].sum() / now_hours) if now_hours else 0.0
    before = headline_of([float(known[f"before_{name}"].sum()) for name in HOURS])
    compared = headline_of([float(known[name].sum()) for name in HOURS])
    return (before if len(known) and share >= LEAST_OBSERVED_BEFORE else None), compared, share


def _describe(asked: AskedFleet, frames: Frames, hosts: pd.DataFrame, looked: Looked, problems: list[Problem]) -> Fleet:
    people, used = frames["people"], {host_of(name) for name in hosts["host"].tolist()}
    rows = sorted(problems, key=lambda problem: (not problem.is_left_out, problem.host, problem.kind))
    return Fleet(
        asked.folder,
        len(looked.hosts),
        [host for host in looked.hosts if host not in used],
        sorted(problem.host for problem in problems if problem.kind == suspicions.LATE),
        hosts[HOST_COLUMNS],
        asked.by,
        break_down(asked.by, hosts, frames, asked.config.hosts),
        pd.DataFrame(rows, columns=PROBLEM_COLUMNS),
        frames["gap_totals"][GAP_COLUMNS],
        dict(zip(people["identity"].tolist(), people["episodes"].tolist(), strict=True)),
        int(hosts["episodes"].sum()),
    )
