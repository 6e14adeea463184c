"""What gua status says of what is held on purpose."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from gua_report.config import Config, Notes
from gua_report.live import json as as_json
from gua_report.live.cards_now import Scene, see_card
from gua_report.live.meant_now import mark_meant
from gua_report.live.sampling import Sampling
from gua_report.live.text import Style, render, spell_until
from gua_report.ticks.newest import Files
from gua_sample.idleness import NOTHING, follow, runs_now, sight_of
from gua_sample.policy import DEFAULT
from tests.lab import ALICE, BOB, CONFIG, DAY_MS, HOUR_MS, MONDAY_MS, NOON_MS, Gpu, busy, held, tick
from tests.notes import REASON, content, make_spool, put

ME = os.geteuid()
UNTIL_MS = NOON_MS + 4 * DAY_MS
SAMPLING = Sampling(None, None, None, None, None, False, False)


def scene_of(*gpus: Gpu) -> Scene:
    now = tick(NOON_MS, *gpus)
    carried = follow(NOTHING, sight_of(now), lambda ts_ms: 0, CONFIG.policy)
    cards = [see_card(card, now, carried, runs_now(carried), CONFIG) for card in now.cards]
    return Scene(now, cards, None, Files("", [], [], None))


def config_of(folder: Path, *about: dict[str, Any], **exempt: str) -> Config:
    spool = make_spool(folder, 0o700)
    for slot, what in enumerate(about):
        put(spool, f"{ME}.{slot}", content(MONDAY_MS, UNTIL_MS + slot, **what))
    return CONFIG._replace(notes=Notes(str(spool)), exempt=exempt)


def marked(scene: Scene, config: Config) -> dict[str, Any]:
    """The only card, as JSON."""
    found = mark_meant(scene, config, complain)
    (card,) = json.loads(as_json.render(found, DEFAULT, {}, SAMPLING))["gpus"]
    return dict(card)


def complain(text: str) -> None:
    raise AssertionError(text)


def text_of(scene: Scene, config: Config, verbose: bool = False) -> str:
    return render(mark_meant(scene, config, complain), {}, SAMPLING, Style(verbose=verbose))


SAID = {"until_ms": UNTIL_MS, "reason": REASON, "by": "root" if ME == 0 else f"uid:{ME}"}


def test_a_process_and_its_user_are_meant_until_when_and_why_and_who_says_so(tmp_path: Path) -> None:
    card = marked(scene_of(held(ALICE, BOB)), config_of(tmp_path, {"identity": "alice"}))
    assert [one["meant"] for one in card["processes"]] == [SAID, None]
    assert {one["user"]: one["meant"] for one in card["users"]} == {"alice": SAID, "bob": None}


def test_the_text_tells_it_behind_the_name(tmp_path: Path) -> None:
    config = config_of(tmp_path, {"identity": "alice"}, bob="inference")
    text = text_of(scene_of(held(ALICE, BOB._replace(sm_percent=0))), config)
    assert "alice (idle, meant until Fri 12:00: serving the demo)" in text
    assert "bob (idle, meant: inference)" in text
    assert "python" in text
    assert "(idle, meant until Fri 12:00: ser" in text_of(scene_of(held(ALICE)), config, verbose=True).splitlines()[4]


def test_who_works_is_not_idle_and_so_not_meant(tmp_path: Path) -> None:
    card = marked(scene_of(busy(ALICE._replace(sm_percent=95))), config_of(tmp_path, {"identity": "alice"}))
    assert (card["processes"][0]["meant"], card["users"][0]["meant"]) == (None, None)


def test_a_user_is_meant_only_if_all_their_idle_processes_are_and_until_the_first_ends(tmp_path: Path) -> None:
    second = ALICE._replace(pid=101)
    one, other = ({"processes": [{"pid": pid, "start_time_ms": 5000}]} for pid in (101, 100))
    (tmp_path / "one").mkdir()
    card = marked(scene_of(held(ALICE, second)), config_of(tmp_path / "one", one))
    assert [process["meant"] for process in card["processes"]] == [None, SAID]
    assert card["users"][0]["meant"] is None
    card = marked(scene_of(held(ALICE, second)), config_of(tmp_path, one, other))
    assert [process["meant"]["until_ms"] for process in card["processes"]] == [UNTIL_MS + 1, UNTIL_MS]
    assert card["users"][0]["meant"] == SAID


@pytest.mark.parametrize("ts_ms", [MONDAY_MS - 1, UNTIL_MS])
def test_only_notes_in_force_count(tmp_path: Path, ts_ms: int) -> None:
    scene = scene_of(held(ALICE))
    scene = scene._replace(tick=scene.tick._replace(ts_ms=ts_ms))
    assert marked(scene, config_of(tmp_path, {"identity": "alice"}))["users"][0]["meant"] is None


def test_a_problem_is_told(open_folder: Path) -> None:
    config = config_of(open_folder, {"identity": "alice"})
    Path(config.notes.spool).chmod(0o777)
    said: list[str] = []
    scene = mark_meant(scene_of(held(ALICE)), config, said.append)
    assert scene.cards[0].users[0].meant is None
    (line,) = said
    assert "they are not used until root says chown root: " in line


@pytest.mark.parametrize(
    ("hours", "expected"), [(1, "Mon 13:00"), (24, "Tue 12:00"), (143, "Sun 11:00"), (144, "22 Nov 12:00")]
)
def test_a_time_within_six_days_is_told_by_its_weekday(hours: int, expected: str) -> None:
    assert spell_until(NOON_MS + hours * HOUR_MS, NOON_MS) == expected


def test_a_long_reason_does_not_break_a_line(tmp_path: Path) -> None:
    config = config_of(tmp_path, {"identity": "alice", "reason": "why " * 50})
    lines = text_of(scene_of(held(ALICE)), config).splitlines()
    assert max(map(len, lines)) <= 78
    assert any("meant until Fri 12:00: why why" in line for line in lines)
