"""Which notes count, whom and what they are about."""

from __future__ import annotations

import json
import os
import pwd
import threading
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gua_sample.notes import (
    CLOCK_MS,
    LATEST_MS,
    LONGEST_MS,
    LONGEST_REASON,
    MOST_ABOUT,
    START_DIFFERS_MS,
    KnownNotes,
    MeantNow,
    NoNote,
    Note,
    exempt_notes,
    find_uids,
    parse_note,
    sort_notes,
    spell_note,
)
from tests.lab import DAY_MS, HOUR_MS, NOON_MS
from tests.notes import REASON, content

UNTIL_MS = NOON_MS + DAY_MS
GOOD = content(NOON_MS, UNTIL_MS)


def parse(what: Any, changed_ms: int = NOON_MS, is_owners: bool = False) -> Note:
    return parse_note(what if isinstance(what, bytes) else json.dumps(what).encode(), changed_ms, 1001, is_owners)


def why_not(what: Any, changed_ms: int = NOON_MS, is_owners: bool = False) -> str:
    with pytest.raises(NoNote) as caught:
        parse(what, changed_ms, is_owners)
    return str(caught.value)


def test_a_note_is_as_it_was_written() -> None:
    note = Note(NOON_MS, UNTIL_MS, "déjà vu: <b>", 1001, True, "docker:3f2a", ("GPU-0", "MIG-1"), ((7, NOON_MS),))
    assert parse(spell_note(note), is_owners=True) == note
    assert parse(GOOD) == Note(NOON_MS, UNTIL_MS, REASON, 1001, False, None, ("GPU-0",))


def test_a_note_begins_no_sooner_than_its_file_was_changed() -> None:
    week_ago = content(NOON_MS - 7 * DAY_MS, UNTIL_MS)
    assert parse(week_ago).start_ms == NOON_MS
    assert parse(week_ago, NOON_MS + HOUR_MS).start_ms == NOON_MS + HOUR_MS
    assert parse(content(NOON_MS + HOUR_MS, UNTIL_MS)).start_ms == NOON_MS + HOUR_MS


def test_a_note_for_the_past_does_not_count() -> None:
    assert why_not(content(NOON_MS - 2 * DAY_MS, NOON_MS - DAY_MS)) == (
        "it ends before it begins, or before it was written"
    )
    assert "ends before" in why_not(content(NOON_MS + 2 * HOUR_MS, NOON_MS + HOUR_MS))


def test_a_note_lasts_for_14_days_from_when_it_was_written() -> None:
    assert parse(content(NOON_MS, NOON_MS + LONGEST_MS)).until_ms == NOON_MS + LONGEST_MS
    longer = content(NOON_MS, NOON_MS + LONGEST_MS + CLOCK_MS + 1)
    assert why_not(longer) == "it ends more than 14 days after it was written"
    # One that begins later ends no later.
    assert "14 days" in why_not(content(NOON_MS + 365 * DAY_MS, NOON_MS + 366 * DAY_MS))
    assert "14 days" in why_not(content(NOON_MS, NOON_MS + 3650 * DAY_MS))


def test_the_owner_of_the_spool_may_write_notes_for_the_past_but_none_that_last_longer() -> None:
    past = content(NOON_MS - 30 * DAY_MS, NOON_MS - 20 * DAY_MS)
    assert parse(past, is_owners=True)[:2] == (NOON_MS - 30 * DAY_MS, NOON_MS - 20 * DAY_MS)
    assert "14 days" in why_not(content(NOON_MS - 30 * DAY_MS, NOON_MS), is_owners=True)


def test_only_the_owner_of_the_spool_may_name_an_identity() -> None:
    named = content(NOON_MS, UNTIL_MS, identity="bob")
    assert parse(named, is_owners=True).identity == "bob"
    assert why_not(named) == "only the owner of the spool may name an identity"
    assert why_not({**GOOD, "identity": "bob"}) == "only the owner of the spool may name an identity"


