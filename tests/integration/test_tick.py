"""What one tick records, on the stand-in driver."""

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.driver import Scenario
from tests.machine import Machine, call, one_line
from tests.repository import ROOT

PID = os.getpid()
GONE = 4_190_000  # a pid that no process has here


def test_a_tick_prints_one_line_and_creates_the_missing_folders(machine: Machine) -> None:
    machine.scenario.add_card(utilization_percent=50, compute=[(PID, 8192)])
    machine.scenario.add_card()
    done = machine.sample()
    assert done.returncode == 0
    assert one_line(done.stdout)
    assert done.stdout.startswith("2 cards (1 active, 1 truly-idle), 1 process, NVML ")
    assert done.stdout.rstrip().endswith(str(machine.partitions()[0]))
    assert done.stderr == ""


def add_cards(scenario: Scenario) -> None:
    """All that a driver may tell of sound cards, and a few that are not."""
    scenario.add_card(
        utilization_percent=37,
        memory_total_mib=81920,
        memory_reserved_mib=500,
        memory_free_mib=71420,
        power_milliwatts=123_456,
        energy_millijoules=987_654_321_987,
        temperature_celsius=61,
        persistence_mode=0,
        compute=[(GONE, 8192), (GONE + 1, 100)],
    )
    # A pid on several lists is one row with its largest memory; what is not available is NULL, and so is the sum.
    scenario.add_card(compute=[(GONE, 100), (GONE + 1, None)], graphics=[(GONE, 300)], mps=[(GONE, 200), (GONE + 1, 7)])
    scenario.add_card(compute=[(GONE, 8192), (GONE + 1, None)], memory_free_mib=50_000)
    # Memory in use leaves out the reserve, whatever the driver calls used.
    scenario.add_card(memory_v2_used_includes_reserve=1, compute=[(GONE, 700)])
    # An old driver, without the newer calls: the first version counts the reserve as used.
    old = scenario.add_card(compute=[(GONE, 8192)], graphics=[(GONE + 1, 40)])
    for name in ("nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetGraphicsRunningProcesses_v3"):
        old.error(name, 13)
    for name in ("GetMPSComputeRunningProcesses_v3", "GetMPSComputeRunningProcesses_v2", "GetMemoryInfo_v2"):
        old.error(f"nvmlDevice{name}", 13)
    # MIG instances are cards of their own, and the parent is not; their shares, of a card of seven slices and of four.
    for most in (7, 4):
        parent = scenario.add_card(mig_count=most, memory_total_mib=24_576)
        parent.add_mig(compute_slices=2, compute=[(GONE, 4096)])
        parent.add_mig(compute_slices=1)
    # A share that is not told costs nothing else.
    scenario.add_card().add_mig(compute_slices=None, compute=[(GONE, 4096)])
    scenario.cards[-1].error("nvmlDeviceGetMemoryInfo", 3)
    # Lost while its instances are looked for; without any, and lost.
    scenario.add_card().add_mig()
    scenario.cards[-1].error("nvmlDeviceGetMemoryInfo", 15)
    scenario.add_card(mig_mode=1, mig_count=7).error("nvmlDeviceGetTemperature", 15)
    # Utilization where the card has GPM. Of two compute instances in one GPU instance nobody can tell.
    parent = scenario.add_card(gpm_supported=1)
    parent.add_mig(gpm_utilization_percent=42.5)
    parent.add_mig()  # this one gives no figure
    parent.add_mig(gpu_instance_id=13, compute_instance_id=0, gpm_utilization_percent=10)
    parent.add_mig(gpu_instance_id=13, compute_instance_id=1, gpm_utilization_percent=10)


def add_odd_cards(scenario: Scenario) -> None:
    """What is not told, or not believed, is NULL and says why; all else is recorded."""
    for code in (3, 4, 999):  # not supported, no permission, unknown
        for name in ("Name", "PowerUsage", "TotalEnergyConsumption", "Temperature", "PersistenceMode"):
            scenario.add_card(utilization_percent=50).error(f"nvmlDeviceGet{name}", code)
    scenario.add_card(power_milliwatts=2**32 - 1, energy_millijoules=2**64 - 1)  # the driver's "N/A"
    scenario.add_card(utilization_percent=None, samples=None, compute=[(GONE, 8192)])  # held, and who knows if it works
    scenario.add_card(memory_total_mib=None, compute=[(GONE, 8192)])  # unified memory: the processes still count
    scenario.add_card(compute=[(GONE, 8192)], graphics=None, mps=None)  # lists that it simply does not have
    scenario.add_card(samples=None, utilization_percent=250)
    scenario.add_card(memory_total_mib=81920, memory_reserved_mib=500, memory_free_mib=81900)  # that does not add up
    # Processes that hold more than the card has.
    scenario.add_card(compute=[(GONE, 90_000)], memory_free_mib=81_000)
    scenario.add_card(compute=[(GONE, 45_000), (GONE + 1, 45_000)], memory_free_mib=81_000)
    scenario.add_card().error("nvmlDeviceGetPowerUsage", 15)  # lost for one figure
    for code in (3, 4, 999, 15):  # without its list of processes a card is unknown
        scenario.add_card().error("nvmlDeviceGetComputeRunningProcesses_v3", code)


