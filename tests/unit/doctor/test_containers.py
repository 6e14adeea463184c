"""What gua doctor makes of the names of containers."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from gua_report.doctor import containers
from gua_report.doctor.containers import check_containers
from gua_report.doctor.findings import OK, WARNING
from gua_report.people.containers import write_containers
from gua_sample.containers import FILE_NAME, Container, Known
from gua_sample.service import WANTED

TRAIN = Container("docker", "train", None, None, None, None, 1)


def leave_note(folder: Path, age_seconds: float) -> None:
    (folder / WANTED).write_text("3f2a9c81d0b7\n")
    os.utime(folder / WANTED, times=(time.time() - age_seconds,) * 2)


def test_without_containers_there_is_nothing_to_say(tmp_path: Path) -> None:
    assert check_containers(str(tmp_path), str(tmp_path)) == []


def test_known_and_unknown_names_are_counted(tmp_path: Path) -> None:
    write_containers(str(tmp_path), Known({"3f2a9c81d0b7": TRAIN}, {"abcdefabcdef": 5}))
    (found,) = check_containers(str(tmp_path), str(tmp_path))
    assert (found.status, found.text) == (OK, "1 name known, 1 that nobody knows")


def test_a_file_that_can_not_be_used_is_a_warning(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).symlink_to("/etc/passwd")
    (found,) = check_containers(str(tmp_path), str(tmp_path))
    assert found.status == WARNING
    assert "names of containers are missing" in found.text


def test_a_note_that_nobody_takes_is_a_warning_if_somebody_should(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(containers, "UNIT_FOLDERS", (str(tmp_path),))
    leave_note(tmp_path, 300)
    (found,) = check_containers(str(tmp_path), str(tmp_path))
    assert (found.status, str(found.remedy).split()[:4]) == (OK, ["sudo", "make", "install", "CONTAINERS=yes"])
    (tmp_path / containers.UNIT).touch()
    (found,) = check_containers(str(tmp_path), str(tmp_path))
    assert (found.status, found.text) == (
        WARNING,
        "names were asked for 5 min ago, and nobody has looked: gua-containers.path does not work",
    )
    leave_note(tmp_path, 60)
    assert check_containers(str(tmp_path), str(tmp_path)) == []
