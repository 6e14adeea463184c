"""One host's frames for a fleet's report: its file, summed by the report's own code, as columns that JSON has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from gua_report.config import Config
from gua_report.fleet.host_files import WHOLE, HostFile, Types, check_whole
from gua_report.fleet.sums import ADDED, COLUMNS, KEYS, first_episodes, longest_gaps
from gua_report.people.identities import NOBODY, UID, is_person
from gua_report.rollups.hourly_sums import Rollup
from gua_report.rollups.index import keep_open
from gua_report.summary import tables
from gua_report.summary.build import Request, Summed, sum_rollups
from gua_report.summary.groups import sum_people
from gua_report.summary.of_hosts import HOURS, is_earlier
from gua_report.summary.over_time import sum_identity_days, sum_trend
from gua_report.summary.plan import find_grid
from gua_report.summary.report import NoReport, Report, spell_published
from gua_report.ticks.coverage import EXPIRED, LEFT_OUT, NOT_COLLECTED, mark_days
from gua_report.window import Window, midnight_ms
from gua_sample.errors import NothingToReport
from gua_sample.partition_names import DAY_MS, day_of
from gua_sample.policy import STATES

MOST_NOTICES, LONGEST_NOTICE = 30, 500
MOST_NAMED = 10  # containers, jobs, units and users without a name: the first in the report's order
OTHERS = ":others"  # docker:others@gpu07 are all other containers of that host


@dataclass(frozen=True)
class SumHost:
    """The work on each host, which can be sent to where it is done."""

    window: Window  # that was asked for
    common: Window  # of the fleet: begins with the oldest tick of all hosts
    config: Config
    reclaim_after_ms: tuple[int, ...]
    newest_days: dict[str, str]  # by name of the file

    def __call__(self, file: HostFile) -> list[Any]:
        """The host's frames and notices. Raises GuaError."""
        check_whole(file.path)
        try:
            with keep_open(file.path):
                asked = Request(self.window, self.config, self.reclaim_after_ms, None, has_times=False)
                summed = sum_rollups(file.path, asked)
        except NoReport as error:
            said = [*([error.why] if error.why else []), *map(spell_published, error.notices)]
            raise NothingToReport("; ".join(said)) from error
        gaps = _mark(summed.report.gaps, self.newest_days[file.name], self.window)
        frames = {
            **_sums(summed, file, gaps),
            **_over_time(summed.sums, self.common, summed.report.window.start_ms, gaps),
            **_lists(summed, file, gaps),
        }
        notices = [notice._replace(detail=notice.detail[:LONGEST_NOTICE]) for notice in summed.notices[:MOST_NOTICES]]
        plain = {
            name: {column: _plain(frame[column], types) for column, types in COLUMNS[name].items()}
            for name, frame in frames.items()
        }
        return [plain, notices]


def _plain(values: pd.Series[Any], types: Types) -> list[Any]:
    """The values as JSON has them: counts as whole numbers, what is not known as None."""
    if types == WHOLE:
        whole: list[Any] = values.astype("int64").tolist()
        return whole
    return [None if value is None or value != value else value for value in values.tolist()]


def _mark(gaps: pd.DataFrame, newest_day: str, window: Window) -> pd.DataFrame:
    """The gaps with what was not collected, or is left out, as such."""
    first_ms = midnight_ms(newest_day) + DAY_MS
    missing = {day_of(ms): NOT_COLLECTED for ms in range(first_ms, window.end_ms, DAY_MS)}
    marked = mark_days(gaps, missing)
    return marked.assign(kind=marked["kind"].replace({EXPIRED: LEFT_OUT}))


def _sums(summed: Summed, file: HostFile, gaps: pd.DataFrame) -> dict[str, pd.DataFrame]:
    report, cards = summed.report, summed.sums.cards
    by_state = {name: tables.sum_by_state(cards, name).to_numpy() for name in ADDED["states"]}
    lengths = (gaps["end_ms"] - gaps["start_ms"]) / 1000
    totals = lengths.groupby(gaps["kind"].astype(object)).agg(["count", "sum"]).reset_index()
    totals.columns = pd.Index(["kind", "gaps", "seconds"])
    return {
        "states": pd.DataFrame({"state": range(len(STATES)), **by_state}),
        "people": _people(summed, file),
        "week": _week(cards, report, gaps),
        "reclaim": report.reclaim,
        "reclaim_curve": report.reclaim_curve,
        "gap_totals": totals.assign(hosts=1),
        "drivers": pd.DataFrame({"driver_version": report.driver_versions, "hosts": 1}),
    }


