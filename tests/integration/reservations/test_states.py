"""Reservations from a file: each state in which a card can be."""

from __future__ import annotations

import os
import pwd
from pathlib import Path

import pytest

from gua_report.reservations.cards import AVAILABLE, CONFIRMED, SEVERAL_USERS, UNRESERVED, UNUSED
from gua_sample.policy import UNKNOWN
from tests.integration.reservations.reserving import (
    GPU_IS_LOST,
    HOUR,
    ME,
    PID,
    Status,
    gua,
    now,
    process_of,
    reserve_by_file,
    status,
)
from tests.machine import Machine
from tests.users import needs_root

login_uid_is_set = Path("/proc/self/loginuid").exists() and int(Path("/proc/self/loginuid").read_text()) != 2**32 - 1


def test_available_with_how_long_it_is_free(machine: Machine) -> None:
    machine.scenario.add_card()
    machine.scenario.add_card()
    config = reserve_by_file(machine, f"1,{ME},{now() - HOUR},{now() - 600},")
    found = status(machine, config, since_seconds=3 * HOUR + 720)
    assert found.kinds() == [AVAILABLE, AVAILABLE]
    assert found.cards[0]["text"] == "available, free for ≥ 3h 12m"
    # Until ten minutes ago nobody could have had it.
    assert found.cards[1]["text"] == "available, free for 10m"
    assert found.cards[1]["free_seconds"] == pytest.approx(600, abs=60)
    assert found.complaints == []


def test_in_use_and_confirmed(machine: Machine) -> None:
    machine.scenario.add_card(utilization_percent=80, compute=[(PID, 8452)])
    config = reserve_by_file(machine, f"0,{ME},{now() - HOUR},{now() + 2 * HOUR + 90},paper")
    found = status(machine, config)
    assert found.kinds() == [CONFIRMED]
    assert found.cards[0]["text"] == f"in use by {ME}, confirmed: 8,452 MiB, 1 process, expires in 2h 01m"
    assert found.cards[0]["reservations"][0]["note"] == "paper"
    assert found.complaints == []


def test_the_uuid_of_a_card_reserves_its_mig_instances(machine: Machine) -> None:
    card = machine.scenario.add_card()
    card.add_mig()
    config = reserve_by_file(machine, f"{card.settings['uuid']},{ME},2026-01-01,,")
    found = status(machine, config)
    assert (found.kinds(), found.complaints) == ([UNUSED], [])


def test_confirmed_but_without_work(machine: Machine) -> None:
    machine.scenario.add_card(utilization_percent=0, compute=[(PID, 8452)])
    found = status(machine, reserve_by_file(machine, f"0,{ME},2026-01-01,,"), since_seconds=2 * HOUR)
    assert found.kinds() == [CONFIRMED]
    assert found.cards[0]["text"] == f"in use by {ME}, confirmed: 8,452 MiB, 1 process, no work for ≥ 2h"


@pytest.mark.parametrize("utilization", [80, 0])
def test_in_use_without_reservation_names_user_pids_names_and_memory(machine: Machine, utilization: int) -> None:
    command = Path(f"/proc/{PID}/comm").read_text().strip()
    machine.scenario.add_card(utilization_percent=utilization, compute=[(PID, 8000)])
    found = status(machine, reserve_by_file(machine))
    assert found.kinds() == [UNRESERVED]
    expected = f"in use WITHOUT RESERVATION by {ME}: PID {PID} ({command}) 8,000 MiB"
    assert found.cards[0]["text"] == expected
    details = found.cards[0]
    assert details["unreserved_users"] == [ME]
    assert details["processes"] == [{"user": ME, "pid": PID, "command": command, "memory_mib": 8000}]


def test_a_reservation_of_somebody_else_or_of_another_time_is_none(machine: Machine) -> None:
    for _ in range(3):
        machine.scenario.add_card(utilization_percent=80, compute=[(PID, 8000)])
    rows = [f"0,daemon,{now() - HOUR},,", f"1,{ME},{now() - HOUR},{now() - 1},", f"2,{ME},{now() + HOUR},,"]
    found = status(machine, reserve_by_file(machine, *rows))
    assert found.kinds() == [UNRESERVED] * 3
    assert found.cards[0]["text"].endswith(" 8,000 MiB; reserved by daemon")


def test_reserved_but_no_usage_detected(machine: Machine) -> None:
    uuid = machine.scenario.add_card().settings["uuid"]
    machine.scenario.add_card(graphics=[(PID, 45)])  # a desktop is no use
    rows = [f"{uuid},daemon,{now() - HOUR},{now() + HOUR + 30},", "1,daemon,2026-01-01,,"]
    found = status(machine, reserve_by_file(machine, *rows))
    assert found.kinds() == [UNUSED, UNUSED]
    assert found.cards[0]["text"] == "reserved by daemon, no usage detected, expires in 1h"
    assert found.cards[1]["text"] == "reserved by daemon, no usage detected"


