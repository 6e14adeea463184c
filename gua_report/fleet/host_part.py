"""One host's part of a fleet's report: its file, mapped by the report's own code to whole numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from gua_report.config import DEFAULT_CURRENCY, Config, Notes
from gua_report.fleet.contested import Contested, uncontested_episodes, without_contested
from gua_report.fleet.host_files import HostFile
from gua_report.fleet.names import find_named, is_of_fleet, rename
from gua_report.fleet.parts import (
    EPISODE_COLUMNS,
    MOST_LISTED,
    CardSums,
    Figures,
    HostSums,
    Part,
    Unpartitioned,
    find_first,
    pack_cards,
    rank_of_gap,
    to_plain,
)
from gua_report.people.identities import is_person
from gua_report.rollups.hourly_sums import Rollup
from gua_report.summary import tables
from gua_report.summary.build import Request, Summed, sum_rollups
from gua_report.summary.groups import PERSON_SUMS, sum_people
from gua_report.summary.of_hosts import is_earlier
from gua_report.summary.over_time import sum_identity_days, sum_trend
from gua_report.summary.plan import find_grid
from gua_report.summary.report import Report
from gua_report.ticks.arrays import Integers
from gua_report.ticks.classify import CODE_OF
from gua_report.ticks.coverage import EXPIRED, LEFT_OUT, NOT_COLLECTED, mark_days
from gua_report.window import HOUR_MS, Window, midnight_ms
from gua_sample.errors import NothingToReport
from gua_sample.partition_names import DAY_MS, day_of
from gua_sample.policy import IDLE_HELD, STATES, Policy

MOST_NOTES = 10
MILLIONTHS = 1_000_000
NO_SPOOL = Notes(spool="")  # people's notes are on their hosts


@dataclass(frozen=True)
class MapHost:
    """The work on each host, which can be sent to where it is done."""

    window: Window  # that was asked for
    common: Window  # of the fleet: begins with the oldest tick of all hosts
    policy: Policy
    people: dict[str, str]
    exempt: dict[str, str]
    reclaim_after_ms: tuple[int, ...]
    newest_days: dict[str, str]  # by name of the file
    contested: Contested

    def __call__(self, file: HostFile) -> list[Any]:
        """The host's part in its JSON form. Raises GuaError."""
        try:
            return to_plain(map_host(file, self))
        except NothingToReport as error:
            raise NothingToReport(_in_fleets_words(str(error).partition(": run gua doctor")[0])) from error


def map_host(file: HostFile, work: MapHost) -> Part:
    """Map a host's file to its part of the report."""
    contested = work.contested.get(file.name, {})
    config = Config(work.policy, None, None, DEFAULT_CURRENCY, work.people, exempt=work.exempt, notes=NO_SPOOL)
    request = Request(
        work.window, config, work.reclaim_after_ms, None, None, lambda sums: without_contested(sums, contested)
    )
    summed = sum_rollups(file.path, request)
    gaps = _mark(summed.report.gaps, work.newest_days[file.name], work.window)
    own = uncontested_episodes(summed.report.episodes, contested)
    if is_earlier(file.name):
        own = own.assign(ongoing=False)  # the host was reinstalled since
    episodes = rename(own, file.host)
    first = find_named(summed.report.identities)
    sums = summed.sums._replace(identities=rename(summed.sums.identities, file.host, first))
    figures: dict[str, Figures] = {
        **_sum_states(sums.cards),
        "people": _sum_people(sums, rename(summed.report.identities, file.host, first), rename(own, file.host, first)),
        "week": _sum_week(sums.cards, summed.report, gaps),
        **_sum_over_time(summed.sums, work.common, _from(work.common.start_ms, summed.report.window.start_ms, gaps)),
        **_sum_reclaim(summed.report),
        "gaps": _sum_gaps(gaps),
        "episodes": {(): [int(episodes["ongoing"].eq(True).sum()), _ms(summed.report.meant_gpu_hours)]},
        "drivers": {(version,): [1] for version in summed.report.driver_versions},
        "notes": {(note[:500],): [1] for note in _notes(summed)},
    }
    rows = [[file.name, *gap] for gap in gaps.itertuples(index=False, name=None)]
    listed = [[file.name, *map(_plain, row)] for row in _list(episodes)]
    first_gaps = sorted(rows, key=rank_of_gap)[:MOST_LISTED]
    return Part([_host(file, summed, gaps, bool(contested))], figures, listed, first_gaps)


