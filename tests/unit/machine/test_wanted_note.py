"""The sampler's note is taken once, whatever lies in its place."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from gua_report.machine.wanted_note import take_note
from gua_sample.errors import StoreError
from tests import odd_files
from tests.users import SOMEBODY, needs_root

IDS = ["3f2a9c81d0b7", "0a1b2c3d111122223333444455556666", "f" * 64]


def bind(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as unbound:
        unbound.bind(str(path))


def test_the_ids_are_read_and_the_note_is_gone(tmp_path: Path) -> None:
    note = tmp_path / "containers.wanted"
    note.write_text("\n".join([*IDS, IDS[0], ""]))
    assert take_note(str(note)) == IDS
    assert os.listdir(tmp_path) == []
    assert take_note(str(note)) == []


def test_what_is_no_id_is_passed_over(tmp_path: Path) -> None:
    note = tmp_path / "note"
    lines = [
        "3f2a9c81d0b",
        "3F2A9C81D0B7",
        "f" * 65,
        "../../etc/passwd",
        "3f2a9c81d0b7/../x",
        " 3f2a9c81d0b7",
        "",
        "é" * 12,
    ]
    note.write_text("\n".join([*lines, IDS[0], "3f2a9c81d0b7\r", "\0" * 12]))
    assert take_note(str(note)) == IDS[:1]


def test_of_a_million_lines_the_first_fifty_are_taken(tmp_path: Path) -> None:
    note = tmp_path / "note"
    note.write_text("".join(f"{number:012x}\n" for number in range(1_000_000)))
    assert take_note(str(note)) == [f"{number:012x}" for number in range(50)]
    assert not note.exists()


@pytest.mark.parametrize("put", [odd_files.fifo, odd_files.endless, odd_files.folder, bind])
def test_odd_files_are_removed_and_not_read(tmp_path: Path, put: Callable[[Path], None]) -> None:
    put(tmp_path / "note")
    assert take_note(str(tmp_path / "note")) == []
    assert os.listdir(tmp_path) == []


def test_a_link_is_removed_and_not_followed(tmp_path: Path) -> None:
    target = tmp_path / "secret"
    target.write_text(f"{IDS[0]}\n")
    (tmp_path / "note").symlink_to(target)
    assert take_note(str(tmp_path / "note")) == []
    assert target.exists()
    assert not (tmp_path / "note").is_symlink()


def test_a_folder_that_is_not_empty_is_said_to_be_in_the_way(tmp_path: Path) -> None:
    (tmp_path / "note" / "more").mkdir(parents=True)
    with pytest.raises(StoreError, match=r"note can't be removed \(it is a folder\)"):
        take_note(str(tmp_path / "note"))


@needs_root
def test_root_takes_it_with_the_rights_of_the_folders_owner(open_folder: Path) -> None:
    """In that folder its owner could put a second name of a file that only root may read."""
    folder = open_folder / "run"
    folder.mkdir()
    secret = open_folder / "secret"
    secret.write_text(f"{IDS[0]}\n")
    secret.chmod(0o600)
    os.link(secret, folder / "note")
    os.chown(folder, SOMEBODY, SOMEBODY)
    assert take_note(str(folder / "note")) == []
    assert not (folder / "note").exists()


@needs_root
def test_it_is_removed_before_it_is_read(open_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    note = open_folder / "note"
    note.write_text(f"{IDS[0]}\n")
    read = os.read
    seen = []

    def watch(descriptor: int, count: int) -> bytes:
        seen.append(note.exists())
        return read(descriptor, count)

    monkeypatch.setattr(os, "read", watch)
    assert take_note(str(note)) == IDS[:1]
    assert seen == [False]


def test_a_folder_that_is_missing_has_no_note(tmp_path: Path) -> None:
    assert take_note(str(tmp_path / "nowhere" / "note")) == []
