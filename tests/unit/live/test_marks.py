"""What gua status marks: who is over a limit, and what is held on purpose."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from gua_report.commands import status
from gua_report.config import Config, Limit, Limits, Notes
from gua_report.limits import WEEK_MS, Week
from gua_report.live.cards_now import Scene, mark_limits, mark_meant
from gua_report.live.observer import Observer, Sampling
from gua_report.live.shown import Style, render_json, render_text, spell_until
from gua_report.rollups.index import path_of
from gua_report.ticks.newest import Files, list_history
from gua_sample.containers import LABEL, Container, Known
from gua_sample.policy import DEFAULT
from tests.bookings import look
from tests.lab import ALICE, BOB, CONFIG, DAY_MS, HOUR_MS, MONDAY_MS, NOON_MS, Gpu, Job, busy, held, series, tick, write
from tests.notes import REASON, content, make_spool, put
from tests.rolling import upkeep

CONTAINED = Job(300, "root", uid=0, cgroup="/docker/3f2a9c81d0b7" + 52 * "0")
END_MS = MONDAY_MS + 7 * DAY_MS
NOW_MS = END_MS + DAY_MS // 2
SAMPLING = Sampling(None, None, None, Files("", [], [], None), False)
LIMITED = CONFIG._replace(limits=Limits(Limit(idle_held_hours=100, gpu_hours=500), {"root": Limit(1)}))
HINTS = Known({"3f2a9c81d0b7": Container("docker", "train", None, "alice", LABEL, 1)})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A week in which alice and a container held a card each, and bob worked, rolled up; and a morning."""
    path = tmp_path_factory.mktemp("week")
    cards = held(ALICE), busy(BOB, index=1), held(CONTAINED, index=2)
    write(path, series(MONDAY_MS, 7 * 144 + 72, *cards, every_ms=600_000, interval_ms=600_000))
    upkeep(path, NOW_MS)
    return path


def scene_of(folder: Path, *gpus: Gpu, ts_ms: int = NOW_MS) -> Scene:
    cards = look(*gpus, ts_ms=ts_ms, known=HINTS)
    return Scene(tick(ts_ms, *gpus), cards, None, list_history(str(folder / "samples")))


def complain(text: str) -> None:
    raise AssertionError(text)


def marked(folder: Path, *gpus: Gpu, config: Config = LIMITED) -> Scene:
    return mark_limits(scene_of(folder, *gpus), config, str(folder), complain)


def text_of(scene: Scene, **options: bool) -> str:
    return render_text(scene, {}, SAMPLING, Style(**options))


def document(scene: Scene) -> dict[str, Any]:
    return dict(json.loads(render_json(scene, DEFAULT, {}, SAMPLING)))


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


def test_another_threshold_for_now_changes_nothing_about_the_week(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Observer, "now_ms", lambda _: NOW_MS)
    config = tmp_path / "gua.toml"
    config.write_text("[limits]\neveryone = { gpu_hours = 1 }\n")
    options = ["--simulate", "--memory-threshold", "500", "--data-dir", str(folder), "--config", str(config), "--json"]
    assert status.main(options) == 0
    assert json.loads(capsys.readouterr().out)["limits"]["observed_share"] == 1.0


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


ME = os.geteuid()
UNTIL_MS = NOON_MS + 4 * DAY_MS


def config_of(folder: Path, *about: dict[str, Any], **exempt: str) -> Config:
    spool = make_spool(folder, 0o700)
    for slot, what in enumerate(about):
        put(spool, f"{ME}.{slot}", content(MONDAY_MS, UNTIL_MS + slot, **what))
    return CONFIG._replace(notes=Notes(str(spool)), exempt=exempt)


def meant(config: Config, *gpus: Gpu, ts_ms: int = NOON_MS) -> Scene:
    return mark_meant(scene_of(Path("/nowhere"), *gpus, ts_ms=ts_ms), config, complain)


