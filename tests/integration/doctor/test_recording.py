"""gua doctor --record as a person runs it, on the stand-in driver."""

import json
import os
import pwd
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.driver import ago
from tests.integration.doctor.examination import doctor
from tests.machine import GUA, Machine, call, complaint


@pytest.fixture
def recorded(machine: Machine) -> Machine:
    """A machine with a card that this process uses."""
    machine.scenario.add_card(
        utilization_percent=50, compute=[(os.getpid(), 800)], process_utilization=[(os.getpid(), ago(1), 30)]
    )
    return machine


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def python(machine: Machine, path: Path, prepare: str = "", length_ms: int = 1000) -> subprocess.CompletedProcess[str]:
    """Record with other limits than the command has."""
    code = f"from gua_report.doctor import recording\n{prepare}\n"
    code += f"print(recording.record({str(path)!r}, {length_ms}, 30000, 30))"
    command = [sys.executable, "-c", code]
    return call(command, env=machine.environment(), timeout=60)


def test_every_call_is_a_line_with_its_arguments_result_code_and_time(recorded: Machine, tmp_path: Path) -> None:
    path = tmp_path / "gpu.jsonl"
    done = doctor(recorded, "--record", str(path), "--for", "3s")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"{path} was written: the time is over. ")
    assert "Read it before you send it" in done.stdout
    header, *lines, last = lines_of(path)
    assert (header["recording"], header["interval_ms"]) == (1, 30_000)
    assert {"gua", "driver_version", "kernel", "hashed", "left_out"} <= header.keys()
    assert 2900 < last["ms"] < 20_000
    assert last["end"] == "the time is over"
    assert [line["ms"] for line in lines] == sorted(line["ms"] for line in lines)
    power = next(line for line in lines if line.get("call") == "nvmlDeviceGetPowerUsage")
    assert power.keys() == {"ms", "call", "args", "result", "return", "took_ms"}
    assert (power["args"], power["result"], power["return"]) == (["#1", 0], {"1": 62_000}, 0)
    (reading,) = (line for line in lines if "reading" in line)
    assert reading["reading"]["cards"][0]["power_watts"] == 62.0


def test_buffers_are_asked_once_a_second_for_what_is_new(recorded: Machine, tmp_path: Path) -> None:
    assert doctor(recorded, "--record", str(tmp_path / "gpu"), "--for", "3s").returncode == 0
    lines = lines_of(tmp_path / "gpu")
    end = next(number for number, line in enumerate(lines) if "reading" in line)
    polls = [line for line in lines[end:] if line.get("call") == "nvmlDeviceGetSamples" and line["args"][-1] is None]
    assert len(polls) == 3
    assert [line["args"][2] > 0 for line in polls] == [False, True, True]
    asked = [line for line in lines[end:] if line.get("call") == "nvmlDeviceGetProcessUtilization"]
    assert asked


def test_no_name_and_no_uuid_is_in_the_file_and_no_two_files_can_be_matched(recorded: Machine, tmp_path: Path) -> None:
    pid = recorded.scenario.cards[0].settings["compute"][0][0]
    card = recorded.scenario.add_card()
    card.add_mig(compute=[(pid, 500)])
    texts = []
    for name in "one", "two":
        assert doctor(recorded, "--record", str(tmp_path / name), "--for", "1s").returncode == 0
        texts.append((tmp_path / name).read_text())
        (processes,) = (line["processes"] for line in lines_of(tmp_path / name) if "processes" in line)
        assert {re.fullmatch("[0-9a-f]{12}", processes[0][key]) is None for key in ("user", "command", "cgroup")} == {
            False
        }
        assert (processes[0]["pid"], processes[0]["uid"], processes[0]["login_uid"]) == (pid, None, None)
    command = Path(f"/proc/{pid}/comm").read_text().strip()
    for secret in (
        pwd.getpwuid(os.getuid()).pw_name,
        command,
        *(str(card.settings["uuid"]) for card in recorded.scenario.cards),
    ):
        assert f'"{secret}"' not in texts[0]
    shape = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
    first, second = (set(re.findall(rf"(?:GPU|MIG)-{shape}", text)) for text in texts)
    assert len(first) == 3  # two cards, an instance
    assert {uuid[:4] for uuid in first} == {"GPU-", "MIG-"}
    assert not first & second


def test_the_file_is_new_and_only_ours_to_read(recorded: Machine, tmp_path: Path) -> None:
    path, link = tmp_path / "gpu.jsonl", tmp_path / "link"
    link.symlink_to(tmp_path / "elsewhere")
    os.umask(0)
    try:
        assert doctor(recorded, "--record", str(path), "--for", "500ms").returncode == 0
    finally:
        os.umask(0o022)
    assert path.stat().st_mode & 0o777 == 0o600
    before = path.read_bytes()
    for refused in path, link, tmp_path, tmp_path / "no" / "such":
        done = doctor(recorded, "--record", str(refused), "--for", "1s")
        assert "give the name of a new file" in complaint(done, 2)
    assert path.read_bytes() == before
    assert not (tmp_path / "elsewhere").exists()


def test_a_driver_that_does_not_start_is_recorded(recorded: Machine, tmp_path: Path) -> None:
    recorded.scenario.error("nvmlInitWithFlags", 9)
    done = doctor(recorded, "--record", str(tmp_path / "gpu"))
    assert "driver_not_loaded" in complaint(done, 1)
    *_, call, error = lines_of(tmp_path / "gpu")
    assert (call["call"], call["return"], error["error"]) == ("nvmlInitWithFlags", 9, "driver_not_loaded")


def test_a_driver_that_hangs_leaves_what_it_answered_before(recorded: Machine, tmp_path: Path) -> None:
    recorded.scenario.cards[0].delay("nvmlDeviceGetPowerUsage", 50_000)
    done = doctor(recorded, "--record", str(tmp_path / "gpu"), "--for", "1s", "--timeout", "1s")
    assert "NVML does not answer" in complaint(done, 1)
    assert lines_of(tmp_path / "gpu")[-1]["ms"] < 1000


def test_a_driver_that_crashes_leaves_what_it_answered_before(recorded: Machine, tmp_path: Path) -> None:
    crash = "recording.poll = lambda newest: recording.os.abort()"
    done = python(recorded, tmp_path / "gpu", crash)
    assert "NVML crashed" in done.stderr
    assert "reading" in lines_of(tmp_path / "gpu")[-1]


def test_it_stops_at_the_limit_and_says_so(recorded: Machine, tmp_path: Path) -> None:
    done = python(recorded, tmp_path / "gpu", "recording.MOST_BYTES = 16_000", 60_000)
    assert "was written: 20 MB are full. " in done.stdout
    assert 8_000 < (tmp_path / "gpu").stat().st_size <= 16_000
    assert lines_of(tmp_path / "gpu")[-1]["end"] == "20 MB are full"


def test_an_interrupt_keeps_what_is_there(recorded: Machine, tmp_path: Path) -> None:
    path = tmp_path / "gpu"
    with subprocess.Popen([GUA, "doctor", "--record", str(path)], env=recorded.environment()) as running:
        deadline = time.monotonic() + 30
        while not path.exists() or '"reading"' not in path.read_text():
            assert time.monotonic() < deadline
            time.sleep(0.1)
        running.send_signal(signal.SIGINT)
        assert running.wait(timeout=30) == 130
    assert any("reading" in line for line in lines_of(path))
    size = path.stat().st_size
    time.sleep(1.5)
    assert path.stat().st_size == size  # nobody goes on writing
