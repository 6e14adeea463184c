"""The stand-in driver, driven by the real pynvml in a child process."""

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from . import Scenario, ago, build, environment, with_clock

MIB = 1024 * 1024
LIST_FUNCTIONS = {
    "compute": "nvmlDeviceGetComputeRunningProcesses",
    "graphics": "nvmlDeviceGetGraphicsRunningProcesses",
    "mps": "nvmlDeviceGetMPSComputeRunningProcesses",
}

# `answer` is the value of an expression, or the name of the exception; `rows` makes a list of processes comparable.
PREAMBLE = """
import json, time
from ctypes import byref, c_uint
from pynvml import *
import pynvml

def answer(call):
    try:
        return call()
    except NVMLError as error:
        return [type(error).__name__, error.value]

def rows(processes):
    return [[each.pid, each.usedGpuMemory, each.gpuInstanceId, each.computeInstanceId] for each in processes]

def gpm_metric(take, pause, metric=1):
    samples = [nvmlGpmSampleAlloc(), nvmlGpmSampleAlloc()]
    take(samples[0]); time.sleep(pause); take(samples[1])
    request = c_nvmlGpmMetricsGet_t(version=1, numMetrics=1, sample1=samples[0], sample2=samples[1])
    request.metrics[0].metricId = metric
    nvmlGpmMetricsGet(request)
    [nvmlGpmSampleFree(each) for each in samples]
    return [request.metrics[0].nvmlReturn, request.metrics[0].value]
"""
BEGIN = "nvmlInit(); card = nvmlDeviceGetHandleByIndex(0)\n"

Ask = Callable[..., Any]


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("driver"))


