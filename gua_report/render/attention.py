"""The findings in a report that call for action: the rule of --quiet-if-clean."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import TYPE_CHECKING, Any

from gua_report.console.spelling import duration, first_of
from gua_report.summary.of_hosts import STOPPED, is_earlier
from gua_report.window import LEAST_COVERAGE as LEAST_COVERAGE

if TYPE_CHECKING:
    import pandas as pd

    from gua_report.summary.of_hosts import Fleet
    from gua_report.summary.report import Report

LONG_EPISODE = "1h"  # default for the least length of an idle-held episode to act on
MOST_UNKNOWN = 0.05  # of a card's own time
MOST_NAMED = 3
# If the newest tick is older than this at the end of the window, the sampler seems to have stopped.
STALE_MS = 300_000
# For help texts, where a percent sign is written twice.
WHAT_COUNTS = (
    f"an idle-held episode of D or more (default {LONG_EPISODE}) that is not meant, less than {LEAST_COVERAGE:.0%}% of"
    f" the time observed, a card unknown for over {MOST_UNKNOWN:.0%}% of its time, a partition that can't be read, a"
    " sampler that has stopped, a person or group over a limit, or that it is not known who holds what right now"
)


def reasons(report: Report, longest_ms: int) -> list[str]:
    """Findings to act on, in clean text: idle-held episodes of at least `longest_ms`, and whatever limits observation.

    The window begins no earlier than the first tick of the history, so a fresh install is not called unobserved.
    """
    # Imported here because it loads pandas, and --help needs the constants above.
    from gua_report.render.limits import find_over
    from gua_report.render.sections.episodes import unknown_now
    from gua_report.render.words import card, clean, count, moment, percent

    found = _about_hosts(report)
    if unknown := unknown_now(report):
        found.append(f"not known who holds what right now: {unknown}")
    if has_stopped(report):
        found.append(f"the sampler seems to have stopped: no tick since {moment(report.newest_ms, report.window.zone)}")
    long = _not_meant(report)
    long = long[(long["seconds"] * 1000).round() >= longest_ms]
    if len(long):
        longest = long.groupby("identity", sort=True)["seconds"].max().sort_values(ascending=False, kind="stable")
        who = [f"{clean(report.who(str(identity)))} {duration(seconds)}" for identity, seconds in longest.items()]
        who[0] = f"longest: {who[0]}" if len(who) > 1 else who[0]
        least = "at least " if report.fleet and sum(report.fleet.episodes.values()) > len(report.episodes) else ""
        episodes = f"{least}{count(len(long), 'idle-held episode')} of {duration(longest_ms / 1000)} or more"
        # What is not named is counted in the same unit as what is.
        holders = f" by {count(len(who), 'holder')}" if len(who) > MOST_NAMED else ""
        found.append(f"{episodes}{holders}{_named(who)}")
    people, groups = find_over(report)
    if people:
        over = "1 person" if len(people) == 1 else f"{len(people):,} people"
        found.append(f"{over} over a limit{_named(people)}")
    if groups:
        found.append(f"{count(len(groups), 'group')} over a limit{_named(groups)}")
    if report.coverage_share < LEAST_COVERAGE:
        gaps_ms = (report.gaps["end_ms"] - report.gaps["start_ms"]).groupby(report.gaps["kind"]).sum()
        why = gaps_ms.sort_values(ascending=False, kind="stable").items()
        kinds = [f"{clean(kind)} {duration(lost_ms / 1000)}" for kind, lost_ms in why]
        found.append(f"{percent(report.coverage_share)} observed{_named(kinds)}")
    dark = report.gpus[report.gpus["unknown_share"] > MOST_UNKNOWN]
    if len(dark):
        worst = dark.sort_values("unknown_share", ascending=False, kind="stable").to_dict("records")
        cards = [f"{card(row)} {percent(row['unknown_share'])}" for row in worst]
        found.append(f"{count(len(dark), 'card')} unknown for over {MOST_UNKNOWN:.0%} of the time{_named(cards)}")
    if report.warnings:  # one for each skipped partition
        found.append(f"{count(len(report.warnings), 'partition')} not readable")
    return found


def _about_hosts(report: Report) -> list[str]:
    """What is not in a fleet's report."""
    from gua_report.render.words import clean, count, percent

    fleet = report.fleet
    if fleet is None:
        return []
    found = []
    if fleet.missing:
        found.append(f"{len(fleet.missing):,} of {count(fleet.expected, 'host')} missing{_named(fleet.missing)}")
    if fleet.late:
        found.append(f"{count(len(fleet.late), 'host')} late{_named(fleet.late)}")
    left_out = set(fleet.problems[fleet.problems["left_out"].astype(bool)]["host"])
    if rest := sorted(left_out - {*fleet.missing, *fleet.late}):
        found.append(f"not all of {count(len(rest), 'host')} could be used{_named(rest)}")
    if stopped := sorted(fleet.problems[fleet.problems["kind"] == STOPPED]["host"]):
        found.append(f"the sampler of {count(len(stopped), 'host')} seems to have stopped{_named(stopped)}")
    rows = fleet.hosts.sort_values("coverage_share", kind="stable").to_dict("records")
    dark = [f"{row['host']} {percent(row['coverage_share'])}" for row in rows if _is_dark(row, fleet)]
    if dark:
        found.append(f"{count(len(dark), 'host')} observed for under {LEAST_COVERAGE:.0%} of the time{_named(dark)}")
    return [clean(line) for line in found]


def _is_dark(row: Mapping[Hashable, Any], fleet: Fleet) -> bool:
    """Whether little of a host was observed, for another reason than that it is late, or was reinstalled."""
    return row["coverage_share"] < LEAST_COVERAGE and row["host"] not in fleet.late and not is_earlier(row["host"])


def _not_meant(report: Report) -> pd.DataFrame:
    """The episodes with the seconds of each in no note's time, without those that are meant right now."""
    others = report.episodes[~report.episodes["meant_now"].eq(True)]
    return others.assign(seconds=(others["seconds"] - others["meant_seconds"]).astype("float64"))


def has_stopped(report: Report) -> bool:
    """Whether the window ends with time for which a tick was due, and there is none since."""
    from gua_report.ticks.coverage import NOT_RUNNING

    if report.fleet:
        return False
    last = report.gaps.iloc[-1:]
    is_at_end = (last["end_ms"] == report.window.end_ms) & (last["kind"] == NOT_RUNNING)
    is_long = last["end_ms"] - last["start_ms"] > STALE_MS
    return report.newest_ms < report.window.end_ms and bool((is_at_end & is_long).any())


def _named(some: list[str]) -> str:
    return f" ({first_of(some, MOST_NAMED)})" if some else ""