def _mark(gaps: pd.DataFrame, newest_day: str, window: Window) -> pd.DataFrame:
    """The gaps with what was not collected, or is left out, as such."""
    first_ms = midnight_ms(newest_day) + DAY_MS
    missing = {day_of(ms): NOT_COLLECTED for ms in range(first_ms, window.end_ms, DAY_MS)}
    marked = mark_days(gaps, missing)
    return marked.assign(kind=marked["kind"].replace({EXPIRED: LEFT_OUT}))


def _sum_states(cards: pd.DataFrame) -> dict[str, Figures]:
    names = ("gpu_ms", "energy_joules", "energy_ms", "weight_ms")
    columns = [_whole(tables.sum_by_state(cards, name)) for name in names]
    return {"states": {(state,): [column[code] for column in columns] for code, state in enumerate(STATES)}}


def _sum_people(sums: Rollup, identities: pd.DataFrame, episodes: pd.DataFrame) -> Figures:
    people, held = sum_people(sums), Counter(episodes["identity"].tolist())
    meant = identities.groupby("identity")["meant_gpu_hours"].sum().to_dict()
    columns = [_whole(people[name]) for name in PERSON_SUMS]
    rows = zip(people.index, zip(*columns, strict=True), strict=True)
    return {(str(who),): [*values, _ms(meant[who]), 1, held[who]] for who, values in rows}


def _sum_week(cards: pd.DataFrame, report: Report, gaps: pd.DataFrame) -> Figures:
    before = report.window.before()
    grid = find_grid(report.window._replace(start_ms=before.start_ms))
    found = tables.sum_week(cards, report.window, grid[1], gaps)
    figures: Figures = {}
    for slot, (known, active, idle, observed) in enumerate(found.itertuples(index=False, name=None)):
        if known > 0:
            free = round(MILLIONTHS * idle / observed) if observed > 0 else 0
            figures[(slot,)] = [round(known), round(active), round(idle), free, int(observed > 0)]
    return figures


def _from(start_ms: int, own_start_ms: int, gaps: pd.DataFrame) -> pd.DataFrame:
    """The gaps with the time before the host's own window, in which nothing of it was observed."""
    if own_start_ms <= start_ms:
        return gaps
    earlier = pd.DataFrame([(start_ms, own_start_ms, NOT_COLLECTED)], columns=["start_ms", "end_ms", "kind"])
    return tables.concat([earlier, gaps])


def _sum_over_time(sums: Rollup, window: Window, gaps: pd.DataFrame) -> dict[str, Figures]:
    """What happened when, in cells that all hosts have in common."""
    trend = sum_trend(sums.cards, window, gaps)
    hours = [name for name in trend if str(name).endswith("_gpu_hours")]
    cells: Figures = {}
    for start_ms, end_ms, observed, *values in trend[["start_ms", "end_ms", "observed_seconds", *hours]].itertuples(
        index=False, name=None
    ):
        cells[(int(start_ms), int(end_ms))] = [*map(_ms, values), round(observed * 1000)]
    of_fleet = [is_person(who) and is_of_fleet(who) for who in sums.identities["identity"].tolist()]
    persons = sums.identities[of_fleet]
    days = sum_identity_days(persons, window) if len(persons) else pd.DataFrame()
    person_days: Figures = {
        (str(who), int(start_ms), int(end_ms)): list(map(_ms, values))
        for who, start_ms, end_ms, *values in days.itertuples(index=False, name=None)
    }
    return {"trend": cells, "person_days": person_days}


def _sum_reclaim(report: Report) -> dict[str, Figures]:
    return {
        name: {
            (round(seconds * 1000),): [_ms(hours)]
            for seconds, hours in frame[["after_seconds", "freed_gpu_hours"]].itertuples(index=False, name=None)
        }
        for name, frame in (("reclaim", report.reclaim), ("curve", report.reclaim_curve))
    }


