"""The file of known containers: what is added, what is kept, and when a container is asked for."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from gua_report.people.containers import FORGET_MS, add_containers, write_containers
from gua_sample.containers import ASK_AGAIN_MS, FILE_NAME, NOTHING, SOCKET, Container, Known, read_containers
from gua_sample.errors import StoreError
from tests import odd_files

NOW_MS = 1_794_268_800_000
KEY, OTHER = "3f2a9c81d0b7", "abcdefabcdef"
TRAIN = Container("docker", "train", "pytorch:2.9", None, None, None, NOW_MS)
SERVE = Container("podman", "serve", None, "ada", SOCKET, 1001, NOW_MS)


def test_what_was_known_before_is_kept(tmp_path: Path) -> None:
    assert add_containers(str(tmp_path), {KEY: TRAIN}, [OTHER], NOW_MS) is None
    assert add_containers(str(tmp_path), {OTHER: SERVE}, [KEY], NOW_MS + 1) is None
    # Nor is a name lost that nobody knows any more, as of a container that was removed.
    assert read_containers(str(tmp_path)) == Known({KEY: TRAIN, f"1001/{OTHER}": SERVE}, {})


def test_an_id_is_asked_for_unless_it_is_known_or_was_asked_for_within_the_hour(tmp_path: Path) -> None:
    add_containers(str(tmp_path), {KEY: TRAIN}, [OTHER], NOW_MS)
    known = read_containers(str(tmp_path))
    assert not known.wants(KEY, NOW_MS + FORGET_MS)
    assert known.wants("f" * 12, NOW_MS)
    asks = {ms: known.wants(OTHER, NOW_MS + ms) for ms in (-1, 0, ASK_AGAIN_MS - 1, ASK_AGAIN_MS)}
    assert asks == {-1: True, 0: False, ASK_AGAIN_MS - 1: False, ASK_AGAIN_MS: True}  # -1: the clock was set back


def test_what_nobody_knew_is_forgotten_after_a_day(tmp_path: Path) -> None:
    add_containers(str(tmp_path), {}, [OTHER], NOW_MS)
    add_containers(str(tmp_path), {}, [], NOW_MS + FORGET_MS - 1)
    assert list(read_containers(str(tmp_path)).asked_ms) == [OTHER]
    add_containers(str(tmp_path), {}, [], NOW_MS + FORGET_MS)
    assert read_containers(str(tmp_path)) == NOTHING


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b"\xff", b"[" * 1_000_000, b'{"version": 2}', b'{"version": "1"}', b" " * (9 << 20)]
)
def test_a_file_that_makes_no_sense_is_replaced_and_it_is_said_why(tmp_path: Path, content: bytes) -> None:
    (tmp_path / FILE_NAME).write_bytes(content)
    with pytest.raises(StoreError, match="names of containers are missing"):
        read_containers(str(tmp_path))
    assert add_containers(str(tmp_path), {KEY: TRAIN}, [], NOW_MS)
    assert read_containers(str(tmp_path)) == Known({KEY: TRAIN}, {})


@pytest.mark.parametrize("put", [odd_files.fifo, odd_files.endless])
def test_a_pipe_or_link_is_replaced_and_not_opened(tmp_path: Path, put: Callable[[Path], None]) -> None:
    put(tmp_path / FILE_NAME)
    assert add_containers(str(tmp_path), {KEY: TRAIN}, [], NOW_MS)
    assert read_containers(str(tmp_path)).containers == {KEY: TRAIN}
    assert [path.name for path in tmp_path.iterdir()] == [FILE_NAME]


def test_a_file_that_can_not_be_written_is_as_it_was(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME / "more").mkdir(parents=True)
    with pytest.raises(StoreError, match="can't be written"):
        write_containers(str(tmp_path), NOTHING)
    assert [path.name for path in tmp_path.iterdir()] == [FILE_NAME]


def test_entries_that_make_no_sense_cost_nothing_but_themselves(tmp_path: Path) -> None:
    good = SERVE._asdict()
    bad = [7, {}, good | {"name": 7}, good | {"slice_uid": "0"}, good | {"seen_ms": 1.5}]
    entries = {f"{number:012x}": entry for number, entry in enumerate(bad)} | {KEY: good, "../x": good, "F" * 12: good}
    document = {"version": 1, "containers": entries, "asked_ms": {OTHER: NOW_MS, KEY[:11]: 1, "f" * 12: "soon"}}
    (tmp_path / FILE_NAME).write_text(json.dumps(document))
    assert read_containers(str(tmp_path)) == Known({KEY: SERVE}, {OTHER: NOW_MS})


def test_the_newest_are_kept_if_there_are_very_many(tmp_path: Path) -> None:
    many = {f"{number:012x}": TRAIN._replace(seen_ms=NOW_MS + number) for number in range(10_050)}
    write_containers(str(tmp_path), Known(many, {}))
    kept = read_containers(str(tmp_path)).containers
    assert (len(kept), min(one.seen_ms for one in kept.values())) == (10_000, NOW_MS + 50)
