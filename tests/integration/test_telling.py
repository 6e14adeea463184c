"""gua remind and gua hook as they are typed, on the stand-in driver and with a real process."""

import json
import os
import pwd
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.driver import Scenario
from tests.machine import GUA, Machine

# What is on the cards now, as the real driver's binding tells it, was so for 26 hours.
HISTORY = """
import sys, time
from gua_report.live import snapshot
from gua_sample import store

now_ms = time.time_ns() // 1_000_000
tick = snapshot.look(snapshot.machine(), None, now_ms)
ticks = [tick._replace(ts_ms=now_ms - number * 300_000, interval_ms=300_000) for number in range(26 * 12, -1, -1)]
store.append_history(store.prepare(sys.argv[1]), ticks)
"""


pytestmark = pytest.mark.real


@pytest.fixture
def sleeper() -> Iterator[int]:
    process = subprocess.Popen(["sleep", "600"])
    yield process.pid
    process.kill()
    process.wait()


def run(machine: Machine, *words: str) -> subprocess.CompletedProcess[str]:
    command = [GUA, *words, "--data-dir", str(machine.data_dir), "--config", str(machine.folder / "gua.toml")]
    return subprocess.run(command, env=machine.environment(), capture_output=True, text=True, check=False, timeout=60)


def test_who_holds_a_card_is_told_until_it_works_again(machine: Machine, sleeper: int) -> None:
    machine.scenario.add_card(compute=[(sleeper, 4096)])
    subprocess.run([sys.executable, "-c", HISTORY, str(machine.data_dir)], env=machine.environment(), check=True)
    me = pwd.getpwuid(os.geteuid()).pw_name
    Path(machine.folder / "gua.toml").write_text(
        f'[people]\n"{me}" = "Ada"\n[mail]\nadministrator = "root@localhost"\n'
        '[mail.addresses]\nAda = "ada@lab.example"\n[notes]\nspool = "/nowhere"\n'
        '[remind]\nhours = "0-24"\ndays = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"]\n'
    )
    done = run(machine, "remind", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    (reminder,) = json.loads(done.stdout)["reminders"]
    (held,) = reminder["held"]
    stat = Path(f"/proc/{sleeper}/stat").read_text().rpartition(")")[2].split()
    assert (held["pid"], held["start_clock_ticks"], held["command"]) == (sleeper, int(stat[19]), "sleep")
    assert reminder["subject"].endswith(": you hold 4.0 GiB on GPU 0 without work")
    assert run(machine, "hook", "--dry-run").stderr.startswith("gua hook: error: there is no hook: ")
    machine.scenario = Scenario()  # it works again
    machine.scenario.add_card(
        utilization_percent=80, compute=[(sleeper, 4096)], process_utilization=[(sleeper, None, 80)]
    )
    assert json.loads(run(machine, "remind", "--json").stdout)["reminders"] == []
