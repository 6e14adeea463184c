"""Who is over a limit, and the words for it."""

import pytest

from gua_report.config import Limit, Limits
from gua_report.limits import OVER, UNSURE, WEEK_MS, WITHIN, Used, Week, judge, limit_of, spell_midnight, tell
from tests.lab import MONDAY_MS

WEEK = Week(MONDAY_MS - WEEK_MS, MONDAY_MS, 1.0)
HALF = WEEK._replace(observed_share=0.5)
UNTIL = "16 Nov 00:00"


def sentences(used: Used, limit: Limit, week: Week = WEEK, who: str | None = None) -> list[str]:
    return [tell(standing, used, week, UNTIL, who) for standing in judge(used, limit, week)]


IDLE, GPU = "idle_held_hours", "gpu_hours"
BOTH = Limit(20, 100)


@pytest.mark.parametrize(
    ("used", "limit", "share", "expected"),
    [
        (Used(100, 20, 0), BOTH, 1, {IDLE: WITHIN, GPU: WITHIN}),  # what may be used is no more than the limit
        (Used(100, 20.01, 0), BOTH, 1, {IDLE: OVER, GPU: WITHIN}),
        (Used(100.01, 20, 0), BOTH, 1, {GPU: OVER, IDLE: WITHIN}),
        (Used(0, sum([0.1] * 3), 0), Limit(0.3), 1, {IDLE: WITHIN}),  # as no clock measures more
        (Used(1000, 1000, 0), Limit(), 1, {}),
        (Used(1000, 1, 0), Limit(gpu_hours=5), 1, {GPU: OVER}),
        # What is over comes first, then what is not known, then what is nearest to its limit.
        (Used(90, 21, 0), BOTH, 1, {IDLE: OVER, GPU: WITHIN}),
        (Used(90, 10, 0), BOTH, 1, {GPU: WITHIN, IDLE: WITHIN}),
        (Used(101, 19.9, 5), BOTH, 1, {GPU: OVER, IDLE: UNSURE}),
        (Used(99, 1, 95), BOTH, 1, {IDLE: UNSURE, GPU: WITHIN}),
        # Where too little was observed, over is over, and nothing is called fine.
        (Used(101, 3, 0), BOTH, 0.5, {GPU: OVER, IDLE: UNSURE}),
        (Used(1, 1, 0), Limit(20), 0.949, {IDLE: UNSURE}),
        (Used(1, 1, 0), Limit(20), 0.95, {IDLE: WITHIN}),
        # Hours of unknown state may have been idle-held.
        (Used(30, 15, 5), BOTH, 1, {IDLE: WITHIN, GPU: WITHIN}),
        (Used(30, 15, 5.5), BOTH, 1, {IDLE: UNSURE, GPU: WITHIN}),
        (Used(30, 21, 5.5), Limit(20), 1, {IDLE: OVER}),
        (Used(30, 15, 0, is_whole=False), Limit(20), 1, {IDLE: UNSURE}),  # a sum that lacks something
        (Used(30, 21, 0, is_whole=False), Limit(20), 1, {IDLE: OVER}),
    ],
)
def test_hours_are_judged_by_each_limit_and_the_worst_comes_first(
    used: Used, limit: Limit, share: float, expected: dict[str, str]
) -> None:
    found = judge(used, limit, WEEK._replace(observed_share=share))
    assert [(one.kind, one.verdict) for one in found] == [*expected.items()]


LIMITS = Limits(Limit(20, 100), {"ada": Limit(gpu_hours=500), "uid:7": Limit(5), "unit:ollama.service": Limit(1)})


@pytest.mark.parametrize(
    ("who", "limit"),
    [
        ("ben", Limit(20, 100)),
        ("uid:8", Limit(20, 100)),
        ("ada", Limit(20, 500)),  # the hours that are not said of ada are everyone's
        ("Grace", Limit(5, 100)),  # whom the config calls uid:7
        ("unit:ollama.service", Limit(1)),  # not a person: by name alone
        ("root", Limit()),  # who is not everyone
        ("docker:3f2a9c81d0b7", Limit()),
        ("slurm:4711", Limit()),
        ("unknown", Limit()),
        ("(unattributed)", Limit()),
    ],
)
def test_ones_own_limit_goes_before_everyones_which_is_for_people_alone(who: str, limit: Limit) -> None:
    assert limit_of(who, LIMITS, {"uid:7": "Grace"}) == limit


def test_nobody_has_a_limit_where_none_is_set() -> None:
    assert limit_of("ada", Limits(), {}) == Limit()
    assert not Limits().are_set
    assert Limits(groups={"vision": Limit(1)}).are_set


def test_the_sentences_say_the_limit_the_hours_and_the_week() -> None:
    used = Used(62, 30.83, 0, 4)
    assert sentences(used, Limit(20, 100)) == [
        "You are over the limit of 20 idle-held GPU-hours a week: 30.8 in the 7 days up to 16 Nov 00:00, 4.0 of them"
        " meant.",
        "You are within the limit of 100 GPU-hours a week: 62.0 in the 7 days up to 16 Nov 00:00.",
    ]
    assert spell_midnight(WEEK) == f"{UNTIL} UTC"
    assert sentences(used, Limit(gpu_hours=60.5), who="ada") == [
        "ada is over the limit of 60.5 GPU-hours a week: 62.0 in the 7 days up to 16 Nov 00:00."
    ]


def test_a_lower_bound_is_said_to_be_one_and_why() -> None:
    assert sentences(Used(120, 3, 0), Limit(20, 100), HALF, "ada") == [
        "ada is over the limit of 100 GPU-hours a week: at least 120.0 in the 7 days up to 16 Nov 00:00, 50% of which"
        " were observed.",
        "It is not known whether ada is within the limit of 20 idle-held GPU-hours a week: at least 3.0 in the 7 days"
        " up to 16 Nov 00:00, 50% of which were observed.",
    ]
    assert sentences(Used(120, 0.01, 30), Limit(20)) == [
        "It is not known whether you are within the limit of 20 idle-held GPU-hours a week: at least <0.1 in the 7 days"
        " up to 16 Nov 00:00, and 30.0 of which the driver did not tell."
    ]
    assert sentences(Used(30, 15, 0, None, False), Limit(20)) == [
        "It is not known whether you are within the limit of 20 idle-held GPU-hours a week: at least 15.0 in the 7 days"
        " up to 16 Nov 00:00."
    ]
