"""Containers in gua status and gua free: the name that people are shown, and what programs are told."""

import json
import re
from pathlib import Path

import pytest

from gua_report.commands import demo
from gua_report.commands.free import spell_holders
from gua_report.config import Reservations
from gua_report.live.validation import check
from gua_sample.containers import FILE_NAME, LABEL, Container, Known
from gua_sample.simulate_plan import EXAMPLE_END_MS
from tests.bookings import HEADER, look
from tests.lab import CONFIG, MINUTE_MS, MONDAY_MS, Job, held
from tests.rolling import run

ID, OTHER = "3f2a9c81d0b7", "904ef981a59f"
HINTED = Container("docker", "train", "pytorch", "ada", LABEL, 1)
COLUMNS = ("user", "container", "owner_hint", "how")


@pytest.fixture
def laboratory(tmp_path: Path) -> Path:
    """The last minutes of the demo."""
    demo.simulate(str(tmp_path), 0, EXAMPLE_END_MS - 10 * MINUTE_MS, EXAMPLE_END_MS)
    return tmp_path


def docker(ident: str, pid: int) -> Job:
    return Job(pid, "root", uid=0, cgroup=f"/system.slice/docker-{ident}{'0' * 52}.scope")


def test_status_shows_names_and_tells_programs_how_they_are_known(laboratory: Path) -> None:
    status, text, errors = run("status", laboratory, "--simulate")
    assert (status, errors) == (0, "")
    assert "ada? (docker: resnet50) (idle ≥ 10m), kim? (docker: eval-sweep)" in text
    assert "docker:" not in re.sub("docker: ", "", text)
    (card,) = (one for one in json.loads(run("status", laboratory, "--simulate", "--json")[1])["gpus"][3:4])
    users = [tuple(one[name] for name in COLUMNS) for one in card["users"]]
    assert users == [
        ("docker:f5d288574c74", "resnet50", "ada", "label"),
        ("docker:904ef981a59f", "eval-sweep", "kim", "label"),
    ]
    processes = [(*(one[name] for name in COLUMNS), one["image"]) for one in card["processes"]]
    assert sorted(processes, reverse=True) == [(*users[0], "pytorch/pytorch:2.5.1"), (*users[1], "lab/eval:7")]


def test_a_file_that_cant_be_used_costs_status_a_line(laboratory: Path) -> None:
    (laboratory / FILE_NAME).write_text("{")
    status, text, errors = run("status", laboratory, "--simulate")
    assert status == 0
    assert "docker:f5d288574c74 (idle ≥ 10m)" in text
    assert errors.count("\n") == 1
    assert errors.startswith(f"gua status: warning: {laboratory / FILE_NAME} ")
    assert errors.endswith(": names of containers are missing; remove it\n")


def test_two_containers_of_the_same_name_both_hold() -> None:
    held_by = look(held(docker(ID, 1)), held(docker(OTHER, 2), index=1), known=Known({ID: HINTED, OTHER: HINTED}))
    assert spell_holders(held_by, MONDAY_MS) == ["ada? (docker: train)"] * 2


def test_no_name_of_a_container_steers_the_terminal() -> None:
    evil = HINTED._replace(name="\x1b[31m\n" + 200 * "x", owner="\x07" + 200 * "o")
    for holder in spell_holders(look(held(docker(ID, 1)), known=Known({ID: evil})), MONDAY_MS):
        assert holder.isprintable()


def test_reservations_are_set_against_the_identity_and_told_by_name(tmp_path: Path) -> None:
    (tmp_path / "r.csv").write_text(f"{HEADER}0,ada,2026-01-01,,\n1,docker:{ID},2026-01-01,,\n")
    config = CONFIG._replace(reservations=Reservations(file=str(tmp_path / "r.csv")))
    seen = look(held(docker(ID, 1)), held(docker(ID, 2), index=1), known=Known({ID: HINTED}))
    found = check(seen, config, MONDAY_MS, lambda line: None)
    assert found["GPU-0"].text.startswith("in use WITHOUT RESERVATION by ada? (docker: train): PID 1")
    assert found["GPU-0"].details["users"] == [f"docker:{ID}"]
    assert found["GPU-1"].kind == "confirmed"
