"""Idle-held episodes: the longest runs of ticks in which one process idle-holds one card."""

from __future__ import annotations

import numpy as np
import pandas as pd

from gua_report.ticks.classify import CODES, Classified
from gua_sample.policy import IDLE_HELD, LONGEST_GAP_INTERVALS

KEY = ["gpu_uuid", "pid", "start_time_ms"]
COLUMNS = [*KEY, "command", "identity", "start_ms", "end_ms", "peak_memory_mib", "joins_before", "joins_after"]


def find_episodes(day: Classified, inside: tuple[int, int]) -> pd.DataFrame:
    """The episodes of the ticks from position inside[0] to before inside[1].

    Ticks beyond are context: they tell whether an episode goes on there (`joins_before`, `joins_after`).
    """
    rows = day.processes[day.processes["state"] == CODES[IDLE_HELD]]
    tick, card, key = (rows[name].to_numpy() for name in ("tick", "card", "key"))
    if not len(tick):
        return pd.DataFrame(columns=COLUMNS)
    times, weights = day.ticks["ts_ms"].to_numpy(), day.ticks["weight_ms"].to_numpy()
    linked = _links(day)
    follows = (key[1:] == key[:-1]) & (card[1:] == card[:-1]) & (linked[tick[:-1]] == tick[1:])
    run = np.append(0, np.cumsum(~follows))
    within = (tick >= inside[0]) & (tick < inside[1])
    first_of_run = np.append(True, ~follows)
    last_of_run = np.append(~follows, True)
    frame = pd.DataFrame({"run": run, "row": np.arange(len(run)), "memory_mib": rows["memory_mib"].to_numpy()})[within]
    grouped = frame.groupby("run", sort=True)
    first, last = grouped["row"].first().to_numpy(), grouped["row"].last().to_numpy()
    facts = day.process_facts.iloc[rows["process"].to_numpy()[last]]
    return pd.DataFrame(
        {
            "gpu_uuid": day.cards["uuid"].to_numpy()[card[first]],
            "pid": facts["pid"].to_numpy(),
            "start_time_ms": facts["start_time_ms"].to_numpy(),
            "command": facts["command"].to_numpy(),
            "identity": facts["identity"].to_numpy(),
            "start_ms": times[tick[first]],
            "end_ms": times[tick[last]] + weights[tick[last]],
            "peak_memory_mib": grouped["memory_mib"].max().to_numpy(),
            "joins_before": ~first_of_run[first],
            "joins_after": ~last_of_run[last],
        },
        columns=COLUMNS,
    )


def _links(day: Classified) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """For each tick, the next one that saw cards, if it is near and of the same boot; else -1."""
    seen = np.flatnonzero((day.states >= 0).any(axis=1))
    links = np.full(len(day.ticks), -1, np.int64)
    if len(seen) > 1:
        # A tick without cards in between does not break a link, a reboot does. The interval of the earlier tick decides
        # what is near: at midnight, that of the ticks in between may not be known yet.
        boots = day.ticks["boot_id"].to_numpy(dtype=object)
        breaks = np.cumsum(np.append(boots[1:] != boots[:-1], False))
        times, interval = day.ticks["ts_ms"].to_numpy(), day.ticks["interval_ms"].to_numpy()
        near = times[seen[1:]] - times[seen[:-1]] <= LONGEST_GAP_INTERVALS * interval[seen[:-1]]
        whole = np.append(0, breaks)[seen[1:]] == np.append(0, breaks)[seen[:-1]]
        links[seen[:-1]] = np.where(near & whole, seen[1:], -1)
    return links


def episode_keys(episodes: pd.DataFrame) -> set[tuple[str, int, float]]:
    """The card, pid and start time of each episode's process; -1 for an unknown start."""
    starts = episodes["start_time_ms"].astype("float64").fillna(-1)
    return set(zip(episodes["gpu_uuid"].tolist(), episodes["pid"].tolist(), starts.tolist(), strict=True))


def join_to(before: pd.DataFrame, episodes: pd.DataFrame, first_ticks_ms: list[int]) -> pd.DataFrame:
    """The episodes of a day whose preceding ticks are gone, joined to the stored episodes of the day before.

    An episode is joined if the stored one goes on and this one begins at one of the first ticks. (The very first tick
    can't tell a process that idles beside others.)
    """
    going_on = episode_keys(before[before["joins_after"].astype(bool)])
    starts = episodes["start_time_ms"].astype("float64").fillna(-1)
    keys = zip(episodes["gpu_uuid"].tolist(), episodes["pid"].tolist(), starts.tolist(), strict=True)
    continued = np.array([key in going_on for key in keys], bool) & episodes["start_ms"].isin(first_ticks_ms).to_numpy()
    return episodes.assign(joins_before=episodes["joins_before"].astype(bool) | continued)


def join_episodes(days: list[pd.DataFrame]) -> pd.DataFrame:
    """The episodes of several consecutive days, with those that cross midnight joined."""
    pieces = pd.concat([day for day in days if len(day)] or [pd.DataFrame(columns=COLUMNS)], ignore_index=True)
    if pieces.empty:
        return pieces
    pieces = pieces.sort_values([*KEY, "start_ms"], kind="stable", ignore_index=True)
    starts = pieces["start_time_ms"].fillna(-1)
    same = (
        pieces["gpu_uuid"].eq(pieces["gpu_uuid"].shift())
        & pieces["pid"].eq(pieces["pid"].shift())
        & starts.eq(starts.shift())
    )
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
        }
    )
    return joined.reset_index(drop=True)
