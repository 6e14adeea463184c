"""Gathering the sums of a report: closed days from rollups.sqlite, the rest computed from ticks by the same code."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby
from typing import NamedTuple, TypeVar

import numpy as np
import pandas as pd

from gua_report.people.identities import apply_mapping
from gua_report.rollups.hourly_sums import CARD_SUMS, Rollup, clip_holds, empty_rollup, roll_up
from gua_report.rollups.reader import read_days, read_episodes, read_spans, read_states
from gua_report.summary.intervals import overlap
from gua_report.summary.plan import FROM_TICKS, FULL_HOURS, IN_PROPORTION, DayPlan, Scope, WindowPart, find_parts
from gua_report.summary.report import CLASHES, CUT_HOURS, UTC_HOURS, Notice
from gua_report.summary.tables import add_rollups, concat
from gua_report.ticks.classify import Classified, read_classified
from gua_report.ticks.coverage import SPAN_COLUMNS, Columns, find_spans
from gua_report.ticks.episodes import find_episodes, follow, join_episodes, keys_of
from gua_report.window import HOUR_MS, Window, midnight_ms, number_of, show, split_days
from gua_sample.partition_names import DAY_MS, day_of

DAYS_AT_A_TIME = 2  # read in threads, as SQLite works without the interpreter's lock; no more, to bound the memory
Progress = Callable[[int, int], None]
Read = TypeVar("Read")


class Gathered(NamedTuple):
    plan: DayPlan
    parts: list[WindowPart]
    rollups: dict[Window, list[Rollup]]
    episodes: pd.DataFrame  # of the last window
    notices: list[Notice]  # figures that are not exact, since ticks have expired


def gather_spans(scope: Scope) -> pd.DataFrame:
    plan, history = scope.plan, scope.history
    days = sorted(plan.days | set(history.days))
    first, last = day_of(scope.windows[0].start_ms), day_of(scope.window.end_ms)
    before, after = [day for day in days if day < first][-2:], [day for day in days if day > last][:1]
    wanted = [*before, *(day for day in days if first <= day <= last), *after]
    stored = [day for day in wanted if day in plan.days]
    parts = [_only(spans, "start_ms", stored) for spans in read_stretches(plan, stored, read_spans)]
    for is_stored, run in groupby(wanted, lambda day: day in plan.days):
        seen = [] if is_stored else [day for day in run if len(history.ticks_of(day))]
        parts += [find_spans(history, seen)] if seen else []
    spans = pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=SPAN_COLUMNS)
    return spans.sort_values("start_ms", kind="stable", ignore_index=True)


def gather(scope: Scope, spans: pd.DataFrame, progress: Progress | None) -> Gathered:
    """Read all days, each from where the plan says."""
    plan, stored, known, notices = _read_stored(scope)
    scope = scope._replace(plan=plan)
    parts = find_parts(plan, scope.windows)
    rollups: dict[Window, list[Rollup]] = {window: [] for window in scope.windows}
    recorded, reading = set(scope.history.days), [part for part in parts if part.source == FROM_TICKS]
    days = {part: [time for time in split_days(*part[:2]) if day_of(time[0]) in recorded] for part in reading}
    done, total = 0, sum(map(len, days.values()))
    cut_hours: list[str] = []
    for part in parts:
        if part.source != FROM_TICKS:
            for window, start_ms, end_ms in _meet(scope.windows, part.start_ms, part.end_ms):
                share = share_observed(spans, start_ms, end_ms) if part.source == IN_PROPORTION else 1.0
                rollups[window].append(_cut(stored[window], start_ms, end_ms, share))
                if share < 1 and window is scope.window:
                    cut_hours.append(show(start_ms, window.zone))
        for first_ms, last_ms, found in _read_ticks(scope, days.get(part, [])):
            if found is not None:
                is_new = last_ms > scope.window.start_ms and day_of(first_ms) not in plan.days
                known += [find_episodes(found)] if is_new else []
                for window, start_ms, end_ms in _meet(scope.windows, first_ms, last_ms):
                    rollups[window].append(roll_up(found, start_ms, end_ms, scope.grid))
            done += 1
            if progress:
                progress(done, total)
    if cut_hours:
        notices.append(Notice(CUT_HOURS, detail=", ".join(cut_hours)))
    return Gathered(plan, parts, rollups, _follow_episodes(scope, known), notices)


def _meet(windows: list[Window], start_ms: int, end_ms: int) -> Iterator[tuple[Window, int, int]]:
    for window in windows:
        start, end = max(start_ms, window.start_ms), min(end_ms, window.end_ms)
        if start < end:
            yield window, start, end


def _read_ticks(scope: Scope, times: list[tuple[int, int]]) -> Iterator[tuple[int, int, Classified | None]]:
    """These times, each within one day, and what is found in them: of days that are not stored, all."""
    history, policy, people = scope.history, scope.config.policy, scope.config.people

    def look(time: tuple[int, int]) -> tuple[int, int, Classified | None]:
        midnight = time[0] // DAY_MS * DAY_MS
        whole = time if day_of(midnight) in scope.plan.days else (midnight, midnight + DAY_MS)
        return *time, read_classified(history, *whole, policy, people)

    with ThreadPoolExecutor(DAYS_AT_A_TIME) as pool:
        for first in range(0, len(times), DAYS_AT_A_TIME):
            yield from pool.map(look, times[first : first + DAYS_AT_A_TIME])


def _read_stored(scope: Scope) -> tuple[DayPlan, dict[Window, Rollup], list[pd.DataFrame], list[Notice]]:
    """The sums and episodes of the windows' stored days, notices, and the plan without days that can't be used.

    Where two identities of one person are on a card in the same hour, only ticks can tell how much of their time
    overlaps: such days are not taken from rollups, unless they have expired.
    """
    plan, people, window, notices = scope.plan, scope.config.people, scope.window, list[Notice]()
    rollups: dict[Window, Rollup] = {}
    for before in scope.windows[:-1]:
        states = read_stretches(plan, plan.find_days(before.start_ms, before.end_ms), read_states)
        rollups[before] = empty_rollup()._replace(cards=concat(states))
    days = read_stretches(plan, plan.find_days(window.start_ms, window.end_ms), read_days)
    if not days:
        return plan, rollups, [], []
    stored = add_rollups([day.rollup for day in days])
    rollups[window] = stored._replace(identities=map_people(stored.identities, people))
    clashes = find_clashes(stored.identities, people).intersection(plan.find_days(window.start_ms, window.end_ms))
    plan = plan.without(clashes - plan.expired)
    used = plan.find_days(window.start_ms, window.end_ms)
    episodes = map_people(_only(concat([day.episodes for day in days]), "start_ms", used), people)
    if scope.grid != FULL_HOURS and plan.find_days(window.start_ms, window.end_ms):
        notices.append(Notice(UTC_HOURS))
    if clashes & plan.days:
        notices.append(Notice(CLASHES))
    return plan, rollups, [episodes], notices


def read_stretches(plan: DayPlan, days: list[str], read: Callable[[str, str, str], Read]) -> list[Read]:
    """Read the stored days, and those between them, in as few stretches as leave out damaged days."""
    stretches: list[tuple[str, str]] = []
    for day in days:
        if stretches and not any(stretches[-1][1] < damaged < day for damaged in plan.damaged):
            stretches[-1] = (stretches[-1][0], day)
        else:
            stretches.append((day, day))
    return [read(plan.path, first, last) for first, last in stretches]


def find_clashes(identities: pd.DataFrame, people: dict[str, str]) -> set[str]:
    """The days on which two identities of one person are on a card in the same hour."""
    if not people or not len(identities):
        return set()
    names = identities["identity"].unique()
    if len({apply_mapping(name, people) for name in names}) == len(names):
        return set()  # nobody has two of them
    key = ["hour_ms", "gpu_uuid", "identity"]
    distinct = map_people(identities[key].drop_duplicates(), people)
    return {day_of(int(ms)) for ms in distinct["hour_ms"][distinct.duplicated(key)].unique()}


def _only(frame: pd.DataFrame, column: str, days: list[str]) -> pd.DataFrame:
    numbers = np.array([number_of(day) for day in days])
    return frame[np.isin(frame[column].to_numpy(dtype=np.int64) // DAY_MS, numbers)]


def _cut(rollup: Rollup, start_ms: int, end_ms: int, share: float) -> Rollup:
    """The part of stored sums that lies in a time, and of an hour that is cut this share."""
    cards, identities, holds, facts, unpartitioned = rollup
    if len(facts):  # those of the window before are not read
        facts = facts[facts["day_ms"].between(start_ms - DAY_MS, end_ms, inclusive="neither")].drop(columns="day_ms")
    cut = (_hours(frame, start_ms, end_ms, share) for frame in (cards, identities, unpartitioned))
    cards, identities, unpartitioned = cut
    return Rollup(cards, identities, clip_holds(holds, start_ms, end_ms), facts, unpartitioned)


def _hours(frame: pd.DataFrame, start_ms: int, end_ms: int, share: float) -> pd.DataFrame:
    hours = frame["hour_ms"].to_numpy(dtype=np.int64)
    cut = frame.loc[(hours >= start_ms // HOUR_MS * HOUR_MS) & (hours < end_ms)]
    if share == 1.0:
        return cut
    scaled: pd.DataFrame = cut.assign(**{name: cut[name] * share for name in CARD_SUMS if name in cut})
    return scaled


def share_observed(spans: Columns, start_ms: int, end_ms: int) -> float:
    """The share of the hour's observed time that lies in this part of it."""
    observed = np.column_stack([spans["start_ms"], spans["end_ms"]])[pd.isna(np.asarray(spans["kind"], dtype=object))]
    hour_ms = start_ms // HOUR_MS * HOUR_MS
    times = np.array([start_ms, hour_ms]), np.array([end_ms, hour_ms + HOUR_MS])
    part, whole = overlap(observed.astype(np.int64), *times)
    return float(part / whole) if whole else 0.0


