"""Who is over a limit, and the words for it."""

import pytest

from gua_report.config import Limit, Limits
from gua_report.limits import OVER, UNSURE, WEEK_MS, WITHIN, Used, Week, judge, limit_of, spell_midnight, tell
from tests.lab import MONDAY_MS

WEEK = Week(MONDAY_MS - WEEK_MS, MONDAY_MS, 1.0)
HALF = WEEK._replace(observed_share=0.5)
UNTIL = "16 Nov 00:00"


def verdicts(used: Used, limit: Limit, week: Week = WEEK) -> dict[str, str]:
    return {standing.kind: standing.verdict for standing in judge(used, limit, week)}


def sentences(used: Used, limit: Limit, week: Week = WEEK, who: str | None = None) -> list[str]:
    return [tell(standing, used, week, UNTIL, who) for standing in judge(used, limit, week)]


def test_a_limit_is_what_may_be_used_and_more_is_over() -> None:
    limit = Limit(idle_held_hours=20, gpu_hours=100)
    assert verdicts(Used(100, 20, 0), limit) == {"idle_held_hours": WITHIN, "gpu_hours": WITHIN}
    assert verdicts(Used(100, 20.01, 0), limit) == {"idle_held_hours": OVER, "gpu_hours": WITHIN}
    assert verdicts(Used(100.01, 20, 0), limit) == {"gpu_hours": OVER, "idle_held_hours": WITHIN}
    assert verdicts(Used(0, sum([0.1] * 3), 0), Limit(0.3)) == {"idle_held_hours": WITHIN}  # as no clock measures more


def test_only_limits_that_are_set_are_judged() -> None:
    assert judge(Used(1000, 1000, 0), Limit(), WEEK) == []
    assert verdicts(Used(1000, 1, 0), Limit(gpu_hours=5)) == {"gpu_hours": OVER}


def test_over_a_limit_comes_first_then_what_is_not_known_then_what_is_nearest_to_it() -> None:
    assert list(verdicts(Used(90, 21, 0), Limit(20, 100))) == ["idle_held_hours", "gpu_hours"]
    assert list(verdicts(Used(90, 10, 0), Limit(20, 100))) == ["gpu_hours", "idle_held_hours"]
    assert list(verdicts(Used(101, 19.9, 5), Limit(20, 100))) == ["gpu_hours", "idle_held_hours"]
    assert list(verdicts(Used(99, 1, 95), Limit(20, 100))) == ["idle_held_hours", "gpu_hours"]


def test_where_too_little_was_observed_over_is_over_and_nothing_is_called_fine() -> None:
    assert verdicts(Used(101, 3, 0), Limit(20, 100), HALF) == {"gpu_hours": OVER, "idle_held_hours": UNSURE}
    almost, enough = (WEEK._replace(observed_share=share) for share in (0.949, 0.95))
    assert verdicts(Used(1, 1, 0), Limit(20), almost) == {"idle_held_hours": UNSURE}
    assert verdicts(Used(1, 1, 0), Limit(20), enough) == {"idle_held_hours": WITHIN}


def test_hours_of_unknown_state_may_have_been_idle_held() -> None:
    assert verdicts(Used(30, 15, 5), Limit(20, 100)) == {"idle_held_hours": WITHIN, "gpu_hours": WITHIN}
    assert verdicts(Used(30, 15, 5.5), Limit(20, 100)) == {"idle_held_hours": UNSURE, "gpu_hours": WITHIN}
    assert verdicts(Used(30, 21, 5.5), Limit(20)) == {"idle_held_hours": OVER}
    for hours, verdict in ((15, UNSURE), (21, OVER)):  # a sum that lacks something
        assert verdicts(Used(30, hours, 0, is_whole=False), Limit(20)) == {"idle_held_hours": verdict}


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
