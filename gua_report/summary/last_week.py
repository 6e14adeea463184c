"""What reminders need of the history: how much of the last day was observed, people's idle-held hours and limits."""

from __future__ import annotations

from datetime import tzinfo
from typing import NamedTuple

from gua_report.config import Config
from gua_report.limits import week_before
from gua_report.machine.as_owner import ask_apart
from gua_report.machine.child import ReadingFailed, understanding
from gua_report.summary.build import build_report
from gua_report.summary.week import tell_over
from gua_report.window import Window
from gua_sample.errors import GuaError
from gua_sample.held_words import spell_since
from gua_sample.partition_names import DAY_MS

LEAST_OBSERVED = 0.9  # of the last day: with less, nobody is told anything
SECONDS = 600.0


class Sums(NamedTuple):
    observed_share: float  # of the last day
    idle_held_hours: dict[str, float]  # of the last 7 days, by identity
    over_limits: dict[str, list[str]]  # sentences to those who are over one, by identity
    warnings: list[str]  # days that could not be read


class LastWeek(NamedTuple):
    idle_held_hours: dict[str, float] | None  # by identity; None: not known
    over_limits: dict[str, list[str]]  # sentences to those who are over one, by identity
    doubts: list[str]  # why the history is not to be relied on
    gaps: list[str]  # that too little of the last day was observed


NO_WEEK = LastWeek(None, {}, [], [])


def read_last_week(data_dir: str, config: Config, now_ms: int, zone: tzinfo) -> LastWeek:
    """What the report says of the last days, from a child with no more rights than the folder's owner."""
    window = Window(*week_before(now_ms), zone)
    try:
        with understanding():
            share, hours, over, warnings = ask_apart(data_dir, lambda: sum_up(data_dir, config, window), SECONDS)
            sums = Sums(
                float(share),
                {str(who): float(some) for who, some in hours.items()},
                {str(who): [str(one) for one in sentences] for who, sentences in over.items()},
                [str(one) for one in warnings],
            )
    except (GuaError, ReadingFailed) as error:
        return NO_WEEK._replace(doubts=[f"there is no report of the last 7 days ({error})"])
    is_enough = sums.observed_share >= LEAST_OBSERVED
    text = f"{sums.observed_share:.0%} of the last day was observed, and {LEAST_OBSERVED:.0%} are needed"
    return LastWeek(sums.idle_held_hours, sums.over_limits, sums.warnings, [] if is_enough else [text])


def sum_up(data_dir: str, config: Config, window: Window) -> Sums:
    """The sums of a window, as the report has them."""
    report = build_report(data_dir, window, config)
    hours = zip(report.identities["identity"], report.identities["idle_held_gpu_hours"], strict=True)
    begin_ms = window.end_ms - DAY_MS
    # Before the first tick, and in gaps, nothing was observed.
    observed_ms = window.end_ms - max(begin_ms, report.window.start_ms)
    for start_ms, end_ms in zip(report.gaps["start_ms"], report.gaps["end_ms"], strict=True):
        observed_ms -= max(0, int(end_ms) - max(begin_ms, int(start_ms)))
    until = spell_since(window.end_ms, window.end_ms, window.zone)
    over = tell_over(report.limits, report.week, until) if report.limits is not None and report.week else {}
    return Sums(observed_ms / DAY_MS, {str(who): float(some) for who, some in hours}, over, list(report.warnings))
