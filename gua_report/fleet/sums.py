"""The sums of several hosts at a time, by the report's own functions, and their sum over all hosts.

The rows of some hosts are put together and summed as if they were of one machine: pandas takes as long for many small
tables as for one large one. What a child sends of them is checked, as a file may have taken control of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from gua_report.config import Config
from gua_report.console.spelling import state_columns
from gua_report.fleet.host_files import (
    KNOWN,
    NUMBER,
    TEXT,
    TEXT_OR_NONE,
    WHOLE,
    YES_NO_OR_NONE,
    YES_OR_NO,
    HostFile,
    Types,
    check,
)
from gua_report.fleet.read_host import Host, is_of_fleet, join, read_host
from gua_report.machine.notes import KnownNotes, exempt_notes
from gua_report.people.identities import is_person
from gua_report.rollups.hourly_sums import Rollup
from gua_report.rollups.reader import frame_of
from gua_report.summary import tables
from gua_report.summary.groups import PERSON_SUMS, sum_people
from gua_report.summary.meant import (
    CURVE_MS,
    Moment,
    find_meant,
    freed_gpu_hours,
    meant_card_hours,
    meant_gpu_hours,
    with_meant,
)
from gua_report.summary.of_hosts import HOURS, is_earlier
from gua_report.summary.over_time import sum_identity_days, sum_trend
from gua_report.summary.plan import find_grid
from gua_report.summary.report import WORDS, Notice
from gua_report.summary.tables import EPISODE_COLUMNS, HOURS_A_WEEK, concat
from gua_report.ticks.coverage import NOT_COLLECTED, gap_frame, length_of
from gua_report.ticks.episodes import join_episodes
from gua_report.window import HOUR_MS, Window, number_of
from gua_sample.policy import STATES

# Of some hosts and of all: so many gaps, episodes that go on, others, and episodes of each person.
MOST_LISTED, MOST_OF_PERSON = 100, 5
MOST_NOTICES, LONGEST_NOTICE = 30, 500
MOST_NAMED = 10  # containers, jobs, units and users without a name: the first in the report's order
OTHERS = ":others"  # docker:others@gpu07 are all other containers of that host


PERSON_HOURS = [name for name in HOURS if "truly_idle" not in name]
BEFORE = [f"before_{name}" for name in HOURS]
SHARES = [*state_columns("share").values()]
# What a child sends of its hosts, by frame and column. A host is the number of its file.
COLUMNS = {
    "states": ["state", "gpu_ms", "energy_joules", "energy_ms", "weight_ms"],
    "people": ["identity", *PERSON_SUMS, "meant_gpu_hours", "hosts", "episodes"],
    "week": ["slot", "known_ms", "active_ms", "free_gpus", "observed_ms"],
    "trend": ["start_ms", "end_ms", "observed_seconds", *HOURS],
    "identity_days": ["identity", "start_ms", "end_ms", *PERSON_HOURS],
    "reclaim": ["after_seconds", "freed_gpu_hours"],
    "reclaim_curve": ["after_seconds", "freed_gpu_hours"],
    "gap_totals": ["kind", "gaps", "seconds", "hosts"],
    "drivers": ["driver_version", "hosts"],
    "hosts": ["host", "start_ms", "observed_ms", "newest_ms", "episodes", *HOURS, "meant_gpu_hours", *BEFORE],
    "gpus": ["host", "uuid", "index", "mig_index", "name", "parent_uuid", "gpu_hours", *HOURS, *SHARES],
    "unpartitioned": ["host", "uuid", "index", "gpu_hours", "equivalent_gpus"],
    "claims": ["host", "uuid", "start_ms", "end_ms"],
    "episodes": ["host", *EPISODE_COLUMNS],
    "gaps": ["host", "start_ms", "end_ms", "kind"],
}
COLUMNS["gpus"] += ["idle_held_cost", "is_instant_only"]
# The types of columns, by name; others are numbers, of which some may not be known.
TYPES: dict[str, Types] = {
    **dict.fromkeys(["identity", "kind", "driver_version", "uuid", "gpu_uuid"], TEXT),
    **dict.fromkeys(["name", "parent_uuid", "command", "meant_reason", "slurm_job"], TEXT_OR_NONE),
    **dict.fromkeys(["host", "state", "slot", "hosts", "episodes", "gaps", "index", "pid"], WHOLE),
    **dict.fromkeys(["start_ms", "end_ms", "observed_ms", "newest_ms"], WHOLE),
    "seconds": KNOWN,
    **dict.fromkeys(["is_instant_only", "start_is_exact"], YES_OR_NO),
    **dict.fromkeys(["ongoing", "meant_now"], YES_NO_OR_NONE),
}
# Frames that are added up, by these columns. The rows of all others are listed.
KEYS = {
    "states": ["state"],
    "people": ["identity"],
    "week": ["slot"],
    "trend": ["start_ms", "end_ms"],
    "identity_days": ["identity", "start_ms", "end_ms"],
    "reclaim": ["after_seconds"],
    "reclaim_curve": ["after_seconds"],
    "gap_totals": ["kind"],
    "drivers": ["driver_version"],
}


@dataclass(frozen=True)
class SumHosts:
    """The work on some hosts, which can be sent to where it is done."""

    window: Window  # that is reported on
    common: Window  # of the fleet: begins with the oldest tick of all hosts
    config: Config
    reclaim_after_ms: tuple[int, ...]
    newest_days: dict[str, str]  # by name of the file

    def read(self, number: int, file: HostFile) -> Host:
        return read_host(number, file, self.newest_days[file.name], self.window, self.config)

    def combine(self, hosts: list[Host]) -> list[Any]:
        """The frames and notices of these hosts, as JSON has them."""
        frames = _Together(self, hosts).frames()
        plain = {
            name: {column: _plain(frames[name][column], TYPES.get(column, NUMBER)) for column in columns}
            for name, columns in COLUMNS.items()
        }
        said = [
            [host.number, kind, days, detail[:LONGEST_NOTICE]]
            for host in hosts
            for kind, days, detail in host.notices[:MOST_NOTICES]
        ]
        return [plain, said]

    def restore(self, files: Sequence[HostFile], sent: Any) -> tuple[dict[str, pd.DataFrame], list[Any]]:
        return restore_sums(files, sent)


def _plain(values: pd.Series[Any], types: Types) -> list[Any]:
    """The values as JSON has them: counts as whole numbers, what is not known as None."""
    if types == WHOLE:
        whole: list[Any] = values.astype("int64").tolist()
        return whole
    return [None if value is None or value != value else value for value in values.tolist()]


class _Together:
    """Some hosts as if they were one machine."""

    def __init__(self, work: SumHosts, hosts: list[Host]) -> None:
        self.work, self.hosts, self.window, config = work, hosts, work.window, work.config
        self.sums = Rollup(*(frame_of(join([host.rows[name] for host in hosts])) for name in Rollup._fields))
        self.facts = tables.last_facts(self.sums.card_facts)
        episodes = join_episodes([frame_of(part) for host in hosts for part in host.episodes])
        seen_ms = {host.number: host.newest.seen_ms for host in hosts}
        self.found = episodes.assign(seen_ms=host_of_card(episodes["gpu_uuid"]).map(seen_ms).astype("float64"))
        moment = Moment(self.window.end_ms, self.window.end_ms)  # an exemption is always in force
        exempt = {who: config.exempt[raw] for who in self._names() if (raw := raw_of(who)) in config.exempt}
        self.meant = find_meant(self.found, KnownNotes(exempt_notes(exempt), {}, []), moment)
        listed = tables.episodes(with_meant(self.found, self.meant, moment), self.window, self.facts)
        host = host_of_card(listed["gpu_uuid"])
        is_over = host.isin([one.number for one in hosts if is_earlier(one.file.name)])  # it was reinstalled since
        self.listed = listed.assign(ongoing=listed["ongoing"].mask(is_over, False), host=host)

    def _names(self) -> list[str]:
        return [str(who) for who in self.found["identity"].unique().tolist()]

    def frames(self) -> dict[str, pd.DataFrame]:
        sums, work, holds = self.sums, self.work, self.sums.holds
        by_state = {name: tables.sum_by_state(sums.cards, name) for name in COLUMNS["states"][1:]}
        freed = freed_gpu_hours(holds, self.found, self.meant, self.window, (*work.reclaim_after_ms, *CURVE_MS))
        count = len(work.reclaim_after_ms)
        gpus, gaps = self._gpus(), concat([gap_frame(host.gaps).assign(host=host.number) for host in self.hosts])
        return {
            "states": pd.DataFrame(by_state).assign(state=range(len(STATES))),
            "people": self._people(),
            "week": self._week(),
            "trend": sum_trend(sums.cards, work.common, [gap_frame(gaps) for gaps in self._whole_gaps(work.common)]),
            "identity_days": self._identity_days(),
            "reclaim": freed[:count],
            "reclaim_curve": freed[count:],
            "gap_totals": _gap_totals(gaps),
            "drivers": pd.DataFrame(
                [(driver, 1) for host in self.hosts for driver in host.drivers], columns=[*COLUMNS["drivers"]]
            ),
            "hosts": self._hosts(gpus),
            "gpus": gpus,
            "unpartitioned": self._unpartitioned(),
            "claims": self._claims(),
            "episodes": _with_own_names(first_episodes(self.listed), "gpu_uuid"),
            "gaps": longest_gaps(gaps),
        }

    def _observed_ms(self) -> dict[int, int]:
        return {host.number: self.window.end_ms - host.start_ms - length_of(host.gaps) for host in self.hosts}

    def _whole_gaps(self, window: Window) -> list[list[Any]]:
        """The gaps of each host, with the time before it was there."""
        return [
            [(window.start_ms, max(host.start_ms, window.start_ms), NOT_COLLECTED), *host.gaps] for host in self.hosts
        ]

    def _people(self) -> pd.DataFrame:
        found = sum_people(self.sums, with_energy=bool(self.work.config.groups))
        meant = meant_gpu_hours(self.sums.identities, self.found, self.meant, self.window)
        of_hosts = Counter(str(who) for host in self.hosts for who in set(host.rows["identities"]["identity"].tolist()))
        found["meant_gpu_hours"] = [meant.get(who, 0.0) for who in found.index]
        found["hosts"] = [of_hosts[who] for who in found.index]
        found["episodes"] = self.listed["identity"].value_counts().reindex(found.index).fillna(0)
        return (
            found.groupby(self._fewer_names(found))
            .sum()
            .rename_axis("identity")
            .reset_index()
            .assign(hosts=lambda frame: frame["hosts"].where(frame["identity"].map(is_of_fleet), 1))
        )

    def _fewer_names(self, people: pd.DataFrame) -> pd.Index[Any]:
        """Names of people, of each host's first containers, and "others": a host has thousands of these in a year."""
        hours = people[PERSON_SUMS[:3]].sum(axis=1)
        order = people.assign(hours=-hours, idle=-people["idle_held_ms"], name=people.index)
        ranks, names = Counter[str](), dict[str, str]()
        for who in order.sort_values(["idle", "hours", "name"]).index.tolist():
            host = "" if is_of_fleet(who) else who.rpartition("@")[2]
            ranks[host] += 1
            is_named = not host or ranks[host] <= MOST_NAMED
            names[who] = who if is_named else f"{who.partition(':')[0]}{OTHERS}@{host}"
        return pd.Index([names[who] for who in people.index], dtype=object)

    def _week(self) -> pd.DataFrame:
        """The hours of the week. A reinstalled host has several files, and free cards once."""
        window, cards = self.window, self.sums.cards
        grid = find_grid(window._replace(start_ms=window.before().start_ms))
        week = tables.sum_week(cards.assign(host=host_of_card(cards["gpu_uuid"])), window)
        week["slot"], number = week.index % HOURS_A_WEEK, week.index // HOURS_A_WEEK
        for host, gaps in zip(self.hosts, self._whole_gaps(window), strict=True):
            if (own := number == host.number).any():
                hours = host.rows["cards"]["hour_ms"]
                week.loc[own, "observed_ms"] = tables.observed_week(hours, window, grid[1], gap_frame(gaps))
                week.loc[own, "host"] = host.file.host
        week = week[week["known_ms"] > 0].groupby(["host", "slot"], as_index=False).sum()
        free = week["idle_ms"] / week["observed_ms"].where(week["observed_ms"] > 0)
        return week.assign(free_gpus=free.fillna(0.0)).drop(columns="host").groupby("slot", as_index=False).sum()

    def _identity_days(self) -> pd.DataFrame:
        identities = self.sums.identities
        people = {who for who in identities["identity"].unique().tolist() if is_person(who) and is_of_fleet(who)}
        found = identities[identities["identity"].isin(people)]
        if not len(found):
            return pd.DataFrame(columns=[*COLUMNS["identity_days"]])
        return sum_identity_days(found, self.work.common)

    def _hosts(self, gpus: pd.DataFrame) -> pd.DataFrame:
        unknown, holds = np.full(len(STATES), np.nan), self.sums.holds
        before = [unknown if host.before_ms is None else host.before_ms / HOUR_MS for host in self.hosts]
        numbers = pd.Index([host.number for host in self.hosts], name="host")
        hours = gpus.groupby("host")[HOURS].sum().reindex(numbers, fill_value=0.0)
        hours[BEFORE] = np.array(before)
        ongoing = self.listed["host"][self.listed["ongoing"].eq(True)].value_counts().reindex(numbers, fill_value=0)
        of_hold = host_of_card(holds["gpu_uuid"])
        meant = [
            meant_card_hours(holds[of_hold == one], self.found, self.meant, self.window) if self.meant.times else 0.0
            for one in numbers
        ]
        return hours.reset_index().assign(
            start_ms=[host.start_ms for host in self.hosts],
            observed_ms=[*self._observed_ms().values()],
            newest_ms=[host.newest.ts_ms for host in self.hosts],
            episodes=ongoing.to_numpy(),
            meant_gpu_hours=meant,
        )

    def _gpus(self) -> pd.DataFrame:
        found = tables.gpus(self.sums.cards, self.facts, self.work.config)
        instant = set(tables.instant_only(self.sums.card_facts))
        found = found.assign(host=host_of_card(found["uuid"]), is_instant_only=found["uuid"].isin(instant))
        return _with_own_names(found, "uuid", "parent_uuid")

    def _unpartitioned(self) -> pd.DataFrame:
        found = tables.unpartitioned(self.sums.unpartitioned, self.facts, 0)
        host = host_of_card(found["uuid"])
        equivalent = found["gpu_hours"] / (host.map(self._observed_ms()) / HOUR_MS)
        return _with_own_names(found.assign(host=host, equivalent_gpus=equivalent.fillna(0.0)), "uuid")

    def _claims(self) -> pd.DataFrame:
        """From when to when each card was on its host, in full hours."""
        sums = self.sums
        parts = [frame[frame["gpu_ms"] > 0][["gpu_uuid", "hour_ms"]] for frame in (sums.cards, sums.unpartitioned)]
        seen = concat(parts).groupby("gpu_uuid")["hour_ms"].agg(["min", "max"]).reset_index()
        seen = seen.set_axis(["uuid", "start_ms", "end_ms"], axis=1)
        return _with_own_names(seen.assign(host=host_of_card(seen["uuid"])), "uuid")


