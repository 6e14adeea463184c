"""The mark of who is over a limit in gua status, and the sentences of a reminder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gua_report.config import Config, Limit, Limits
from gua_report.limits import WEEK_MS, Week
from gua_report.live import json as as_json
from gua_report.live.cards_now import Scene, see_card
from gua_report.live.limits_now import mark_limits
from gua_report.live.sampling import Sampling
from gua_report.live.text import Style, render
from gua_report.rollups.index import path_of
from gua_report.ticks.newest import list_history
from gua_sample.containers import LABEL, Container, Known
from gua_sample.idleness import NOTHING, follow, runs_now, sight_of
from gua_sample.policy import DEFAULT
from tests.lab import CONFIG, DAY_MS, MONDAY_MS, Gpu, Job, busy, held, series, tick, write
from tests.rolling import upkeep

ALICE, BOB = Job(100, "alice"), Job(200, "bob")
CONTAINED = Job(300, "root", uid=0, cgroup="/docker/3f2a9c81d0b7" + 52 * "0")
END_MS = MONDAY_MS + 7 * DAY_MS
NOW_MS = END_MS + DAY_MS // 2
SAMPLING = Sampling(None, None, None, None, None, False, False)
LIMITED = CONFIG._replace(limits=Limits(Limit(idle_held_hours=100, gpu_hours=500), {"root": Limit(1)}))
HINTS = Known({"3f2a9c81d0b7": Container("docker", "train", None, "alice", LABEL, None, 1)}, {})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A week in which alice and a container held a card each, and bob worked, rolled up; and a morning."""
    path = tmp_path_factory.mktemp("week")
    cards = held(ALICE), busy(BOB, index=1), held(CONTAINED, index=2)
    write(path, series(MONDAY_MS, 7 * 144 + 72, *cards, every_ms=600_000, interval_ms=600_000))
    upkeep(path, NOW_MS)
    return path


def scene_of(folder: Path, *gpus: Gpu) -> Scene:
    now = tick(NOW_MS, *gpus)
    carried = follow(NOTHING, sight_of(now), lambda ts_ms: 0, CONFIG.policy)
    cards = [see_card(card, now, carried, runs_now(carried), CONFIG, HINTS) for card in now.cards]
    return Scene(now, cards, None, list_history(str(folder / "samples")))


def complain(text: str) -> None:
    raise AssertionError(text)


def marked(folder: Path, *gpus: Gpu, config: Config = LIMITED) -> Scene:
    return mark_limits(scene_of(folder, *gpus), config, str(folder), complain)


def text_of(scene: Scene, **options: bool) -> str:
    return render(scene, {}, SAMPLING, Style(**options))


def document(scene: Scene) -> dict[str, Any]:
    return dict(json.loads(as_json.render(scene, DEFAULT, {}, SAMPLING)))


def test_who_is_over_a_limit_is_marked_idle_or_not(folder: Path) -> None:
    text = text_of(marked(folder, held(ALICE), busy(ALICE._replace(pid=101), index=1), busy(BOB, index=2)))
    assert "alice (over limit, idle)\n" in text
    assert "alice (over limit)\n" in text
    assert "  bob\n" in text
    assert "\n\nLimits: GPU-hours of the 7 days up to 23 Nov 00:00 UTC, closed days alone\n\nSampling: " in text


def test_the_processes_below_a_card_are_not_marked_again(folder: Path) -> None:
    assert text_of(marked(folder, held(ALICE)), verbose=True).count("over limit") == 1


def test_a_container_with_a_hint_is_marked_neither_as_itself_nor_as_that_person(folder: Path) -> None:
    scene = marked(folder, held(CONTAINED), busy(BOB, index=1))
    assert "alice? (docker: train) (idle)" in text_of(scene)
    assert document(scene)["gpus"][0]["users"][0]["limits"] == []


def test_json_has_the_hours_and_the_verdicts(folder: Path) -> None:
    found = document(marked(folder, held(ALICE), busy(BOB, index=1)))
    assert found["limits"] == {"from_ms": END_MS - WEEK_MS, "until_ms": END_MS, "observed_share": 1.0}
    alice, bob = (card["users"][0]["limits"] for card in found["gpus"])
    assert alice == [
        {"kind": "idle_held_hours", "hours": 168.0, "limit_hours": 100, "verdict": "over"},
        {"kind": "gpu_hours", "hours": 168.0, "limit_hours": 500, "verdict": "within"},
    ]
    assert [(one["kind"], one["verdict"]) for one in bob] == [("gpu_hours", "within"), ("idle_held_hours", "within")]


def test_who_was_not_seen_in_the_week_has_used_nothing(folder: Path) -> None:
    (card,) = document(marked(folder, held(Job(900, "eva"))))["gpus"]
    assert [(one["hours"], one["verdict"]) for one in card["users"][0]["limits"]] == [(0.0, "within")] * 2


def test_without_rollups_nothing_is_called_fine(tmp_path: Path) -> None:
    write(tmp_path, series(MONDAY_MS, 7 * 144, held(ALICE), every_ms=600_000))
    scene = marked(tmp_path, held(ALICE))
    (card,) = document(scene)["gpus"]
    assert {one["verdict"] for one in card["users"][0]["limits"]} == {"unknown"}
    text = text_of(scene)
    assert "over limit" not in text
    assert "\n     0% of these are known: who is not marked may be over a limit too\n" in text
    assert max(map(len, text.splitlines())) <= 78


def test_rollups_that_can_not_be_read_are_one_complaint(folder: Path, tmp_path: Path) -> None:
    write(tmp_path, series(MONDAY_MS, 10, held(ALICE)))
    Path(path_of(str(tmp_path))).write_bytes(b"garbage, more than sixteen bytes of it" * 100)
    said: list[str] = []
    scene = mark_limits(scene_of(tmp_path, held(ALICE)), LIMITED, str(tmp_path), said.append)
    assert scene.week is None
    (line,) = said
    assert line.startswith("who is over a limit is not known: ")


def test_nothing_is_read_or_said_where_nobody_there_has_a_limit(folder: Path) -> None:
    for config in (CONFIG, CONFIG._replace(limits=Limits(people={"eva": Limit(1)}, groups={"us": Limit(1)}))):
        scene = marked(folder / "not-there", held(ALICE), config=config)
        assert scene.week is None
        assert "Limits" not in text_of(scene)
        assert document(scene)["limits"] is None
    assert mark_limits(scene_of(folder, held(ALICE)), LIMITED, "", complain).week is None


def test_in_ascii_nothing_else_is_written() -> None:
    week = Week(END_MS - WEEK_MS, END_MS, 0.5)
    assert text_of(Scene(tick(NOW_MS), [], None, list_history("/nowhere"), week), ascii_only=True).isascii()
