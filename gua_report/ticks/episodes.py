"""Idle-held episodes: the longest runs of ticks in which one process idle-holds one card."""

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
import pandas as pd

from gua_report.ticks.arrays import Booleans, Integers
from gua_report.ticks.classify import ABSENT, CODE_OF, Classified
from gua_report.ticks.coverage import Columns
from gua_sample.partition_names import DAY_MS
from gua_sample.policy import IDLE_HELD, LONGEST_GAP_INTERVALS

Found = TypeVar("Found", bound=Columns)
KEY = ["gpu_uuid", "pid", "start_time_ms"]
COLUMNS = [*KEY, "command", "identity", "start_ms", "end_ms", "peak_memory_mib"]
COLUMNS += ["joins_before", "joins_after", "slurm_job"]


def find_episodes(day: Classified) -> pd.DataFrame:
    """The episodes of a whole day, cut at midnight.

    `joins_before`: it may have begun earlier, as it is there at the first tick of the day, or after a hole.
    `joins_after`: it may go on, as it is there at the last tick of the day, close to midnight. Then it reaches to
    midnight, so that `join_episodes` finds its other half.
    """
    rows = day.processes[day.processes["state"] == CODE_OF[IDLE_HELD]]
    if rows.empty:
        return pd.DataFrame(columns=COLUMNS)
    tick, card, key = (rows[name].to_numpy() for name in ("tick", "card", "key"))
    following, is_last, start_ms, end_ms = _links(day)
    follows = (key[1:] == key[:-1]) & (card[1:] == card[:-1]) & (following[tick[:-1]] == tick[1:])
    first, last = np.flatnonzero(np.append(True, ~follows)), np.flatnonzero(np.append(~follows, True))
    facts = day.process_facts.iloc[rows["process"].to_numpy()[last]]
    return pd.DataFrame(
        {
            "gpu_uuid": day.cards["uuid"].to_numpy()[card[first]],
            "pid": facts["pid"].to_numpy(),
            "start_time_ms": facts["start_time_ms"].to_numpy(),
            "command": facts["command"].to_numpy(),
            "identity": facts["identity"].to_numpy(),
            "start_ms": start_ms[tick[first]],
            "end_ms": end_ms[tick[last]],
            "peak_memory_mib": np.fmax.reduceat(rows["memory_mib"].to_numpy(), first),
            "joins_before": ~np.isin(tick[first], following),
            "joins_after": is_last[tick[last]],
            "slurm_job": facts["slurm_job"].to_numpy(dtype=object),
        },
        columns=COLUMNS,
    )


def _links(day: Classified) -> tuple[Integers, Booleans, Integers, Integers]:
    """Of each tick: the next one that saw cards, if it is near and of the same boot, else -1; whether it is the day's
    last one, close to midnight; when an episode begins that has it first, and ends that has it last.
    """
    ticks, count = day.ticks, len(day.ticks)
    times, interval = ticks["ts_ms"].to_numpy(), ticks["interval_ms"].to_numpy()
    midnight, longest = times[0] // DAY_MS * DAY_MS, LONGEST_GAP_INTERVALS * interval
    seen = np.flatnonzero((day.states != ABSENT).any(axis=1))
    # A tick without cards in between does not break a link, a reboot does.
    boots = ticks["boot_id"].to_numpy(dtype=object)
    boot = np.cumsum(np.append(False, boots[1:] != boots[:-1]))[seen]
    near = (np.diff(times[seen]) <= longest[seen[:-1]]) & (np.diff(boot) == 0)
    links = np.full(count, -1, np.int64)
    links[seen[:-1]] = np.where(near, seen[1:], -1)
    place = np.arange(count)
    is_first = (place == seen[0]) & (times - midnight <= longest) & (ticks["boot_time_ms"].to_numpy() <= midnight)
    is_last = (place == seen[-1]) & (midnight + DAY_MS - times <= longest)
    start_ms = np.where(is_first, midnight, times)
    end_ms = np.where(is_last, midnight + DAY_MS, times + ticks["weight_ms"].to_numpy())
    return links, is_last, start_ms, end_ms


def keys_of(episodes: Columns, is_wanted: Booleans) -> set[tuple[Any, ...]]:
    """What tells the processes of these episodes apart."""
    starts = np.nan_to_num(np.asarray(episodes["start_time_ms"], dtype="float64"), nan=-1)
    columns = (np.asarray(values)[is_wanted].tolist() for values in (episodes["gpu_uuid"], episodes["pid"], starts))
    return set(zip(*columns, strict=True))


def follow(going_on: set[tuple[Any, ...]], find: Callable[[int], Found | None], ms: int, step: int) -> list[Found]:
    """Follow the episodes of these processes beyond the day of that time, day by day."""
    parts = []
    while going_on:
        ms += step
        more = find(ms)
        if more is None:
            break
        parts.append(more)
        joins = (np.asarray(more[name], dtype=bool) for name in ("joins_before", "joins_after"))
        going_on = going_on & keys_of(more, np.logical_and(*joins))
    return parts


def join_episodes(days: list[pd.DataFrame]) -> pd.DataFrame:
    """The episodes of several days, with those that go on from one to the next joined."""
    pieces = pd.concat([day for day in days if len(day)] or [pd.DataFrame(columns=COLUMNS)], ignore_index=True)
    if pieces.empty:
        return pieces
    pieces = pieces.sort_values([*KEY, "start_ms"], kind="stable", ignore_index=True)
    uuid, pid, start, end = (pieces[name].to_numpy() for name in ("gpu_uuid", "pid", "start_ms", "end_ms"))
    born = pieces["start_time_ms"].to_numpy(dtype="float64", na_value=-1)
    before, after = (pieces[name].to_numpy(dtype=bool) for name in ("joins_before", "joins_after"))
    goes_on = (uuid[1:] == uuid[:-1]) & (pid[1:] == pid[:-1]) & (born[1:] == born[:-1])
    # One that is there after a hole has no other half.
    goes_on &= before[1:] & after[:-1] & (start[1:] <= end[:-1])
    first, last = np.flatnonzero(np.append(True, ~goes_on)), np.flatnonzero(np.append(~goes_on, True))
    peaks = np.fmax.reduceat(pieces["peak_memory_mib"].to_numpy(dtype="float64"), first)
    joined = pieces.iloc[last].reset_index(drop=True).assign(peak_memory_mib=peaks)
    for name in ("start_ms", "joins_before"):
        joined[name] = pieces[name].to_numpy()[first]
    return joined
