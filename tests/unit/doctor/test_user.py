"""Users, and what they may do."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from gua_report.doctor import user as doctor_user
from gua_report.doctor.user import User
from tests.facts import GUA
from tests.users import SOMEBODY, needs_root


@needs_root
def test_root_tries_out_what_another_user_may_do(open_folder: Path) -> None:
    somebody = doctor_user.find_user(SOMEBODY)
    assert somebody == User(SOMEBODY, SOMEBODY, (SOMEBODY,), None)
    assert doctor_user.may(somebody, str(open_folder), os.R_OK)
    assert not doctor_user.may(somebody, str(open_folder), os.W_OK)
    os.chown(open_folder, SOMEBODY, -1)
    assert doctor_user.may(somebody, str(open_folder), os.W_OK)
    assert os.geteuid() == 0


@pytest.mark.parametrize(
    ("owner", "group", "mode", "expected"),
    [
        (990, 0, 0o600, True),
        (990, 0, 0o466, False),  # its owner's bits count, and no others
        (0, 44, 0o060, True),
        (0, 44, 0o606, False),
        (0, 0, 0o006, True),
        (0, 0, 0o664, False),
    ],
)
def test_access_is_judged_as_the_kernel_does(owner: int, group: int, mode: int, expected: bool) -> None:
    found = os.stat_result((stat.S_IFCHR | mode, 0, 0, 1, owner, group, 0, 0, 0, 0))
    assert doctor_user.allows(found, GUA, os.R_OK | os.W_OK) == expected


def test_users_are_found_by_name_and_by_number() -> None:
    assert doctor_user.find_user("root").uid == 0
    assert doctor_user.find_user(0).name == "root"
    with pytest.raises(doctor_user.NoSuchUser):
        doctor_user.find_user("nobody-of-this-name")
