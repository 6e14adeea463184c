"""gua note, as far as it needs no driver: what it refuses, lists and removes, and notes about identities."""

import json
import os
import re
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tests.json_keys import key_paths
from tests.lab import DAY_MS
from tests.machine import one_line, run_here
from tests.notes import content, make_spool, put
from tests.repository import documented
from tests.users import SOMEBODY, needs_root
from tests.verbs import Done, run

ME = os.geteuid()
Note = Callable[..., tuple[int, str, str]]
SERVICE = ("--identity", "unit:ollama.service")


@pytest.fixture
def spool(open_folder: Path) -> Path:
    return make_spool(open_folder)


@pytest.fixture
def config(open_folder: Path, spool: Path) -> Path:
    path = open_folder / "gua.toml"
    path.write_text(f'[notes]\nspool = "{spool}"\n')
    return path


@pytest.fixture
def note(config: Path) -> Note:
    return partial(run_here, "note", "--config", config)


def refusal(found: tuple[int, str, str], status: int) -> str:
    assert found[:2] == (status, "")
    assert one_line(found[2])
    return found[2]


def names(spool: Path) -> list[str]:
    return sorted(path.name for path in spool.iterdir())


def test_the_owner_of_the_spool_marks_an_identity(note: Note, spool: Path) -> None:
    status, output, errors = note("--until", "3d", *SERVICE, "a", "service")  # no quotes are needed
    assert (status, errors) == (0, "")
    assert re.fullmatch(
        r"meant until \w{3} \d\d:\d\d: all that unit:ollama.service holds \(note 0; gua note --remove 0\)\n", output
    )
    found = json.loads((spool / f"{ME}.0").read_text())
    assert found["identity"] == "unit:ollama.service"
    assert found["reason"] == "a service"
    assert found["until_ms"] - found["from_ms"] == 3 * DAY_MS
    assert abs(found["from_ms"] - time.time() * 1000) < 60_000
    assert note("--remove", "0") == (0, f"removed {ME}.0\n", "")
    assert names(spool) == []
    assert "there is no note 0: gua note --list lists them" in refusal(note("--remove", "0"), 1)


def test_the_clock_is_that_of_the_zone_that_was_given(note: Note, spool: Path) -> None:
    zone = ("--tz", "Asia/Kolkata")
    assert "meant until " in note("--until", "tomorrow 18:00", *zone, *SERVICE, "why")[1]
    (written,) = [json.loads(path.read_text()) for path in spool.iterdir()]
    assert written["until_ms"] // 60_000 % 1440 == 12 * 60 + 30  # in UTC
    assert " 18:00: all" in note("--until", "tomorrow 18:00", *zone, *SERVICE, "why")[1]
    assert " 18:00  unit:" in note("--list", *zone)[1]
    assert " 12:30  unit:" in note("--list")[1]


def test_without_a_spool_that_reports_would_read_it_says_what_to_do(note: Note, spool: Path) -> None:
    spool.chmod(0o777)
    assert "may remove others' notes" in refusal(note("--until", "3d", *SERVICE, "why"), 1)
    assert names(spool) == []
    spool.rmdir()
    for words in (("--until", "3d", *SERVICE, "why"), ("--list",), ("--remove", "0")):
        text = refusal(note(*words), 1)
        assert f"no folder {spool} for notes: sudo make install makes it; without root, name a folder of yours" in text


def test_notes_are_listed_with_what_does_not_count_and_why(note: Note, spool: Path) -> None:
    now_ms = time.time_ns() // 1_000_000
    assert note("--list") == (0, 'no notes; to write one: gua note --until friday "serving the demo"\n', "")
    put(spool, f"{ME}.0", content(now_ms, now_ms + DAY_MS, gpu_uuids=["GPU-0", "GPU-1"]))
    put(spool, f"{ME}.1", content(now_ms - 2 * DAY_MS, now_ms - DAY_MS, identity="bob", reason="<b>ö"))
    put(spool, f"{ME}.2", content(now_ms + DAY_MS, now_ms + 2 * DAY_MS, processes=[{"pid": 7, "start_time_ms": 5}]))
    put(spool, f"{ME}.4", b"{}")
    rows = [re.split("  +", line) for line in note("--list")[1].splitlines()]
    assert [row[0] for row in rows] == ["note", "0", "1", "2", "4"]
    assert [row[2:] for row in rows] == [
        ["about", "reason"],
        ["GPU-0 and 1 more", "serving the demo"],
        ["bob", "<b>ö"],
        ["pid 7", "serving the demo"],
        ["-", "does not count: from_ms is no tim…"],  # so that a line fits
    ]
    assert [row[1].split()[0] for row in rows[2:4]] == ["ended", "not"]
    assert "<b>\\xf6" in note("--list", "--ascii")[1]


def test_the_json_is_as_documented(note: Note, spool: Path) -> None:
    now_ms = time.time_ns() // 1_000_000
    put(spool, f"{ME}.1", content(now_ms, now_ms + DAY_MS, processes=[{"pid": 7, "start_time_ms": 5}]))
    put(spool, f"{ME}.2", b"{}")
    listed = json.loads(note("--list", "--json")[1])
    assert set(key_paths(listed)) == set(documented("people.md", "### JSON of gua note"))
    good, bad = listed["notes"]
    assert (good["counts"], good["is_in_force"], good["problem"]) == (True, True, None)
    assert (bad["counts"], bad["is_in_force"], bad["reason"]) == (False, None, None)
    written = json.loads(note("--until", "3d", *SERVICE, "a service", "--json")[1])
    assert set(written) == {"schema_version", "note"}
    assert written["note"].keys() == good.keys()
    assert (written["note"]["name"], written["note"]["identity"]) == (f"{ME}.0", "unit:ollama.service")
    assert json.loads(note("--remove", "0", "--json")[1]) == {"schema_version": 1, "removed": f"{ME}.0"}


def as_somebody(config: Path, *words: str) -> Done:
    return run("note", "--config", config, *words, uid=SOMEBODY)


@needs_root
def test_others_see_and_remove_their_own_notes_alone(note: Note, spool: Path, config: Path) -> None:
    now_ms = time.time_ns() // 1_000_000
    put(spool, f"{SOMEBODY}.0", content(now_ms, now_ms + DAY_MS), SOMEBODY)
    note("--until", "3d", *SERVICE, "a service")
    listed = as_somebody(config, "--list").stdout
    assert (listed.count("\n"), "a service" in listed) == (2, False)
    root = note("--list")[1]
    assert f"{ME}.0" in root
    assert f"{SOMEBODY}.0  uid {SOMEBODY}" in root
    refused = as_somebody(config, "--until", "3d", *SERVICE, "mine")
    assert (refused.returncode, "--identity is for root" in refused.stderr) == (1, True)
    refused = as_somebody(config, "--remove", f"{ME}.0")
    assert (refused.returncode, "can't be removed (Operation not permitted)" in refused.stderr) == (1, True)
    assert as_somebody(config, "--remove", "0").stdout == f"removed {SOMEBODY}.0\n"
    assert names(spool) == [f"{ME}.0"]
    put(spool, f"{SOMEBODY}.0", b"", SOMEBODY)
    assert note("--remove", f"{SOMEBODY}.0")[0] == 0  # root
