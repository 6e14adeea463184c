"""The whole episodes of a window: they are not clipped to it."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pandas as pd

from gua_report.people.identities import apply_mapping
from gua_report.rollups.reader import read_days
from gua_report.summary.plan import Scope
from gua_report.ticks.classify import ABSENT, Classified
from gua_report.ticks.episodes import episode_keys, find_episodes, join_episodes, join_to
from gua_report.ticks.read_classified import read_classified
from gua_report.window import midnight_ms
from gua_sample.partition_names import DAY_MS, day_of


class Known(NamedTuple):
    """The episodes of consecutive ticks, from the one at `first_ms` to the one at `last_ms`."""

    first_ms: int
    last_ms: int
    episodes: pd.DataFrame


def find_known(scope: Scope, found: Classified, start_ms: int) -> list[Known]:
    """The episodes of the ticks whose time in the window begins at `start_ms` or later; nothing without such ticks.

    Ticks of stored days are left out, because the stored episodes are complete.
    """
    ticks = found.ticks.iloc[found.inside]
    times = ticks["ts_ms"].to_numpy()
    ends = times + ticks["weight_ms"].to_numpy()
    own = (np.maximum(times, scope.window.start_ms) >= start_ms) & (ends > scope.window.start_ms)
    own &= ~ticks["day"].isin(scope.plan.days).to_numpy()
    if not own.any():
        return []
    first_ms, last_ms = int(times[own][0]), int(times[own][-1])
    return [Known(first_ms, last_ms, _find(scope, found, first_ms, last_ms + 1))]


def follow_episodes(scope: Scope, known: list[Known]) -> pd.DataFrame:
    """All episodes that reach into the window, from their beginning to their end; and some others.

    `known` are the episodes of all ticks in the window, and of the day before if that is stored and reaches into it.
    """
    start_ms = scope.window.start_ms
    edge_ms = min((one.first_ms for one in known), default=start_ms)
    if edge_ms > start_ms - DAY_MS and day_of(start_ms - DAY_MS) not in scope.plan.days:
        # The last tick before may reach into the window, and an episode may end with it.
        reaching = _classify(scope, start_ms, edge_ms)
        known = known + (find_known(scope, reaching, start_ms) if reaching else [])
    parts = [one.episodes for one in known]
    edges_ms = [ms for one in known for ms in one[:2]] or [start_ms]
    found = join_episodes(parts)
    for edge_ms, back in ((min(edges_ms), True), (max(edges_ms), False)):
        more = _extend(scope, found, edge_ms, back)
        parts += more
        if more:  # only if needed: joining the many episodes of a year takes a while
            found = join_episodes(parts)
    return found


def _extend(scope: Scope, found: pd.DataFrame, edge_ms: int, back: bool) -> list[pd.DataFrame]:
    """Follow the window's episodes beyond the known ticks, on their own cards only."""
    inside = found[(found["end_ms"] > scope.window.start_ms) & (found["start_ms"] < scope.window.end_ms)]
    direction = "joins_before" if back else "joins_after"
    going_on = set(episode_keys(inside[inside[direction].astype(bool)]))
    parts = []
    while going_on and (day := _day_beyond(scope, edge_ms, back)):
        start_ms, end_ms = midnight_ms(day), midnight_ms(day) + DAY_MS
        first_ms, last_ms = (start_ms, min(end_ms, edge_ms)) if back else (max(start_ms, edge_ms + 1), end_ms)
        edge_ms = start_ms if back else end_ms - 1
        if day in scope.plan.days:
            more = map_people(read_days(scope.plan.path, day, day).episodes, scope.config.people)
        else:
            classified = _classify(scope, first_ms, last_ms, sorted({uuid for uuid, _, _ in going_on}))
            if classified is None or day in scope.history.unreadable:
                break
            own = classified.ticks["ts_ms"].between(first_ms, last_ms - 1).to_numpy()
            if (classified.states[own] == ABSENT).all():
                continue  # a day with only driver errors ends no episode
            more = _find(scope, classified, first_ms, last_ms)
        parts.append(more)
        going_on &= set(episode_keys(more[more["joins_before"].astype(bool) & more["joins_after"].astype(bool)]))
    return parts


def _classify(scope: Scope, start_ms: int, end_ms: int, uuids: list[str] | None = None) -> Classified | None:
    return read_classified(scope.history, start_ms, end_ms, scope.config.policy, scope.config.people, uuids)


def _find(scope: Scope, found: Classified, start_ms: int, end_ms: int) -> pd.DataFrame:
    """Find the episodes of ticks. Where all earlier ticks are gone, the stored day before tells which go on."""
    history, plan = scope.history, scope.plan
    episodes = find_episodes(found, start_ms, end_ms)
    for before, day in pairwise(sorted({*plan.expired, *history.paths})):
        own = day_of(start_ms) <= day <= day_of(end_ms - 1) and len(episodes)
        if own and before in plan.days and before not in history.paths:
            stored = read_days(plan.path, before, before)
            episodes = join_to(stored.episodes, episodes, history.first_ticks_ms(day))
    return episodes


def _day_beyond(scope: Scope, edge_ms: int, back: bool) -> str | None:
    """The nearest day, from ticks or stored, before that time (`back`) or after it."""
    today = day_of(edge_ms)
    candidates = [day for day in scope.plan.days if (day < today if back else day > today)]
    from_ticks = scope.history.day_next_to(edge_ms, back)
    candidates += [from_ticks] if from_ticks else []
    return (max if back else min)(candidates, default=None)


def map_people(frame: pd.DataFrame, people: dict[str, str]) -> pd.DataFrame:
    """The frame with identities mapped to the people that the configuration names."""
    if not people or not len(frame) or people.keys().isdisjoint(frame["identity"].unique()):
        return frame
    return frame.assign(identity=[apply_mapping(identity, people) for identity in frame["identity"].tolist()])