def raw_of(identity: str) -> str:
    """The identity on its host: docker:3f2a9c81d0b7 of docker:3f2a9c81d0b7@gpu07."""
    return identity if is_of_fleet(identity) else identity.rpartition("@")[0]


def host_of_card(uuids: pd.Series[Any]) -> pd.Series[int]:
    """The number of the host's file of each card."""
    code, names = pd.factorize(uuids)
    numbers = np.array([int(str(name).partition(":")[0]) for name in names], dtype=np.int64)
    return pd.Series(numbers[code], uuids.index)


def _gap_totals(gaps: pd.DataFrame) -> pd.DataFrame:
    found = gaps.assign(seconds=(gaps["end_ms"] - gaps["start_ms"]) / 1000).groupby(gaps["kind"].astype(object))
    totals = found["seconds"].agg(["count", "sum"]).set_axis(["gaps", "seconds"], axis=1)
    return totals.assign(hosts=found["host"].nunique()).rename_axis("kind").reset_index()


def _with_own_names(frame: pd.DataFrame, *columns: str) -> pd.DataFrame:
    """The frame with cards called as on their own host."""
    names = {name: [one and one.partition(":")[2] for one in frame[name].tolist()] for name in columns}
    return frame.assign(**{name: pd.Series(values, frame.index, dtype=object) for name, values in names.items()})