@needs_root
@pytest.mark.skipif(login_uid_is_set, reason="with a login uid, all that we start belongs to one user")
def test_several_users_on_one_card(machine: Machine) -> None:
    with process_of("daemon") as theirs:
        for _ in range(3):
            card = machine.scenario.add_card(utilization_percent=80, compute=[(PID, 8000), (theirs, 900)])
            card.update(graphics=[(1, 45)])
        rows = [f"1,{ME},2026-01-01,,", f"2,{ME},2026-01-01,,", "2,daemon,2026-01-01,,"]
        found = status(machine, reserve_by_file(machine, *rows))
    assert found.kinds() == [SEVERAL_USERS] * 3
    neither, one, both = (found.cards[index] for index in range(3))
    assert neither["text"].startswith(
        f"several users: {ME} WITHOUT RESERVATION and daemon WITHOUT RESERVATION: PID {PID} ("
    )
    expected = f"several users: {ME} (reserved) and daemon WITHOUT RESERVATION: PID {theirs} (sleep) 900 MiB"
    assert one["text"] == expected
    assert one["unreserved_users"] == ["daemon"]
    assert both["text"] == f"several users: {ME} (reserved) and daemon (reserved): 8,900 MiB, 2 processes"
    (overlap,) = found.complaints
    assert overlap.startswith("GPU 2 is reserved twice from 2026-01-01 00:00 on, both count: ")


def test_unknown(machine: Machine) -> None:
    for _ in range(2):
        machine.scenario.add_card(compute=[(PID, 8000)]).error(None, GPU_IS_LOST)
    found = status(machine, reserve_by_file(machine, "1,daemon,2026-01-01,,"))
    assert found.kinds() == [UNKNOWN, UNKNOWN]
    assert found.cards[0]["text"] == "unknown: the driver does not tell"
    assert found.cards[1]["text"] == "unknown: the driver does not tell; reserved by daemon"


def test_memory_that_no_process_shows_is_nobodys(machine: Machine) -> None:
    for _ in range(2):
        machine.scenario.add_card(memory_free_mib=60_000)
    found = status(machine, reserve_by_file(machine, "1,daemon,2026-01-01,,"))
    assert found.kinds() == [UNRESERVED, UNKNOWN]
    assert found.cards[0]["text"] == "in use WITHOUT RESERVATION by nobody visible"
    assert found.cards[1]["text"] == "unknown: in use, but no process shows by whom; reserved by daemon"


def test_where_work_cannot_be_measured_it_still_shows_who_holds_the_card(machine: Machine) -> None:
    machine.scenario.add_card(utilization_percent=None, compute=[(PID, 8000)])
    machine.scenario.add_card(utilization_percent=None, samples=None, compute=[(PID, 8000)])
    found = status(machine, reserve_by_file(machine, f"1,{ME},2026-01-01,,"))
    assert found.kinds() == [UNRESERVED, CONFIRMED]


def test_people_are_the_same_on_both_sides(machine: Machine) -> None:
    machine.scenario.add_card(utilization_percent=80, compute=[(PID, 8000)])
    people = f'[people]\n"{ME}" = "Ada"\n"ada@lab" = "Ada"\n'
    found = status(machine, reserve_by_file(machine, "0,ada@lab,2026-01-01,,", people=people))
    assert found.kinds() == [CONFIRMED]
    assert found.cards[0]["text"].startswith("in use by Ada, confirmed")
    assert found.complaints == []


def test_nothing_is_checked_unless_it_is_configured(machine: Machine) -> None:
    machine.scenario.add_card(utilization_percent=80, compute=[(PID, 8000)])
    assert status(machine, "") == Status({}, [])


def test_the_table_shows_the_check_below_each_card(machine: Machine) -> None:
    machine.scenario.add_card(utilization_percent=80, compute=[(PID, 8000)])
    machine.scenario.add_card()
    done = gua(machine, reserve_by_file(machine, f"1,daemon,{now() - HOUR},,"), "status")
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert any(line.startswith(f"     in use WITHOUT RESERVATION by {ME}: PID {PID}") for line in lines)
    assert "     reserved by daemon, no usage detected" in lines
    assert max(map(len, lines)) <= 78


def test_cards_that_somebody_else_has_reserved_are_not_free(machine: Machine) -> None:
    for _ in range(4):
        machine.scenario.add_card()
    own = pwd.getpwuid(os.getuid()).pw_name
    config = reserve_by_file(
        machine, f"1,daemon,{now() - HOUR},,", f"2,{own},{now() - HOUR},,", f"3,bin,{now() + HOUR},,"
    )
    assert gua(machine, config, "free").stdout == "0,2,3\n"
    done = gua(machine, config, "free", "-n", "4")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "gua free: error: Requested 4, available 3 (1 reserved by daemon; gua status)\n"


def test_nothing_is_called_free_while_reservations_can_not_be_read(machine: Machine) -> None:
    machine.scenario.add_card()
    done = gua(machine, f'[reservations]\nfile = "{machine.folder}/none.csv"', "free")
    assert (done.returncode, done.stdout) == (1, "")
    assert "Requested 1, available 0 (1 whose reservations can't be read; gua status)" in done.stderr.splitlines()[-1]