def run_python(code: str, variables: dict[str, str], python: str = sys.executable) -> Any:
    done = subprocess.run([python, "-c", code], env=variables, capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture
def ask(driver: Path, tmp_path: Path) -> Ask:
    """Gives the value of an expression in a child that has opened card 0 of the scenario."""

    def ask(scenario: Scenario, expression: str, begin: str = BEGIN) -> Any:
        path = scenario.write(tmp_path / "scenario")
        return run_python(f"{PREAMBLE}{begin}print(json.dumps({expression}))", environment(driver, path))

    return ask


def test_every_value_of_a_card_comes_through(ask: Ask) -> None:
    scenario = Scenario(driver_version="570.1")
    scenario.add_card()
    scenario.add_card(
        utilization_percent=37, power_milliwatts=250_500, energy_millijoules=2**40, temperature_celsius=71
    )
    calls = {
        "nvmlDeviceGetUUID(card)": "GPU-00000001-0000-4000-8000-000000000000",
        "nvmlDeviceGetName(card)": "NVIDIA A100-SXM4-80GB",
        "nvmlDeviceGetIndex(card)": 1,
        "nvmlDeviceGetMinorNumber(card)": 1,
        "nvmlDeviceGetUtilizationRates(card).gpu": 37,
        "nvmlDeviceGetPowerUsage(card)": 250_500,
        "nvmlDeviceGetTotalEnergyConsumption(card)": 2**40,
        "nvmlDeviceGetTemperature(card, NVML_TEMPERATURE_GPU)": 71,
        "nvmlDeviceGetPersistenceMode(card)": 1,
        "nvmlDeviceGetMigMode(card)": [0, 0],
        "nvmlDeviceGetMaxMigDeviceCount(card)": 0,
        "nvmlGpmQueryDeviceSupport(card).isSupportedDevice": 0,
        "nvmlDeviceGetCount()": 2,
        "nvmlSystemGetDriverVersion()": "570.1",
    }
    begin = "nvmlInit(); card = nvmlDeviceGetHandleByIndex(1)\n"
    assert ask(scenario, f"[{', '.join(calls)}]", begin) == list(calls.values())


def test_the_reserve_is_used_memory_in_the_first_version_only(ask: Ask) -> None:
    scenario = Scenario()
    card = scenario.add_card(memory_total_mib=1000, memory_reserved_mib=100, compute=[(1, 300)], graphics=[(1, 300)])
    question = """[
        [m.total, m.free, m.used] for m in [nvmlDeviceGetMemoryInfo(card)]
    ] + [[m.total, m.reserved, m.free, m.used] for m in [nvmlDeviceGetMemoryInfo(card, nvmlMemory_v2)]]"""
    v1 = [1000 * MIB, 600 * MIB, 400 * MIB]
    assert ask(scenario, question) == [v1, [1000 * MIB, 100 * MIB, 600 * MIB, 300 * MIB]]
    card.update(memory_v2_used_includes_reserve=1)
    assert ask(scenario, question) == [v1, [1000 * MIB, 100 * MIB, 600 * MIB, 400 * MIB]]


def test_a_setting_of_none_is_not_supported(ask: Ask) -> None:
    scenario = Scenario()
    scenario.add_card(
        name=None,
        memory_total_mib=None,
        utilization_percent=None,
        energy_millijoules=None,
        power_milliwatts=None,
        compute=None,
        process_utilization=None,
    )
    calls = [
        "nvmlDeviceGetName(card)",
        "nvmlDeviceGetMemoryInfo(card)",
        "nvmlDeviceGetUtilizationRates(card)",
        "nvmlDeviceGetSamples(card, NVML_GPU_UTILIZATION_SAMPLES, 0)",
        "nvmlDeviceGetTotalEnergyConsumption(card)",
        "nvmlDeviceGetPowerUsage(card)",
        "nvmlDeviceGetComputeRunningProcesses_v3(card)",
        "nvmlDeviceGetProcessUtilization(card, 0)",
        "nvmlDeviceGetGpuInstanceId(card)",
        "nvmlDeviceGetComputeInstanceId(card)",
        "nvmlGpmSampleGet(card, nvmlGpmSampleAlloc())",
    ]
    questions = [f"answer(lambda: {call})" for call in calls]
    assert ask(scenario, f"[{', '.join(questions)}]") == [["NVMLError_NotSupported", 3]] * len(calls)


@pytest.mark.parametrize("key", ["compute", "graphics", "mps"])
def test_both_versions_of_a_process_list_give_pids_and_memory(ask: Ask, key: str) -> None:
    scenario = Scenario()
    card = scenario.add_card(**{key: [(4242, 8192), (4243, None)]})
    function = LIST_FUNCTIONS[key]
    question = f"[rows(f(card)) for f in [getattr(pynvml, '{function}' + v, None) for v in ('_v2', '_v3', '')] if f]"
    no_instance = [2**32 - 1, 2**32 - 1]
    for answer in ask(scenario, question):
        assert answer == [[4242, 8192 * MIB, *no_instance], [4243, None, *no_instance]]
    card.update(**{key: []})
    assert all(answer == [] for answer in ask(scenario, question))


def test_a_buffer_too_small_for_the_processes_is_told_the_count_it_needs(ask: Ask) -> None:
    scenario = Scenario()
    scenario.add_card(compute=[(1, 1), (2, 2), (3, 3)])
    question = """[
        (function(card, byref(count), rows), count.value)
        for count, rows in [(c_uint(0), None), (c_uint(2), (c_nvmlProcessInfo_t * 2)()), (c_uint(3), None)]
    ]"""
    begin = BEGIN + "function = pynvml._nvmlGetFunctionPointer('nvmlDeviceGetComputeRunningProcesses_v3')\n"
    assert ask(scenario, question, begin) == [[7, 3], [7, 3], [2, 3]]


def test_the_longer_rows_of_the_early_535_drivers_shift_all_but_the_first_process(ask: Ask) -> None:
    scenario = Scenario(driver_version="535.54.03")
    scenario.add_card(compute=[(4242, 8192), (4243, 100)])
    scenario.settings["struct_535"] = 1
    first, second = ask(scenario, "rows(nvmlDeviceGetComputeRunningProcesses_v3(card))")
    assert first[:2] == [4242, 8192 * MIB]
    assert second[:2] == [0, 4243]


def test_samples_are_those_newer_than_the_last_seen(ask: Ask) -> None:
    scenario = Scenario()
    scenario.add_card(samples=[(1000, 10), (2000, 20), (3000, 30)])
    question = """[
        answer(lambda: [[s.timeStamp, s.sampleValue.uiVal] for s in nvmlDeviceGetSamples(card, 1, since)[1]])
        for since in (0, 1000, 3000)
    ]"""
    everything, newer, nothing = ask(scenario, question)
    assert everything == [[1000, 10], [2000, 20], [3000, 30]]
    assert newer == [[2000, 20], [3000, 30]]
    assert nothing == ["NVMLError_NotFound", 6]


def test_of_more_samples_than_the_buffer_holds_the_newest_are_given(ask: Ask) -> None:
    scenario = Scenario()
    scenario.add_card(samples=[(1000 + i, i) for i in range(130)])
    assert ask(scenario, "[s.timeStamp for s in nvmlDeviceGetSamples(card, 1, 0)[1]]") == list(range(1010, 1130))


def test_samples_end_now_unless_given(ask: Ask) -> None:
    scenario = Scenario()
    scenario.add_card(utilization_percent=37)
    samples = ask(scenario, "[[s.timeStamp, s.sampleValue.uiVal] for s in nvmlDeviceGetSamples(card, 1, 0)[1]]")
    assert len(samples) == 100
    assert {value for _, value in samples} == {37}
    assert abs(samples[-1][0] - time.time_ns() // 1000) < 10_000_000
    assert 16_000_000 < samples[-1][0] - samples[0][0] < 17_000_000


@pytest.mark.parametrize("clock", ["boottime", "monotonic"])
def test_times_before_the_call_are_in_the_clock_of_the_scenario(ask: Ask, clock: str) -> None:
    scenario = Scenario()
    scenario.settings["clock"] = clock
    scenario.add_card(samples=[(ago(2.5), 80), (ago(0), 90)], process_utilization=[(4242, ago(1), 30)])
    now_us = f"time.clock_gettime_ns(time.CLOCK_{clock.upper()}) // 1000"
    question = f"""[
        [s.timeStamp for s in nvmlDeviceGetSamples(card, 1, 0)[1]] + [s.timeStamp for s in records] + [{now_us}]
        for records in [nvmlDeviceGetProcessUtilization(card, 0)]
    ][0]"""
    older, newest, of_process, now = ask(scenario, question)
    assert (newest - older, newest - of_process) == (2_500_000, 1_000_000)
    assert 0 <= now - newest < 10_000_000


def test_buffers_may_answer_success_without_a_record(ask: Ask) -> None:
    scenario = Scenario()
    scenario.add_card(utilization_percent=37, process_utilization=[(4242, ago(1), 30)], buffers_answer_success=1)
    question = """[
        answer(lambda: nvmlDeviceGetSamples(card, 1, 0)[1]), answer(lambda: nvmlDeviceGetProcessUtilization(card, 0))
    ]"""
    assert ask(scenario, question) == [[], ["NVMLError", 0]]


def test_process_utilization_is_that_newer_than_the_last_seen(ask: Ask) -> None:
    scenario = Scenario()
    scenario.add_card(process_utilization=[(4242, 1000, 85), (4243, 2000, 0)])
    question = """[
        answer(lambda: [[s.pid, s.timeStamp, s.smUtil] for s in nvmlDeviceGetProcessUtilization(card, since)])
        for since in (0, 1000, 2000)
    ]"""
    everything, newer, nothing = ask(scenario, question)
    assert everything == [[4242, 1000, 85], [4243, 2000, 0]]
    assert newer == [[4243, 2000, 0]]
    assert nothing == ["NVMLError_NotFound", 6]


@pytest.mark.parametrize(
    ("code", "exception"), [(9, "NVMLError_DriverNotLoaded"), (18, "NVMLError_LibRmVersionMismatch")]
)
def test_an_error_of_the_library_comes_through(ask: Ask, code: int, exception: str) -> None:
    scenario = Scenario()
    scenario.error("nvmlInitWithFlags", code)
    assert ask(scenario, "answer(nvmlInit)", begin="") == [exception, code]


def test_without_a_scenario_the_driver_is_not_loaded(driver: Path, tmp_path: Path) -> None:
    code = f"{PREAMBLE}print(json.dumps(answer(nvmlInit)))"
    for scenario in (None, tmp_path / "absent"):
        assert run_python(code, environment(driver, scenario)) == ["NVMLError_DriverNotLoaded", 9]


def test_an_error_of_one_card_leaves_the_other_alone(ask: Ask) -> None:
    scenario = Scenario()
    scenario.add_card().error("nvmlDeviceGetPowerUsage", 4)
    scenario.add_card()
    question = "[answer(lambda: nvmlDeviceGetPowerUsage(nvmlDeviceGetHandleByIndex(i))) for i in (0, 1)]"
    assert ask(scenario, question) == [["NVMLError_NoPermission", 4], 62_000]


def test_a_lost_card_has_a_handle_and_nothing_else(ask: Ask) -> None:
    scenario = Scenario()
    card = scenario.add_card()
    card.add_mig()
    card.error(None, 15)
    card.error("nvmlDeviceGetUUID", 0)
    card.error("nvmlDeviceGetMigDeviceHandleByIndex", 0)
    question = """[answer(lambda: call(handle))
        for handle in (card, nvmlDeviceGetMigDeviceHandleByIndex(card, 0))
        for call in (nvmlDeviceGetUUID, nvmlDeviceGetMemoryInfo)]"""
    lost = ["NVMLError_GpuIsLost", 15]
    assert ask(scenario, question) == ["GPU-00000000-0000-4000-8000-000000000000", lost, lost, lost]
    card.error("nvmlDeviceGetHandleByIndex_v2", 15)
    assert ask(scenario, "answer(lambda: nvmlDeviceGetHandleByIndex(0))", begin="nvmlInit()\n") == lost


def test_a_driver_without_the_third_version_of_the_lists_still_has_the_second(ask: Ask) -> None:
    scenario = Scenario()
    scenario.add_card(compute=[(4242, 1)])
    scenario.error("nvmlDeviceGetComputeRunningProcesses_v3", 13)
    begin = BEGIN + "function = pynvml._nvmlGetFunctionPointer('nvmlDeviceGetComputeRunningProcesses_v2')\n"
    question = """[
        answer(lambda: rows(nvmlDeviceGetComputeRunningProcesses_v3(card))),
        [(function(card, byref(c_uint(1)), buffer), buffer[0].pid) for buffer in [(c_nvmlProcessInfo_t * 1)()]],
    ]"""
    assert ask(scenario, question, begin) == [["NVMLError_FunctionNotFound", 13], [[0, 4242]]]


def test_a_card_that_does_not_exist_is_an_invalid_argument(ask: Ask) -> None:
    scenario = Scenario()
    scenario.add_card()
    question = "answer(lambda: nvmlDeviceGetHandleByIndex(1))"
    assert ask(scenario, question) == ["NVMLError_InvalidArgument", 2]


def test_a_call_after_the_shutdown_is_uninitialized(ask: Ask) -> None:
    scenario = Scenario()
    scenario.add_card()
    begin = BEGIN + "nvmlShutdown()\n"
    question = "[answer(nvmlShutdown), answer(lambda: nvmlDeviceGetUUID(card)), answer(nvmlDeviceGetCount)]"
    assert ask(scenario, question, begin) == [["NVMLError_Uninitialized", 1]] * 3


def test_mig_instances_have_values_of_their_own(ask: Ask) -> None:
    scenario = Scenario()
    card = scenario.add_card(compute=[])
    card.add_mig(compute=[(4242, 2048)])
    card.add_mig(uuid="MIG-second", compute=[(4243, 1)])
    begin = BEGIN + "first, second = [nvmlDeviceGetMigDeviceHandleByIndex(card, i) for i in (0, 1)]\n"
    question = """[
        nvmlDeviceGetMigMode(card), nvmlDeviceGetMaxMigDeviceCount(card),
        answer(lambda: nvmlDeviceGetMigDeviceHandleByIndex(card, 2)),
        answer(lambda: nvmlDeviceGetUtilizationRates(card)), answer(lambda: nvmlDeviceGetUtilizationRates(first)),
        nvmlDeviceGetUUID(first), nvmlDeviceGetUUID(second),
        nvmlDeviceGetGpuInstanceId(second), nvmlDeviceGetComputeInstanceId(second),
        nvmlDeviceGetMemoryInfo(first).used, rows(nvmlDeviceGetComputeRunningProcesses(first)),
        rows(nvmlDeviceGetComputeRunningProcesses(card)),
    ]"""
    first_row, second_row = [4242, 2048 * MIB, 7, 0], [4243, MIB, 8, 0]
    assert ask(scenario, question, begin) == [
        [1, 1], 7,
        ["NVMLError_NotFound", 6],
        ["NVMLError_NotSupported", 3], ["NVMLError_NotSupported", 3],
        "MIG-00000000-0000-4000-8000-000000000001", "MIG-second",
        8, 0,
        (2048 + 12) * MIB, [first_row],
        [first_row, second_row],
    ]  # fmt: skip


def test_gpm_tells_the_utilization_of_instances_and_cards(ask: Ask) -> None:
    scenario = Scenario()
    card = scenario.add_card(name="NVIDIA H100", gpm_supported=1, gpm_utilization_percent=17)
    card.add_mig(gpm_utilization_percent=42.5)
    begin = BEGIN + "instance = nvmlDeviceGetMigDeviceHandleByIndex(card, 0)\n"
    question = """[
        nvmlGpmQueryDeviceSupport(card).isSupportedDevice, nvmlGpmQueryDeviceSupport(instance).isSupportedDevice,
        gpm_metric(lambda sample: nvmlGpmMigSampleGet(card, 7, sample), 0.101),
        gpm_metric(lambda sample: nvmlGpmSampleGet(card, sample), 0.101),
        gpm_metric(lambda sample: nvmlGpmSampleGet(card, sample), 0.101, metric=2),
        answer(lambda: gpm_metric(lambda sample: nvmlGpmMigSampleGet(card, 9, sample), 0)),
    ]"""
    assert ask(scenario, question, begin) == [1, 1, [0, 42.5], [0, 17], [3, 0], ["NVMLError_InvalidArgument", 2]]


def test_gpm_samples_less_than_100_ms_apart_give_an_invalid_metric(ask: Ask) -> None:
    scenario = Scenario()
    scenario.add_card(gpm_supported=1).add_mig(gpm_utilization_percent=42.5)
    question = "gpm_metric(lambda sample: nvmlGpmMigSampleGet(card, 7, sample), 0.01)"
    assert ask(scenario, question) == [2, 0]


def test_gpm_is_not_supported_before_hopper(ask: Ask) -> None:
    scenario = Scenario()
    scenario.add_card().add_mig(gpm_utilization_percent=42.5)
    question = "answer(lambda: nvmlGpmMigSampleGet(card, 7, nvmlGpmSampleAlloc()))"
    assert ask(scenario, question) == ["NVMLError_NotSupported", 3]


def test_a_delay_holds_up_one_function_of_one_card(ask: Ask) -> None:
    scenario = Scenario()
    scenario.add_card().delay("nvmlDeviceGetUUID", 200)
    scenario.add_card()
    begin = BEGIN + "def seconds(call, handle): t = time.monotonic(); call(handle); return time.monotonic() - t\n"
    question = """[seconds(nvmlDeviceGetUUID, card), seconds(nvmlDeviceGetName, card),
        seconds(nvmlDeviceGetUUID, nvmlDeviceGetHandleByIndex(1))]"""
    delayed, *others = ask(scenario, question, begin)
    assert delayed >= 0.2
    assert max(others) < 0.1


def test_the_call_log_names_every_call(ask: Ask, tmp_path: Path) -> None:
    scenario = Scenario()
    scenario.add_card(compute=[(4242, 1)])
    scenario.settings["call_log"] = tmp_path / "calls"
    ask(scenario, "[nvmlDeviceGetName(card), rows(nvmlDeviceGetComputeRunningProcesses(card)), nvmlShutdown()]")
    assert (tmp_path / "calls").read_text().split() == [
        "nvmlInitWithFlags",
        "nvmlDeviceGetHandleByIndex_v2",
        "nvmlDeviceGetName",
        "nvmlDeviceGetComputeRunningProcesses_v3",
        "nvmlDeviceGetComputeRunningProcesses_v3",
        "nvmlShutdown",
    ]


def test_comments_and_repeated_keys_are_understood(driver: Path, tmp_path: Path) -> None:
    scenario = tmp_path / "scenario"
    scenario.write_text("# a machine\n\ncards=1  # one card\n0.name = first\n  0.name = last = C#  \t# wins\n")
    code = f"{PREAMBLE}{BEGIN}print(json.dumps([nvmlDeviceGetCount(), nvmlDeviceGetName(card)]))"
    assert run_python(code, environment(driver, scenario)) == [1, "last = C#"]


@pytest.mark.parametrize("line", ["cards 1", "cards = one", "cards = 1 2"])
def test_a_malformed_scenario_aborts_with_a_message(driver: Path, tmp_path: Path, line: str) -> None:
    (tmp_path / "scenario").write_text(line + "\n")
    variables = environment(driver, tmp_path / "scenario")
    code = f"{PREAMBLE}nvmlInit(); nvmlDeviceGetCount()"
    done = subprocess.run([sys.executable, "-c", code], env=variables, capture_output=True, text=True)
    assert done.returncode != 0
    assert "stand-in driver: " in done.stderr


def test_an_unknown_setting_is_refused() -> None:
    with pytest.raises(TypeError, match="unknown settings: utilisation_percent"):
        Scenario().add_card(utilisation_percent=3)


def test_a_failed_build_shows_what_the_compiler_said(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match=r"(?s)libnvidia-ml\.so\.1.*failed:.*no-such-folder"):
        build(tmp_path / "no-such-folder")


CLOCKS = """
import json, time, datetime
print(json.dumps([time.time(), time.time_ns() / 1e9, datetime.datetime.now().timestamp(), time.monotonic(),
                  time.clock_gettime(time.CLOCK_BOOTTIME)]))
"""


@pytest.mark.parametrize("offset_ms", [86_400_000, -86_400_123, 999, 0])
def test_the_wall_clock_moves_by_an_offset_and_the_others_do_not(driver: Path, offset_ms: int) -> None:
    real = time.time(), time.monotonic(), time.clock_gettime(time.CLOCK_BOOTTIME)
    *wall, monotonic, boot = run_python(CLOCKS, with_clock(environment(driver, None), driver, offset_ms=offset_ms))
    assert wall == pytest.approx([real[0] + offset_ms / 1000] * 3, abs=5)
    assert [monotonic, boot] == pytest.approx(real[1:], abs=5)


@pytest.mark.parametrize("frozen_ms", [1_700_000_000_123, 0])
def test_a_frozen_clock_stands_still(driver: Path, frozen_ms: int) -> None:
    *wall, monotonic, _ = run_python(CLOCKS, with_clock(environment(driver, None), driver, frozen_ms=frozen_ms))
    assert wall == pytest.approx([frozen_ms / 1000] * 3, abs=1e-6)
    assert monotonic == pytest.approx(time.monotonic(), abs=5)


def test_commands_and_sqlite_see_the_moved_clock_too(driver: Path) -> None:
    variables = with_clock(environment(driver, None), driver, frozen_ms=1_700_000_000_000)
    assert subprocess.run(["date", "+%s"], env=variables, capture_output=True, text=True).stdout == "1700000000\n"
    code = "import sqlite3; print(sqlite3.connect(':memory:').execute(\"SELECT strftime('%s', 'now')\").fetchone()[0])"
    assert run_python(code, variables) == 1_700_000_000