def restore_sums(files: Sequence[HostFile], sent: Any) -> tuple[dict[str, pd.DataFrame], list[tuple[HostFile, Notice]]]:
    """The frames and notices that a child sent of these files. Raises TypeError, ValueError or LookupError."""
    frames, said = sent
    notices = []
    for number, kind, days, detail in said:
        check([kind, detail, *days], TEXT)
        check([number], WHOLE)
        for day in days:
            number_of(day)
        if kind not in WORDS:
            raise ValueError("no such notice")
        notices.append((files[number], Notice(kind, tuple(days), detail)))
    return {name: _restore_frame(name, frames[name], files) for name in COLUMNS}, notices


def _restore_frame(name: str, sent: Any, files: Sequence[HostFile]) -> pd.DataFrame:
    """The frame with a type for each column that does not depend on which values are missing."""
    dtypes = {NUMBER: "float64", KNOWN: "float64", WHOLE: "int64", YES_OR_NO: "bool"}
    columns = {}
    for column in COLUMNS[name]:
        types = TYPES.get(column, NUMBER)
        check(sent[column], types)
        columns[column] = pd.Series(sent[column], dtype=dtypes.get(types, "object"))
    if len({len(values) for values in columns.values()}) != 1:
        raise ValueError("columns of several lengths")
    if name == "states" and sent["state"] != list(range(len(STATES))):
        raise ValueError("no sums")
    if name == "week" and not columns["slot"].lt(HOURS_A_WEEK).all():
        raise ValueError("no hour of a week")
    if "host" in columns:
        columns["host"] = pd.Series([files[number].name for number in sent["host"]], dtype=object)
    return pd.DataFrame(columns)


