"""Idle-held episodes: the longest runs of ticks in which one process idle-holds one card."""

from __future__ import annotations

import numpy as np
import pandas as pd

from gua_report.ticks.arrays import Integers
from gua_report.ticks.classify import ABSENT, CODE_OF, Classified
from gua_sample.policy import IDLE_HELD, LONGEST_GAP_INTERVALS

KEY = ["gpu_uuid", "pid", "start_time_ms"]
COLUMNS = [*KEY, "command", "identity", "start_ms", "end_ms", "peak_memory_mib"]
COLUMNS += ["joins_before", "joins_after", "slurm_job"]


def find_episodes(found: Classified, start_ms: int, end_ms: int) -> pd.DataFrame:
    """The episodes of the ticks in a time: those at `start_ms` or later, and before `end_ms`.

    Ticks beyond are context: they tell whether an episode goes on there (`joins_before`, `joins_after`).
    """
    rows = found.processes[found.processes["state"] == CODE_OF[IDLE_HELD]]
    if rows.empty:
        return pd.DataFrame(columns=COLUMNS)
    tick, card, key = (rows[name].to_numpy() for name in ("tick", "card", "key"))
    linked = _links(found)
    follows = (key[1:] == key[:-1]) & (card[1:] == card[:-1]) & (linked[tick[:-1]] == tick[1:])
    begins, ends = np.append(True, ~follows), np.append(~follows, True)
    times = found.ticks["ts_ms"].to_numpy()
    within = (times[tick] >= start_ms) & (times[tick] < end_ms)
    frame = pd.DataFrame({"row": np.arange(len(rows)), "memory_mib": rows["memory_mib"].to_numpy()})[within]
    grouped = frame.groupby(np.cumsum(begins)[within], sort=True)
    first, last = grouped["row"].first().to_numpy(), grouped["row"].last().to_numpy()
    facts = found.process_facts.iloc[rows["process"].to_numpy()[last]]
    return pd.DataFrame(
        {
            "gpu_uuid": found.cards["uuid"].to_numpy()[card[first]],
            "pid": facts["pid"].to_numpy(),
            "start_time_ms": facts["start_time_ms"].to_numpy(),
            "command": facts["command"].to_numpy(),
            "identity": facts["identity"].to_numpy(),
            "start_ms": times[tick[first]],
            "end_ms": (times + found.ticks["weight_ms"].to_numpy())[tick[last]],
            "peak_memory_mib": grouped["memory_mib"].max().to_numpy(),
            "joins_before": ~begins[first],
            "joins_after": ~ends[last],
            "slurm_job": facts["slurm_job"].to_numpy(dtype=object),
        },
        columns=COLUMNS,
    )


def _links(found: Classified) -> Integers:
    """For each tick, the next one that saw cards, if it is near and of the same boot; else -1."""
    seen = np.flatnonzero((found.states != ABSENT).any(axis=1))
    links = np.full(len(found.ticks), -1, np.int64)
    # A tick without cards in between does not break a link, a reboot does. The interval of the earlier tick decides
    # what is near: at midnight, that of the ticks in between may not be known yet.
    boots = found.ticks["boot_id"].to_numpy(dtype=object)
    boot = np.cumsum(np.append(False, boots[1:] != boots[:-1]))[seen]
    times, interval = (found.ticks[name].to_numpy()[seen] for name in ("ts_ms", "interval_ms"))
    near = np.diff(times) <= LONGEST_GAP_INTERVALS * interval[:-1]
    links[seen[:-1]] = np.where(near & (boot[1:] == boot[:-1]), seen[1:], -1)
    return links


def episode_keys(episodes: pd.DataFrame) -> list[tuple[str, int, float]]:
    """The card, pid and start time of each episode's process; -1 for an unknown start."""
    starts = episodes["start_time_ms"].astype("float64").fillna(-1)
    return list(zip(episodes["gpu_uuid"].tolist(), episodes["pid"].tolist(), starts.tolist(), strict=True))


def join_to(before: pd.DataFrame, episodes: pd.DataFrame, first_ticks_ms: list[int]) -> pd.DataFrame:
    """The episodes of a day whose preceding ticks are gone, joined to the stored episodes of the day before.

    An episode is joined if the stored one goes on and this one begins at one of the first ticks. (The very first tick
    can't tell a process that idles beside others.)
    """
    going_on = set(episode_keys(before[before["joins_after"].astype(bool)]))
    continued = np.array([key in going_on for key in episode_keys(episodes)], bool)
    continued &= episodes["start_ms"].isin(first_ticks_ms).to_numpy()
    return episodes.assign(joins_before=episodes["joins_before"].astype(bool) | continued)


def join_episodes(days: list[pd.DataFrame]) -> pd.DataFrame:
    """The episodes of several consecutive days, with those that cross midnight joined."""
    pieces = pd.concat([day for day in days if len(day)] or [pd.DataFrame(columns=COLUMNS)], ignore_index=True)
    if pieces.empty:
        return pieces
    pieces = pieces.sort_values([*KEY, "start_ms"], kind="stable", ignore_index=True)
    key = pieces[KEY].fillna({"start_time_ms": -1})
    same = key.eq(key.shift()).all(axis=1)
    goes_on = same & pieces["joins_before"].astype(bool) & pieces["joins_after"].shift(fill_value=False).astype(bool)
    episode = (~goes_on).cumsum()
    joined = pieces.groupby(episode, sort=True).agg(
        {
            **dict.fromkeys(KEY, "first"),
            "command": "last",
            "identity": "last",
            "start_ms": "first",
            "end_ms": "last",
            "peak_memory_mib": "max",
            "joins_before": "first",
            "joins_after": "last",
            "slurm_job": "last",
        }
    )
    return joined.reset_index(drop=True)