@pytest.mark.parametrize("add", [add_cards, add_odd_cards])
def test_cards_are_recorded_as_the_driver_tells(machine: Machine, add: Callable[[Scenario], None]) -> None:
    """To rewrite the golden files: GUA_REWRITE_GOLDEN=1 pytest tests/integration/test_tick.py"""
    add(machine.scenario)
    done = machine.sample()
    (tick,) = machine.ticks()
    rows = [row for row in (*machine.cards(), *machine.processes()) if row.pop("ts_ms") == tick["ts_ms"]]
    text = "\n".join([done.stdout.partition(", NVML")[0], *map(json.dumps, rows), ""])
    golden = ROOT / "tests" / "golden" / f"{add.__name__.removeprefix('add_')}.jsonl"
    if os.environ.get("GUA_REWRITE_GOLDEN"):
        golden.write_text(text)
    assert (done.returncode, text) == (0, golden.read_text())


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


@pytest.mark.parametrize("most", [7, 0])
def test_a_mig_card_without_instances_is_unpartitioned_or_unknown(machine: Machine, most: int) -> None:
    # Some MIG-enabled cards give figures that mean nothing, and their lists of processes are for root alone.
    card = machine.scenario.add_card(mig_mode=1, mig_count=most, utilization_percent=50, compute=[(PID, 4096)])
    card.error("nvmlDeviceGetGraphicsRunningProcesses_v3", 4)
    assert machine.sample().stdout.startswith("1 card (1 unpartitioned), 0 processes")
    (row,) = machine.cards()
    assert (row["gpu_uuid"], row["status"]) == (card.settings["uuid"], "unpartitioned")
    assert (row["utilization_percent"], row["process_memory_mib"]) == (None, None)
    assert (row["memory_total_mib"], row["temperature_celsius"]) == (81_920, 33)
    assert machine.processes() == []


def test_a_card_whose_instances_can_not_be_counted_is_not_said_to_have_none(machine: Machine) -> None:
    parent = machine.scenario.add_card()
    instance = parent.add_mig()
    machine.tick()
    parent.error("nvmlDeviceGetMaxMigDeviceCount", 999)
    machine.tick()
    told = [(row["gpu_uuid"], row["status"]) for row in machine.cards()]
    assert told == [(instance.settings["uuid"], "ok"), (instance.settings["uuid"], "unknown")]


def test_json_output_is_one_object(machine: Machine) -> None:
    machine.scenario.add_card(compute=[(PID, 8192)])
    done = machine.sample("--json")
    found = json.loads(done.stdout)
    assert found["states"] == {"active": 0, "idle-held": 1, "truly-idle": 0, "unknown": 0}
    assert found["unpartitioned"] == 0
    assert (found["cards"], found["processes"], found["kept"]) == (1, 1, False)
    assert found["path"] == str(machine.partitions()[0])


@pytest.mark.parametrize("redirection", [">&-", "2>&-", "<&-", ">&- 2>&- <&-"])
def test_it_does_not_mind_closed_descriptors(machine: Machine, redirection: str) -> None:
    machine.scenario.add_card()
    command = ["sh", "-c", f'"$@" {redirection}', "sh", *machine.command()]
    done = call(command, env=machine.environment())
    assert (done.returncode, done.stderr) == (0, "")
    assert len(machine.ticks()) == 1


def test_it_does_not_mind_an_ascii_terminal(machine: Machine) -> None:
    machine.scenario.add_card()
    machine.data_dir = machine.folder / "50% #1? käse"
    machine.samples = machine.data_dir / "samples"
    done = machine.sample(variables={"PYTHONIOENCODING": "ascii"})
    assert (done.returncode, done.stderr) == (0, "")
    assert r"k\xe4se" in done.stdout
    machine.tick()
    assert len(machine.files()) == 1


def test_it_does_not_mind_a_full_or_broken_standard_output(machine: Machine) -> None:
    machine.scenario.add_card()
    reader, broken = os.pipe()
    os.close(reader)
    with open("/dev/full", "w") as full, open(broken, "w") as pipe:
        for output, lines in ((full, 1), (pipe, 0)):
            done = call(
                machine.command(),
                env=machine.environment(),
                capture_output=False,
                stdout=output,
                stderr=subprocess.PIPE,
            )
            assert (done.returncode, done.stderr.count("\n")) == (0, lines)
    assert len(machine.ticks()) == 2
