"""Which files in the spool are notes, whom and what they are about, and how they are written."""

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gua_sample import notes
from gua_sample.errors import StoreError
from tests.lab import DAY_MS, HOUR_MS, NOON_MS
from tests.notes import REASON, content, make_spool, put
from tests.users import SOMEBODY, needs_root

UNTIL_MS = NOON_MS + DAY_MS
GOOD = content(NOON_MS, UNTIL_MS)
ME = os.geteuid()


def parse(what: Any, changed_ms: int = NOON_MS, is_owners: bool = False) -> notes.Note:
    return notes.parse_note(what if isinstance(what, bytes) else json.dumps(what).encode(), changed_ms, 1001, is_owners)


def why_not(what: Any, changed_ms: int = NOON_MS, is_owners: bool = False) -> str:
    with pytest.raises(notes.NoNote) as caught:
        parse(what, changed_ms, is_owners)
    return str(caught.value)


def test_a_note_is_as_it_was_written() -> None:
    note = notes.Note(NOON_MS, UNTIL_MS, "déjà vu: <b>", 1001, True, "docker:3f2a", ("GPU-0", "MIG-1"), ((7, NOON_MS),))
    assert parse(notes.spell_note(note), is_owners=True) == note
    assert parse(GOOD) == notes.Note(NOON_MS, UNTIL_MS, REASON, 1001, False, None, ("GPU-0",))


def test_a_note_begins_no_sooner_than_its_file_was_changed() -> None:
    week_ago = content(NOON_MS - 7 * DAY_MS, UNTIL_MS)
    assert parse(week_ago).start_ms == NOON_MS
    assert parse(week_ago, NOON_MS + HOUR_MS).start_ms == NOON_MS + HOUR_MS
    assert parse(content(NOON_MS + HOUR_MS, UNTIL_MS)).start_ms == NOON_MS + HOUR_MS
    assert parse(content(NOON_MS, NOON_MS + notes.LONGEST_MS)).until_ms == NOON_MS + notes.LONGEST_MS


def test_the_owner_of_the_spool_may_write_notes_for_the_past_but_none_that_last_longer() -> None:
    past = content(NOON_MS - 30 * DAY_MS, NOON_MS - 20 * DAY_MS)
    assert parse(past, is_owners=True)[:2] == (NOON_MS - 30 * DAY_MS, NOON_MS - 20 * DAY_MS)
    assert "14 days" in why_not(content(NOON_MS - 30 * DAY_MS, NOON_MS), is_owners=True)


