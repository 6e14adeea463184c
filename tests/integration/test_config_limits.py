"""--config may point to anything: no command waits for it for ever, or reads more than a config can have."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from gua_report.config import MOST_BYTES, PIPE_SECONDS
from tests.machine import SCRIPTS, Machine, one_line
from tests.odd_files import endless, fifo, folder

LONGEST_SECONDS = 20
POLICY = "[policy]\nutilization_percent = 25\n"
TAKEN = '"utilization_percent": 25.0'


def run(machine: Machine, command: list[str], config: Path | str, text: str = "") -> subprocess.CompletedProcess[str]:
    whole = [str(SCRIPTS / command[0]), *command[1:], "--data-dir", str(machine.data_dir), "--config", str(config)]
    variables = machine.environment()
    return subprocess.run(
        whole, env=variables, input=text, capture_output=True, text=True, check=False, timeout=LONGEST_SECONDS
    )


def huge(path: Path) -> None:
    path.write_text(POLICY)
    os.truncate(path, 4 << 30)


def too_large(path: Path) -> None:
    path.write_text(POLICY + "#" * MOST_BYTES)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (fifo, f"the config did not come to an end within {PIPE_SECONDS:g} s: write it to a file and give that"),
        (endless, "expected a TOML file of at most 1 MiB, and it is larger: is it the config?"),
        (huge, "expected a TOML file of at most 1 MiB, and it is larger: is it the config?"),
        (too_large, "expected a TOML file of at most 1 MiB, and it is larger: is it the config?"),
        (folder, "the config can't be read: Is a directory"),
    ],
)
def test_a_config_that_can_be_none_takes_one_line(machine: Machine, make: Callable[[Path], None], said: str) -> None:
    machine.scenario.add_card()
    path = machine.folder / "gua.toml"
    make(path)
    done = run(machine, ["gua", "status"], path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.endswith(f"error: {path}: {said}\n")
    assert one_line(done.stderr)


def test_a_config_may_come_through_a_pipe(machine: Machine) -> None:
    machine.scenario.add_card()
    machine.tick()
    for config, is_taken in [("/dev/stdin", True), ("/dev/null", False)]:
        done = run(machine, ["gua-report", "--json"], config, POLICY)
        assert (done.returncode, done.stderr) == (0, "")
        assert (TAKEN in done.stdout) == is_taken
    command = f'"{SCRIPTS}/gua-report" --json --data-dir {machine.data_dir} --config <(sleep 1; echo "$0"; sleep 1)'
    done = subprocess.run(["bash", "-c", command, POLICY], capture_output=True, text=True, check=True)
    assert TAKEN in done.stdout
