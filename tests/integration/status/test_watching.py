"""gua status at a terminal, again and again."""

import os
import pty
import re
import select
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import pytest

from gua_report.commands.status import CLEAR
from tests.integration.status.shown import document, sleeping
from tests.machine import GUA, Machine, call


class Terminal:
    """A command on a terminal of its own."""

    def __init__(self, command: list[str], variables: Mapping[str, str]) -> None:
        self.master, slave = pty.openpty()
        self.process = subprocess.Popen(
            command, env=variables, stdin=slave, stdout=slave, stderr=slave, start_new_session=True
        )
        os.close(slave)
        self.text = ""

    def read_until(self, count: int, words: str) -> None:
        """Until the words have come so many times."""
        ends = time.monotonic() + 60
        while self.text.count(words) < count:
            assert select.select([self.master], [], [], max(0, ends - time.monotonic()))[0], self.text
            self.text += os.read(self.master, 65536).decode()

    def end(self) -> int:
        """What else it says, and its exit status. A terminal that goes away too soon would kill it."""
        with suppress(OSError):
            while select.select([self.master], [], [], 60)[0] and (part := os.read(self.master, 65536)):
                self.text += part.decode()
        status = self.process.wait(60)
        os.close(self.master)
        return status


def test_watching_shows_fresh_figures_on_a_cleared_screen_until_ctrl_c(machine: Machine, sleeper: int) -> None:
    card = machine.scenario.add_card(compute=[(sleeper, 2000)])
    machine.tick()
    command = [GUA, "status", "--data-dir", str(machine.data_dir), "--watch", "100ms"]
    terminal = Terminal(command, machine.environment())
    terminal.read_until(3, "newest tick")
    card.update(utilization_percent=60, samples=None)
    machine.scenario.write(machine.folder / "scenario")
    terminal.read_until(1, "\x1b[32mactive")  # a child reads the scenario anew
    children = Path(f"/proc/{terminal.process.pid}/task/{terminal.process.pid}/children").read_text().split()
    assert len(children) <= 2  # who was asked before is gone
    os.kill(terminal.process.pid, signal.SIGINT)
    assert terminal.end() == 0
    assert terminal.text.count(CLEAR) >= 3
    assert "\x1b[33midle-held" in terminal.text
    assert "Traceback" not in terminal.text


def test_watching_goes_on_over_a_driver_that_fails_for_a_while(machine: Machine) -> None:
    machine.scenario.add_card()
    command = [GUA, "status", "--data-dir", str(machine.data_dir), "--watch", "100ms"]
    terminal = Terminal(command, machine.environment())
    terminal.read_until(1, "1 GPU at ")
    machine.scenario.error("nvmlInitWithFlags", 9)
    machine.scenario.write(machine.folder / "scenario")
    terminal.read_until(2, f"{CLEAR}gua status: NVML failed (driver_not_loaded)")
    machine.scenario.settings.pop("error.nvmlInitWithFlags")
    machine.scenario.write(machine.folder / "scenario")
    terminal.read_until(terminal.text.count("1 GPU at ") + 1, "1 GPU at ")
    os.kill(terminal.process.pid, signal.SIGINT)
    assert terminal.end() == 0
    assert "Traceback" not in terminal.text


def test_watching_ends_when_nobody_listens(machine: Machine) -> None:
    machine.scenario.add_card()
    script = f"'{GUA}' status --data-dir {machine.data_dir} --watch 100ms | head -n 1; echo ${{PIPESTATUS[0]}}"
    done = call(["bash", "-c", script], env=machine.environment(), check=True, timeout=60)
    assert re.fullmatch(r"1 GPU at .*\n0\n", done.stdout)
    assert done.stderr == ""
    assert CLEAR not in done.stdout


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&- >&-"])
def test_streams_may_be_closed(machine: Machine, closed: str) -> None:
    machine.scenario.add_card()
    for verb in ("status", "free"):
        command = ["sh", "-c", f'exec "$@" {closed}', "sh", GUA, verb, "--data-dir", str(machine.data_dir)]
        done = subprocess.run(command, env=machine.environment(), capture_output=True, check=False, timeout=60)
        assert (done.returncode, done.stderr) == (0, b"")


def test_a_narrow_terminal_shortens_commands_first(machine: Machine, tmp_path: Path) -> None:
    long = tmp_path / "a_very_long_name"
    shutil.copy("/bin/sleep", long)
    with sleeping(long) as (pid,):
        machine.scenario.add_card(compute=[(pid, 2000)])
        user = document(machine)["gpus"][0]["users"][0]["user"]
        script = f"stty cols 45; '{GUA}' status --data-dir {machine.data_dir}"
        terminal = Terminal(["sh", "-c", script], machine.environment() | {"NO_COLOR": "1"})
        terminal.read_until(1, "see gua doctor")
        assert terminal.end() == 0
    (line,) = [line for line in terminal.text.splitlines() if str(pid) in line]
    assert len(line) <= 45
    assert "…" in line
    assert line.endswith(user)
    assert "\x1b" not in terminal.text
