"""The driver in trouble: a clear line, and nothing lost."""

import os
import sqlite3
import subprocess
import time
from contextlib import closing
from pathlib import Path

import pytest

from tests.machine import Machine, complaint

PID = os.getpid()


@pytest.mark.parametrize(
    ("function", "code", "name", "remedy"),
    [
        ("nvmlInitWithFlags", 9, "driver_not_loaded", "modprobe nvidia"),
        ("nvmlInitWithFlags", 18, "lib_rm_version_mismatch", "reboot"),
        ("nvmlInitWithFlags", 4, "no_permission", "/dev/nvidia"),
        ("nvmlInitWithFlags", 999, "unknown", "nvidia-smi"),
        ("nvmlDeviceGetCount_v2", 999, "unknown", "nvidia-smi"),
        (None, 0, "no_cards", "lspci"),
        ("LD_LIBRARY_PATH", 0, "library_not_found", "install the NVIDIA driver"),
        ("PYTHONPATH", 0, "nvidia_ml_py_missing", "pip install nvidia-ml-py"),
    ],
)
def test_a_driver_that_can_not_be_used_is_one_line_and_a_recorded_tick(
    machine: Machine, tmp_path: Path, function: str | None, code: int, name: str, remedy: str
) -> None:
    (tmp_path / "libnvidia-ml.so.1").write_text("this hides the real library, if there is one")
    (tmp_path / "pynvml.py").write_text("raise ModuleNotFoundError('No module named pynvml')")
    machine.samples.mkdir(parents=True)
    if code:
        machine.scenario.add_card()
        machine.scenario.error(str(function), code)
    text = complaint(machine.sample(variables={} if code or not function else {function: str(tmp_path)}), 1)
    assert name in text
    assert remedy in text
    assert [tick["error"] for tick in machine.ticks()] == [name]
    assert machine.cards() == []


def test_the_longer_struct_of_early_535_drivers_is_not_believed(machine: Machine) -> None:
    machine.scenario.settings["struct_535"] = 1
    machine.scenario.add_card(compute=[(PID, 8192), (PID + 1, 500), (PID + 2, 600)])
    assert "(1 unknown)" in machine.sample().stdout
    assert [(row["pid"], row["memory_mib"]) for row in machine.processes()] == [(PID, 8192)]
    assert machine.cards()[0]["status"] == "implausible_process_list"


def test_a_lost_card_keeps_its_uuid_and_costs_the_others_nothing(machine: Machine) -> None:
    for percent in (10, 20, 30):
        machine.scenario.add_card(utilization_percent=percent)
    machine.tick()
    lost = machine.scenario.cards[1]
    lost.error("nvmlDeviceGetHandleByIndex_v2", 15)
    machine.tick()
    machine.tick()  # and it is still remembered one tick later
    for row in machine.cards("gpu_index = 1")[1:]:
        assert (row["gpu_uuid"], row["status"]) == (lost.settings["uuid"], "gpu_is_lost")
        values = set(row) - {"ts_ms", "gpu_uuid", "gpu_index", "status"}
        assert {row[key] for key in values} == {None}
    assert [row["utilization_percent"] for row in machine.cards("gpu_index <> 1")] == [10, 30] * 3


def test_a_card_lost_before_it_was_ever_seen_is_named_by_its_index(machine: Machine) -> None:
    machine.scenario.add_card()
    machine.scenario.add_card().error("nvmlDeviceGetHandleByIndex_v2", 15)
    machine.tick()
    assert [row["gpu_uuid"] for row in machine.cards("gpu_index = 1")] == ["unknown:index-1"]


def test_a_lost_card_does_not_take_the_uuid_of_a_card_that_moved(machine: Machine) -> None:
    machine.scenario.add_card()
    second = machine.scenario.add_card()
    machine.tick()
    # The first is lost, and the other one is now seen at both places: indices are not stable.
    machine.scenario.cards[0].update(uuid=second.settings["uuid"])
    second.error("nvmlDeviceGetHandleByIndex_v2", 15)
    machine.tick()
    last = machine.ticks()[-1]["ts_ms"]
    assert [row["gpu_uuid"] for row in machine.cards(f"ts_ms = {last}")] == [second.settings["uuid"], "unknown:index-1"]


def test_a_card_lost_half_way_keeps_what_it_still_says_of_itself(machine: Machine) -> None:
    card = machine.scenario.add_card()
    card.error(None, 15)
    for function in ("nvmlDeviceGetUUID", "nvmlDeviceGetName", "nvmlDeviceGetMigMode"):
        card.error(function, 0)
    machine.tick()
    (row,) = machine.cards()
    assert (row["gpu_uuid"], row["status"]) == (card.settings["uuid"], "gpu_is_lost")
    assert row["gpu_name"] == "NVIDIA A100-SXM4-80GB"
    assert row["process_memory_mib"] is None


