"""What reminders need of the history: who holds what since when, how much was observed, hours and limits of people."""

from datetime import timezone, tzinfo
from typing import Any, NamedTuple

import numpy as np

from gua_report.config import Config
from gua_report.limits import week_before
from gua_report.machine.child import ReadingFailed, ask_apart, understanding
from gua_report.summary.build import build_report
from gua_report.summary.intervals import observed_ms
from gua_report.summary.report import Report
from gua_report.summary.week import tell_over
from gua_report.window import HOUR_MS, Window
from gua_sample.errors import GuaError
from gua_sample.held_file import spell_since
from gua_sample.partition_names import DAY_MS

LEAST_OBSERVED = 0.9  # of the last day: with less, nobody is told anything
SECONDS = 600.0

# Since when a process idle-holds a card, and whether its beginning was seen: by the card's uuid and the pid.
Ongoing = dict[tuple[str, int], tuple[int, bool]]


class LastWeek(NamedTuple):
    idle_held_hours: dict[str, float] | None  # by identity; None: not known
    over_limits: dict[str, list[str]]  # sentences to those who are over one, by identity
    doubts: list[str]  # why the history is not to be relied on
    gaps: list[str]  # that too little of the last day was observed


NO_WEEK = LastWeek(None, {}, [], [])


def read_ongoing(data_dir: str, config: Config, newest_ms: int) -> tuple[Ongoing, list[str]]:
    """The episodes that reach the newest tick, as a report has them; and why the history is not to be relied on."""
    window = Window(newest_ms - HOUR_MS, newest_ms + 1, timezone.utc)
    try:
        with understanding():
            rows, warnings = ask_apart(data_dir, lambda: _list_ongoing(build_report(data_dir, window, config)), SECONDS)
            found = {(str(uuid), int(pid)): (int(start_ms), bool(is_exact)) for uuid, pid, start_ms, is_exact in rows}
            return found, [str(one) for one in warnings]
    except (GuaError, ReadingFailed) as error:
        return {}, [f"there is no report of the newest tick ({error})"]


def _list_ongoing(report: Report) -> tuple[list[list[Any]], list[str]]:
    episodes = report.episodes[report.episodes["ongoing"].astype(bool)]
    return episodes[["gpu_uuid", "pid", "start_ms", "start_is_exact"]].to_numpy(dtype=object).tolist(), report.warnings


def read_last_week(data_dir: str, config: Config, now_ms: int, zone: tzinfo) -> LastWeek:
    """What the report says of the last days, from a child with no more rights than the folder's owner."""
    window = Window(*week_before(now_ms), zone)
    try:
        with understanding():
            share, hours, over, warnings = ask_apart(
                data_dir, lambda: _sum_up(build_report(data_dir, window, config)), SECONDS
            )
            gaps = f"{share:.0%} of the last day was observed, and {LEAST_OBSERVED:.0%} are needed"
            return LastWeek(
                {str(who): float(some) for who, some in hours.items()},
                {str(who): [str(one) for one in sentences] for who, sentences in over.items()},
                [str(one) for one in warnings],
                [] if share >= LEAST_OBSERVED else [gaps],
            )
    except (GuaError, ReadingFailed) as error:
        return NO_WEEK._replace(doubts=[f"there is no report of the last 7 days ({error})"])


def _sum_up(report: Report) -> tuple[float, dict[str, float], dict[str, list[str]], list[str]]:
    """The share of the last day that was observed; idle-held hours, and sentences on limits, by identity; warnings."""
    hours = zip(report.identities["identity"].tolist(), report.identities["idle_held_gpu_hours"].tolist(), strict=True)
    start_ms, end_ms, zone = report.window
    # Before the first tick, and in gaps, nothing was observed.
    observed = observed_ms(np.array([max(end_ms - DAY_MS, start_ms)]), np.array([end_ms]), report.gaps)
    until = spell_since(end_ms, end_ms, zone)
    over = tell_over(report.limits, report.week, until) if report.limits is not None and report.week else {}
    return float(observed[0]) / DAY_MS, dict(hours), over, report.warnings
