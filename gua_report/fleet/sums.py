"""What a child sends of each host, its check, and its sum.

A child sums its file by the report's own code, and sends the frames as columns that JSON has.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from gua_report.config import Config
from gua_report.console.spelling import state_columns
from gua_report.fleet.host_files import (
    NUMBER,
    TEXT,
    TEXT_OR_NONE,
    WHOLE,
    YES_NO_OR_NONE,
    YES_OR_NO,
    HostFile,
    Types,
    check,
    check_whole,
)
from gua_report.people.identities import NOBODY, UID, is_person
from gua_report.rollups.hourly_sums import Rollup
from gua_report.rollups.index import keep_open
from gua_report.summary import tables
from gua_report.summary.build import Request, Summed, sum_rollups
from gua_report.summary.groups import PERSON_SUMS, sum_people
from gua_report.summary.of_hosts import HOURS, host_of, is_earlier
from gua_report.summary.over_time import sum_identity_days, sum_trend
from gua_report.summary.plan import find_grid
from gua_report.summary.report import WORDS, NoReport, Notice, Report, spell_published
from gua_report.summary.tables import concat
from gua_report.ticks.coverage import EXPIRED, LEFT_OUT, NOT_COLLECTED, mark_days
from gua_report.window import Window, midnight_ms, number_of
from gua_sample.errors import NothingToReport
from gua_sample.partition_names import DAY_MS, day_of
from gua_sample.policy import STATES

HOURS_A_WEEK = 7 * 24
# Of a host and of all hosts: so many gaps, episodes that go on, others, and episodes of each person.
MOST_LISTED, MOST_OF_PERSON = 100, 5
MOST_WAITING = 20_000  # rows that are kept as they came, before they are added to the sum
MOST_NOTICES, LONGEST_NOTICE = 30, 500
MOST_NAMED = 10  # containers, jobs, units and users without a name: the first in the report's order
OTHERS = ":others"  # docker:others@gpu07 are all other containers of that host


def _columns(types: Types, *names: str) -> dict[str, Types]:
    return dict.fromkeys(names, types)


PERSON_HOURS = [name for name in HOURS if "truly_idle" not in name]
TIMES = _columns(WHOLE, "start_ms", "end_ms")
SHARES = [*state_columns("share").values()]
FREED: dict[str, Types] = {"after_seconds": NUMBER, "freed_gpu_hours": NUMBER}
# What a child sends of a host, by frame and column.
COLUMNS: dict[str, dict[str, Types]] = {
    "states": {"state": WHOLE, **_columns(NUMBER, "gpu_ms", "energy_joules", "energy_ms", "weight_ms")},
    "people": {
        "identity": TEXT,
        **_columns(NUMBER, *PERSON_SUMS, "meant_gpu_hours"),
        "hosts": WHOLE,
        "episodes": WHOLE,
    },
    "week": {"slot": WHOLE, **_columns(NUMBER, "known_ms", "active_ms", "idle_ms", "observed_ms")},
    "trend": {**TIMES, **_columns(NUMBER, "observed_seconds", *HOURS)},
    "identity_days": {"identity": TEXT, **TIMES, **_columns(NUMBER, *PERSON_HOURS)},
    "reclaim": FREED,
    "reclaim_curve": FREED,
    "gap_totals": {"kind": TEXT, "gaps": WHOLE, "seconds": NUMBER, "hosts": WHOLE},
    "drivers": {"driver_version": TEXT, "hosts": WHOLE},
    "hosts": {
        **_columns(WHOLE, "start_ms", "observed_ms", "newest_ms", "ongoing"),
        **_columns(NUMBER, *HOURS, "meant_gpu_hours", *(f"before_{name}" for name in HOURS)),
    },
    "gpus": {
        "uuid": TEXT,
        "index": WHOLE,
        "mig_index": NUMBER,
        **_columns(TEXT_OR_NONE, "name", "parent_uuid"),
        **_columns(NUMBER, "gpu_hours", *(name for pair in zip(HOURS, SHARES, strict=True) for name in pair)),
        "idle_held_cost": NUMBER,
        "is_instant_only": YES_OR_NO,
    },
    "unpartitioned": {"uuid": TEXT, "index": WHOLE, **_columns(NUMBER, "gpu_hours", "equivalent_gpus")},
    "claims": {"uuid": TEXT, **TIMES},
    "episodes": {
        **_columns(TEXT, "gpu_uuid", "identity"),
        **_columns(TEXT_OR_NONE, "command", "meant_reason", "slurm_job"),
        **TIMES,
        "pid": WHOLE,
        **_columns(NUMBER, "seconds", "meant_seconds", "gpu_index", "mig_index", "peak_memory_mib", "meant_until_ms"),
        **_columns(YES_NO_OR_NONE, "ongoing", "meant_now"),
        "start_is_exact": YES_OR_NO,
    },
    "gaps": {**TIMES, "kind": TEXT},
}
# Frames that are added up: by these columns, whose values are the same on all hosts, or by host and hour of the week.
# The rows of all others are listed with their host.
KEYS = {
    "states": ["state"],
    "people": ["identity"],
    "week": ["host", "slot"],
    "trend": ["start_ms", "end_ms"],
    "identity_days": ["identity", "start_ms", "end_ms"],
    "reclaim": ["after_seconds"],
    "reclaim_curve": ["after_seconds"],
    "gap_totals": ["kind"],
    "drivers": ["driver_version"],
}
TYPES = {
    name: columns if name in KEYS and "host" not in KEYS[name] else {"host": TEXT, **columns}
    for name, columns in COLUMNS.items()
}
Columns = dict[str, list[Any]]


def restore_host(_: HostFile, value: Any) -> tuple[dict[str, Columns], list[Notice]]:
    """The checked columns and notices. Raises TypeError, ValueError or LookupError for nonsense."""
    frames, notices = value
    return _restore_frames(frames), [_restore_notice(*notice) for notice in notices]


def _restore_frames(value: Any) -> dict[str, Columns]:
    found = {name: {column: value[name][column] for column in columns} for name, columns in COLUMNS.items()}
    for name, columns in COLUMNS.items():
        for column, types in columns.items():
            check(found[name][column], types)
        if len({len(values) for values in found[name].values()}) != 1:
            raise ValueError("columns of several lengths")
    if found["states"]["state"] != list(range(len(STATES))) or len(found["hosts"]["start_ms"]) != 1:
        raise ValueError("no sums")
    if any(slot >= HOURS_A_WEEK for slot in found["week"]["slot"]):
        raise ValueError("no hour of a week")
    return found


def _restore_notice(kind: Any, days: Any, detail: Any) -> Notice:
    check([kind, detail, *days], TEXT)
    for day in days:
        number_of(day)
    if kind not in WORDS:
        raise ValueError("no such notice")
    return Notice(kind, tuple(days), detail)


class Total:
    """The added frames of all hosts: but for lists of hosts and cards, as small as one host's."""

    def __init__(self) -> None:
        self._waiting: dict[str, Columns] = {name: {column: [] for column in types} for name, types in TYPES.items()}
        self._frames = {name: _frame_of(name, columns) for name, columns in self._waiting.items()}
        self._rows = 0

    def add(self, host: str, sent: Mapping[str, Columns]) -> None:
        for name, columns in sent.items():
            rows = len(next(iter(columns.values())))
            # A reinstalled host has several files, and one week.
            own = {"host": [host_of(host) if name == "week" else host] * rows, **columns}
            for column, values in self._waiting[name].items():
                values.extend(own[column])
            self._rows += rows
        if self._rows > MOST_WAITING:
            self.frames()

    def frames(self) -> dict[str, pd.DataFrame]:
        for name, columns in self._waiting.items():
            self._frames[name] = _shrink(name, concat([_frame_of(name, columns), self._frames[name]]))
            for values in columns.values():
                values.clear()
        self._rows = 0
        return self._frames


