"""Settings, names of files, and files that are written whole or not at all."""

import os
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gua_sample import settings
from gua_sample.errors import UsageError
from gua_sample.partition_names import DAY_MS, day_of, list_partitions, partition_path
from gua_sample.safe_file import ABANDONED_SECONDS, remove_unfinished, replace_file, replacing


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [("250ms", 250), ("30s", 30_000), ("1.5m", 90_000), ("2h", 7_200_000), ("7d", 604_800_000), ("1w", 604_800_000)],
)
def test_durations_are_read(text: str, milliseconds: int) -> None:
    assert settings.duration_ms(text) == milliseconds


@pytest.mark.parametrize(
    ("texts", "why"),
    [
        (["", "30", "s", "0s", "-1s", "1y", "1 s", " 1s", "nans", "infs", "1e3s"], "such as 30s"),
        (["1_0s", "1.2.3s", ".s", "٣s", "1h30m"], "such as 30s"),
        (["100000w", "99999999w", "9" * 400 + "d"], "is too long: 100 years are the most"),
    ],
)
def test_a_bad_duration_names_itself_and_what_was_expected(texts: list[str], why: str) -> None:
    for text in texts:
        with pytest.raises(UsageError, match=why) as caught:
            settings.duration_ms(text)
        assert repr(text) in str(caught.value)


@given(st.text(max_size=8))
def test_whatever_is_typed_is_a_duration_or_a_usage_error(text: str) -> None:
    with suppress(UsageError):
        assert settings.duration_ms(text) > 0


def test_the_data_folder_is_the_first_that_applies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    system = tmp_path / "system"
    monkeypatch.setattr(settings, "SYSTEM_DATA_DIR", str(system))
    environment = {"GUA_DATA_DIR": "/gua", "STATE_DIRECTORY": "/state:/other", "XDG_STATE_HOME": "/xdg"}
    assert settings.data_dir("/option", environment) == "/option"
    assert settings.data_dir(None, environment) == "/gua"
    del environment["GUA_DATA_DIR"]
    assert settings.data_dir(None, environment) == "/state"
    del environment["STATE_DIRECTORY"]
    assert settings.data_dir(None, environment) == "/xdg/gua"
    system.mkdir()
    assert settings.data_dir(None, environment) == str(system)
    system.rmdir()
    monkeypatch.setenv("HOME", "/home/ada")
    assert settings.data_dir(None, {}) == "/home/ada/.local/state/gua"


def test_whatever_the_environment_says_the_folder_is_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "SYSTEM_DATA_DIR", str(tmp_path / "none"))
    monkeypatch.chdir(tmp_path)
    assert settings.data_dir("try") == str(tmp_path / "try")
    with pytest.raises(UsageError, match="empty"):
        settings.data_dir("")
    monkeypatch.setenv("HOME", "/home/ada")
    assert settings.data_dir(None, {"GUA_DATA_DIR": "x"}) == str(tmp_path / "x")
    assert settings.data_dir(None, {"STATE_DIRECTORY": "x"}) == str(tmp_path / "x")
    assert settings.data_dir(None, {"XDG_STATE_HOME": "x"}) == "/home/ada/.local/state/gua"
    monkeypatch.setenv("HOME", "x")
    with pytest.raises(UsageError, match="--data-dir"):
        settings.data_dir(None, {})


def test_a_tick_belongs_to_its_utc_day() -> None:
    midnight = 1_794_787_200_000
    assert day_of(midnight) == "2026-11-16"
    assert day_of(midnight - 1) == "2026-11-15"
    assert day_of(midnight + DAY_MS - 1) == "2026-11-16"


def test_partitions_are_listed_oldest_first_and_nothing_else(tmp_path: Path) -> None:
    partitions = [partition_path(str(tmp_path), day) for day in ("2025-12-31", "2026-11-16")]
    others = ["x2026-11-16.sqlite", "2026-11-16.sqlite\n", "٢٠٢٦-11-16.sqlite", "rollups.sqlite"]
    others += [f"2026-11-16.{end}" for end in ("sqlite-journal", "sqlite.corrupt-1", "00000000000001.pending")]
    for name in (*reversed(partitions), *others):
        (tmp_path / name).touch()
    assert list_partitions(str(tmp_path)) == partitions


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
