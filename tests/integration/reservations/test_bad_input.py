"""Reservations that make no sense: a line names each, and the rest of the table is there."""

from __future__ import annotations

import os
import pwd
import subprocess
import time

import pytest

from gua_report.reservations.cards import AVAILABLE, CONFIRMED, UNUSED
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


@pytest.mark.parametrize(
    ("header", "said"),
    [
        ("gpu,usr,from,to,note", "line 1: no column user; unknown column 'usr': expected gpu,user,from,to,note"),
        ("gpu;user;from;to;note", "line 1: no column gpu, user, from, to; unknown column 'gpu;user;from;to;note'"),
        ("0,daemon,2026-01-01,,", "line 1: no column gpu, user, from, to; unknown column '0', 'daemon', "),
    ],
)
def test_a_wrong_column_is_named_and_nobody_is_blamed_for_it(machine: Machine, header: str, said: str) -> None:
    machine.scenario.add_card(utilization_percent=80, compute=[(PID, 8000)])
    machine.scenario.add_card()
    found = status(machine, reserve_by_file(machine, f"0,{ME},2026-01-01,,", header=header))
    assert found.kinds() == [UNKNOWN, UNKNOWN]
    assert found.cards[0]["text"] == f"unknown: in use by {ME}, but reservations can't be read"
    assert found.cards[1]["text"] == "unknown: not in use, but reservations can't be read"
    (line,) = found.complaints
    assert said in line


def test_a_missing_file_is_named(machine: Machine) -> None:
    machine.scenario.add_card()
    found = status(machine, '[reservations]\nfile = "/nowhere/reservations.csv"')
    assert found.kinds() == [UNKNOWN]
    (line,) = found.complaints
    assert line.startswith("reservations can't be read from /nowhere/reservations.csv (No such file or directory): ")


@pytest.mark.parametrize("row", ["0,bob,2026-01-01,2026-13-01,", '5,ada,2026-01-01,,"thesis\n0,bob,2026-01-01,,'])
def test_a_card_whose_row_can_not_be_read_is_not_called_free(machine: Machine, row: str) -> None:
    machine.scenario.add_card()
    config = reserve_by_file(machine, row)
    found = status(machine, config)
    assert found.kinds() == [UNKNOWN]
    assert len(found.complaints) == 1
    assert gua(machine, config, "free").returncode == 1


def test_a_card_with_too_many_digits_does_not_exist(machine: Machine) -> None:
    machine.scenario.add_card()
    found = status(machine, reserve_by_file(machine, f"{'9' * 5000},{ME},2026-01-01,,"))
    assert (found.kinds(), len(found.complaints)) == ([AVAILABLE], 1)


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


def test_hundreds_of_reservations_at_once_take_no_time(machine: Machine) -> None:
    machine.scenario.add_card()
    rows = [f"0,{'daemon' if number % 2 else 'bin'},2026-01-01,," for number in range(3000)]
    began = time.monotonic()
    found = status(machine, reserve_by_file(machine, *rows))
    assert time.monotonic() - began < 20
    assert len(found.complaints) == 6
