"""What gua doctor makes of gua.toml."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from gua_report.doctor import config_file
from gua_report.doctor.config_file import check_config
from gua_report.doctor.findings import OK, WARNING, Finding


def check(tmp_path: Path, text: str) -> list[Finding]:
    path = tmp_path / "gua.toml"
    path.write_text(text)
    return check_config(str(path))[1]


def test_a_good_config_is_named_with_what_it_has(tmp_path: Path) -> None:
    text = '[people]\n"uid:5" = "zoe"\n[groups]\nvision = ["root", "zoe", "docker:3f2a9c81d0b7", "@root"]\nnlp = []\n'
    (found,) = check(tmp_path, text + '[exempt]\n"unit:ollama.service" = "serves"\n')
    assert (found.status, found.remedy) == (OK, None)
    assert found.text == f"{tmp_path}/gua.toml: 1 name, 2 groups, 1 exemption"


def test_a_broken_config_is_a_warning_that_says_what_fails(tmp_path: Path) -> None:
    path = tmp_path / "gua.toml"
    for text, said in ("[polcy]", "did you mean policy?"), ("= 5", "expected a TOML file"):
        path.write_text(text)
        config, (found,) = check_config(str(path))
        assert config is None
        assert (found.check, found.status, found.remedy) == ("gua.toml", WARNING, f"sudoedit {path}")
        assert said in found.text
        assert "reports, status and rollups fail" in found.text


def test_people_and_unix_groups_that_do_not_exist_are_named(tmp_path: Path) -> None:
    text = '[groups]\nvision = ["root", "nobody-here", "@no-such-group"]\n[exempt]\nnobody-else = "serves"\n'
    users, groups = check(tmp_path, text)
    assert users.status == groups.status == WARNING
    assert users.text.endswith("no such user on this machine, and nobody whom [people] names: nobody-here, nobody-else")
    assert groups.text.endswith(": no-such-group")


def test_exemptions_without_effect_are_named(tmp_path: Path) -> None:
    (found,) = check(tmp_path, '[people]\nroot = "Ada L."\n"uid:5" = "zoe"\n[exempt]\nroot = "x"\nzoe = "y"\n')
    assert found.status == WARNING
    assert found.text.endswith("gives another, to be exempted instead: root (Ada L.)")


def test_a_directory_of_users_that_hangs_costs_seconds_and_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(config_file, "ANSWER_SECONDS", 0.2)
    monkeypatch.setattr("pwd.getpwnam", lambda name: time.sleep(60))
    (found,) = check(tmp_path, '[groups]\nvision = ["ada"]\n')
    assert found.status == WARNING
    assert "does not answer" in found.text


def test_without_a_config_there_is_nothing_to_say(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("gua_report.config.SYSTEM_CONFIG", str(tmp_path / "none"))
    monkeypatch.setattr(config_file, "SYSTEM_CONFIG", str(tmp_path / "none"))
    config, findings = check_config(None)
    assert config is not None
    assert findings == []
