"""Containers in exports and in the daily CSV: what the process is in, whatever its cgroup is called."""

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from gua_report.commands.export import WARNINGS, find_encoding, read_parts
from gua_report.exporting.rows import TABLES
from gua_report.people.containers import write_containers
from gua_report.upkeep.nightly import Upkeep
from gua_report.upkeep.outputs import csv_path, write_daily_csv
from gua_sample.containers import COLUMNS, FILE_NAME, LABEL, Container, Known
from tests.lab import CONFIG, DAY_MS, MONDAY_MS, Job, held, minutes, window, write
from tests.rolling import roll_up_days

ID, POD = "3f2a9c81d0b7", "0b5cdd12-4b4c-4d2e-9c80-6a3f1d1c2f00"
HINTED = Container("docker", "=train", "pytorch", "ada", LABEL, 1)
SLICE = "/user.slice/user-{}.slice/user@{}.service/user.slice/libpod-" + ID + "0" * 52 + ".scope"
DOCKER = f"/system.slice/docker-{ID}{'0' * 52}.scope"
PROCESSES = {
    1: Job(1, "root", uid=0, cgroup=DOCKER),
    2: Job(2, "ada", uid=1000, cgroup=SLICE.format(1000, 1000)),
    3: Job(3, None, uid=100_999, cgroup=SLICE.format(1000, 1000)),
    4: Job(4, "eve", uid=1001, cgroup=SLICE.format(1001, 1001)),  # calls her own after ada's
    5: Job(5, "root", uid=0, cgroup="/lxc.payload." + ID),
    6: Job(6, "root", uid=0, login_user="bob", cgroup=DOCKER),
    7: Job(7, "root", uid=0, cgroup=f"/kubepods.slice/kubepods-pod{POD.replace('-', '_')}.slice/x"),
    8: Job(8, "carl", uid=1003),
}
TOLD = {  # by pid: identity, container, owner_hint, how
    1: (f"docker:{ID}", "=train", "ada", "label"),
    2: ("ada", None, None, None),
    3: ("uid:1000", None, None, None),
    4: ("eve", None, None, None),
    5: (f"lxc:{ID}", None, None, None),
    6: ("bob", "=train", None, None),
    7: (f"pod:{POD}", "ml/train-0", None, None),
    8: ("carl", None, None, None),
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two minutes of Monday, with a process on each card, and what is known of the containers."""
    write(tmp_path, minutes(600, 602, *(held(job, index=pid) for pid, job in PROCESSES.items())))
    pod = Container("pod", "ml/train-0", None, None, None, 3)
    known = {ID: HINTED, POD.replace("-", ""): pod}
    write_containers(str(tmp_path), Known(known))
    return tmp_path


def export(folder: Path, what: str) -> tuple[list[dict[str, Any]], list[Any]]:
    """The rows, and the failures and notes that come after them."""
    days = window(MONDAY_MS, MONDAY_MS + DAY_MS)
    parts = list(read_parts(str(folder), days, what, CONFIG, find_encoding(what, "jsonl"), False, None))
    text = b"".join(content for label, content in parts if label != WARNINGS).decode()
    (warnings,) = (json.loads(content) for label, content in parts if label == WARNINGS)
    return [json.loads(line) for line in text.splitlines()], warnings


def told(rows: list[dict[str, Any]]) -> dict[int, tuple[Any, ...]]:
    return {int(row["pid"]): tuple(row[name] for name in ("identity", *COLUMNS)) for row in rows}


def test_processes_are_exported_with_the_container_that_they_are_in(folder: Path) -> None:
    rows, warnings = export(folder, "process_ticks")
    assert told(rows) == TOLD
    assert len(rows) == 2 * len(PROCESSES)
    assert warnings == [[], []]


def test_closed_days_are_exported_with_the_containers_that_are_identities(folder: Path) -> None:
    roll_up_days(str(folder))
    of_identities = {who: rest for who, *rest in TOLD.values() if ":" in who}
    persons = {who: [None, None, None] for who, *_ in TOLD.values() if ":" not in who}
    for what in ("identity_hours", "episode_days"):
        rows, _ = export(folder, what)
        found = {row["identity"]: [row[name] for name in COLUMNS] for row in rows}
        assert found == of_identities | persons


def test_the_daily_csv_tells_the_same_at_its_end(folder: Path) -> None:
    path = write_daily_csv(str(folder), "2026-11-16", CONFIG)
    assert path is not None
    with open(path, newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == list(TABLES["csv"].columns)
    assert list(rows[0])[-4:] == [*COLUMNS, "slurm_job"]
    found = {pid: tuple(value or None for value in values) for pid, values in told(rows).items()}
    assert found == {pid: tuple("'=train" if one == "=train" else one for one in row) for pid, row in TOLD.items()}


def test_a_file_that_cant_be_used_is_a_line_and_no_failure(folder: Path) -> None:
    (folder / FILE_NAME).write_text("{")
    rows, (failures, notes) = export(folder, "process_ticks")
    assert failures == []
    assert len(notes) == 1
    assert "names of containers are missing" in notes[0]
    assert {row["container"] for row in rows} == {None}
    assert told(rows)[1] == (f"docker:{ID}", None, None, None)
    assert told(rows)[3] == ("uid:1000", None, None, None)
    _, warnings = export(folder, "card_ticks")
    assert warnings == [[], []]  # which names nobody


def test_the_nightly_run_names_containers_and_says_once_if_it_cant(folder: Path) -> None:
    lines: list[str] = []
    Upkeep(str(folder), CONFIG, MONDAY_MS + 2 * DAY_MS, False, lines.append).run(False, False, None)
    path = Path(csv_path(str(folder), "2026-11-16"))
    assert "'=train,ada,label" in path.read_text()
    assert lines == []
    (folder / FILE_NAME).write_text("[]")
    path.unlink()
    done = Upkeep(str(folder), CONFIG, MONDAY_MS + 2 * DAY_MS, False, lines.append).run(True, False, None)
    assert done.failed == []
    assert "train" not in path.read_text()
    assert len(lines) == 1
    assert "names of containers are missing" in lines[0]
