"""Gathering the sums of a report: closed days from rollups.sqlite, the rest computed from ticks by the same code."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import groupby, pairwise
from typing import NamedTuple, TypeVar

import numpy as np
import pandas as pd

from gua_report.people.identities import apply_mapping
from gua_report.rollups.hourly_sums import CARD_SUMS, Rollup, clip_holds, empty_rollup, roll_up
from gua_report.rollups.reader import read_days, read_spans, read_states
from gua_report.summary.intervals import overlap
from gua_report.summary.now import Now, look_at
from gua_report.summary.plan import FROM_TICKS, FULL_HOURS, IN_PROPORTION, DayPlan, Scope, WindowPart, find_parts
from gua_report.summary.tables import concat
from gua_report.summary.whole_episodes import Known, find_known, follow_episodes, map_people
from gua_report.ticks.coverage import SPAN_COLUMNS, find_spans
from gua_report.ticks.history import History
from gua_report.ticks.read_classified import read_classified
from gua_report.window import HOUR_MS, Window, midnight_ms, number_of, show
from gua_sample.partition_names import DAY_MS, day_of

# Days that are read at a time, to bound the memory; more if they have few ticks, since each part needs some ticks
# before and after it, which may span as many days.
DAYS_AT_A_TIME = 8
TICKS_AT_A_TIME = 2000
Progress = Callable[[int, int], None]
Read = TypeVar("Read")


class Gathered(NamedTuple):
    """All that is added up to a report."""

    plan: DayPlan
    parts: list[WindowPart]
    rollups: dict[Window, list[Rollup]]
    episodes: pd.DataFrame  # of the last window
    notes: list[str]  # figures that are not exact, since ticks have expired
    now: Now | None  # None if the tick that would tell was not read


def gather_spans(scope: Scope) -> pd.DataFrame:
    """The spans of all days that the windows touch, and of the nearest days around them."""
    plan, history = scope.plan, scope.history
    days = sorted(plan.days | set(history.days))
    first, last = day_of(scope.windows[0].start_ms), day_of(scope.window.end_ms)
    before, after = [day for day in days if day < first][-2:], [day for day in days if day > last][:1]
    wanted = [*before, *(day for day in days if first <= day <= last), *after]
    stored = [day for day in wanted if day in plan.days]
    parts = [_only(spans, "start_ms", stored) for spans in _read_stretches(plan, stored, read_spans)]
    for is_stored, run in groupby(wanted, lambda day: day in plan.days):
        seen = [] if is_stored else [day for day in run if len(history.ticks_of(day))]
        parts += [find_spans(history, seen)] if seen else []
    spans = pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=SPAN_COLUMNS)
    return spans.sort_values("start_ms", kind="stable", ignore_index=True)


def gather(scope: Scope, spans: pd.DataFrame, seen_ms: int | None, progress: Progress | None) -> Gathered:
    """Read all days of the windows, each from where the plan says. `spans` are those of `gather_spans`.

    `seen_ms`: the tick that tells who holds what right now, if there is one.
    """
    plan, stored, known, notes = _read_stored(scope)
    scope = scope._replace(plan=plan)
    parts = find_parts(plan, scope.windows)
    rollups: dict[Window, list[Rollup]] = {window: [] for window in scope.windows}
    reading = {part: _some_days_each(scope.history, part) for part in parts if part.source == FROM_TICKS}
    done, total = 0, sum(map(len, reading.values()))
    cut_hours: list[str] = []
    now: Now | None = None
    for part in parts:
        if part.source != FROM_TICKS:
            for window, start_ms, end_ms in _meet(scope.windows, part.start_ms, part.end_ms):
                share = _share(spans, start_ms, end_ms) if part.source == IN_PROPORTION else 1.0
                rollups[window].append(_cut(stored[window], start_ms, end_ms, share))
                if share < 1 and window is scope.window:
                    cut_hours.append(show(start_ms, window.zone))
        for first_ms, last_ms in reading.get(part, []):
            found = read_classified(scope.history, first_ms, last_ms, scope.config.policy, scope.config.people)
            if found is not None:
                known += find_known(scope, found, first_ms)
                now = (None if seen_ms is None else look_at(found, seen_ms)) or now
                for window, start_ms, end_ms in _meet(scope.windows, first_ms, last_ms):
                    rollups[window].append(roll_up(found, start_ms, end_ms, scope.grid))
            done += 1
            if progress:
                progress(done, total)
    if cut_hours:
        hours = ", ".join(cut_hours)
        notes.append(f"ticks have expired: of the hour of {hours}, which the window cuts, a share is taken instead")
    return Gathered(plan, parts, rollups, follow_episodes(scope, known), notes, now)


def _meet(windows: list[Window], start_ms: int, end_ms: int) -> Iterator[tuple[Window, int, int]]:
    """The windows that a time meets, with the start and the end of what they have in common."""
    for window in windows:
        start, end = max(start_ms, window.start_ms), min(end_ms, window.end_ms)
        if start < end:
            yield window, start, end


def _some_days_each(history: History, part: WindowPart) -> list[tuple[int, int]]:
    """The part divided at midnights into times that are read at once."""
    cuts, days, ticks = [part.start_ms], 0, 0
    for day in history.days_of(part.start_ms, part.end_ms):
        if days >= DAYS_AT_A_TIME and ticks >= TICKS_AT_A_TIME:
            cuts.append(midnight_ms(day))
            days = ticks = 0
        days += 1
        ticks += len(history.ticks_of(day))
    return list(pairwise([*cuts, part.end_ms]))


def _read_stored(scope: Scope) -> tuple[DayPlan, dict[Window, Rollup], list[Known], list[str]]:
    """The sums and episodes of the windows' stored days, notes, and the plan without days that can't be used after all.

    Where two identities of one person are on a card in the same hour, only ticks can tell how much of their time
    overlaps: such days are not taken from rollups, unless they have expired.
    """
    plan, people, window, notes = scope.plan, scope.config.people, scope.window, []
    rollups: dict[Window, Rollup] = {}
    for before in scope.windows[:-1]:
        states = _read_stretches(plan, plan.find_days(before.start_ms, before.end_ms), read_states)
        rollups[before] = empty_rollup()._replace(cards=concat(states))
    # The last tick of the day before may reach into the window, and an episode may end with it.
    start_ms, first_ms = window.start_ms - DAY_MS, midnight_ms(day_of(window.start_ms))
    days = _read_stretches(plan, plan.find_days(start_ms, window.end_ms), read_days)
    if not days:
        return plan, rollups, [], []
    stored = Rollup(*(concat(list(frames)) for frames in zip(*(day.rollup for day in days), strict=True)))
    rollups[window] = stored._replace(identities=map_people(stored.identities, people))
    clashes = _find_clashes(stored.identities, people).intersection(plan.find_days(window.start_ms, window.end_ms))
    plan = plan.without(clashes - plan.expired)
    # If it does not, there may be ticks between that day and the window whose episodes are not known.
    reaches = any(((spans["start_ms"] < first_ms) & (spans["end_ms"] > window.start_ms)).any() for _, _, spans in days)
    used = plan.find_days(start_ms if reaches else window.start_ms, window.end_ms)
    episodes = map_people(_only(concat([day.episodes for day in days]), "start_ms", used), people)
    known = [Known(midnight_ms(used[0]), midnight_ms(used[-1]) + DAY_MS - 1, episodes)] if used else []
    if scope.grid != FULL_HOURS and plan.find_days(window.start_ms, window.end_ms):
        notes.append("ticks have expired: by hour of day, older days are as UTC's full hours cut them")
    if clashes & plan.days:
        notes.append("ticks have expired: where one person had two identities at a time, both count")
    return plan, rollups, known, notes


def _read_stretches(plan: DayPlan, days: list[str], read: Callable[[str, str, str], Read]) -> list[Read]:
    """Read the stored days, and those between them, in as few stretches as leave out damaged days."""
    stretches: list[tuple[str, str]] = []
    for day in days:
        if stretches and not any(stretches[-1][1] < damaged < day for damaged in plan.damaged):
            stretches[-1] = (stretches[-1][0], day)
        else:
            stretches.append((day, day))
    return [read(plan.path, first, last) for first, last in stretches]


def _find_clashes(identities: pd.DataFrame, people: dict[str, str]) -> set[str]:
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
    """The rows of these days, by the column with their times."""
    numbers = np.array([number_of(day) for day in days])
    return frame[np.isin(frame[column].to_numpy(dtype=np.int64) // DAY_MS, numbers)]


def _cut(rollup: Rollup, start_ms: int, end_ms: int, share: float) -> Rollup:
    """The part of stored sums that lies in a time, and of an hour that is cut this share."""
    return rollup._replace(
        cards=_hours(rollup.cards, start_ms, end_ms, share),
        identities=_hours(rollup.identities, start_ms, end_ms, share),
        holds=clip_holds(rollup.holds, start_ms, end_ms),
        card_facts=_facts(rollup.card_facts, start_ms, end_ms),
        unpartitioned=_hours(rollup.unpartitioned, start_ms, end_ms, share),
    )


def _facts(card_facts: pd.DataFrame, start_ms: int, end_ms: int) -> pd.DataFrame:
    """The facts of the days that a time touches; those of the window before are not read."""
    if not len(card_facts):
        return card_facts
    days_ms = card_facts["day_ms"].to_numpy(dtype=np.int64)
    return card_facts.loc[(days_ms > start_ms - DAY_MS) & (days_ms < end_ms)].drop(columns="day_ms")


def _hours(frame: pd.DataFrame, start_ms: int, end_ms: int, share: float) -> pd.DataFrame:
    hours = frame["hour_ms"].to_numpy(dtype=np.int64)
    cut = frame.loc[(hours >= start_ms // HOUR_MS * HOUR_MS) & (hours < end_ms)]
    if share == 1.0:
        return cut
    scaled: pd.DataFrame = cut.assign(**{name: cut[name] * share for name in CARD_SUMS if name in cut})
    return scaled


def _share(spans: pd.DataFrame, start_ms: int, end_ms: int) -> float:
    """The share of the hour's observed time that lies in this part of it."""
    observed = spans[pd.isna(spans["kind"])][["start_ms", "end_ms"]].to_numpy(dtype=np.int64)
    hour_ms = start_ms // HOUR_MS * HOUR_MS
    part, whole = overlap(observed, np.array([start_ms, hour_ms]), np.array([end_ms, hour_ms + HOUR_MS]))
    return float(part / whole) if whole else 0.0
