"""The findings in a report that call for action: the rule of --quiet-if-clean."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gua_report.console.spelling import duration, first_of

if TYPE_CHECKING:
    from gua_report.summary.build import Report

LONG_EPISODE = "1h"  # default for the least length of an idle-held episode to act on
LEAST_COVERAGE = 0.95
MOST_UNKNOWN = 0.05  # of a card's own time
MOST_NAMED = 3


def reasons(report: Report, longest_ms: int) -> list[str]:
    """Findings to act on, in clean text: idle-held episodes of at least `longest_ms`, and whatever limits observation.

    The window begins no earlier than the first tick of the history, so a fresh install is not called unobserved.
    """
    # Imported here because it loads pandas, and --help needs the constants above.
    from gua_report.render.words import clean, count, gpu, percent

    found = []
    lengths_ms = report.episodes["end_ms"] - report.episodes["start_ms"]
    long = report.episodes[lengths_ms >= longest_ms]
    if len(long):
        longest = long.groupby("identity", sort=True)["seconds"].max().sort_values(ascending=False, kind="stable")
        who = [f"{clean(identity)} {duration(seconds)}" for identity, seconds in longest.items()]
        episodes = count(len(long), "idle-held episode")
        found.append(f"{episodes} of {duration(longest_ms / 1000)} or more{_named(who)}")
    if report.coverage_share < LEAST_COVERAGE:
        gaps_ms = (report.gaps["end_ms"] - report.gaps["start_ms"]).groupby(report.gaps["kind"]).sum()
        why = gaps_ms.sort_values(ascending=False, kind="stable").items()
        kinds = [f"{clean(kind)} {duration(lost_ms / 1000)}" for kind, lost_ms in why]
        found.append(f"{percent(report.coverage_share)} observed{_named(kinds)}")
    dark = report.gpus[report.gpus["unknown_share"] > MOST_UNKNOWN]
    if len(dark):
        worst = dark.sort_values("unknown_share", ascending=False, kind="stable").to_dict("records")
        cards = [f"GPU {gpu(row['index'], row['mig_index'])} {percent(row['unknown_share'])}" for row in worst]
        found.append(f"{count(len(dark), 'card')} unknown for over {MOST_UNKNOWN:.0%} of the time{_named(cards)}")
    if report.warnings:  # one for each skipped partition
        found.append(f"{count(len(report.warnings), 'partition')} not readable")
    return found


def _named(some: list[str]) -> str:
    return f" ({first_of(some, MOST_NAMED)})" if some else ""
