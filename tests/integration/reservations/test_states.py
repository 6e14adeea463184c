"""Reservations from a file: each state in which a card can be, and rows that make no sense."""

import os
import pwd
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from gua_report.live.validation import AVAILABLE, CONFIRMED, SEVERAL_USERS, UNRESERVED, UNUSED
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
from tests.machine import GUA, Machine
from tests.users import needs_root

login_uid_is_set = Path("/proc/self/loginuid").exists() and int(Path("/proc/self/loginuid").read_text()) != 2**32 - 1


COMMAND = Path(f"/proc/{PID}/comm").read_text().strip()
PROCESSES = [(PID, 8452)]
WORKING = {"utilization_percent": 80, "compute": PROCESSES}
HELD = {"utilization_percent": 0, "compute": PROCESSES}
BLIND = {"utilization_percent": None, "compute": PROCESSES}
LOST, NOBODYS = {"error": GPU_IS_LOST}, {"memory_free_mib": 60_000}
MINE, THEIRS = f"{ME},2026-01-01,,", "daemon,2026-01-01,,"
USED = f"in use by {ME}, confirmed: 8,452 MiB, 1 process"
WITHOUT = f"in use WITHOUT RESERVATION by {ME}: PID {PID} ({COMMAND}) 8,452 MiB"
STATES: dict[str, tuple[dict[str, Any], str, str, str]] = {  # what is on a card, its reservation, and what is said
    "free": ({}, "", AVAILABLE, "available, free for ≥ 3h 12m"),
    "free since nobody has it": ({}, f"{ME},{{-3600}},{{-600}},", AVAILABLE, "available, free for 10m"),
    "confirmed": (WORKING, f"{ME},{{-3600}},{{7290}},paper", CONFIRMED, f"{USED}, expires in 2h 01m"),
    "without work": (HELD, MINE, CONFIRMED, f"{USED}, no work for ≥ 3h 12m"),
    "unreserved": (WORKING, "", UNRESERVED, WITHOUT),
    "held unreserved": (HELD, "", UNRESERVED, WITHOUT),
    "somebody else's": (WORKING, "daemon,{-3600},,", UNRESERVED, f"{WITHOUT}; reserved by daemon"),
    "too late": (WORKING, f"{ME},{{-3600}},{{-1}},", UNRESERVED, WITHOUT),
    "too early": (WORKING, f"{ME},{{3600}},,", UNRESERVED, WITHOUT),
    "unused": ({}, "daemon,{-3600},{3630},", UNUSED, "reserved by daemon, no usage detected, expires in 1h"),
    "a desktop is no use": ({"graphics": [(PID, 45)]}, THEIRS, UNUSED, "reserved by daemon, no usage detected"),
    "lost": (LOST, "", UNKNOWN, "unknown: the driver does not tell"),
    "lost and reserved": (LOST, THEIRS, UNKNOWN, "unknown: the driver does not tell; reserved by daemon"),
    "nobody's memory": (NOBODYS, "", UNRESERVED, "in use WITHOUT RESERVATION by nobody visible"),
    "reserved": (NOBODYS, THEIRS, UNKNOWN, "unknown: in use, but no process shows by whom; reserved by daemon"),
    # Where work can't be measured, it still shows who holds the card.
    "no utilization": (BLIND, "", UNRESERVED, WITHOUT),
    "no samples": ({**BLIND, "samples": None}, MINE, CONFIRMED, USED),
}


def test_what_is_said_of_each_state_of_a_card(machine: Machine) -> None:
    rows = []
    for index, (settings, row, *_) in enumerate(STATES.values()):
        card = machine.scenario.add_card(**{name: value for name, value in settings.items() if name != "error"})
        if "error" in settings:
            card.error(None, settings["error"])
        rows += [f"{index},{row}"] if row else []
    rows = [re.sub(r"\{(-?\d+)\}", lambda found: str(now() + int(found[1])), row) for row in rows]
    found = status(machine, reserve_by_file(machine, *rows), since_seconds=3 * HOUR + 720)
    told = {name: (card["kind"], card["text"]) for name, card in zip(STATES, found.cards.values(), strict=True)}
    assert told == {name: (kind, text) for name, (_, _, kind, text) in STATES.items()}
    assert found.complaints == []
    details = dict(zip(STATES, found.cards.values(), strict=True))
    assert details["free since nobody has it"]["free_seconds"] == pytest.approx(600, abs=60)
    assert details["confirmed"]["reservations"][0]["note"] == "paper"
    assert details["unreserved"]["unreserved_users"] == [ME]
    used = {"user": ME, "pid": PID, "command": COMMAND, "memory_mib": 8452}
    assert details["unreserved"]["processes"] == [used]


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


def test_the_table_has_the_check_and_age_type_and_note_of_each_reservation_and_fits(machine: Machine) -> None:
    machine.scenario.add_card()
    machine.scenario.add_card(utilization_percent=80, compute=[(PID, 8000)])
    rows = [f"0,daemon,{now() - HOUR - 90},,camera-ready {'very ' * 30}"]
    rows += [f"0,daemon,{now() - HOUR * hours},," for hours in (2, 3, 4, 5)]
    done = gua(machine, reserve_by_file(machine, *rows), "status", "--ascii")
    lines = done.stdout.splitlines()
    (noted,) = (line for line in lines if "camera-ready" in line)
    assert noted.startswith("     reserved 1h 01m ago by daemon, type file: camera-ready very")
    assert noted.endswith("...")
    told = [line for line in lines if line.startswith("     reserved ") and " ago by daemon, type file" in line]
    assert len(told) == 3
    assert "     and 2 more" in lines
    assert "     reserved by daemon, no usage detected" in lines
    assert any(line.startswith(f"     in use WITHOUT RESERVATION by {ME}: PID {PID}") for line in lines)
    assert max(map(len, lines)) <= 78


def test_cards_that_somebody_else_has_reserved_are_not_free(machine: Machine) -> None:
    for _ in range(5):
        machine.scenario.add_card()
    own = pwd.getpwuid(os.getuid()).pw_name
    rows = [f"1,daemon,{now() - HOUR},,", f"2,{own},{now() - HOUR},,", f"3,bin,{now() + HOUR},,"]
    rows += [f"4,{own},{now() - HOUR},,", f"4,bin,{now() - HOUR},,"]  # free for neither
    config = reserve_by_file(machine, *rows)
    assert gua(machine, config, "free").stdout == "0,2,3\n"
    done = gua(machine, config, "free", "-n", "4")
    assert (done.returncode, done.stdout) == (1, "")
    last = f"Requested 4, available 3 (2 reserved by daemon, {own}, bin; gua status)"
    assert done.stderr.splitlines()[-1] == f"gua free: error: {last}"


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
    done = gua(machine, config, "free")
    assert (done.returncode, done.stdout) == (1, "")
    assert "Requested 1, available 0 (1 whose reservations can't be read; gua status)" in done.stderr.splitlines()[-1]


def test_a_directory_of_users_that_hangs_holds_up_nobody(machine: Machine) -> None:
    machine.scenario.add_card()
    environment = machine.environment() | {"GUA_TEST_SLOW_FROM_UID": "0"}
    environment["LD_PRELOAD"] = str(machine.driver / "slow_names.so")
    command = [GUA, "free", "--config", "/dev/null", "--data-dir", str(machine.data_dir)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=30)
    assert (done.returncode, done.stdout) == (0, "0\n")
