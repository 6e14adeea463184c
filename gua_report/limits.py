"""How many GPU-hours a week a person or a group should not exceed: the rule, and the words for it. Without pandas."""

from collections.abc import Mapping
from datetime import datetime, timezone
from typing import NamedTuple

from gua_report.config import Limit, Limits
from gua_report.console.spelling import MONTHS
from gua_report.people.identities import ROOT, apply_mapping, is_person
from gua_report.window import LEAST_COVERAGE
from gua_sample.partition_names import DAY_MS

WEEK_MS = 7 * DAY_MS
OVER, UNSURE, WITHIN = VERDICTS = "over", "unknown", "within"  # what is worst comes first
IDLE_HELD_HOURS, GPU_HOURS = Limit._fields
KINDS = {IDLE_HELD_HOURS: "idle-held GPU-hours", GPU_HOURS: "GPU-hours"}
EXACT = 6  # digits: sums of hours are no more exact than that


class Week(NamedTuple):
    start_ms: int
    end_ms: int
    observed_share: float

    @property
    def is_observed(self) -> bool:
        return self.observed_share >= LEAST_COVERAGE


class Used(NamedTuple):
    gpu_hours: float
    idle_held_hours: float
    unknown_hours: float  # of which the state is not known: any of them may have been idle-held
    meant_hours: float | None = 0.0  # of the idle-held ones; None: not known
    is_whole: bool = True  # whether they are all of the observed ones


class Standing(NamedTuple):
    kind: str  # a field of Limit
    hours: float
    limit_hours: float
    verdict: str  # OVER, WITHIN or UNSURE

    @property
    def share(self) -> float:
        return self.hours / self.limit_hours


def week_before(end_ms: int) -> tuple[int, int]:
    return end_ms - WEEK_MS, end_ms


def limit_of(who: str, limits: Limits, people: Mapping[str, str]) -> Limit:
    """A person's own limit, and as far as that has none, everyone's, which is for people alone, and root is none.

    Other accounts of the system can't be told by a name in a report, which may be of another machine.
    """
    own = [limit for name, limit in limits.people.items() if apply_mapping(name, people) == who]
    if is_person(who) and who != ROOT:
        own.append(limits.everyone)
    told = ([hours for hours in one if hours is not None] for one in zip(*own, strict=True))
    return Limit(*(hours[0] if hours else None for hours in told))


def judge(used: Used, limit: Limit, week: Week) -> list[Standing]:
    """How the hours of the week stand against each limit that is set, what is worst first.

    What was seen is over the limit or not; it is within only if nothing that was missed can have been over.
    """
    most = {IDLE_HELD_HOURS: used.idle_held_hours + used.unknown_hours, GPU_HOURS: used.gpu_hours}
    standings = []
    for kind, limit_hours in limit._asdict().items():
        if limit_hours is not None:
            hours = getattr(used, kind)
            is_sure = week.is_observed and used.is_whole and round(most[kind], EXACT) <= limit_hours
            verdict = OVER if round(hours, EXACT) > limit_hours else WITHIN if is_sure else UNSURE
            standings.append(Standing(kind, hours, limit_hours, verdict))
    return sorted(standings, key=lambda one: (VERDICTS.index(one.verdict), -one.share))


def tell(standing: Standing, used: Used, week: Week, until: str, who: str | None = None) -> str:
    they_are = "you are" if who is None else f"{who} is"
    limit = f"the limit of {standing.limit_hours:.10g} {KINDS[standing.kind]} a week"
    is_least = standing.verdict == UNSURE or not (week.is_observed and used.is_whole)
    hours = f"{'at least ' if is_least else ''}{spell_hours(standing.hours)} in the 7 days up to {until}"
    if standing.kind == IDLE_HELD_HOURS and used.meant_hours:
        hours += f", {spell_hours(used.meant_hours)} of them meant"
    if not week.is_observed:
        hours += f", {week.observed_share:.0%} of which were observed"
    elif standing.verdict == UNSURE and used.is_whole:
        hours += f", and {spell_hours(used.unknown_hours)} of which the driver did not tell"
    sure = {OVER: f"{they_are} over", WITHIN: f"{they_are} within"}
    sentence = f"{sure.get(standing.verdict, f'it is not known whether {they_are} within')} {limit}: {hours}."
    return sentence if who is not None and standing.verdict != UNSURE else sentence[0].upper() + sentence[1:]


def spell_hours(hours: float) -> str:
    return "<0.1" if 0 < hours < 0.05 else f"{hours:,.1f}"


def spell_midnight(week: Week) -> str:
    end = datetime.fromtimestamp(week.end_ms / 1000, timezone.utc)
    return f"{end:%d} {MONTHS[end.month - 1]} {end:%H:%M} UTC"