@pytest.mark.parametrize(
    ("what", "why"),
    [
        (b"", "no JSON"),
        (b"{", "no JSON"),
        (b"\xff\xfe\x00", "no JSON"),
        (b"[" * 30_000, "no JSON"),
        (b'{"a":' * 20_000 + b"1" + b"}" * 20_000, "no JSON"),
        (b"9" * 60_000, "no JSON"),
        (b"[1]", "no JSON object"),
        (b"null", "no JSON object"),
        ({**GOOD, "until_ms": float("nan")}, "until_ms is no time"),
        ({**GOOD, "until_ms": float("inf")}, "until_ms is no time"),
        ({**GOOD, "until_ms": True}, "until_ms is no time"),
        ({**GOOD, "until_ms": str(UNTIL_MS)}, "until_ms is no time"),
        ({**GOOD, "until_ms": 10**9 * 31_556_952_000}, "until_ms is no time"),  # the year 10^9
        ({**GOOD, "until_ms": LATEST_MS + 1}, "until_ms is no time"),
        ({**GOOD, "until_ms": None}, "until_ms is no time"),
        ({**GOOD, "from_ms": -1}, "from_ms is no time"),
        ({**GOOD, "from_ms": [NOON_MS]}, "from_ms is no time"),
        ({**GOOD, "reason": ""}, "reason is no text"),
        ({**GOOD, "reason": "  "}, "reason is no text"),
        ({**GOOD, "reason": None}, "reason is no text"),
        ({**GOOD, "reason": ["x"]}, "reason is no text"),
        ({**GOOD, "reason": "x" * (LONGEST_REASON + 1)}, "reason is no text"),
        ({**GOOD, "reason": "\x1b[2Jgone"}, "reason is no text"),
        ({**GOOD, "reason": "two\nlines"}, "reason is no text"),
        ({**GOOD, "reason": "\u202egnirts"}, "reason is no text"),
        ({**GOOD, "reason": "\ud800"}, "reason is no text"),
        ({**GOOD, "gpu_uuids": "GPU-0"}, "gpu_uuids is no list"),
        ({**GOOD, "gpu_uuids": [0]}, "gpu_uuids is no text"),
        ({**GOOD, "gpu_uuids": ["GPU-0"] * (MOST_ABOUT + 1)}, "gpu_uuids is no list"),
        ({**GOOD, "gpu_uuids": []}, "about nothing"),
        ({**GOOD, "processes": {"pid": 1}}, "processes is no list"),
        ({**GOOD, "processes": [7]}, "no pid"),
        ({**GOOD, "processes": [{"pid": 0, "start_time_ms": 1}]}, "no pid"),
        ({**GOOD, "processes": [{"pid": True, "start_time_ms": 1}]}, "no pid"),
        ({**GOOD, "processes": [{"pid": 7}]}, "start_time_ms is no time"),
        ({**GOOD, "processes": [{"pid": 7, "start_time_ms": 1e300}]}, "start_time_ms is no time"),
    ],
)
def test_nonsense_does_not_count(what: Any, why: str) -> None:
    assert why in why_not(what)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner),
    max_leaves=5,
)


@given(st.dictionaries(st.sampled_from([*GOOD, "processes", "identity"]), json_values), st.booleans())
def test_whatever_is_in_a_file_is_a_note_or_has_one_line_of_reason(what: dict[str, Any], is_owners: bool) -> None:
    try:
        note = parse({**GOOD, **what}, is_owners=is_owners)
    except NoNote as error:
        text = str(error)
    else:
        text = note.reason
        assert note.until_ms is not None
        assert 0 < note.until_ms - note.start_ms <= LONGEST_MS + CLOCK_MS
        assert note.identity or note.gpu_uuids or note.processes
    assert text.isprintable()


def test_a_note_is_in_force_from_its_beginning_to_before_its_end() -> None:
    note = parse(GOOD)
    times = (NOON_MS - 1, NOON_MS, UNTIL_MS - 1, UNTIL_MS)
    assert [note.is_in_force(ms) for ms in times] == [False, True, True, False]
    assert exempt_notes({"gdm": "the desktop"})[0].is_in_force(LATEST_MS)


