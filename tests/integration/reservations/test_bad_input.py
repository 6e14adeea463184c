"""Reservations that make no sense: a line names each, and the rest of the table is there."""

import os
import pwd
import subprocess

import pytest

from gua_report.live.validation import CONFIRMED, UNUSED
from gua_sample.policy import UNKNOWN
from tests.integration.reservations.reserving import ME, PID, gua, reserve_by_file, status
from tests.machine import GUA, Machine


def test_a_bad_row_a_missing_card_and_a_missing_user_take_one_line_each(machine: Machine) -> None:
    machine.scenario.add_card(utilization_percent=80, compute=[(PID, 8000)])
    machine.scenario.add_card()
    rows = [f"0,{ME},2026-01-01,,", f"1,{ME},tomorrow,,", "7,daemon,2026-01-01,,", "1,no-such-user,2026-01-01,,"]
    found = status(machine, reserve_by_file(machine, *rows))
    assert found.kinds() == [CONFIRMED, UNUSED]
    file = machine.folder / "reservations.csv"
    bad, card, user = found.complaints
    assert bad.startswith(f"{file} line 3: bad from 'tomorrow': expected a time such as ")
    assert card == f"GPU 7 does not exist: reserved for daemon in {file} line 4"
    assert user == f"no user 'no-such-user' on this machine, nor on a card: reservation in {file} line 5"


@pytest.mark.parametrize("row", ["0,bob,2026-01-01,2026-13-01,", '5,ada,2026-01-01,,"thesis\n0,bob,2026-01-01,,'])
def test_a_card_whose_row_can_not_be_read_is_not_called_free(machine: Machine, row: str) -> None:
    machine.scenario.add_card()
    config = reserve_by_file(machine, row)
    found = status(machine, config)
    assert found.kinds() == [UNKNOWN]
    assert len(found.complaints) == 1
    assert gua(machine, config, "free").returncode == 1


def test_a_card_that_is_reserved_twice_is_free_for_neither(machine: Machine) -> None:
    machine.scenario.add_card()
    own = pwd.getpwuid(os.getuid()).pw_name
    config = reserve_by_file(machine, f"0,{own},2026-01-01,,", "0,daemon,2026-01-01,,")
    assert "1 reserved by" in gua(machine, config, "free").stderr


def test_a_directory_of_users_that_hangs_holds_up_nobody(machine: Machine) -> None:
    machine.scenario.add_card()
    environment = machine.environment() | {"GUA_TEST_SLOW_FROM_UID": "0"}
    environment["LD_PRELOAD"] = str(machine.driver / "slow_names.so")
    command = [GUA, "free", "--config", "/dev/null", "--data-dir", str(machine.data_dir)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=30)
    assert (done.returncode, done.stdout) == (0, "0\n")
