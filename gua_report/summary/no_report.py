"""Why there is no report: one line, with what to do next."""

from __future__ import annotations

import shlex
from datetime import datetime

from gua_report.ticks.coverage import DRIVER_ERROR
from gua_report.ticks.history import History
from gua_report.window import Window
from gua_sample.errors import NothingToReport, StoreError


def unreadable(history: History) -> StoreError:
    return StoreError("nothing can be read: " + "; ".join(history.warnings))


def nothing(data_dir: str, window: Window) -> NothingToReport:
    return NothingToReport(
        f"no ticks {spell_window(window)}: run {_doctor(data_dir)} to see why, or give a longer --since, or another"
        " --data-dir"
    )


def never_saw_cards(history: History, window: Window) -> str:
    """A line for a window in which the driver failed at every tick, with the error of the last one."""
    ticks = (history.ticks_of(day) for day in history.days_of(window.start_ms, window.end_ms)[::-1])
    errors = (day[day["ts_ms"] < window.end_ms]["error"].dropna().tolist() for day in ticks)
    error = next((some[-1] for some in errors if some), DRIVER_ERROR)
    return f"no card was seen {spell_window(window)}, as the driver failed ({error}): run {_doctor(history.data_dir)}"


def spell_window(window: Window) -> str:
    """The window in the middle of a sentence."""
    start, end = (datetime.fromtimestamp(ms / 1000, window.zone) for ms in (window.start_ms, window.end_ms))
    return f"from {start:%Y-%m-%d %H:%M} to {end:%Y-%m-%d %H:%M %Z}"


def _doctor(data_dir: str) -> str:
    return f"gua doctor --data-dir {shlex.quote(data_dir)}"
