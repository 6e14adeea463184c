"""What the newest tick that saw cards tells: who is on which card right now, and of which cards that is not known."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd

from gua_report.config import Config
from gua_report.ticks.classify import CODE_OF, Classified
from gua_report.ticks.history import History
from gua_report.ticks.read_classified import read_classified
from gua_sample.partition_names import day_of
from gua_sample.policy import IDLE_HELD, STATES, TRULY_IDLE, UNKNOWN

NOW_COLUMNS = ["gpu_uuid", "gpu_index", "mig_index", "identity", "state", "since_ms", "memory_mib", "pid", "command"]


class Now(NamedTuple):
    unknown: list[str]  # uuids of cards whose state the tick does not tell
    processes: pd.DataFrame  # NOW_COLUMNS without since_ms


def read_now(history: History, config: Config, seen_ms: int) -> Now | None:
    """What that tick tells; None if it has expired."""
    if day_of(seen_ms) not in history.days:
        return None
    found = read_classified(history, seen_ms, seen_ms + 1, config.policy, config.people)
    return look_at(found, seen_ms) if found else None


def look_at(found: Classified, seen_ms: int) -> Now | None:
    """What that tick tells; None if it is not among those asked for."""
    (inside,) = np.nonzero(found.ticks["ts_ms"].to_numpy()[found.inside] == seen_ms)
    if not len(inside):
        return None
    tick = int(inside[-1]) + found.inside.start
    is_unknown = found.states[tick] == CODE_OF[UNKNOWN]
    return Now([str(uuid) for uuid in found.cards["uuid"][is_unknown]], _processes(found, tick))


def _processes(found: Classified, tick: int) -> pd.DataFrame:
    """The processes that hold a card or work on it, as reports count them."""
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
    """The processes with the beginnings of the episodes that idle-holding ones are in, by card and memory."""
    ongoing = episodes[episodes["ongoing"].astype(bool)]
    keys = zip(ongoing["gpu_uuid"], ongoing["pid"], strict=True)
    since = dict(zip(keys, ongoing["start_ms"].tolist(), strict=True))
    rows = zip(processes["gpu_uuid"], processes["pid"], processes["state"], strict=True)
    found = [since.get((uuid, pid)) if state == IDLE_HELD else None for uuid, pid, state in rows]
    frame = processes.assign(since_ms=np.array(found, dtype="float64"))[NOW_COLUMNS]
    order = ["gpu_index", "mig_index", "gpu_uuid", "memory_mib", "pid"]
    return frame.sort_values(order, ascending=[True, True, True, False, True], ignore_index=True)