def _people(summed: Summed, file: HostFile) -> pd.DataFrame:
    found = sum_people(summed.sums)
    report, names = summed.report, found.index
    found["meant_gpu_hours"] = report.identities.set_index("identity")["meant_gpu_hours"].reindex(names)
    found["episodes"] = report.episodes["identity"].value_counts().reindex(names).fillna(0)
    own = [str(who) for who in report.identities["identity"].tolist() if not is_of_fleet(str(who))]
    named = set(own[:MOST_NAMED])  # a host has thousands of containers in a year
    at = pd.Index([name_at(str(who), file.host, named) for who in names], name="identity", dtype=object)
    return found.groupby(at).sum().assign(hosts=1).reset_index()


def _week(cards: pd.DataFrame, report: Report, gaps: pd.DataFrame) -> pd.DataFrame:
    grid = find_grid(report.window._replace(start_ms=report.window.before().start_ms))
    week = tables.sum_week(cards, report.window, grid[1], gaps)
    free = (week["idle_ms"] / week["observed_ms"].where(week["observed_ms"] > 0)).fillna(0.0)
    week = week.assign(slot=range(len(week)), free_gpus=free)
    return week[week["known_ms"] > 0]


def _over_time(sums: Rollup, window: Window, own_start_ms: int, gaps: pd.DataFrame) -> dict[str, pd.DataFrame]:
    if own_start_ms > window.start_ms:
        earlier = [(window.start_ms, own_start_ms, NOT_COLLECTED)]
        gaps = tables.concat([pd.DataFrame(earlier, columns=["start_ms", "end_ms", "kind"]), gaps])
    names = sums.identities["identity"].drop_duplicates().tolist()
    people = {who for who in names if is_person(who) and is_of_fleet(who)}
    persons = sums.identities[sums.identities["identity"].isin(people)]
    columns = [*KEYS["identity_days"], *ADDED["identity_days"]]
    return {
        "trend": sum_trend(sums.cards, window, gaps),
        "identity_days": sum_identity_days(persons, window) if len(persons) else pd.DataFrame(columns=columns),
    }


def _lists(summed: Summed, file: HostFile, gaps: pd.DataFrame) -> dict[str, pd.DataFrame]:
    report, sums = summed.report, summed.sums
    episodes = report.episodes
    if is_earlier(file.name):
        episodes = episodes.assign(ongoing=False)  # the host was reinstalled since
    host = {
        "start_ms": report.window.start_ms,
        "observed_ms": report.window.length_ms - int((gaps["end_ms"] - gaps["start_ms"]).sum()),
        "newest_ms": report.newest_ms,
        "ongoing": int(episodes["ongoing"].eq(True).sum()),
        "meant_gpu_hours": report.meant_gpu_hours,
    }
    for place, name in enumerate(HOURS):
        host[name] = report.headline["gpu_hours"].iloc[place]
        host[f"before_{name}"] = np.nan if report.before is None else report.before["gpu_hours"].iloc[place]
    listed = first_episodes(episodes)
    names = [name_at(str(who), file.host) for who in listed["identity"].tolist()]
    return {
        "hosts": pd.DataFrame([host]),
        "gpus": report.gpus.assign(is_instant_only=report.gpus["uuid"].isin(report.instant_only)),
        "unpartitioned": report.unpartitioned.fillna({"equivalent_gpus": 0.0}),
        "claims": _claims(sums),
        "episodes": listed.assign(identity=pd.Series(names, listed.index, dtype=object)),
        "gaps": longest_gaps(gaps),
    }


def _claims(sums: Rollup) -> pd.DataFrame:
    """From when to when each card was on this host, in full hours."""
    parts = [frame[frame["gpu_ms"] > 0][["gpu_uuid", "hour_ms"]] for frame in (sums.cards, sums.unpartitioned)]
    seen = tables.concat(parts).groupby("gpu_uuid")["hour_ms"].agg(["min", "max"])
    return pd.DataFrame({"uuid": seen.index, "start_ms": seen["min"].to_numpy(), "end_ms": seen["max"].to_numpy()})


def is_of_fleet(identity: str) -> bool:
    """Whether this is the same one on all hosts: a user with a name, or nobody."""
    return identity in NOBODY or (is_person(identity) and not identity.startswith(UID))


def name_at(identity: str, host: str, named: set[str] | None = None) -> str:
    """The name in the fleet: docker:3f2a9c81d0b7@gpu07, or ada wherever she is; those not `named` are others."""
    if is_of_fleet(identity):
        return identity
    is_named = named is None or identity in named
    return f"{identity if is_named else identity.partition(':')[0] + OTHERS}@{host}"
