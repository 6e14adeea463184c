"""Whether sampling is alive: the timer's state, and the age of the newest tick."""

import os
from typing import NamedTuple

from gua_report.console.spelling import duration
from gua_report.machine import units
from gua_report.ticks.newest import Files, Newest

NOT_INSTALLED = "not installed"
SIMULATED = "simulated"


class Sampling(NamedTuple):
    timer: str | None  # active, inactive, failed, not installed, ...; None: unknown, or not asked for
    problem: str | None  # why the timer's state is unknown, or which other folder it writes to
    newest_ms: int | None
    newest_error: str | None
    hidden: str | None  # why the history can't be looked into
    has_history: bool
    is_alive: bool
    has_folder: bool = True  # the data folder exists


def look_at_sampling(data_dir: str, files: Files, newest: Newest | None, now_ms: int) -> Sampling:
    found = units.find_units(data_dir)
    feeds = found.units is not None and found.units.feed(data_dir)
    problem = found.problem
    if found.units and not feeds:
        problem = f"writes to {found.units.folder}"
    if newest and feeds and found.units:
        due_ms = units.next_run_ms(found.units, newest.ts_ms, now_ms)
        newest = newest.by_timer(units.interval_ms(found.units), due_ms)
    return Sampling(
        None if found.problem else _timer_state(found.units),
        problem,
        newest.ts_ms if newest else None,
        newest.error if newest else None,
        files.hidden,
        bool(files.partitions),
        newest is not None and newest.error is None and not newest.is_stale(now_ms),
        os.path.lexists(data_dir),
    )


def _timer_state(found: units.Units | None) -> str:
    load = found.timer.get("LoadState", "not-found") if found else "not-found"
    if found is None or load == "not-found":
        return NOT_INSTALLED
    return found.timer.get("ActiveState") or "unknown" if load == "loaded" else load


def sampling_text(sampling: Sampling, now_ms: int) -> str:
    if sampling.timer is None:
        timer = SIMULATED if sampling.problem is None else f"{units.TIMER} can't be asked"
    else:
        timer = f"{units.TIMER} {sampling.timer}" + (f" ({sampling.problem})" if sampling.problem else "")
    if sampling.hidden:
        newest = f"the history can't be looked into ({sampling.hidden})"
    elif sampling.newest_ms is None:
        newest = "no tick that can be read" if sampling.has_history else "no tick yet"
        newest = newest if sampling.has_folder else "no data folder"
    else:
        newest = f"newest tick {duration(max(0, now_ms - sampling.newest_ms) / 1000)} ago"
        newest += f" has no cards ({sampling.newest_error})" if sampling.newest_error else ""
    return f"Sampling: {timer}, {newest}" + ("" if sampling.is_alive else ": see gua doctor")
