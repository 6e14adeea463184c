"""The stand-in driver, driven by the real pynvml in a child process."""

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from . import Scenario, build, environment, with_clock

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


def test_a_buffer_too_small_for_the_processes_is_told_the_count_it_needs(ask: Ask) -> None:
    scenario = Scenario()
    scenario.add_card(compute=[(1, 1), (2, 2), (3, 3)])
    question = """[
        (function(card, byref(count), rows), count.value)
        for count, rows in [(c_uint(0), None), (c_uint(2), (c_nvmlProcessInfo_t * 2)()), (c_uint(3), None)]
    ]"""
    begin = BEGIN + "function = pynvml._nvmlGetFunctionPointer('nvmlDeviceGetComputeRunningProcesses_v3')\n"
    assert ask(scenario, question, begin) == [[7, 3], [7, 3], [2, 3]]


def test_gpm_samples_less_than_100_ms_apart_give_an_invalid_metric(ask: Ask) -> None:
    scenario = Scenario()
    scenario.add_card(gpm_supported=1).add_mig(gpm_utilization_percent=42.5)
    question = "gpm_metric(lambda sample: nvmlGpmMigSampleGet(card, 7, sample), 0.01)"
    assert ask(scenario, question) == [2, 0]


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
