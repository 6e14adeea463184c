"""The newest ticks: whether they failed, whether the last that saw cards stands for them, and who is on which card."""

from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from gua_report.config import Config
from gua_report.rollups.reader import read_spans
from gua_report.summary.plan import DayPlan
from gua_report.ticks.classify import CODE_OF, Classified, read_classified
from gua_report.ticks.history import History
from gua_report.window import Window
from gua_sample.partition_names import day_of
from gua_sample.policy import DEFAULT_INTERVAL_MS, IDLE_HELD, LONGEST_GAP_INTERVALS, STATES, TRULY_IDLE, UNKNOWN

NOW_COLUMNS = ["gpu_uuid", "gpu_index", "mig_index", "identity", "state", "since_ms", "since_is_exact", "memory_mib"]
NOW_COLUMNS += ["pid", "command"]
NEWEST = ("start_ms", "last_ms", "error", "boot_id", "interval_ms")


class NewestFailed(NamedTuple):
    error: str  # why the newest tick of all has no cards
    since_ms: int  # the first of the failed ticks
    seen_ms: int | None  # the last tick that saw cards; None if none was found
    is_near: bool  # the newest tick can be joined to that one, which so tells who holds what right now


class NewestTick(NamedTuple):
    ts_ms: int
    failed: NewestFailed | None  # None: it saw cards

    @property
    def seen_ms(self) -> int | None:
        """The tick that tells who holds what right now; None if that is not known."""
        if self.failed is None:
            return self.ts_ms
        return self.failed.seen_ms if self.failed.is_near else None


def with_newest(episodes: pd.DataFrame, newest: NewestTick) -> pd.DataFrame:
    """The episodes with the tick that tells which of them go on: NaN if none does."""
    return episodes.assign(seen_ms=np.nan if newest.seen_ms is None else float(newest.seen_ms))


def look_at_newest(history: History, plan: DayPlan, window: Window, newest_ms: int) -> NewestTick:
    """The newest tick of the history, which is at `newest_ms`, and what is known of failed ticks at its end.

    The rule is that of gaps, measured from the newest tick of any kind: as long as that is at most 2.5 intervals after
    the last one that saw cards, and of the same boot, what that one saw holds.
    """
    day = day_of(newest_ms)
    if day in plan.lost:
        return NewestTick(newest_ms, None)
    if day in plan.expired:  # a stored day knows neither intervals nor names of errors
        spans = read_spans(plan.path, day, day)
        times = spans.assign(error=spans["kind"], last_ms=spans["end_ms"] - 1, interval_ms=DEFAULT_INTERVAL_MS)
    else:
        ticks = _newest_ticks(history, window)
        times = ticks.assign(start_ms=ticks["ts_ms"], last_ms=ticks["ts_ms"])
    return judge_newest(newest_ms, *(times[name].tolist() for name in NEWEST))


def judge_newest(
    newest_ms: int, starts: list[int], ends: list[int], errors: list[Any], boots: list[Any], intervals: list[Any]
) -> NewestTick:
    """The same of the last ticks, or spans of ticks: the columns NEWEST."""
    seen = np.flatnonzero(pd.isna(errors))
    if not len(seen):
        return NewestTick(newest_ms, NewestFailed(errors[-1], starts[0], None, False))
    last = int(seen[-1])
    if last == len(errors) - 1:
        return NewestTick(newest_ms, None)
    is_near = newest_ms - ends[last] <= LONGEST_GAP_INTERVALS * intervals[last] and len(set(boots[last:])) == 1
    return NewestTick(newest_ms, NewestFailed(errors[-1], starts[last + 1], ends[last], is_near))


def _newest_ticks(history: History, window: Window) -> pd.DataFrame:
    """The ticks of the last days, back to one that saw cards, or to the window's first day."""
    parts: list[pd.DataFrame] = []
    for day in reversed(history.days):
        ticks = history.weighed_ticks_of(day)
        parts += [ticks[~ticks["is_lead"].to_numpy(dtype=bool)]] if len(ticks) else []
        if ticks["error"].isna().any() or (parts and day <= day_of(window.start_ms)):
            break
    return pd.concat(parts[::-1], ignore_index=True)


class Now(NamedTuple):
    unknown: list[str]  # uuids of cards whose state the tick does not tell
    processes: pd.DataFrame  # NOW_COLUMNS without since_ms and since_is_exact


def read_now(history: History, config: Config, seen_ms: int) -> Now | None:
    """What the tick at that time tells; None if it is not there any more."""
    found = read_classified(history, seen_ms, seen_ms + 1, config.policy, config.people)
    if found is None or found.ticks["ts_ms"].iloc[found.inside.stop - 1] != seen_ms:
        return None
    tick = found.inside.stop - 1
    is_unknown = found.states[tick] == CODE_OF[UNKNOWN]
    return Now([str(uuid) for uuid in found.cards["uuid"][is_unknown]], _processes(found, tick))


def _processes(found: Classified, tick: int) -> pd.DataFrame:
    rows = found.processes
    rows = rows[(rows["tick"] == tick) & rows["counts"] & (rows["state"] != CODE_OF[TRULY_IDLE])]
    cards = found.cards.iloc[rows["card"].to_numpy()]
    facts = found.process_facts.iloc[rows["process"].to_numpy()]
    return pd.DataFrame(
        {
            "gpu_uuid": cards["uuid"].to_numpy(dtype=object),
            "gpu_index": cards["gpu_index"].to_numpy(),
            "mig_index": cards["mig_index"].to_numpy(dtype="float64"),
            "identity": facts["identity"].to_numpy(dtype=object),
            "state": np.array(STATES, dtype=object)[rows["state"].to_numpy()],
            "memory_mib": rows["memory_mib"].to_numpy(dtype="float64"),
            "pid": facts["pid"].to_numpy(dtype="int64"),
            "command": facts["command"].to_numpy(dtype=object),
        }
    )


def with_beginnings(processes: pd.DataFrame, episodes: pd.DataFrame) -> pd.DataFrame:
    ongoing = episodes[episodes["ongoing"].astype(bool)]
    keys = zip(ongoing["gpu_uuid"], ongoing["pid"], strict=True)
    since = dict(zip(keys, zip(ongoing["start_ms"], ongoing["start_is_exact"], strict=True), strict=True))
    rows = zip(processes["gpu_uuid"], processes["pid"], processes["state"], strict=True)
    unknown = (None, None)
    found = [since.get((uuid, pid), unknown) if state == IDLE_HELD else unknown for uuid, pid, state in rows]
    since_ms, is_exact = (np.array([one[part] for one in found], dtype=object) for part in (0, 1))
    frame = processes.assign(since_ms=since_ms.astype("float64"), since_is_exact=is_exact)[NOW_COLUMNS]
    order = ["gpu_index", "mig_index", "gpu_uuid", "memory_mib", "pid"]
    return frame.sort_values(order, ascending=[True, True, True, False, True], ignore_index=True)
