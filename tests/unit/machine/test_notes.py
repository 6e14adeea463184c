"""Whom notes are about, and what they say of a process."""

import json
from pathlib import Path
from typing import Any

import pytest

from gua_report.config import Notes
from gua_report.machine.notes import KnownNotes, MeantNow, _restore, find_notes
from gua_sample.notes import Note, parse_note, read_entries
from tests.lab import CONFIG, DAY_MS, HOUR_MS, NOON_MS
from tests.notes import REASON, content, make_spool, put, today

UNTIL_MS = NOON_MS + DAY_MS
GOOD = content(NOON_MS, UNTIL_MS)


def parse(what: dict[str, Any], is_owners: bool = False) -> Note:
    return parse_note(json.dumps(what).encode(), NOON_MS, 1001, is_owners)


def test_notes_survive_the_way_from_a_child(tmp_path: Path) -> None:
    spool = make_spool(tmp_path)
    uid = spool.stat().st_uid
    put(spool, f"{uid}.0", {**today(spool), "processes": [{"pid": 7, "start_time_ms": 5}], "gpu_uuids": ["GPU-0"]})
    put(spool, f"{uid}.1", b"nonsense")
    entries = read_entries(str(spool), [])
    assert [entry.note is None for entry in entries] == [False, True]
    assert [_restore(*entry) for entry in json.loads(json.dumps(entries))] == entries


def known(*notes: Note) -> KnownNotes:
    return KnownNotes([*notes], {"alice": {1001}, "bob": {1002}, "team": {1001, 1003}}, [])


def test_a_note_is_about_its_writers_own_processes_alone() -> None:
    alices = parse(GOOD)
    found = known(alices)
    assert found.about("alice") == [alices]
    assert found.about("team") == [alices]
    for other in ("bob", "docker:3f2a9c81d0b7", "unknown", "uid:1001", "(unattributed)"):
        assert found.about(other) == []


def test_a_note_of_the_spools_owner_is_about_anybody_or_whom_it_names() -> None:
    card, bobs = parse(GOOD, is_owners=True), parse(content(NOON_MS, UNTIL_MS, identity="bob"), is_owners=True)
    found = known(card, bobs)
    assert found.about("alice") == [card]
    assert found.about("bob") == [card, bobs]
    assert found.about("unit:x.service") == [card]


def test_what_is_said_is_of_the_note_in_force_that_lasts_longest() -> None:
    short, long = parse(GOOD), parse({**GOOD, "until_ms": UNTIL_MS + 1, "reason": "longer"})
    later = parse(content(NOON_MS + HOUR_MS, UNTIL_MS + 2, reason="later", gpu_uuids=["GPU-0"]))
    found = known(short, long, later)
    assert found.find("alice", "GPU-0", 1, None, NOON_MS) == MeantNow(UNTIL_MS + 1, "longer", "alice")
    assert found.find("alice", "GPU-0", 1, None, NOON_MS + HOUR_MS) == MeantNow(UNTIL_MS + 2, "later", "alice")
    assert found.find("alice", "GPU-1", 1, None, NOON_MS) is None
    assert found.find("alice", "GPU-0", 1, None, UNTIL_MS + 2) is None
    assert found.find("bob", "GPU-0", 1, None, NOON_MS) is None


@pytest.mark.parametrize(("uid", "by"), [(0, "root"), (1001, "uid:1001"), (None, "config")])
def test_it_is_told_who_says_so_and_exemptions_are_of_all_time(uid: int | None, by: str) -> None:
    note = Note(0, None, REASON, uid, True, "bob")
    assert known(note).find("bob", "GPU-0", 1, None, NOON_MS) == MeantNow(None, REASON, by)
    config = CONFIG._replace(exempt={"bob": REASON}, notes=Notes("/nowhere"))
    (exempt,) = find_notes(config, []).notes
    assert exempt == note._replace(uid=None)
    assert exempt.is_in_force(0)