def test_a_lost_card_that_still_tells_its_uuid_is_not_taken_for_another(machine: Machine) -> None:
    machine.scenario.add_card()
    machine.tick()
    card = machine.scenario.cards[0]
    card.update(uuid="GPU-exchanged")
    card.error("nvmlDeviceGetMigMode", 15)
    machine.tick()
    assert [row["gpu_uuid"] for row in machine.cards("status <> 'ok'")] == ["GPU-exchanged"]


def test_uuids_of_an_earlier_boot_are_not_remembered(machine: Machine) -> None:
    machine.scenario.add_card()
    machine.tick()
    with closing(sqlite3.connect(machine.partitions()[0])) as connection, connection:
        connection.execute("UPDATE session SET boot_id = 'before the reboot'")
    machine.scenario.cards[0].error("nvmlDeviceGetHandleByIndex_v2", 15)
    machine.tick()
    assert machine.cards()[-1]["gpu_uuid"] == "unknown:index-0"


def test_one_slow_card_does_not_hold_a_lock(machine: Machine) -> None:
    machine.scenario.add_card()
    machine.tick()
    machine.scenario.delay("nvmlDeviceGetCount_v2", 1500)
    slow = subprocess.Popen(machine.command(), env=machine.environment(), stdout=subprocess.DEVNULL)
    time.sleep(0.7)
    with closing(sqlite3.connect(machine.partitions()[0], timeout=0, isolation_level=None)) as connection:
        connection.execute("BEGIN EXCLUSIVE")
        connection.execute("ROLLBACK")
    assert slow.poll() is None  # it was in the driver all the while
    assert slow.wait() == 0
    assert len(machine.ticks()) == 2


def test_bad_mig_instances_cost_their_siblings_nothing_and_keep_uuid_and_parent(machine: Machine) -> None:
    parent = machine.scenario.add_card()
    uuids = [parent.add_mig().settings["uuid"] for _ in range(3)]
    parent.instances[1].error("nvmlDeviceGetUUID", 999)
    machine.tick()
    first = {row["gpu_uuid"]: row["status"] for row in machine.cards()}
    assert first == {uuids[0]: "ok", uuids[2]: "ok", "unknown:index-0-mig-1": "unknown"}
    parent.instances[1].error("nvmlDeviceGetUUID", 0)
    machine.tick()
    parent.instances[1].error("nvmlDeviceGetUUID", 999)
    machine.tick()
    parent.error("nvmlDeviceGetHandleByIndex_v2", 15)
    machine.tick()
    for tick in machine.ticks()[1:]:
        assert {row["gpu_uuid"] for row in machine.cards(f"ts_ms = {tick['ts_ms']}")} == set(uuids)
    assert {row["gpu_uuid"] for row in machine.cards("status = 'gpu_is_lost'")} == set(uuids)
    assert {row["parent_uuid"] for row in machine.cards()} == {parent.settings["uuid"]}


def test_lost_mig_instances_keep_their_share_of_the_card_over_midnight(machine: Machine) -> None:
    parent = machine.scenario.add_card()
    for slices in (3, 1):
        parent.add_mig(compute_slices=slices)
    midnight_ms = 1_794_787_200_000
    machine.tick(clock_ms=midnight_ms - 60_000)
    parent.error("nvmlDeviceGetHandleByIndex_v2", 15)
    for seconds in (-30, 1, 31):
        machine.tick(clock_ms=midnight_ms + seconds * 1000)
    assert len(machine.partitions()) == 2
    lost = [row for row in machine.cards() if row["status"] == "gpu_is_lost"]
    told = [(row["compute_slices"], row["most_compute_slices"], row["parent_memory_mib"]) for row in lost]
    assert told == [(3, 7, 81_920), (1, 7, 81_920)] * 3
    assert {row["memory_total_mib"] for row in lost} == {None}


def test_trouble_with_gpm_costs_no_card(machine: Machine) -> None:
    parent = machine.scenario.add_card(gpm_supported=1)
    parent.add_mig(gpm_utilization_percent=42.5)
    machine.scenario.error("nvmlGpmSampleFree", 999)
    machine.tick()
    assert [row["utilization_percent"] for row in machine.cards()] == [42.5]


def test_names_from_the_driver_are_stored_as_printable_text(machine: Machine) -> None:
    machine.scenario.settings["driver_version"] = "580\x1b[31m"
    machine.scenario.add_card(name="A100\x1b[31m")
    machine.tick()
    assert machine.cards()[0]["gpu_name"] == r"A100\x1b[31m"
    assert machine.ticks()[0]["driver_version"] == r"580\x1b[31m"