def _follow_episodes(scope: Scope, known: list[pd.DataFrame]) -> pd.DataFrame:
    """All episodes that reach into the window, whole, and some others. `known` are those of the window's days."""
    found = join_episodes(known)
    for first_ms, step, direction in (
        (scope.window.start_ms, -DAY_MS, "joins_before"),
        (scope.window.end_ms - 1, DAY_MS, "joins_after"),
    ):
        more = _extend(scope, found, first_ms, step, direction)
        known = known + more
        if more:  # only if needed: joining the many episodes of a year takes a while
            found = join_episodes(known)
    return found


def _extend(scope: Scope, found: pd.DataFrame, ms: int, step: int, direction: str) -> list[pd.DataFrame]:
    is_inside = (found["end_ms"] > scope.window.start_ms) & (found["start_ms"] < scope.window.end_ms)
    going_on = keys_of(found, (is_inside & found[direction].astype(bool)).to_numpy(dtype=bool))
    return follow(going_on, lambda ms: _find(scope, day_of(ms)), ms, step)


def _find(scope: Scope, day: str) -> pd.DataFrame | None:
    config, start_ms = scope.config, midnight_ms(day)
    if day in scope.plan.days:
        return map_people(read_episodes(scope.plan.path, day, day), config.people)
    found = read_classified(scope.history, start_ms, start_ms + DAY_MS, config.policy, config.people)
    return None if found is None else find_episodes(found)


def map_people(frame: pd.DataFrame, people: dict[str, str]) -> pd.DataFrame:
    if not people or not len(frame) or people.keys().isdisjoint(frame["identity"].unique()):
        return frame
    return frame.assign(identity=[apply_mapping(identity, people) for identity in frame["identity"].tolist()])
