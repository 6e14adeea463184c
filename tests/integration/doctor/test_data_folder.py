"""gua doctor on the data folder: whose it is, who may write to it, and how much space is left."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.integration.doctor.examination import errors, examine, of_check, one
from tests.machine import Machine
from tests.systemctl import install
from tests.users import SOMEBODY, gua_for_others, needs_mounts, needs_root, run_as_somebody


@needs_root
def test_a_file_of_roots_among_the_samplers_is_an_error(healthy: Machine) -> None:
    os.chown(healthy.data_dir, SOMEBODY, SOMEBODY)
    os.chown(healthy.samples, SOMEBODY, SOMEBODY)
    found = one(examine(healthy), "data folder")
    assert (found["status"], found["remedy"]) == ("error", f"sudo chown -R {SOMEBODY}: {healthy.data_dir}")
    assert str(healthy.partitions()[0]) in found["text"]
    os.chown(healthy.partitions()[0], SOMEBODY, SOMEBODY)
    assert one(examine(healthy), "data folder")["status"] == "ok"


@needs_root
@pytest.mark.parametrize("closed", ["samples", "partition", "parent"])
def test_a_folder_that_its_owner_can_not_write_to_is_an_error(healthy: Machine, closed: str) -> None:
    for path in (healthy.data_dir, healthy.samples, *healthy.partitions()):
        os.chown(path, SOMEBODY, SOMEBODY)
    path = {"samples": healthy.samples, "partition": healthy.partitions()[0], "parent": healthy.folder}[closed]
    path.chmod(0o700 if closed == "parent" else 0o500 if closed == "samples" else 0o400)
    found = one(examine(healthy), "data folder")
    assert found["status"] == "error"
    assert f"uid {SOMEBODY} can't write to" in found["text"]
    assert found["remedy"].startswith("namei -l" if closed == "parent" else "sudo chmod u+rwX")


@needs_root
def test_a_unit_whose_user_does_not_exist_is_an_error(healthy: Machine, no_systemctl: Path) -> None:
    install(no_systemctl, "service", ActiveState="inactive", User="nobody-of-this-name")
    document = examine(healthy)
    assert errors(document) == {"sampler"}
    assert "nobody-of-this-name" in one(document, "sampler")["text"]


def test_a_unit_that_writes_elsewhere_does_not_tell_who_owns_this_folder(healthy: Machine, no_systemctl: Path) -> None:
    install(no_systemctl, "service", ActiveState="inactive", User=str(SOMEBODY), StateDirectory="gua")
    document = examine(healthy)
    assert document["ok"]
    assert f"it writes to /var/lib/gua, not to {healthy.data_dir}" in one(document, "timer")["text"]


def test_a_file_where_the_folder_should_be_is_an_error(machine: Machine) -> None:
    machine.scenario.add_card()
    machine.data_dir.write_text("a file")
    found = one(examine(machine), "data folder")
    assert (found["status"], found["text"]) == ("error", f"{machine.data_dir} is no folder")
    machine.data_dir.unlink()
    machine.data_dir.mkdir()
    machine.samples.write_text("a file")
    found = one(examine(machine), "data folder")
    assert (found["status"], found["text"]) == ("error", f"{machine.samples} is no folder")


@needs_mounts
@pytest.mark.parametrize(
    ("small_disk", "status", "words"),
    [
        ("size=2m", "error", "of 2.0 MiB"),
        ("size=12g", "ok", "of 12 GiB"),
        ("size=12g,nr_inodes=500", "warning", "inodes left"),
    ],
    indirect=["small_disk"],
)
def test_too_little_space_is_told_before_none(machine: Machine, small_disk: Path, status: str, words: str) -> None:
    machine.scenario.add_card()
    machine.tick()
    found = one(examine(machine), "free space")
    assert found["status"] == status
    assert words in found["text"]


@needs_mounts
@pytest.mark.parametrize("small_disk", ["size=64m"], indirect=True)
def test_a_read_only_mount_is_an_error(machine: Machine, small_disk: Path) -> None:
    machine.scenario.add_card()
    machine.tick()
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    found = one(examine(machine), "data folder")
    assert (found["status"], found["remedy"]) == ("error", f"sudo mount -o remount,rw {small_disk}")


def examine_as_somebody(machine: Machine, open_folder: Path) -> dict[str, Any]:
    command = [*gua_for_others(open_folder), "doctor", "--json", "--data-dir", str(machine.data_dir)]
    done = run_as_somebody(command, machine.environment())
    assert done.stderr == ""
    return dict(json.loads(done.stdout))


@needs_root
def test_what_is_not_for_this_user_says_nothing_of_the_sampler(healthy: Machine, open_folder: Path) -> None:
    healthy.partitions()[0].chmod(0o600)
    document = examine_as_somebody(healthy, open_folder)
    assert one(document, "newest tick")["status"] == "warning"
    assert "not for this user to read" in of_check(document, "partitions")[1]["text"]
    healthy.data_dir.chmod(0o700)
    document = examine_as_somebody(healthy, open_folder)
    assert document["ok"]
    for check in ("data folder", "newest tick"):
        found = one(document, check)
        assert (found["status"], found["remedy"]) == ("warning", f"sudo gua doctor --data-dir {healthy.data_dir}")
    assert document["partitions"] is None
