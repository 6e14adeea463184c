"""The log of what was done, and what is made of one that somebody has damaged."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gua_report.telling.log import BEGUN, DONE, Act, parse_log
from gua_report.telling.watch import Episode
from tests.lab import DAY_MS, NOON_MS

EPISODE = {"boot_id": "b", "gpu_uuid": "GPU-0", "pid": 7, "start_time_ms": 5}


def line(**changes: Any) -> bytes:
    act = {"id": "a", "ts_ms": NOON_MS, "who": "x", "to": None, "text": None, "episodes": [EPISODE]}
    return json.dumps({**act, "outcome": BEGUN, "is_trial": False, **changes}).encode() + b"\n"


def parse(content: bytes) -> tuple[list[Act], list[str]]:
    acts, problems = parse_log(content, "remind.log", NOON_MS)
    return acts, problems


def test_an_act_has_the_outcome_that_was_written_after_it() -> None:
    acts, problems = parse(line() + line(id="b", who="y") + line(outcome=DONE, text="exit 0"))
    assert problems == []
    assert [(act.id, act.outcome, act.text) for act in acts] == [("a", DONE, "exit 0"), ("b", BEGUN, None)]
    assert acts[0].episodes == (Episode("b", "GPU-0", 7, 5),)


def test_an_episode_is_the_same_if_it_had_begun_by_then() -> None:
    (act,), _ = parse(line())
    episode = act.episodes[0]
    assert act.is_about(episode, NOON_MS)
    assert not act.is_about(episode, NOON_MS + 1)
    for changed in ({"boot_id": "c"}, {"gpu_uuid": "GPU-1"}, {"pid": 8}, {"start_time_ms": 6}):
        assert not act.is_about(episode._replace(**changed), NOON_MS)


@pytest.mark.parametrize(
    "bad",
    [
        *(b"garbage", b"{}", b"[]", b'"x"', b"null", b"[" * 10_000, b"\xff", b""),
        *(line(id=1)[:-1], line(id=None)[:-1], line(who=None)[:-1], line(who=["x"])[:-1], line(to=1)[:-1]),
        *(line(ts_ms="1")[:-1], line(ts_ms=True)[:-1], line(ts_ms=1.5)[:-1], line(outcome="x")[:-1]),
        *(line(outcome=[])[:-1], line(is_trial=0)[:-1], line(episodes=1)[:-1], line(episodes=[[]])[:-1]),
        *(line(episodes=[{}])[:-1], line(episodes=[{**EPISODE, "pid": "7"}])[:-1]),
        *(line(episodes=[{**EPISODE, "boot_id": 7}])[:-1], line(episodes=[{**EPISODE, "more": 7}])[:-1]),
    ],
)
def test_a_bad_line_counts_until_a_later_one_is_older_than_a_week(bad: bytes) -> None:
    old, recent = line(ts_ms=NOON_MS - 7 * DAY_MS - 1), line(ts_ms=NOON_MS - 7 * DAY_MS + 1)
    for content in (bad + b"\n", bad + b"\n" + recent, old + bad + b"\n", recent + bad + b"\n"):
        _, problems = parse(content)
        assert len(problems) == 1
        assert "can't be understood, and may hide that somebody was told" in problems[0]
    assert parse(bad + b"\n" + old)[1] == []
    assert parse(line() + bad)[1] == []  # it was not finished


def test_times_beyond_every_calendar_are_no_times() -> None:
    assert len(parse(line(ts_ms=10**30))[1]) == 1
    assert len(parse(line(ts_ms=-1))[1]) == 1
