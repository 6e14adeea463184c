"""What gua doctor makes of the data folder."""

from __future__ import annotations

import os
from pathlib import Path

from gua_report.doctor import data as doctor_data
from gua_report.doctor import user as doctor_user
from gua_report.doctor.findings import ERROR, OK, Finding
from gua_report.doctor.user import User
from gua_report.machine.units import Units
from tests.facts import newest, put, units


def check_folder(path: str, user: User, units: Units | None) -> Finding:
    return doctor_data.check_folder(path, user, units, "START")


def us() -> User:
    return doctor_user.find_user(os.geteuid(), os.getegid())


def test_a_state_folder_that_is_a_link_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    link = tmp_path / "gua"
    link.symlink_to(tmp_path / "real")
    found = check_folder(str(link), us(), units(StateDirectory=str(link)))
    assert found.status == ERROR
    assert "238/STATE_DIRECTORY" in found.text
    typed, _, comment = str(found.remedy).partition("   # ")
    assert typed == f"sudo rm {link} && sudo mkdir {link} && sudo mount --bind {tmp_path}/real {link}"
    assert comment.endswith('docs/operations.md "Moving the data"')
    # Without systemd's refusal it is a folder like any other; and for DynamicUser= systemd makes a link itself.
    assert check_folder(str(link), us(), units()).status == OK
    assert check_folder(str(link), us(), None).status == OK
    link.unlink()
    (tmp_path / "real").rename(tmp_path / "private")
    (tmp_path / "private/gua").mkdir()
    link.symlink_to("private/gua")
    assert check_folder(str(link), us(), units(StateDirectory=str(link))).status == OK


def test_a_folder_below_a_file_or_a_circle_of_links_is_an_error(tmp_path: Path) -> None:
    file = put(tmp_path / "file", "")
    found = check_folder(f"{file}/x/y", us(), None)
    assert (found.status, found.text) == (ERROR, f"{file} is no folder")
    assert newest(f"{file}/x/y/samples").status == ERROR
    (tmp_path / "circle").symlink_to("circle")
    assert check_folder(f"{tmp_path}/circle", us(), None).status == ERROR


def test_a_link_to_nowhere_is_an_error(tmp_path: Path) -> None:
    """The sampler makes a folder that is missing, but not in place of a link."""
    (tmp_path / "link").symlink_to("nowhere")
    found = check_folder(f"{tmp_path}/link", us(), None)
    assert (found.status, found.remedy) == (ERROR, f"ls -l {tmp_path}/link")
    assert "is a link to a folder that does not exist" in found.text
