"""The spool: which files in it are read as notes, and how notes are written."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import time
from pathlib import Path

import pytest

from gua_sample.errors import StoreError
from gua_sample.note_spool import (
    Entry,
    Spool,
    find_entries,
    list_uids,
    open_spool,
    put_note,
    read_entries,
    read_entry,
    remove_note,
    restore_entry,
)
from gua_sample.notes import MOST_BYTES, Note
from gua_sample.settings import NOTE_SLOTS
from tests.lab import DAY_MS, HOUR_MS
from tests.notes import REASON, content, make_spool, put
from tests.users import SOMEBODY, needs_root

ME = os.geteuid()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make_spool(tmp_path)


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def fresh(**more: object) -> dict[str, object]:
    return content(now_ms(), now_ms() + DAY_MS, **more)


def read(folder: Path, slot: int = 0, uid: int = ME) -> Entry:
    with open_spool(str(folder)) as spool:
        return read_entry(spool, uid, slot)


def why_not(folder: Path, uid: int = ME) -> str:
    entry = read(folder, uid=uid)
    assert entry.note is None
    return entry.problem or ""


def test_a_note_is_read_under_the_name_of_its_owner(folder: Path) -> None:
    path = put(folder, f"{ME}.3", fresh())
    entry = read(folder, 3)
    assert (entry.name, entry.problem) == (path.name, None)
    assert entry.note
    assert (entry.note.reason, entry.note.uid) == (REASON, ME)
    assert read_entries(str(folder), [ME, 77]) == [entry]
    assert read_entries(str(folder), []) == [entry]  # the owner's are always read


def test_notes_survive_the_way_from_a_child(folder: Path) -> None:
    put(folder, f"{ME}.0", fresh(processes=[{"pid": 7, "start_time_ms": 5}], gpu_uuids=["GPU-0"]))
    put(folder, f"{ME}.1", b"nonsense")
    entries = read_entries(str(folder), [ME])
    assert [restore_entry(*entry) for entry in json.loads(json.dumps(entries))] == entries


def test_a_link_is_not_followed(folder: Path, tmp_path: Path) -> None:
    put(tmp_path, "elsewhere", fresh())
    (folder / f"{ME}.0").symlink_to(tmp_path / "elsewhere")
    assert why_not(folder) == "it is a link"


def test_a_file_with_two_hard_links_does_not_count(folder: Path, tmp_path: Path) -> None:
    os.link(put(folder, f"{ME}.0", fresh()), tmp_path / "another")
    assert why_not(folder) == "it has 2 hard links"


def test_a_pipe_does_not_hang_the_reader(folder: Path) -> None:
    os.mkfifo(folder / f"{ME}.0")
    assert why_not(folder) == "it is no regular file"


def test_a_folder_in_the_place_of_a_note_does_not_count(folder: Path) -> None:
    (folder / f"{ME}.0").mkdir()
    assert why_not(folder) == "it is no regular file"


def test_a_large_file_is_not_read(folder: Path) -> None:
    path = put(folder, f"{ME}.0", json.dumps(fresh()).encode().ljust(MOST_BYTES))
    assert read(folder).note
    os.truncate(path, MOST_BYTES + 1)
    assert why_not(folder) == "it is larger than 64 kB"
    os.truncate(path, 1 << 30)  # sparse
    assert why_not(folder) == "it is larger than 64 kB"


@pytest.mark.parametrize("mode", [0o646, 0o664])
def test_a_file_that_others_may_write_to_does_not_count(folder: Path, mode: int) -> None:
    put(folder, f"{ME}.0", fresh()).chmod(mode)
    assert why_not(folder) == "others than its owner may write to it"


def test_a_file_named_after_another_user_does_not_count(folder: Path) -> None:
    put(folder, f"{SOMEBODY}.0", fresh())
    assert why_not(folder, uid=SOMEBODY) == f"it belongs to uid {ME}"


def test_what_is_mounted_on_a_name_does_not_count(folder: Path) -> None:
    put(folder, f"{ME}.0", fresh())
    with open_spool(str(folder)) as spool:
        assert spool.mount
        other = spool._replace(mount=b"mnt_id: 0")
        assert read_entry(other, ME, 0).problem == "something is mounted there"


def test_a_file_that_its_owner_has_leased_does_not_hang_the_reader(folder: Path) -> None:
    descriptor = os.open(put(folder, f"{ME}.0", fresh()), os.O_RDWR)
    try:
        fcntl.fcntl(descriptor, fcntl.F_SETSIG, signal.SIGURG)  # not SIGIO, which would end us
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        began = time.monotonic()
        assert why_not(folder) == "Resource temporarily unavailable"
        assert time.monotonic() - began < 5
    finally:
        os.close(descriptor)


@needs_root
def test_a_note_begins_with_the_change_of_its_file_whatever_its_other_times_say(folder: Path) -> None:
    began = now_ms()
    week_ago = began - 7 * DAY_MS
    path = put(folder, f"{SOMEBODY}.0", content(week_ago, began + DAY_MS), SOMEBODY)
    os.utime(path, (week_ago / 1000, week_ago / 1000))
    note = read(folder, uid=SOMEBODY).note
    assert note
    assert note.start_ms >= began - 1000


@needs_root
def test_what_is_written_while_it_is_read_does_not_pass_for_older(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
    with pytest.raises(FileNotFoundError), open_spool(str(tmp_path / "none")):
        pass
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match="can't be opened"), open_spool(str(tmp_path / "file")):
        pass


@pytest.mark.parametrize("mode", [0o733, 0o777, 0o1733, 0o1777, 0o755, 0o700])
def test_a_spool_that_others_may_empty_is_not_used(tmp_path: Path, mode: int) -> None:
    path = make_spool(tmp_path, mode)
    put(path, f"{ME}.0", fresh())
    if mode in (0o733, 0o777):
        with pytest.raises(StoreError, match=r"may remove others' notes .*chmod 1733"):
            read(path)
    else:
        assert read(path).note


@needs_root
def test_a_spool_of_another_user_is_not_used(folder: Path) -> None:
    put(folder, f"{ME}.0", fresh())
    os.chown(folder, SOMEBODY, SOMEBODY)
    with pytest.raises(StoreError, match=f"is uid {SOMEBODY}'s, not root's"):
        read(folder)


@needs_root
def test_a_spool_that_another_user_may_exchange_is_not_used(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(folder)
    assert read_entries(str(tmp_path / "link"), []) == []  # of our own
    os.chown(tmp_path / "link", SOMEBODY, SOMEBODY, follow_symlinks=False)
    with pytest.raises(StoreError, match=f"leads through a link of uid {SOMEBODY}"):
        read_entries(str(tmp_path / "link"), [])
    os.chown(tmp_path, SOMEBODY, SOMEBODY)
    with pytest.raises(StoreError, match=f"lies in a folder of uid {SOMEBODY}"):
        read(folder)


def note(until_ms: int | None = None, reason: str = REASON) -> Note:
    return Note(now_ms(), until_ms or now_ms() + DAY_MS, reason, ME, True, None, ("GPU-0",))


def write(folder: Path, what: Note, at_ms: int | None = None) -> Entry:
    with open_spool(str(folder)) as spool:
        return put_note(spool, what, at_ms or now_ms())


def test_a_note_that_is_written_is_one_that_counts_and_all_may_read_it(folder: Path) -> None:
    previous = os.umask(0o077)
    try:
        entry = write(folder, note())
    finally:
        os.umask(previous)
    assert entry == read(folder)
    assert entry.note
    (path,) = folder.iterdir()
    assert (path.name, path.stat().st_mode & 0o7777, path.stat().st_nlink) == (f"{ME}.0", 0o644, 1)


def test_the_next_free_place_is_taken_also_beside_what_is_no_note(folder: Path) -> None:
    (folder / f"{ME}.0").mkdir()
    put(folder, f"{ME}.1", b"junk")
    assert [write(folder, note()).slot for _ in range(3)] == [2, 3, 4]
    remove(folder, 3)
    assert write(folder, note()).slot == 3


def remove(folder: Path, slot: int, uid: int = ME) -> None:
    with open_spool(str(folder)) as spool:
        remove_note(spool, uid, slot)


def fill(folder: Path, slots: int = NOTE_SLOTS) -> None:
    for number in range(slots):
        write(folder, note(now_ms() + HOUR_MS + (number * 7 % NOTE_SLOTS) * 1000, f"{number}"))


def test_of_ended_notes_the_one_that_ended_longest_ago_makes_room_if_there_is_no_other(folder: Path) -> None:
    fill(folder)  # the one at 3 ends second, as 7 * 3 = 21
    later_ms = now_ms() + HOUR_MS + 1500
    assert write(folder, note(later_ms + DAY_MS, "new"), later_ms).slot == 0
    assert write(folder, note(later_ms + DAY_MS, "newer"), later_ms).slot == 3
    reasons = [entry.note.reason for entry in read_entries(str(folder), []) if entry.note]
    assert reasons == ["new", "1", "2", "newer", "4", "5", "6", "7", "8", "9"]


def test_notes_in_force_are_not_replaced(folder: Path) -> None:
    fill(folder)
    with pytest.raises(StoreError, match=r"10 places for your notes are taken, 10 by notes in force: .*--remove N$"):
        write(folder, note())
    assert sorted(path.name for path in folder.iterdir()) == [f"{ME}.{slot}" for slot in range(NOTE_SLOTS)]


def test_junk_of_ones_own_makes_room_before_notes_do(folder: Path) -> None:
    fill(folder, NOTE_SLOTS - 1)
    put(folder, f"{ME}.{NOTE_SLOTS - 1}", b"junk")
    assert write(folder, note(), now_ms() + 2 * HOUR_MS).slot == NOTE_SLOTS - 1


@needs_root
def test_places_that_others_block_are_left_and_named_if_none_is_left(folder: Path) -> None:
    for slot in range(NOTE_SLOTS - 2):
        put(folder, f"{ME}.{slot}", fresh(), SOMEBODY)
    assert [write(folder, note()).slot for _ in range(2)] == [NOTE_SLOTS - 2, NOTE_SLOTS - 1]
    with pytest.raises(StoreError, match=r"2 by notes in force: .*; 8 are blocked by files .*: sudo gua doctor names"):
        write(folder, note())


def test_two_commands_at_once_write_two_notes(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    link, other = os.link, []

    def be_late(*arguments: object, **keywords: object) -> None:
        monkeypatch.setattr(os, "link", link)
        other.append(write(folder, note(reason="faster")))
        link(*arguments, **keywords)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "link", be_late)
    entry = write(folder, note(reason="slower"))
    assert (other[0].slot, entry.slot) == (0, 1)
    assert len(list(folder.iterdir())) == 2


def test_a_spool_without_room_stays_as_it_was(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StoreError, match=r"No space left on device.*: nothing is noted"):
        write(folder, note())
    assert list(folder.iterdir()) == []


def test_a_note_that_would_not_count_is_not_called_written(folder: Path) -> None:
    with pytest.raises(StoreError, match=r"nothing is noted, as it would not count in .*: it ends more than 14 days"):
        write(folder, note(now_ms() + 15 * DAY_MS))
    assert list(folder.iterdir()) == []


def test_notes_are_removed_by_their_place(folder: Path) -> None:
    write(folder, note())
    remove(folder, 0)
    with pytest.raises(StoreError, match="there is no note 0: gua note --list"):
        remove(folder, 0)


def test_the_owner_of_the_spool_sees_whose_notes_are_there(folder: Path) -> None:
    for name in ("1001.0", "1001.9", "77.3", ".1001.abcd.unfinished", "x.1", "1001", "1001.x", "٣.1", "9" * 40 + ".1"):
        put(folder, name, b"")
    with open_spool(str(folder)) as spool:
        assert list_uids(spool) == [77, 1001]


def test_every_descriptor_is_closed(folder: Path) -> None:
    put(folder, f"{ME}.0", fresh())
    os.mkfifo(folder / f"{ME}.1")
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        with open_spool(str(folder)) as spool:
            assert isinstance(spool, Spool)
            assert len(find_entries(spool, ME)) == 2
    assert len(os.listdir("/proc/self/fd")) == before
