"""The driver in trouble: a clear line, and nothing lost."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.machine import Machine, one_line

PID = os.getpid()

# What is asked of a card, the column that is NULL without it and its name in `missing`.
QUERIES = [
    ("nvmlDeviceGetName", "gpu_name", "name"),
    ("nvmlDeviceGetPowerUsage", "power_watts", "power"),
    ("nvmlDeviceGetTotalEnergyConsumption", "energy_joules", "energy"),
    ("nvmlDeviceGetTemperature", "temperature_celsius", "temperature"),
    ("nvmlDeviceGetPersistenceMode", "persistence_mode", "persistence_mode"),
]
CODES = [(3, "not_supported"), (4, "no_permission"), (999, "unknown")]


def assert_recorded_error(machine: Machine, name: str, remedy: str, **changes: str) -> None:
    done = machine.sample(variables=changes)
    assert done.returncode == 1
    assert done.stdout == ""
    assert one_line(done.stderr)
    assert name in done.stderr
    assert remedy in done.stderr
    (tick,) = machine.ticks()
    assert tick["error"] == name
    assert machine.cards() == []


@pytest.mark.parametrize(
    ("code", "name", "remedy"),
    [
        (9, "driver_not_loaded", "modprobe nvidia"),
        (18, "lib_rm_version_mismatch", "reboot"),
        (4, "no_permission", "/dev/nvidia"),
        (999, "unknown", "nvidia-smi"),
    ],
)
def test_nvml_that_can_not_start_is_one_line_and_a_recorded_tick(
    machine: Machine, code: int, name: str, remedy: str
) -> None:
    machine.scenario.add_card()
    machine.scenario.error("nvmlInitWithFlags", code)
    assert_recorded_error(machine, name, remedy)


def test_a_missing_nvml_library_is_one_line_and_a_recorded_tick(machine: Machine, tmp_path: Path) -> None:
    (tmp_path / "libnvidia-ml.so.1").write_text("this hides the real library, if there is one")
    machine.samples.mkdir(parents=True)
    assert_recorded_error(machine, "library_not_found", "install the NVIDIA driver", LD_LIBRARY_PATH=str(tmp_path))


def test_a_missing_python_binding_is_one_line_and_a_recorded_tick(machine: Machine, tmp_path: Path) -> None:
    (tmp_path / "pynvml.py").write_text("raise ModuleNotFoundError('No module named pynvml')")
    assert_recorded_error(machine, "nvidia_ml_py_missing", "pip install nvidia-ml-py", PYTHONPATH=str(tmp_path))


def test_a_driver_without_cards_is_an_error(machine: Machine) -> None:
    assert_recorded_error(machine, "no_cards", "lspci")


def test_a_driver_that_fails_to_count_its_cards_is_an_error(machine: Machine) -> None:
    machine.scenario.add_card()
    machine.scenario.error("nvmlDeviceGetCount_v2", 999)
    assert_recorded_error(machine, "unknown", "nvidia-smi")


@pytest.mark.parametrize(("code", "name"), CODES)
@pytest.mark.parametrize(("function", "column", "field"), QUERIES)
def test_a_query_the_card_does_not_answer_is_null_and_says_why(
    machine: Machine, function: str, column: str, field: str, code: int, name: str
) -> None:
    machine.scenario.add_card(utilization_percent=50).error(function, code)
    machine.scenario.add_card(utilization_percent=50)
    machine.tick()
    poor, rich = machine.cards()
    assert poor[column] is None
    assert poor["missing"] == f"{field}:{name}"
    assert rich["missing"] is None
    # All else is recorded, and the card has not failed.
    same = [key for key in rich if key not in (column, "missing", "gpu_uuid", "gpu_index")]
    assert {key: poor[key] for key in same} == {key: rich[key] for key in same}
    assert poor["status"] == "ok"


def test_values_that_are_not_available_are_null(machine: Machine) -> None:
    machine.scenario.add_card(power_milliwatts=2**32 - 1, energy_millijoules=2**64 - 1)
    machine.tick()
    (row,) = machine.cards()
    assert (row["power_watts"], row["energy_joules"]) == (None, None)
    assert row["missing"] == "power:not_available energy:not_available"


def test_utilization_that_can_not_be_had_is_null(machine: Machine) -> None:
    machine.scenario.add_card(utilization_percent=None, samples=None, compute=[(PID, 8192)])
    done = machine.sample()
    (row,) = machine.cards()
    assert (row["utilization_percent"], row["utilization_source"]) == (None, None)
    assert row["missing"] == "utilization:not_supported"
    assert "(1 unknown)" in done.stdout  # held, and whether it works can't be told


def test_memory_that_can_not_be_had_is_null_and_the_processes_still_count(machine: Machine) -> None:
    machine.scenario.add_card(memory_total_mib=None, compute=[(PID, 8192)])  # as on unified-memory machines
    done = machine.sample()
    (row,) = machine.cards()
    assert [row[f"memory_{what}_mib"] for what in ("total", "reserved", "used")] == [None, None, None]
    assert row["process_memory_mib"] == 8192
    assert "(1 idle-held)" in done.stdout


@pytest.mark.parametrize(("code", "name"), [*CODES, (15, "gpu_is_lost")])
def test_a_process_list_that_can_not_be_had_makes_the_card_unknown(machine: Machine, code: int, name: str) -> None:
    machine.scenario.add_card().error("nvmlDeviceGetComputeRunningProcesses_v3", code)
    done = machine.sample()
    assert done.returncode == 0
    (row,) = machine.cards()
    assert (row["status"], row["process_memory_mib"]) == (name, None)
    assert row["missing"] == f"compute_processes:{name}"
    assert row["temperature_celsius"] == 33
    assert "(1 unknown)" in done.stdout


def test_lists_that_a_card_simply_does_not_have_are_not_missed(machine: Machine) -> None:
    machine.scenario.add_card(compute=[(PID, 8192)], graphics=None, mps=None)
    machine.tick()
    (row,) = machine.cards()
    assert (row["status"], row["missing"], row["process_memory_mib"]) == ("ok", None, 8192)


def test_the_longer_struct_of_early_535_drivers_is_not_believed(machine: Machine) -> None:
    machine.scenario.settings["struct_535"] = 1
    machine.scenario.add_card(compute=[(PID, 8192), (PID + 1, 500), (PID + 2, 600)])
    done = machine.sample()
    assert [(row["pid"], row["memory_mib"]) for row in machine.processes()] == [(PID, 8192)]
    assert machine.cards()[0]["status"] == "implausible_process_list"
    assert "(1 unknown)" in done.stdout


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


def test_the_instances_of_a_lost_mig_card_stay_cards(machine: Machine) -> None:
    parent = machine.scenario.add_card()
    uuids = [parent.add_mig().settings["uuid"] for _ in range(3)]
    machine.tick()
    parent.error("nvmlDeviceGetHandleByIndex_v2", 15)
    machine.tick()
    assert [row["gpu_uuid"] for row in machine.cards("status = 'gpu_is_lost'")] == uuids


def test_uuids_of_an_earlier_boot_are_not_remembered(machine: Machine) -> None:
    import sqlite3

    machine.scenario.add_card()
    machine.tick()
    connection = sqlite3.connect(machine.partitions()[0])
    connection.execute("UPDATE session SET boot_id = 'before the reboot'")
    connection.commit()
    connection.close()
    machine.scenario.cards[0].error("nvmlDeviceGetHandleByIndex_v2", 15)
    machine.tick()
    assert machine.cards()[-1]["gpu_uuid"] == "unknown:index-0"


def test_one_slow_card_does_not_hold_a_lock(machine: Machine) -> None:
    import sqlite3
    import subprocess
    import time

    machine.scenario.add_card()
    machine.tick()
    machine.scenario.delay("nvmlDeviceGetCount_v2", 1500)
    slow = subprocess.Popen(machine.command(), env=machine.environment(), stdout=subprocess.DEVNULL)
    time.sleep(0.7)
    connection = sqlite3.connect(machine.partitions()[0], timeout=0, isolation_level=None)
    connection.execute("BEGIN EXCLUSIVE")
    connection.execute("ROLLBACK")
    connection.close()
    assert slow.poll() is None  # it was in the driver all the while
    assert slow.wait() == 0
    assert len(machine.ticks()) == 2


def test_utilization_beyond_100_percent_is_not_believed(machine: Machine) -> None:
    machine.scenario.add_card(samples=None, utilization_percent=250)
    machine.tick()
    (row,) = machine.cards()
    assert (row["utilization_percent"], row["missing"]) == (None, "utilization:implausible")


def test_memory_that_does_not_add_up_is_null(machine: Machine) -> None:
    machine.scenario.add_card(memory_total_mib=81920, memory_reserved_mib=500, memory_free_mib=81900)
    machine.tick()
    (row,) = machine.cards()
    assert (row["memory_used_mib"], row["missing"]) == (None, "memory_used:implausible")


@pytest.mark.parametrize("processes", [[(PID, 90_000)], [(PID, 45_000), (PID + 1, 45_000)]])
def test_processes_that_hold_more_than_the_card_has_are_not_believed(
    machine: Machine, processes: list[tuple[int, int]]
) -> None:
    machine.scenario.add_card(compute=processes, memory_free_mib=81_000)
    machine.tick()
    assert machine.cards()[0]["status"] == "implausible_process_list"


def test_a_card_that_is_lost_only_for_one_figure_has_failed(machine: Machine) -> None:
    machine.scenario.add_card().error("nvmlDeviceGetPowerUsage", 15)
    machine.tick()
    assert machine.cards()[0]["status"] == "gpu_is_lost"


def test_one_bad_mig_instance_costs_its_siblings_nothing(machine: Machine) -> None:
    parent = machine.scenario.add_card()
    uuids = [parent.add_mig().settings["uuid"] for _ in range(3)]
    parent.instances[1].error("nvmlDeviceGetUUID", 999)
    machine.tick()
    assert {row["gpu_uuid"]: row["status"] for row in machine.cards()} == {
        uuids[0]: "ok",
        uuids[2]: "ok",
        "unknown:index-0-mig-1": "unknown",
    }
    assert {row["parent_uuid"] for row in machine.cards()} == {parent.settings["uuid"]}


def test_lost_mig_instances_keep_their_uuid_and_their_parent(machine: Machine) -> None:
    parent = machine.scenario.add_card()
    uuids = [parent.add_mig().settings["uuid"] for _ in range(3)]
    machine.tick()
    parent.instances[1].error("nvmlDeviceGetUUID", 999)
    machine.tick()
    parent.error("nvmlDeviceGetHandleByIndex_v2", 15)
    machine.tick()
    for tick in machine.ticks():
        rows = machine.cards(f"ts_ms = {tick['ts_ms']}")
        assert {row["gpu_uuid"] for row in rows} == set(uuids)
        assert {row["parent_uuid"] for row in rows} == {parent.settings["uuid"]}


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
