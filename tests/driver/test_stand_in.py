"""The stand-in driver, driven by the real pynvml in a child process."""

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from . import Scenario, build, environment, with_clock

# `answer` is the value of an expression, or the name of the exception; `rows` makes a list of processes comparable.


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("driver"))


def run_python(code: str, variables: dict[str, str], python: str = sys.executable) -> Any:
    done = subprocess.run([python, "-c", code], env=variables, capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_gpm_samples_less_than_100_ms_apart_give_an_invalid_metric(driver: Path, tmp_path: Path) -> None:
    scenario = Scenario()
    scenario.add_card(gpm_supported=1).add_mig(gpm_utilization_percent=42.5)
    code = """
import json
from pynvml import *
nvmlInit(); card = nvmlDeviceGetHandleByIndex(0)
samples = [nvmlGpmMigSampleGet(card, 7, nvmlGpmSampleAlloc()) for _ in range(2)]
request = c_nvmlGpmMetricsGet_t(version=1, numMetrics=1, sample1=samples[0], sample2=samples[1])
request.metrics[0].metricId = 1
nvmlGpmMetricsGet(request)
print(json.dumps([request.metrics[0].nvmlReturn, request.metrics[0].value]))
"""
    assert run_python(code, environment(driver, scenario.write(tmp_path / "scenario"))) == [2, 0]


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
