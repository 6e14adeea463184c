from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gua_sample import settings
from gua_sample.errors import UsageError


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [("250ms", 250), ("30s", 30_000), ("1.5m", 90_000), ("2h", 7_200_000), ("7d", 604_800_000), ("1w", 604_800_000)],
)
def test_durations_are_read(text: str, milliseconds: int) -> None:
    assert settings.duration_ms(text) == milliseconds


@pytest.mark.parametrize(
    "text",
    [
        "",
        "30",
        "s",
        "0s",
        "-1s",
        "1y",
        "1 s",
        " 1s",
        "nans",
        "infs",
        "1e3s",
        "1_0s",
        "1.2.3s",
        ".s",
        "٣s",
        "99999999w",
        "1h30m",
    ],
)
def test_a_bad_duration_names_itself_and_what_was_expected(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        settings.duration_ms(text)
    assert repr(text) in str(caught.value)
    assert "30s" in str(caught.value)


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


def test_a_relative_folder_is_made_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert settings.data_dir("try") == str(tmp_path / "try")


def test_whatever_the_environment_says_the_folder_is_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "SYSTEM_DATA_DIR", str(tmp_path / "none"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/ada")
    assert settings.data_dir(None, {"GUA_DATA_DIR": "x"}) == str(tmp_path / "x")
    assert settings.data_dir(None, {"STATE_DIRECTORY": "x"}) == str(tmp_path / "x")
    assert settings.data_dir(None, {"XDG_STATE_HOME": "x"}) == "/home/ada/.local/state/gua"
    monkeypatch.setenv("HOME", "x")
    with pytest.raises(UsageError, match="--data-dir"):
        settings.data_dir(None, {})


def test_an_empty_folder_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="empty"):
        settings.data_dir("")
