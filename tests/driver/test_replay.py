"""Recordings of `gua doctor --record`, replayed by the stand-in driver: the tick is the same again."""

import json
import os
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from gua_sample import pending
from gua_sample.records import Reading
from tests.driver import ago
from tests.driver.replay import RECORDINGS, NotRecorded, RecordedTick, read_recording, replay
from tests.machine import GUA, Machine


def record(machine: Machine, *arguments: str, length: str = "1s") -> Path:
    """The file that gua doctor --record writes."""
    path = machine.folder / "gpu.jsonl"
    command = [GUA, "doctor", "--record", str(path), "--for", length, "--data-dir", str(machine.data_dir), *arguments]
    done = subprocess.run(command, env=machine.environment(), capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    return path


def as_json(reading: Reading | None) -> Any:
    return reading and json.loads(json.dumps(pending.named(reading)))


def check(path: Path) -> list[RecordedTick]:
    """Every tick of a recording must be replayed to the same reading."""
    header, ticks = read_recording(path)
    assert header["recording"] == 1
    assert ticks
    for tick, reading, error in replay(ticks):
        assert as_json(reading) == tick.reading
        assert error == tick.error
    return ticks


@pytest.mark.parametrize("name", sorted(os.listdir(RECORDINGS)))
def test_a_recording_that_was_sent_is_replayed(name: str) -> None:
    check(RECORDINGS / name)


def test_a_recorded_tick_equals_the_replayed_one(machine: Machine) -> None:
    scenario = machine.scenario
    pid = os.getpid()
    scenario.add_card(
        utilization_percent=37,
        samples=[(ago(9 - number / 10), number % 60) for number in range(60)],  # the window ends by the clock
        compute=[(pid, 800), (os.getppid(), None)],
        graphics=[(pid, 900)],
        process_utilization=[(pid, ago(2), 30), (pid, ago(1), 50)],
    )
    scenario.add_card(name=None, energy_millijoules=None, compute=None)
    scenario.add_card().error(None, 15)
    card = scenario.add_card(gpm_supported=1)
    card.add_mig(gpm_utilization_percent=40)
    card.add_mig(gpm_utilization_percent=None, compute=[(pid, 3000)])
    (tick,) = check(record(machine))
    assert tick.reading
    cards = tick.reading["cards"]
    assert [card["utilization_source"] for card in cards] == ["samples", "samples", "gpm", None, None]
    assert [card["facts"]["status"] for card in cards] == ["ok", "not_supported", "ok", "ok", "gpu_is_lost"]
    assert [usage["memory_mib"] for usage in cards[0]["usages"]] == [900, None]
    assert cards[3]["usages"][0]["memory_mib"] == 3000
    assert abs(tick.ts_ms - time.time() * 1000) < 60_000


def test_the_next_tick_goes_on_from_the_cursors_of_the_last(machine: Machine) -> None:
    machine.scenario.add_card(utilization_percent=80, process_utilization=[(os.getpid(), ago(1), 30)])
    code = f"from gua_report.doctor.recording import record; record({str(machine.folder / 'two')!r}, 2000, 1000, 30)"
    subprocess.run([Path(GUA).with_name("python"), "-c", code], env=machine.environment(), check=True)
    first, second = check(machine.folder / "two")
    asked = [line["args"][-1] for line in second.calls if line["call"] == "nvmlDeviceGetProcessUtilization"]
    assert asked[0] > 0  # only what is newer is asked for
    assert first.reading
    assert first.reading["cursors"][0]["processes_cursor"] > asked[0]


@pytest.mark.parametrize("error", ["driver_not_loaded", "lib_rm_version_mismatch", "library_not_found"])
def test_a_driver_that_does_not_start_is_replayed(machine: Machine, tmp_path: Path, error: str) -> None:
    variables = machine.environment()
    if error == "library_not_found":
        (tmp_path / "libnvidia-ml.so.1").write_text("this hides the real library, if there is one")
        variables["LD_LIBRARY_PATH"] = str(tmp_path)
    else:
        machine.scenario.error("nvmlInitWithFlags", {"driver_not_loaded": 9, "lib_rm_version_mismatch": 18}[error])
        variables = machine.environment()
    path = tmp_path / "gpu.jsonl"
    done = subprocess.run([GUA, "doctor", "--record", path], env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    (tick,) = check(path)
    assert tick.error == error


def test_a_question_that_was_not_recorded_is_not_answered_by_guess(machine: Machine) -> None:
    machine.scenario.add_card()
    (tick,) = check(record(machine))
    calls = [line for line in tick.calls if line["call"] != "nvmlDeviceGetHandleByIndex_v2"]
    ((_, reading, _),) = replay([tick._replace(calls=calls)])
    assert reading
    assert reading.cards[0].facts.status == "function_not_found"  # as a driver that has no such function
    calls = [
        line | {"args": [7, None]} if line["call"] == "nvmlDeviceGetHandleByIndex_v2" else line for line in tick.calls
    ]
    with pytest.raises(NotRecorded, match="nvmlDeviceGetHandleByIndex_v2"):
        list(replay([tick._replace(calls=calls)]))
