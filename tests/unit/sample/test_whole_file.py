"""Files that are written whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gua_sample.whole_file import ABANDONED_SECONDS, remove_unfinished, replace_file, replacing


def test_a_block_that_fails_leaves_the_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("before")
    with pytest.raises(ZeroDivisionError), replacing(str(path)) as file:
        file.write(b"half of" * (1 // 0))
    assert (os.listdir(tmp_path), path.read_text()) == (["file"], "before")


def test_a_link_is_replaced_and_a_mode_can_be_given(tmp_path: Path) -> None:
    (tmp_path / "target").write_text("before")
    (tmp_path / "link").symlink_to("target")
    replace_file(str(tmp_path / "link"), "n\udcffw", mode=0o604)
    assert (tmp_path / "target").read_text() == "before"
    assert (tmp_path / "link").read_text() == r"n\udcffw"
    assert (tmp_path / "link").lstat().st_mode & 0o777 == 0o604


def test_a_folder_that_is_open_is_written_to_wherever_it_is_now(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    folder = os.open(tmp_path / "folder", os.O_PATH)
    try:
        with replacing("file", within=folder) as file:
            (tmp_path / "folder").rename(tmp_path / "elsewhere")
            file.write(b"new")
    finally:
        os.close(folder)
    assert os.listdir(tmp_path / "elsewhere") == ["file"]


def test_what_killed_writers_left_is_removed_after_a_while(tmp_path: Path) -> None:
    names = [".a.csv.12345678.unfinished", ".b.csv.12345678.unfinished", ".a.csv.swp", "a.csv"]
    for name in names:
        (tmp_path / name).touch()
    remove_unfinished(str(tmp_path), "a.csv.")
    assert sorted(os.listdir(tmp_path)) == sorted(names)
    for name in names:
        os.utime(tmp_path / name, (0, (tmp_path / name).stat().st_mtime - ABANDONED_SECONDS))
    remove_unfinished(str(tmp_path), "a.csv.")
    assert sorted(os.listdir(tmp_path)) == sorted(names[1:])
    remove_unfinished(str(tmp_path), seconds=0)
    assert sorted(os.listdir(tmp_path)) == sorted(names[2:])
