"""What one tick records, on the stand-in driver."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest

from tests.machine import Machine, one_line

PID = os.getpid()
TICK_COLUMNS = ["ts_ms", "interval_ms", "boot_id", "driver_version", "nvml_ms", "error"]
CARD_COLUMNS = [
    "ts_ms",
    "interval_ms",
    "gpu_uuid",
    "gpu_index",
    "gpu_name",
    "parent_uuid",
    "utilization_percent",
    "utilization_source",
    "process_memory_mib",
    "memory_used_mib",
    "memory_reserved_mib",
    "memory_total_mib",
    "power_watts",
    "energy_joules",
    "temperature_celsius",
    "persistence_mode",
    "status",
]
PROCESS_COLUMNS = [
    "ts_ms",
    "interval_ms",
    "gpu_uuid",
    "gpu_index",
    "pid",
    "start_time_ms",
    "uid",
    "login_uid",
    "user",
    "login_user",
    "command",
    "cgroup",
    "type",
    "memory_mib",
    "sm_percent",
]


def test_a_tick_prints_one_line_and_creates_the_missing_folders(machine: Machine) -> None:
    machine.scenario.add_card(utilization_percent=50, compute=[(PID, 8192)])
    machine.scenario.add_card()
    done = machine.sample()
    assert done.returncode == 0
    assert one_line(done.stdout)
    assert done.stdout.startswith("2 cards (1 active, 1 truly-idle), 1 process, NVML ")
    assert done.stdout.rstrip().endswith(str(machine.partitions()[0]))
    assert done.stderr == ""


def test_the_views_have_the_documented_columns_first(machine: Machine) -> None:
    machine.scenario.add_card(compute=[(PID, 8192)])
    machine.tick()
    assert list(machine.ticks()[0]) == TICK_COLUMNS
    assert list(machine.cards()[0])[: len(CARD_COLUMNS)] == CARD_COLUMNS
    assert list(machine.processes()[0]) == PROCESS_COLUMNS


def test_a_card_tick_holds_what_the_driver_tells(machine: Machine) -> None:
    card = machine.scenario.add_card(
        utilization_percent=37,
        memory_total_mib=81920,
        memory_reserved_mib=500,
        memory_free_mib=71420,
        power_milliwatts=123_456,
        energy_millijoules=987_654_321_987,
        temperature_celsius=61,
        persistence_mode=0,
        compute=[(PID, 8192), (PID + 1, 100)],
    )
    before_ms = time.time_ns() // 1_000_000
    machine.tick()
    (row,) = machine.cards()
    assert before_ms <= row.pop("ts_ms") <= time.time_ns() // 1_000_000
    assert row == {
        "interval_ms": None,
        "gpu_uuid": card.settings["uuid"],
        "gpu_index": 0,
        "gpu_name": "NVIDIA A100-SXM4-80GB",
        "parent_uuid": None,
        "utilization_percent": 37.0,
        "utilization_source": "samples",
        "process_memory_mib": 8292,
        "memory_used_mib": 10000,
        "memory_reserved_mib": 500,
        "memory_total_mib": 81920,
        "power_watts": 123.5,
        "energy_joules": 987_654_321,
        "temperature_celsius": 61,
        "persistence_mode": 0,
        "status": "ok",
        "missing": None,
        "mig_index": None,
        "compute_slices": None,
        "most_compute_slices": None,
        "parent_memory_mib": None,
    }


def test_the_tick_itself_is_described(machine: Machine) -> None:
    machine.scenario.add_card()
    machine.scenario.delay("nvmlDeviceGetCount_v2", 120)
    machine.tick("--interval", "30s")
    (row,) = machine.ticks()
    assert row["interval_ms"] == 30_000
    assert row["boot_id"] == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert row["driver_version"] == "580.65.06"
    assert 120 <= row["nvml_ms"] < 5000
    assert row["error"] is None


def test_energy_is_exact_across_ticks_and_a_reset_of_the_counter(machine: Machine) -> None:
    card = machine.scenario.add_card()
    readings = [5_000_000_000, 5_000_123_000, 77_000, 99_000]
    for millijoules in readings:
        card.update(energy_millijoules=millijoules)
        machine.tick()
    assert [row["energy_joules"] for row in machine.cards()] == [reading // 1000 for reading in readings]


def test_a_pid_on_several_lists_is_one_row_with_its_largest_memory(machine: Machine) -> None:
    machine.scenario.add_card(
        compute=[(PID, 100), (PID + 1, None)], graphics=[(PID, 300)], mps=[(PID, 200), (PID + 1, 7)]
    )
    machine.tick()
    rows = {row["pid"]: (row["type"], row["memory_mib"]) for row in machine.processes()}
    assert rows == {PID: ("compute+graphics+mps", 300), PID + 1: ("compute+mps", 7)}


def test_process_memory_that_is_not_available_is_null_and_so_is_the_sum(machine: Machine) -> None:
    machine.scenario.add_card(compute=[(PID, 8192), (PID + 1, None)], memory_free_mib=50_000)
    machine.tick()
    assert [row["memory_mib"] for row in machine.processes()] == [8192, None]
    assert machine.cards()[0]["process_memory_mib"] is None


@pytest.mark.parametrize("includes_reserve", [None, 1])
def test_memory_in_use_leaves_out_the_reserve_whatever_the_driver_calls_used(
    machine: Machine, includes_reserve: int | None
) -> None:
    machine.scenario.add_card(memory_v2_used_includes_reserve=includes_reserve, compute=[(PID, 700)])
    machine.tick()
    assert machine.cards()[0]["memory_used_mib"] == 700


def test_old_drivers_without_the_newer_calls_are_read_as_far_as_they_go(machine: Machine) -> None:
    card = machine.scenario.add_card(compute=[(PID, 8192)], graphics=[(PID + 1, 40)])
    for list_ in ("Compute", "Graphics"):
        card.error(f"nvmlDeviceGet{list_}RunningProcesses_v3", 13)
    for version in ("_v3", "_v2"):
        card.error(f"nvmlDeviceGetMPSComputeRunningProcesses{version}", 13)
    card.error("nvmlDeviceGetMemoryInfo_v2", 13)
    machine.tick()
    (row,) = machine.cards()
    assert (row["status"], row["process_memory_mib"]) == ("ok", 8232)
    assert row["memory_reserved_mib"] is None
    assert row["memory_used_mib"] == 8232 + 500  # the first version counts the reserve as used


def test_mig_instances_are_cards_of_their_own_and_the_parent_is_not(machine: Machine) -> None:
    parent = machine.scenario.add_card()
    parent.add_mig(compute=[(PID, 4096)])
    parent.add_mig()
    machine.scenario.add_card(utilization_percent=50)
    machine.tick()
    instances = machine.cards("parent_uuid IS NOT NULL")
    assert [row["gpu_uuid"] for row in instances] == [instance.settings["uuid"] for instance in parent.instances]
    assert {row["parent_uuid"] for row in instances} == {parent.settings["uuid"]}
    assert [(row["gpu_index"], row["mig_index"]) for row in instances] == [(0, 0), (0, 1)]
    assert [row["process_memory_mib"] for row in instances] == [4096, 0]
    assert {row["utilization_percent"] for row in instances} == {None}  # not measurable before Hopper
    assert {row["status"] for row in instances} == {"ok"}
    assert [row["gpu_index"] for row in machine.cards("parent_uuid IS NULL")] == [1]


@pytest.mark.parametrize("most", [7, 4])
def test_a_mig_instance_tells_its_share_of_the_card(machine: Machine, most: int) -> None:
    parent = machine.scenario.add_card(mig_count=most, memory_total_mib=24_576)
    parent.add_mig(compute_slices=2)
    parent.add_mig(compute_slices=1)
    machine.tick()
    told = [(row["compute_slices"], row["most_compute_slices"], row["parent_memory_mib"]) for row in machine.cards()]
    assert told == [(2, most, 24_576), (1, most, 24_576)]


def test_a_share_that_the_driver_does_not_tell_is_null_and_costs_nothing_else(machine: Machine) -> None:
    parent = machine.scenario.add_card()
    parent.add_mig(compute_slices=None, compute=[(PID, 4096)])
    parent.error("nvmlDeviceGetMemoryInfo", 3)
    machine.tick()
    (row,) = machine.cards()
    assert (row["compute_slices"], row["parent_memory_mib"]) == (None, None)
    assert (row["status"], row["process_memory_mib"]) == ("ok", 4096)
    assert "compute_slices:not_supported" in row["missing"]


def test_a_card_that_is_lost_while_its_instances_are_looked_for_costs_only_itself(machine: Machine) -> None:
    parent = machine.scenario.add_card()
    parent.add_mig()
    parent.error("nvmlDeviceGetMemoryInfo", 15)
    other = machine.scenario.add_card()
    machine.tick()
    told = {row["gpu_uuid"]: row["status"] for row in machine.cards()}
    assert told == {parent.settings["uuid"]: "gpu_is_lost", other.settings["uuid"]: "ok"}


def test_a_mig_card_without_instances_is_a_card_itself(machine: Machine) -> None:
    card = machine.scenario.add_card(mig_mode=1, mig_count=7, utilization_percent=None, samples=None)
    machine.tick()
    (row,) = machine.cards()
    assert (row["gpu_uuid"], row["utilization_percent"], row["status"]) == (card.settings["uuid"], None, "ok")


def test_mig_utilization_is_measured_where_the_card_has_gpm(machine: Machine) -> None:
    parent = machine.scenario.add_card(gpm_supported=1)
    parent.add_mig(gpm_utilization_percent=42.5)
    parent.add_mig()  # this one gives no figure
    # Two compute instances in one GPU instance: what they share can't be told apart.
    parent.add_mig(gpu_instance_id=13, compute_instance_id=0, gpm_utilization_percent=10)
    parent.add_mig(gpu_instance_id=13, compute_instance_id=1, gpm_utilization_percent=10)
    machine.tick()
    assert [(row["utilization_percent"], row["utilization_source"]) for row in machine.cards()] == [
        (42.5, "gpm"),
        (None, None),
        (None, None),
        (None, None),
    ]
    assert "utilization:" not in (machine.cards()[0]["missing"] or "")


def test_json_output_is_one_object(machine: Machine) -> None:
    import json

    machine.scenario.add_card(compute=[(PID, 8192)])
    done = machine.sample("--json")
    found = json.loads(done.stdout)
    assert found["states"] == {"active": 0, "idle-held": 1, "truly-idle": 0, "unknown": 0}
    assert (found["cards"], found["processes"], found["kept"]) == (1, 1, False)
    assert found["path"] == str(machine.partitions()[0])


@pytest.mark.parametrize("redirection", [">&-", "2>&-", "<&-", ">&- 2>&- <&-"])
def test_it_does_not_mind_closed_descriptors(machine: Machine, redirection: str) -> None:
    machine.scenario.add_card()
    command = ["sh", "-c", f'"$@" {redirection}', "sh", *machine.command()]
    done = subprocess.run(command, env=machine.environment(), capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert len(machine.ticks()) == 1


def test_it_does_not_mind_an_ascii_terminal(machine: Machine) -> None:
    machine.scenario.add_card()
    machine.data_dir = machine.folder / "käse"
    machine.samples = machine.data_dir / "samples"
    done = machine.sample(variables={"PYTHONIOENCODING": "ascii"})
    assert (done.returncode, done.stderr) == (0, "")
    assert r"k\xe4se" in done.stdout


def test_it_does_not_mind_a_full_or_broken_standard_output(machine: Machine) -> None:
    machine.scenario.add_card()
    variables = machine.environment()
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            machine.command(), env=variables, stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert done.returncode == 0
    assert one_line(done.stderr)
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        machine.command(), env=variables, stdout=writer, stderr=subprocess.PIPE, text=True, check=False
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, "")
    assert len(machine.ticks()) == 2