@pytest.mark.parametrize(
    ("what", "why"),
    [
        (b"", "no JSON"),
        (b'{"a":' * 20_000 + b"1" + b"}" * 20_000, "no JSON"),
        (b"9" * 60_000, "no JSON"),
        (b"[1]", "no JSON object"),
        (content(NOON_MS - 2 * DAY_MS, NOON_MS - DAY_MS), "it ends before it begins, or before it was written"),
        (content(NOON_MS + 2 * HOUR_MS, NOON_MS + HOUR_MS), "it ends before it begins"),
        (content(NOON_MS, NOON_MS + notes.LONGEST_MS + notes.CLOCK_MS + 1), "14 days after it was written"),
        (content(NOON_MS + 365 * DAY_MS, NOON_MS + 366 * DAY_MS), "14 days"),  # one that begins later ends no later
        (content(NOON_MS, UNTIL_MS, identity="bob"), "only the owner of the spool may name an identity"),
        ({**GOOD, "until_ms": float("nan")}, "until_ms is no time"),
        ({**GOOD, "until_ms": notes.LATEST_MS + 1}, "until_ms is no time"),
        ({**GOOD, "from_ms": -1}, "from_ms is no time"),
        ({**GOOD, "reason": ""}, "reason is no text"),
        ({**GOOD, "reason": "x" * (notes.LONGEST_REASON + 1)}, "reason is no text"),
        ({**GOOD, "gpu_uuids": "GPU-0"}, "gpu_uuids is no list"),
        ({**GOOD, "gpu_uuids": ["GPU-0"] * (notes.MOST_ABOUT + 1)}, "gpu_uuids is no list"),
        ({**GOOD, "gpu_uuids": []}, "about nothing"),
        ({**GOOD, "processes": {"pid": 1}}, "processes is no list"),
        ({**GOOD, "processes": [{"pid": 0, "start_time_ms": 1}]}, "no pid"),
        ({**GOOD, "processes": [{"pid": 7}]}, "start_time_ms is no time"),
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
    except notes.NoNote as error:
        text = str(error)
    else:
        text = note.reason
        assert note.until_ms is not None
        assert 0 < note.until_ms - note.start_ms <= notes.LONGEST_MS + notes.CLOCK_MS
        assert note.identity or note.gpu_uuids or note.processes
    assert text.isprintable()


def test_a_note_is_in_force_from_its_beginning_to_before_its_end() -> None:
    note = parse(GOOD)
    times = (NOON_MS - 1, NOON_MS, UNTIL_MS - 1, UNTIL_MS)
    assert [note.is_in_force(ms) for ms in times] == [False, True, True, False]
    assert notes.Note(0, None, REASON, None, True).is_in_force(notes.LATEST_MS)


def test_a_note_is_about_its_cards_and_its_processes() -> None:
    on_card = parse(GOOD)
    assert on_card.is_about("GPU-0", 1, None)
    assert not on_card.is_about("GPU-1", 1, None)
    both = parse({**GOOD, "processes": [{"pid": 7, "start_time_ms": NOON_MS}, {"pid": 8, "start_time_ms": 5}]})
    assert both.is_about("GPU-0", 7, NOON_MS)
    assert both.is_about("GPU-0", 7, float(NOON_MS + notes.START_DIFFERS_MS))
    assert not both.is_about("GPU-1", 7, NOON_MS)
    assert not both.is_about("GPU-0", 9, NOON_MS)
    for start_ms in (5, NOON_MS + notes.START_DIFFERS_MS + 1, None, float("nan")):  # a later one with the same pid
        assert not both.is_about("GPU-0", 7, start_ms)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make_spool(tmp_path)


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def fresh(**more: object) -> dict[str, object]:
    return content(now_ms(), now_ms() + DAY_MS, **more)


def read(folder: Path, number: int = 0, uid: int = ME) -> notes.Entry:
    with notes.open_spool(str(folder)) as spool:
        entry = notes.read_entry(spool, f"{uid}.{number}")
    assert entry is not None
    return entry


def test_notes_are_found_by_the_uids_of_their_owners_and_the_spools_owners_are_always_read(folder: Path) -> None:
    path = put(folder, f"{ME}.3", fresh())
    entry = read(folder, 3)
    assert (entry.name, entry.uid, entry.number, entry.problem) == (path.name, ME, "3", None)
    assert entry.note
    assert (entry.note.reason, entry.note.uid) == (REASON, ME)
    assert notes.read_entries(str(folder), [ME, 77]) == notes.read_entries(str(folder), []) == [entry]


def test_a_note_as_landed_versions_wrote_it_is_read(folder: Path) -> None:
    start_ms = now_ms()
    times = b'{"from_ms": %d, "until_ms": %d,' % (start_ms, start_ms + DAY_MS)
    put(folder, f"{ME}.9", times + b' "reason": "serving", "processes": [{"pid": 7, "start_time_ms": 5}]}')
    assert read(folder, 9).note == notes.Note(start_ms, start_ms + DAY_MS, "serving", ME, True, None, (), ((7, 5),))


@needs_root
def test_what_is_written_while_it_is_read_is_not_older(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = put(folder, f"{SOMEBODY}.0", fresh(), SOMEBODY)
    time.sleep(0.05)
    read_bytes, written = os.read, []

    def write_first(descriptor: int, size: int) -> bytes:
        monkeypatch.setattr(os, "read", read_bytes)
        time.sleep(0.05)
        path.write_text(json.dumps(fresh(reason="another", gpu_uuids=["GPU-0"])))
        written.append(path.stat().st_ctime_ns // 1_000_000)
        return read_bytes(descriptor, size)

    monkeypatch.setattr(os, "read", write_first)
    note = read(folder, uid=SOMEBODY).note
    assert note
    assert (note.reason, note.start_ms) == ("another", written[0])


def test_a_missing_spool_is_told_from_one_that_is_not_to_be_trusted(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), notes.open_spool(str(tmp_path / "none")):
        pass
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match="can't be opened"), notes.open_spool(str(tmp_path / "file")):
        pass


@pytest.mark.parametrize("mode", [0o733, 0o777])
def test_a_spool_that_others_may_empty_is_not_used(tmp_path: Path, mode: int) -> None:
    path = make_spool(tmp_path, mode)
    put(path, f"{ME}.0", fresh())
    with pytest.raises(StoreError, match=r"may remove others' notes .* root's of mode 1733"):
        read(path)
    for sound in (0o1733, 0o1777, 0o755, 0o700):
        path.chmod(sound)
        assert read(path).note


@needs_root
def test_a_spool_that_another_user_may_exchange_is_not_used(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(folder)
    assert notes.read_entries(str(tmp_path / "link"), []) == []  # of our own
    os.chown(tmp_path / "link", SOMEBODY, SOMEBODY, follow_symlinks=False)
    with pytest.raises(StoreError, match=f"leads through a link of uid {SOMEBODY}"):
        notes.read_entries(str(tmp_path / "link"), [])
    os.chown(tmp_path, SOMEBODY, SOMEBODY)
    with pytest.raises(StoreError, match=f"lies in a folder of uid {SOMEBODY}"):
        read(folder)


def note(until_ms: int | None = None, reason: str = REASON) -> notes.Note:
    return notes.Note(now_ms(), until_ms or now_ms() + DAY_MS, reason, ME, True, None, ("GPU-0",))


def write(folder: Path, what: notes.Note, at_ms: int | None = None) -> notes.Entry:
    with notes.open_spool(str(folder)) as spool:
        return notes.put_note(spool, what, at_ms or now_ms())


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_note_that_is_written_is_one_that_counts_and_all_may_read_it(folder: Path) -> None:
    previous = os.umask(0o077)
    try:
        entry = write(folder, note())
    finally:
        os.umask(previous)
    assert entry == read(folder)
    assert entry.note
    (path,) = folder.iterdir()
    assert (path.name, path.stat().st_mode & 0o7777) == (f"{ME}.0", 0o644)


def test_the_next_free_name_is_taken_also_beside_what_is_no_note(folder: Path) -> None:
    (folder / f"{ME}.0").mkdir()
    put(folder, f"{ME}.1", b"junk")
    (folder / f"{ME}.2").symlink_to(folder.parent / "made by following a link")
    assert [write(folder, note()).number for _ in range(3)] == ["3", "4", "5"]
    with notes.open_spool(str(folder)) as spool:
        notes.remove_note(spool, f"{ME}.4")
        with pytest.raises(StoreError, match="there is no note 4: gua note --list"):
            notes.remove_note(spool, f"{ME}.4")
    assert write(folder, note()).number == "4"
    assert names(folder.parent) == ["notes"]


def fill(folder: Path, count: int = notes.MOST_NOTES) -> None:
    for number in range(count):
        write(folder, note(now_ms() + HOUR_MS + (number * 7 % notes.MOST_NOTES) * 1000, f"{number}"))


def test_of_ended_notes_the_one_that_ended_longest_ago_makes_room_if_there_is_no_other(folder: Path) -> None:
    fill(folder)  # the one at 3 ends second, as 7 * 3 = 21
    later_ms = now_ms() + HOUR_MS + 1500
    assert write(folder, note(later_ms + DAY_MS, "new"), later_ms).number == "0"
    assert write(folder, note(later_ms + DAY_MS, "newer"), later_ms).number == "3"
    reasons = [entry.note.reason for entry in notes.read_entries(str(folder), []) if entry.note]
    assert reasons == ["new", "1", "2", "newer", "4", "5", "6", "7", "8", "9"]


def test_neither_notes_in_force_nor_what_is_no_note_are_replaced(folder: Path) -> None:
    fill(folder, notes.MOST_NOTES - 2)
    for number in range(notes.MOST_NOTES - 2, notes.MOST_NOTES):
        put(folder, f"{ME}.{number}", b"junk")
    with pytest.raises(StoreError, match=r"8 by notes in force: .*--remove N; 2 are blocked by files .*: sudo gua doc"):
        write(folder, note())
    for number in range(notes.MOST_NOTES - 2, notes.MOST_NOTES):
        (folder / f"{ME}.{number}").unlink()
    fill(folder, 2)
    with pytest.raises(StoreError, match=r"10 places for your notes are taken, 10 by notes in force: .*--remove N$"):
        write(folder, note())
    assert names(folder) == [f"{ME}.{number}" for number in range(notes.MOST_NOTES)]


def test_two_commands_at_once_write_two_notes(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fsync, other = os.fsync, []

    def be_late(descriptor: int) -> None:
        monkeypatch.setattr(os, "fsync", fsync)
        other.append(write(folder, note(reason="faster")))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", be_late)
    entry = write(folder, note(reason="slower"))
    assert (entry.number, other[0].number) == ("0", "1")
    assert [one.note.reason for one in notes.read_entries(str(folder), []) if one.note] == ["slower", "faster"]


def test_a_spool_without_room_stays_as_it_was(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StoreError, match=r"No space left on device.*: nothing is noted"):
        write(folder, note())
    assert names(folder) == []


def test_a_note_that_would_not_count_is_not_called_written(folder: Path) -> None:
    with pytest.raises(StoreError, match=r"nothing is noted, as it would not count in .*: it ends more than 14 days"):
        write(folder, note(now_ms() + 15 * DAY_MS))
    assert names(folder) == []


def test_the_owner_of_the_spool_sees_whose_notes_are_there(folder: Path) -> None:
    for name in ("1001.0", "1001.9", "77.3", ".1001.abcd.unfinished", "x.1", "1001", "1001.x", "٣.1"):
        put(folder, name, b"")
    with notes.open_spool(str(folder)) as spool:
        assert notes.list_uids(spool) == {77, 1001}