def test_a_note_is_about_its_cards_and_its_processes() -> None:
    on_card = parse(GOOD)
    assert on_card.is_about("GPU-0", 1, None)
    assert not on_card.is_about("GPU-1", 1, None)
    both = parse({**GOOD, "processes": [{"pid": 7, "start_time_ms": NOON_MS}, {"pid": 8, "start_time_ms": 5}]})
    assert both.is_about("GPU-0", 7, NOON_MS)
    assert both.is_about("GPU-0", 7, float(NOON_MS + START_DIFFERS_MS))
    assert not both.is_about("GPU-1", 7, NOON_MS)
    assert not both.is_about("GPU-0", 9, NOON_MS)


@pytest.mark.parametrize("start_ms", [5, NOON_MS + START_DIFFERS_MS + 1, None, float("nan")])
def test_a_later_process_with_the_same_pid_is_another_one(start_ms: float | None) -> None:
    note = parse(content(NOON_MS, UNTIL_MS, processes=[{"pid": 7, "start_time_ms": NOON_MS}]))
    assert not note.is_about("GPU-0", 7, start_ms)


def known(*notes: Note) -> KnownNotes:
    return sort_notes(notes, {"alice": {1001}, "bob": {1002}, "team": {1001, 1003}}, [])


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
def test_it_is_told_who_says_so(uid: int | None, by: str) -> None:
    said = known(Note(0, None, REASON, uid, True, "bob")).find("bob", "GPU-0", 1, None, NOON_MS)
    assert said == MeantNow(None, REASON, by)


def test_exemptions_are_notes_about_identities_of_all_time() -> None:
    (note,) = exempt_notes({"unit:ollama.service": "inference"})
    found = sort_notes([note], {}, [])
    assert found.about("unit:ollama.service") == [note]
    assert found.about("unit:other.service") == []
    assert note.is_about("any", 1, None)
    assert note.is_in_force(0)


ME = pwd.getpwuid(os.getuid()).pw_name


def test_identities_stand_for_the_uids_of_their_accounts() -> None:
    names = [
        ME,
        "uid:1234",
        "no such user",
        "docker:3f2a9c81d0b7",
        "(unattributed)",
        "unknown",
        "uid:",
        "uid:٣",
        "uid:-1",
    ]
    uids, unanswered = find_uids(names, {})
    assert unanswered == 0
    assert uids == {**{name: set() for name in names}, ME: {os.getuid()}, "uid:1234": {1234}}


@pytest.mark.parametrize("identity", ["unknown", "(unattributed)"])
def test_nobody_becomes_those_who_are_not_known_by_an_account_of_that_name(
    identity: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    me = pwd.getpwuid(os.getuid())
    monkeypatch.setattr(pwd, "getpwnam", lambda name: me)
    assert find_uids([identity, "alice"], {}) == ({identity: set(), "alice": {os.getuid()}}, 0)


def test_a_person_stands_for_all_accounts_that_the_config_names_so() -> None:
    people = {ME: "Ada L.", "uid:77": "Ada L.", "docker:3f2a9c81d0b7": "Ada L.", "uid:78": "bob"}
    uids, _ = find_uids(["Ada L.", "alice"], people)
    assert uids == {"Ada L.": {os.getuid(), 77}, "alice": set()}


@pytest.mark.parametrize("name", ["a\x00b", "\ud800", "x" * 100_000, "", "root:x", "../../etc"])
def test_an_impossible_name_is_nobodys(name: str) -> None:
    assert find_uids([name], {}) == ({name: set()}, 0)


def test_a_directory_that_hangs_costs_two_seconds_and_the_names(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = threading.Event()

    def hang(name: str) -> None:
        answer.wait(60)
        raise KeyError

    began = time.monotonic()
    monkeypatch.setattr(pwd, "getpwnam", hang)
    uids, unanswered = find_uids(["alice", "bob", "uid:5"], {})
    answer.set()
    assert time.monotonic() - began < 10
    assert (uids, unanswered) == ({"alice": set(), "bob": set(), "uid:5": {5}}, 2)
