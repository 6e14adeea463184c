"""A short, seeded share of make torture, which must find no harm."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.repository import ROOT
from tests.torture.__main__ import KINDS

SHARES = ["--kills", "150", "--faults", "32", "--cuts", "24", "--folders", "40", "--minutes", "8"]
SECONDS = "10"  # timeout of a command, short because many cases may hang


@pytest.mark.timeout(900)  # on a machine that runs four at a time
def test_nothing_is_lost_doubled_broken_or_hung_not_even_by_what_was_found_before(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.torture", "--log", str(tmp_path / "log"), *SHARES]
    variables = os.environ | {"GUA_TORTURE_SECONDS": SECONDS}
    done = subprocess.run(command, cwd=ROOT, env=variables, capture_output=True, text=True)
    output = f"{done.stdout}{done.stderr}\n{(tmp_path / 'log').read_text()}"
    assert (done.returncode, " minutes, seed 0" in output) == (0, True), output
    for kind in KINDS:
        assert re.search(rf"^{kind} +[1-9]", output, re.MULTILINE), output
