"""The sums of several hosts by the report's own functions.

Their rows are put together and summed as if they were of one machine: pandas takes as long for many small tables as for
one large one.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pandas as pd

from gua_report.config import Config, Notes
from gua_report.fleet.read_host import Host, is_of_fleet, join
from gua_report.machine.notes import find_notes
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
from gua_report.summary.tables import HOURS_A_WEEK, concat
from gua_report.ticks.arrays import Integers
from gua_report.ticks.classify import CODE_OF
from gua_report.ticks.coverage import gap_frame, length_of
from gua_report.ticks.episodes import join_episodes
from gua_report.window import HOUR_MS, Window
from gua_sample.policy import IDLE_HELD, STATES

# Of some hosts and of all: so many gaps, episodes that go on, others, and episodes of each person.
MOST_LISTED, MOST_OF_PERSON = 100, 5
MOST_NAMED = 10  # containers, jobs, units and users without a name: the first in the report's order
OTHERS = ":others"  # docker:others@gpu07 are all other containers of that host
PERSON_HOURS = [name for name in HOURS if "truly_idle" not in name]
BEFORE = [f"before_{name}" for name in HOURS]
STATE_SUMS = ["gpu_ms", "energy_joules", "energy_ms", "weight_ms"]


class Together:
    """Some hosts as if they were one machine."""

    def __init__(
        self, window: Window, common: Window, config: Config, reclaim_after_ms: tuple[int, ...], hosts: list[Host]
    ) -> None:
        self.window, self.common, self.config, self.hosts = window, common, config, hosts
        self.reclaim_after_ms = reclaim_after_ms
        self.sums = Rollup(*(self._join(name) for name in Rollup._fields))
        self.facts = tables.last_facts(self.sums.card_facts)
        episodes = join_episodes([frame_of(part) for host in hosts for part in host.episodes])
        seen_ms = {host.number: host.newest.seen_ms for host in hosts}
        self.found = episodes.assign(seen_ms=host_of_card(episodes["gpu_uuid"]).map(seen_ms).astype("float64"))
        moment = Moment(self.window.end_ms, self.window.end_ms)  # an exemption is always in force
        exempt = {who: config.exempt[raw] for who in self._names() if (raw := raw_of(who)) in config.exempt}
        # People's notes are on their hosts.
        notes = find_notes(config._replace(exempt=exempt, people={}, notes=Notes(spool="")), [])
        self.meant = find_meant(self.found, notes, moment)
        listed = tables.episodes(with_meant(self.found, self.meant, moment), self.window, self.facts)
        host = host_of_card(listed["gpu_uuid"])
        is_over = host.isin([one.number for one in hosts if is_earlier(one.file.name)])  # it was reinstalled since
        self.listed = listed.assign(ongoing=listed["ongoing"].mask(is_over, False), host=host)

    def _names(self) -> list[str]:
        return [str(who) for who in self.found["identity"].unique().tolist()]

    def _join(self, name: str) -> pd.DataFrame:
        parts = [host.rows[name] for host in self.hosts]
        lengths = [len(next(iter(part.values()))) for part in parts]
        return frame_of({**join(parts), "host": np.repeat([host.number for host in self.hosts], lengths)})

    def frames(self) -> dict[str, pd.DataFrame]:
        sums, holds = self.sums, self.sums.holds
        by_state = {name: tables.sum_by_state(sums.cards, name) for name in STATE_SUMS}
        meant = np.array([0.0] * len(STATES))
        meant[CODE_OF[IDLE_HELD]] = meant_card_hours(holds, self.found, self.meant, self.window)
        freed = freed_gpu_hours(holds, self.found, self.meant, self.window, (*self.reclaim_after_ms, *CURVE_MS))
        count = len(self.reclaim_after_ms)
        gpus, gaps = self._gpus(), concat([gap_frame(host.gaps).assign(host=host.number) for host in self.hosts])
        return {
            "states": pd.DataFrame(by_state).assign(state=range(len(STATES)), meant_gpu_hours=meant),
            "people": self._people(),
            "week": self._week(),
            "trend": sum_trend(sums.cards, self.common, self._lost(self.common)),
            "identity_days": self._identity_days(),
            "reclaim": freed[:count],
            "reclaim_curve": freed[count:],
            "gap_totals": _gap_totals(gaps),
            "drivers": pd.DataFrame(
                [(driver, 1) for host in self.hosts for driver in host.drivers], columns=["driver_version", "hosts"]
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

    def _lost(self, window: Window) -> list[Integers]:
        """From when to when each host was not observed, with the time before it was there."""
        start_ms = window.start_ms
        return [
            np.array([(start_ms, max(host.start_ms, start_ms)), *(gap[:2] for gap in host.gaps)]) for host in self.hosts
        ]

    def _people(self) -> pd.DataFrame:
        found = sum_people(self.sums, with_energy=bool(self.config.groups))
        meant = meant_gpu_hours(self.sums.identities, self.found, self.meant, self.window)
        person, names = pd.factorize(self.sums.identities["identity"])
        of_hosts = self.sums.identities["host"].groupby(person).nunique()
        found["meant_gpu_hours"] = [meant.get(who, 0.0) for who in found.index]
        found["hosts"] = of_hosts.set_axis(names[of_hosts.index]).reindex(found.index)
        found["episodes"] = self.listed["identity"].value_counts().reindex(found.index, fill_value=0)
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
        week = tables.sum_week(cards, window)
        parts = [
            (hours := np.unique(host.rows["cards"]["hour_ms"]), tables.observed_hours(hours, window, grid[1], gaps))
            for host, gaps in zip(self.hosts, self._lost(window), strict=True)
        ]
        hours, seen_ms = (np.concatenate(some) for some in zip(*parts, strict=True))
        number = np.repeat([host.number for host in self.hosts], [len(part[0]) for part in parts])
        slot = HOURS_A_WEEK * number + tables.slots_of(hours, window)
        week["observed_ms"] = np.bincount(slot, seen_ms, len(week))
        week["slot"] = week.index % HOURS_A_WEEK
        week["host"] = (week.index // HOURS_A_WEEK).map({host.number: host.file.host for host in self.hosts})
        week = week[week["known_ms"] > 0].groupby(["host", "slot"], as_index=False).sum()
        free = week["idle_ms"] / week["observed_ms"].where(week["observed_ms"] > 0)
        return week.assign(free_gpus=free.fillna(0.0)).drop(columns="host").groupby("slot", as_index=False).sum()

    def _identity_days(self) -> pd.DataFrame:
        identities = self.sums.identities
        people = {who for who in identities["identity"].unique().tolist() if is_person(who) and is_of_fleet(who)}
        found = identities[identities["identity"].isin(people)]
        if not len(found):
            return pd.DataFrame(columns=["identity", "start_ms", "end_ms", *PERSON_HOURS])
        return sum_identity_days(found, self.common)

    def _hosts(self, gpus: pd.DataFrame) -> pd.DataFrame:
        unknown = np.full(len(STATES), np.nan)
        before = [unknown if host.before_ms is None else host.before_ms / HOUR_MS for host in self.hosts]
        numbers = pd.Index([host.number for host in self.hosts], name="host")
        hours = gpus.groupby("host")[HOURS].sum().reindex(numbers, fill_value=0.0)
        hours[BEFORE] = np.array(before)
        ongoing = self.listed["host"][self.listed["ongoing"].eq(True)].value_counts().reindex(numbers, fill_value=0)
        return hours.reset_index().assign(
            start_ms=[host.start_ms for host in self.hosts],
            observed_ms=[*self._observed_ms().values()],
            newest_ms=[host.newest.ts_ms for host in self.hosts],
            episodes=ongoing.to_numpy(),
        )

    def _gpus(self) -> pd.DataFrame:
        found = tables.gpus(self.sums.cards, self.facts, self.config)
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
