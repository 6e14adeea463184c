"""A share of the torture finds a planted defect: each column of the table can be other than zero."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.repository import ROOT
from tests.torture.table import COLUMNS

pytestmark = pytest.mark.timeout(900)  # on a machine that runs four at a time
WRITES = r'(\S+)\("BEGIN IMMEDIATE"\)'
RUNS = r"def run\(options: argparse.Namespace\) -> int:\n"

NEVER = r"if (?=fingerprint\(read_days)"
JOURNAL = r'\1("PRAGMA journal_mode = OFF"); \1("BEGIN IMMEDIATE")'
LEAVE = r"\g<0>    open(__import__('os').environ['TMPDIR'] + '/left', 'w').close()\n"
EXPORT = "gua_report/commands/export.py"


# By column: packages, regular expressions with their replacements, and options of the torture.
DEFECTS: dict[str, tuple[str, dict[str, str], str]] = {
    "lost": ("gua_*", {r"os\.fsync\(": "id("}, "--only 'power loss' --cuts 40"),  # no file is synced
    # The key of a kept tick is not looked for.
    "doubled": ("gua_sample", {r"if key not in known:": "if True:"}, "--only 'kill sample' --kills 300"),
    "corrupt": ("gua_sample", {WRITES: JOURNAL}, "--only 'kill sample' --kills 60"),  # there is no journal
    "wrong sums": (  # half of each hour is stored, and nobody compares
        "gua_report",
        {NEVER: "if False and ", r'_unless\(frame\["gpu_ms"\]': r"\g<0> // 2"},
        "--only 'kill rollup' --kills 80",
    ),
    # An error that the edge does not know; a reader that is waited for; more memory than there is; a file left behind.
    "tracebacks": (
        "gua_sample",
        {r"StoreError\(GuaError\)": "StoreError(Exception)"},
        "--only faults --faults 40",
    ),
    "hangs": ("gua_sample", {r"BUSY_SECONDS = 2\.0": "BUSY_SECONDS = 2e6"}, "--only 'kill sample' --kills 10"),
    "floods": (EXPORT, {RUNS: r"\g<0>    bytearray(2**32)\n"}, "--only 'kill export' --kills 20"),
    "outside": (EXPORT, {RUNS: LEAVE}, "--only 'damaged folders' --folders 20"),
}


def plant(copy: Path, where: str, changes: dict[str, str]) -> None:
    """Replace texts wherever they occur in those packages. If one no longer occurs, adapt this test to its new form."""
    for old, new in changes.items():
        count = 0
        places = list(copy.glob(where))
        for path in [path for place in places for path in ([place] if place.is_file() else place.rglob("*.py"))]:
            changed, times = re.subn(old, new, path.read_text())
            if times:
                path.write_text(changed)
            count += times
        assert count, f"{old} is nowhere in {where}"


def harm(output: str) -> dict[str, int]:
    """The sum of each column of the table."""
    rows = [line[16:].replace(",", "").split() for line in output.splitlines()]
    numbers = [[int(word) for word in row[1:]] for row in rows if len(row) == len(COLUMNS) + 1 and row[0].isdigit()]
    return dict(zip(COLUMNS, map(sum, zip(*numbers, strict=True)), strict=True))


@pytest.mark.parametrize("column", COLUMNS)
def test_a_planted_defect_shows_in_its_column(tmp_path: Path, column: str) -> None:
    where, changes, share = DEFECTS[column]
    for package in ("gua_sample", "gua_report"):
        shutil.copytree(ROOT / package, tmp_path / package)
    (tmp_path / "tests").symlink_to(ROOT / "tests")
    plant(tmp_path, where, changes)
    command = [sys.executable, "-m", "tests.torture", "--workers", "1", "--log", "log", *shlex.split(share)]
    # Short only where it is waited for in vain: on a busy machine all else may take long.
    variables = os.environ | {"GUA_TORTURE_SECONDS": "5" if column == "hangs" else "60"}
    done = subprocess.run(command, cwd=tmp_path, env=variables, capture_output=True, text=True)
    assert (done.returncode, bool(done.stdout)) == (1, True), done.stdout + done.stderr
    assert harm(done.stdout)[column] > 0, done.stdout + (tmp_path / "log").read_text()[:4000]
