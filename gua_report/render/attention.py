"""The findings in a report that call for action: the rule of --quiet-if-clean."""

from gua_report.console.spelling import duration, first_of
from gua_report.render import MOST_NAMED, MOST_UNKNOWN, STALE_MS
from gua_report.render.limits import find_over
from gua_report.render.sections.held import length_of, unknown_now
from gua_report.render.values import card, clean, count, moment, percent
from gua_report.summary.of_hosts import STOPPED, is_earlier
from gua_report.summary.report import LEAST_SECONDS, Report
from gua_report.ticks.coverage import NOT_RUNNING
from gua_report.window import LEAST_COVERAGE


def reasons(report: Report, longest_ms: int) -> list[str]:
    """Findings to act on, in clean text: idle-held episodes of at least `longest_ms`, and whatever limits observation.

    The window begins no earlier than the first tick of the history, and nothing is said of its coverage in the first
    minutes, in which it is not known how often ticks come: so a fresh install is not called unobserved.
    """
    found = _about_hosts(report)
    if unknown := unknown_now(report):
        found.append(f"not known who holds what right now: {unknown}")
    if has_stopped(report):
        found.append(f"the sampler seems to have stopped: no tick since {moment(report.newest_ms, report.window.zone)}")
    # What of an episode is meant does not count, and nothing of one that is meant right now.
    others = report.episodes[~report.episodes["meant_now"].eq(True)]
    long = others.assign(seconds=(others["seconds"] - others["meant_seconds"]).astype("float64"))
    long = long[(long["seconds"] * 1000).round() >= longest_ms]
    if len(long):
        longest = long.sort_values(["seconds", "identity"], ascending=[False, True]).drop_duplicates("identity")
        who = [f"{clean(report.who(row['identity']))} {length_of(row)}" for row in longest.to_dict("records")]
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
    is_fresh = report.window.length_ms < min(LEAST_SECONDS * 1000, report.requested.length_ms)
    if report.coverage_share < LEAST_COVERAGE and not is_fresh:
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
    fleet = report.fleet
    if fleet is None:
        return []
    found = []
    if fleet.missing:
        found.append(f"{len(fleet.missing):,} of {count(fleet.expected, 'host')} missing{_named(fleet.missing)}")
    if fleet.late:
        found.append(f"{count(len(fleet.late), 'host')} late{_named(fleet.late)}")
    if rest := fleet.partly_used:
        found.append(f"not all of {count(len(rest), 'host')} could be used{_named(rest)}")
    if stopped := sorted(fleet.problems[fleet.problems["kind"] == STOPPED]["host"]):
        found.append(f"the sampler of {count(len(stopped), 'host')} seems to have stopped{_named(stopped)}")
    rows = fleet.hosts.sort_values("coverage_share", kind="stable").to_dict("records")
    # It is said already that a host is late, or was reinstalled.
    rows = [row for row in rows if row["host"] not in fleet.late and not is_earlier(row["host"])]
    dark = [f"{row['host']} {percent(share)}" for row in rows if (share := row["coverage_share"]) < LEAST_COVERAGE]
    if dark:
        found.append(f"{count(len(dark), 'host')} observed for under {LEAST_COVERAGE:.0%} of the time{_named(dark)}")
    return [clean(line) for line in found]


def has_stopped(report: Report) -> bool:
    """Whether the window ends with time for which a tick was due, and there is none since."""
    if report.fleet:
        return False
    last = report.gaps.iloc[-1:]
    is_at_end = (last["end_ms"] == report.window.end_ms) & (last["kind"] == NOT_RUNNING)
    is_long = last["end_ms"] - last["start_ms"] > STALE_MS
    return report.newest_ms < report.window.end_ms and bool((is_at_end & is_long).any())


def _named(some: list[str]) -> str:
    return f" ({first_of(some, MOST_NAMED)})" if some else ""