def card_of(scene: Scene) -> dict[str, Any]:
    (card,) = document(scene)["gpus"]
    return dict(card)


SAID = {"until_ms": UNTIL_MS, "reason": REASON, "by": "root" if ME == 0 else f"uid:{ME}"}


def test_a_process_and_its_user_are_meant_until_when_and_why_and_who_says_so(tmp_path: Path) -> None:
    card = card_of(meant(config_of(tmp_path, {"identity": "alice"}), held(ALICE, BOB)))
    assert [one["meant"] for one in card["processes"]] == [SAID, None]
    assert {one["user"]: one["meant"] for one in card["users"]} == {"alice": SAID, "bob": None}


def test_the_text_tells_it_behind_the_name(tmp_path: Path) -> None:
    config = config_of(tmp_path, {"identity": "alice"}, bob="inference")
    text = text_of(meant(config, held(ALICE, BOB._replace(sm_percent=0))))
    assert "alice (idle, meant until Fri 12:00: serving the demo)" in text
    assert "bob (idle, meant: inference)" in text
    assert "(idle, meant until Fri 12:00: ser" in text_of(meant(config, held(ALICE)), verbose=True).splitlines()[4]


def test_who_works_is_not_idle_and_so_not_meant(tmp_path: Path) -> None:
    card = card_of(meant(config_of(tmp_path, {"identity": "alice"}), busy(ALICE._replace(sm_percent=95))))
    assert (card["processes"][0]["meant"], card["users"][0]["meant"]) == (None, None)


def test_a_user_is_meant_only_if_all_their_idle_processes_are_and_until_the_first_ends(tmp_path: Path) -> None:
    second = ALICE._replace(pid=101)
    one, other = ({"processes": [{"pid": pid, "start_time_ms": 5000}]} for pid in (101, 100))
    (tmp_path / "one").mkdir()
    card = card_of(meant(config_of(tmp_path / "one", one), held(ALICE, second)))
    assert [process["meant"] for process in card["processes"]] == [None, SAID]
    assert card["users"][0]["meant"] is None
    card = card_of(meant(config_of(tmp_path, one, other), held(ALICE, second)))
    assert [process["meant"]["until_ms"] for process in card["processes"]] == [UNTIL_MS + 1, UNTIL_MS]
    assert card["users"][0]["meant"] == SAID


@pytest.mark.parametrize("ts_ms", [MONDAY_MS - 1, UNTIL_MS])
def test_only_notes_in_force_count(tmp_path: Path, ts_ms: int) -> None:
    scene = meant(config_of(tmp_path, {"identity": "alice"}), held(ALICE), ts_ms=ts_ms)
    assert card_of(scene)["users"][0]["meant"] is None


def test_a_problem_is_told(open_folder: Path) -> None:
    config = config_of(open_folder, {"identity": "alice"})
    Path(config.notes.spool).chmod(0o777)
    said: list[str] = []
    scene = mark_meant(scene_of(open_folder, held(ALICE)), config, said.append)
    assert scene.cards[0].users[0].meant is None
    (line,) = said
    assert "they are not used until [notes] spool names a folder of root's of mode 1733" in line


@pytest.mark.parametrize(
    ("hours", "expected"), [(1, "Mon 13:00"), (24, "Tue 12:00"), (143, "Sun 11:00"), (144, "22 Nov 12:00")]
)
def test_a_time_within_six_days_is_told_by_its_weekday(hours: int, expected: str) -> None:
    assert spell_until(NOON_MS + hours * HOUR_MS, NOON_MS) == expected


def test_a_long_reason_does_not_break_a_line(tmp_path: Path) -> None:
    config = config_of(tmp_path, {"identity": "alice", "reason": "why " * 50})
    lines = text_of(meant(config, held(ALICE))).splitlines()
    assert max(map(len, lines)) <= 78
    assert any("meant until Fri 12:00: why why" in line for line in lines)