def _frame_of(name: str, columns: Columns) -> pd.DataFrame:
    """The frame with a type for each column that does not depend on which values are missing."""
    dtypes = {NUMBER: "float64", WHOLE: "int64", YES_OR_NO: "bool"}
    types = TYPES[name]
    return pd.DataFrame({one: pd.Series(columns[one], dtype=dtypes.get(types[one], "object")) for one in types})


def _shrink(name: str, frame: pd.DataFrame) -> pd.DataFrame:
    if name in KEYS:
        return frame.groupby(KEYS[name], sort=True).sum().reset_index()
    if name == "episodes":
        return first_episodes(frame)
    return longest_gaps(frame) if name == "gaps" else frame


def first_episodes(episodes: pd.DataFrame) -> pd.DataFrame:
    """The longest of these that go on, the longest others, and the longest of each person."""
    order = ["host"] if "host" in episodes else []
    ranked = episodes.assign(rank=~episodes["ongoing"].eq(True), length=episodes["start_ms"] - episodes["end_ms"])
    ranked = ranked.sort_values(["rank", "length", *order, "gpu_uuid", "pid", "start_ms"], ignore_index=True)
    of_kind = ranked.groupby("rank").cumcount() < MOST_LISTED
    of_person = ranked.groupby("identity").cumcount() < MOST_OF_PERSON
    of_person &= ranked["identity"].isin([who for who in ranked["identity"].unique().tolist() if is_person(who)])
    return ranked[of_kind | of_person].drop(columns=["rank", "length"]).reset_index(drop=True)


def longest_gaps(gaps: pd.DataFrame) -> pd.DataFrame:
    order = ["start_ms", *(["host"] if "host" in gaps else [])]
    ranked = gaps.assign(length=gaps["start_ms"] - gaps["end_ms"]).sort_values(["length", *order], kind="stable")
    return ranked.head(MOST_LISTED).drop(columns="length")


@dataclass(frozen=True)
class SumHost:
    """The work on each host, which can be sent to where it is done."""

    window: Window  # that is reported on
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
    by_state = {name: tables.sum_by_state(cards, name) for name in COLUMNS["states"] if name != "state"}
    lengths = (gaps["end_ms"] - gaps["start_ms"]) / 1000
    totals = lengths.groupby(gaps["kind"].astype(object)).agg(["count", "sum"]).reset_index()
    totals.columns = pd.Index(["kind", "gaps", "seconds"])
    return {
        "states": pd.DataFrame(by_state).assign(state=range(len(STATES))),
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
    week = week.assign(slot=range(len(week)))
    return week[week["known_ms"] > 0]


def _over_time(sums: Rollup, window: Window, own_start_ms: int, gaps: pd.DataFrame) -> dict[str, pd.DataFrame]:
    if own_start_ms > window.start_ms:
        earlier = [(window.start_ms, own_start_ms, NOT_COLLECTED)]
        gaps = tables.concat([pd.DataFrame(earlier, columns=["start_ms", "end_ms", "kind"]), gaps])
    names = sums.identities["identity"].drop_duplicates().tolist()
    people = {who for who in names if is_person(who) and is_of_fleet(who)}
    persons = sums.identities[sums.identities["identity"].isin(people)]
    return {
        "trend": sum_trend(sums.cards, window, gaps),
        "identity_days": sum_identity_days(persons, window)
        if len(persons)
        else pd.DataFrame(columns=[*COLUMNS["identity_days"]]),
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
