"""The disk in trouble: a clear line, and what was there is untouched."""

import hashlib
import os
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gua_sample import schema
from tests.damage import DAMAGES, damage_header
from tests.disks import fill, mounted
from tests.machine import Machine, complaint, one_line
from tests.users import SOMEBODY, needs_mounts, needs_root, run_as_somebody, sampler_for_others


@pytest.fixture
def small_disk(machine: Machine) -> Iterator[Path]:
    """The machine's data folder on a file system of 256 KiB."""
    with mounted(machine.data_dir, "size=256k") as folder:
        yield folder


@pytest.fixture
def partition(machine: Machine) -> Path:
    """That of a machine with a card, after its first tick."""
    machine.scenario.add_card()
    machine.tick()
    return machine.partitions()[0]


@needs_mounts
@pytest.mark.parametrize("is_first", [True, False])
@pytest.mark.parametrize("leave", [0, 4096, 8192, 16384])
def test_a_full_disk_fails_with_one_line_and_no_damage(
    machine: Machine, small_disk: Path, leave: int, is_first: bool
) -> None:
    for _ in range(8):
        machine.scenario.add_card(compute=[(os.getpid(), 8192)])
    machine.samples.mkdir()
    if not is_first:
        machine.tick()
    before = {path: digest(path) for path in machine.partitions()}
    fill(small_disk, leave)
    assert "no space left" in complaint(machine.sample(), 1)
    # If there was no file, there may be an empty one.
    assert is_first or {path: digest(path) for path in machine.samples.iterdir()} == before
    (small_disk / "ballast").unlink()
    machine.tick()  # once there is space again, it goes on
    assert len(machine.ticks()) == len(before) + 1


def test_a_folder_that_can_not_be_made_fails_with_one_line(machine: Machine) -> None:
    machine.scenario.add_card()
    machine.data_dir.write_text("a file where the folder should be")
    text = complaint(machine.sample(), 1)
    assert str(machine.samples) in text
    assert "--data-dir" in text


@needs_root
@pytest.mark.parametrize("is_hidden", [False, True])
def test_a_folder_that_is_closed_to_it_is_one_line(machine: Machine, open_folder: Path, is_hidden: bool) -> None:
    machine.scenario.add_card()
    machine.tick()  # root's
    machine.samples.chmod(0o700 if is_hidden else 0o755)
    command = [*sampler_for_others(open_folder), "--data-dir", str(machine.data_dir)]
    done = run_as_somebody(command, machine.environment())
    assert (done.returncode, one_line(done.stderr)) == (1, True)
    assert "check its owner" in done.stderr
    assert str(machine.samples if is_hidden else machine.partitions()[0]) in done.stderr
    assert len(machine.ticks()) == 1


@needs_root
@pytest.mark.parametrize(("exists", "uid"), [(True, SOMEBODY), (False, SOMEBODY), (True, 0)])
def test_root_by_hand_leaves_the_files_to_the_owner(machine: Machine, exists: bool, uid: int) -> None:
    machine.scenario.add_card()
    if exists:
        machine.data_dir.mkdir()
    os.chown(machine.data_dir if exists else machine.folder, uid, uid)
    machine.tick()
    for path in (machine.data_dir, machine.samples, machine.partitions()[0]):
        assert (path.stat().st_uid, path.stat().st_gid) == (uid, uid)


def set_version(partition: Path, version: int) -> None:
    connection = sqlite3.connect(partition)
    connection.execute(f"PRAGMA user_version = {version}")
    connection.close()


def test_beside_a_partition_of_a_newer_version_ticks_wait_for_the_newer_gua(machine: Machine, partition: Path) -> None:
    set_version(partition, schema.VERSION + 1)
    before = digest(partition)
    for count in (1, 2):
        done = machine.sample()
        assert (done.returncode, one_line(done.stderr)) == (0, True)
        assert f"schema version {schema.VERSION + 1}" in done.stderr
        assert "ticks wait beside it" in done.stderr
        assert digest(partition) == before
        assert len([name for name in machine.files() if name.endswith(".pending")]) == count
    set_version(partition, schema.VERSION)  # as a newer gua would find it
    machine.tick()
    assert len(machine.ticks()) == 4
    assert machine.files() == [partition.name]


def test_a_kept_tick_of_a_newer_version_is_left_alone(machine: Machine, partition: Path) -> None:
    newer = partition.parent / f"{partition.stem}.0123456789abcd.pending"
    newer.write_text('{"version": 99, "key": 7, "ticks": "in a form to come"}')
    machine.tick()
    assert newer.exists()
    assert len(machine.ticks()) == 2


def digest(path: Path) -> str | None:
    return None if path.is_dir() else hashlib.sha256(path.read_bytes()).hexdigest()


def exchange_for_a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize("damage", [*DAMAGES, exchange_for_a_folder])
def test_a_corrupt_partition_is_set_aside(machine: Machine, partition: Path, damage: Callable[[Path], None]) -> None:
    damage(partition)
    damaged = digest(partition)
    done = machine.sample()
    assert (done.returncode, one_line(done.stderr)) == (0, True)
    aside = partition.with_name(partition.name + ".corrupt-1")
    assert "warning" in done.stderr
    assert str(aside) in done.stderr
    assert digest(aside) == damaged
    assert len(machine.ticks()) == 1
    machine.tick()  # silently again
    assert len(machine.ticks()) == 2


def test_several_corrupt_partitions_of_a_day_get_several_names(machine: Machine) -> None:
    machine.scenario.add_card()
    for _ in range(3):
        machine.sample()
        damage_header(machine.partitions()[0])
    machine.sample()
    name = machine.partitions()[0].name
    assert machine.files() == [name, f"{name}.corrupt-1", f"{name}.corrupt-2", f"{name}.corrupt-3"]