def _sum_gaps(gaps: pd.DataFrame) -> Figures:
    found: Figures = {}
    for start_ms, end_ms, kind in gaps.itertuples(index=False, name=None):
        number, total_ms, hosts = found.get((kind,), [0, 0, 1])
        found[(kind,)] = [number + 1, total_ms + int(end_ms - start_ms), hosts]
    return found


def _notes(summed: Summed) -> list[str]:
    """What else limits the figures; days that are left out are told as such."""
    found = [note for note in summed.report.notes if not note.startswith("left out")]
    return [_in_fleets_words(note) for note in found[:MOST_NOTES]]


def _in_fleets_words(text: str) -> str:
    """What a host's own report would say, in the words of a reader who has no ticks of it, expired or not."""
    return text.replace("the ticks have expired", "only sums are published").replace(
        "ticks have expired", "only sums are published"
    )


def _list(episodes: pd.DataFrame) -> Iterable[tuple[Any, ...]]:
    """The first episodes as rows: they are in the order of the report."""
    names = [name for name in EPISODE_COLUMNS if name != "host"]
    whose = zip(map(str, episodes["identity"].tolist()), episodes["ongoing"].eq(True).tolist(), strict=True)
    found = episodes.iloc[find_first(whose)][names].astype(object)
    for name in ("gpu_index", "mig_index"):
        found[name] = pd.Series([_number(value) for value in found[name]], found.index, dtype=object)
    return found.itertuples(index=False, name=None)


def _host(file: HostFile, summed: Summed, gaps: pd.DataFrame, is_contested: bool) -> HostSums:
    report, sums, plan = summed
    window = report.window
    first, last = day_of(window.start_ms), day_of(window.end_ms - 1)
    lost: dict[str, list[str]] = {}
    for day, reason in sorted(plan.lost.items()):
        if first <= day <= last:
            lost.setdefault(reason, []).append(day)
    observed_ms = window.length_ms - int((gaps["end_ms"] - gaps["start_ms"]).sum())
    # Whose cards they were in the window before is not looked into.
    before = (
        None if report.before is None or is_contested else [_ms(report.before["gpu_hours"][state]) for state in STATES]
    )
    return HostSums(
        file.name,
        window.start_ms,
        observed_ms,
        report.newest_ms,
        _whole(tables.sum_by_state(sums.cards, "gpu_ms")),
        before,
        pack_cards(_cards(report, sums.cards)),
        [
            Unpartitioned(str(uuid), int(index), _ms(hours))
            for uuid, index, hours in report.unpartitioned[["uuid", "index", "gpu_hours"]].itertuples(index=False)
        ],
        list(lost.items()),
        sorted(day for day in plan.failed if first <= day <= last),
    )


def _cards(report: Report, cards: pd.DataFrame) -> list[CardSums]:
    idle = cards[cards["state"].to_numpy(dtype=np.int64) == CODE_OF[IDLE_HELD]]
    energy = idle.groupby("gpu_uuid")[["energy_joules", "energy_ms"]].sum()
    hours = [f"{state.replace('-', '_')}_gpu_hours" for state in STATES]
    names = ["uuid", "index", "mig_index", "name", "parent_uuid", *hours]
    found = []
    for uuid, index, mig_index, name, parent, *values in (
        report.gpus[names].astype(object).itertuples(index=False, name=None)
    ):
        joules, known_ms = (round(value) for value in energy.loc[uuid]) if uuid in energy.index else (0, 0)
        facts = (str(uuid), int(index), _number(mig_index), _plain(name), _plain(parent))
        found.append(CardSums(*facts, [_ms(value) for value in values], joules, known_ms, uuid in report.instant_only))
    return found


def _plain(value: Any) -> Any:
    """The value as JSON has it; None for what is not known."""
    if value is None or value is pd.NA or value != value:
        return None
    return value.item() if isinstance(value, np.generic) else value


def _number(value: Any) -> int | None:
    return None if _plain(value) is None else int(value)


def _ms(hours: float) -> int:
    return round(hours * HOUR_MS)


def _whole(values: pd.Series[float]) -> list[int]:
    whole: Integers = np.rint(values.to_numpy(dtype="float64")).astype(np.int64)
    return [int(value) for value in whole]