class Total:
    """The added frames of all hosts: but for lists of hosts and cards, as small as one host's."""

    def __init__(self) -> None:
        self.frames = {
            name: _restore_frame(name, {column: [] for column in columns}, ())
            for name, columns in COLUMNS.items()
            if name != "states"
        }

    def add(self, frames: Mapping[str, pd.DataFrame]) -> None:
        for name, frame in frames.items():
            self.frames[name] = _shrink(name, concat([self.frames.get(name, frame[:0]), frame]))


def _shrink(name: str, frame: pd.DataFrame) -> pd.DataFrame:
    if name in KEYS:
        return frame.groupby(KEYS[name], sort=True).sum().reset_index()
    if name == "episodes":
        return first_episodes(frame)
    return longest_gaps(frame) if name == "gaps" else frame


def first_episodes(episodes: pd.DataFrame) -> pd.DataFrame:
    """The longest of these that go on, the longest others, and the longest of each person."""
    ranked = episodes.assign(rank=~episodes["ongoing"].eq(True), length=episodes["start_ms"] - episodes["end_ms"])
    ranked = ranked.sort_values(["rank", "length", "host", "gpu_uuid", "pid", "start_ms"], ignore_index=True)
    of_kind = ranked.groupby("rank").cumcount() < MOST_LISTED
    of_person = ranked.groupby("identity").cumcount() < MOST_OF_PERSON
    of_person &= ranked["identity"].isin([who for who in ranked["identity"].unique().tolist() if is_person(who)])
    return ranked[of_kind | of_person].drop(columns=["rank", "length"]).reset_index(drop=True)


def longest_gaps(gaps: pd.DataFrame) -> pd.DataFrame:
    ranked = gaps.assign(length=gaps["start_ms"] - gaps["end_ms"])
    return ranked.sort_values(["length", "start_ms", "host"], kind="stable").head(MOST_LISTED).drop(columns="length")
