"""containers.json in a folder of somebody's: root reads it with that user's rights, and none can make it wait."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gua_report.people.containers import write_containers
from gua_sample.containers import FILE_NAME
from gua_sample.simulate import Laboratory
from gua_sample.simulate_plan import EXAMPLE_END_MS
from tests.integration.attacks.attempts import command, is_tame
from tests.users import SOMEBODY, needs_root
from tests.verbs import give

pytestmark = needs_root
NAMING = ["report", "status", "export of processes", "rollup --dry-run"]


def test_root_is_told_the_names_that_the_folders_owner_can_read(folder: Path) -> None:
    write_containers(str(folder), Laboratory(0).containers(EXAMPLE_END_MS, EXAMPLE_END_MS))
    give(folder / FILE_NAME)
    done = command("status", folder)
    assert (done.returncode, done.stderr) == (0, "")
    assert "ada? (docker: resnet50)" in done.stdout


@pytest.mark.parametrize("name", NAMING)
def test_root_reads_no_names_that_the_folders_owner_cant(folder: Path, name: str) -> None:
    write_containers(str(folder), Laboratory(0).containers(EXAMPLE_END_MS, EXAMPLE_END_MS))
    (folder / FILE_NAME).chmod(0o600)  # root's
    done = command(name, folder)
    assert done.returncode == 0, done
    assert "resnet50" not in done.stdout
    (line,) = done.stderr.splitlines()
    assert "names of containers are missing" in line


@pytest.mark.parametrize("name", NAMING)
def test_a_pipe_in_the_place_of_names_costs_a_line(folder: Path, name: str) -> None:
    os.mkfifo(folder / FILE_NAME)
    os.chown(folder / FILE_NAME, SOMEBODY, SOMEBODY)
    done = command(name, folder)
    assert done.returncode == 0, done
    assert is_tame(done.stdout + done.stderr)
    (line,) = done.stderr.splitlines()
    assert "is no regular file: names of containers are missing" in line
