"""A short, seeded share of make torture, which must find no harm."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.repository import ROOT
from tests.torture.folders import SEEDS

pytestmark = pytest.mark.timeout(900)  # on a machine that runs four at a time
FINISHED = " minutes, seed 0"
SHARES = ["--kills", "150", "--faults", "32", "--cuts", "24", "--folders", "40", "--minutes", "8"]
SECONDS = "10"  # timeout of a command, short because many cases may hang
KINDS = [
    *("kill sample", "kill rollup", "kill import", "kill export", "faults", "power loss"),
    *("damaged folders", "hostile folders"),
]


def torture(log: Path) -> str:
    command = [sys.executable, "-m", "tests.torture", "--log", str(log), *SHARES]
    variables = os.environ | {"GUA_TORTURE_SECONDS": SECONDS}
    done = subprocess.run(command, cwd=ROOT, env=variables, capture_output=True, text=True)
    return f"{done.stdout}{done.stderr}\n{log.read_text()}"


@pytest.fixture(scope="module")
def output(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The output and log of one run, shared by all tests because preparing takes a while."""
    return torture(tmp_path_factory.mktemp("torture") / "log")


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_lost_doubled_broken_or_hung(kind: str, output: str) -> None:
    assert FINISHED in output
    assert re.search(rf"^{kind} +[1-9]", output, re.MULTILINE), output
    assert f"\n{kind}: " not in output, output


@pytest.mark.parametrize("seed", sorted(path.stem for path in SEEDS.glob("*.json")))
def test_what_was_found_before_does_no_harm(seed: str, output: str) -> None:
    assert re.search(rf"^seeds +{len(list(SEEDS.glob('*.json')))} ", output, re.MULTILINE), output
    assert f": {seed}: " not in output, output
