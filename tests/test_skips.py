"""CI can't be green by skipping: a skipped test that is not on the list fails it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ALLOWED_SKIPS
from tests.repository import ROOT

HOOKS = "from tests.conftest import pytest_runtest_logreport, pytest_sessionfinish, pytest_terminal_summary\n"
SKIPPING = "import pytest\n\ndef test_it():\n    pytest.skip('there is no moon')\n"


def run(folder: Path, *options: str, **variables: str) -> subprocess.CompletedProcess[str]:
    (folder / "conftest.py").write_text(HOOKS)
    (folder / "test_skipping.py").write_text(SKIPPING)
    command = [sys.executable, "-m", "pytest", "-c", os.devnull, "--rootdir", str(folder), *options, str(folder)]
    environment = {name: value for name, value in os.environ.items() if name not in ("CI", "PYTEST_ADDOPTS")}
    return subprocess.run(command, cwd=ROOT, env=environment | variables, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("options", [[], ["-n", "1"]], ids=["alone", "in a worker"])
def test_a_skipped_test_that_is_not_on_the_list_fails_ci_and_is_named(tmp_path: Path, options: list[str]) -> None:
    done = run(tmp_path, *options, CI="true")
    assert done.returncode == 1
    assert f"skipped, and not in {ALLOWED_SKIPS.name}" in done.stdout
    assert "test_skipping.py::test_it: Skipped: there is no moon" in done.stdout


def test_elsewhere_it_is_only_named(tmp_path: Path) -> None:
    done = run(tmp_path)
    assert (done.returncode, "there is no moon" in done.stdout) == (0, True)


def test_each_line_of_the_list_names_a_test_and_a_reason() -> None:
    for line in ALLOWED_SKIPS.read_text().splitlines():
        if not line.startswith("#"):
            name, reason = line.split(None, 1)
            path, _, test = name.removesuffix("*").partition("::")
            assert f"def {test}(" in (ROOT / path).read_text()
            assert reason


def test_ci_runs_the_tests_in_a_clone_that_nobody_but_root_can_enter() -> None:
    """In one that others can read, a process that has given up root could still import what it forgot before."""
    script = (ROOT / ".ci" / "run").read_text()
    folder, clone, run = (script.index(words) for words in ("=$(mktemp -d)", "git clone --quiet . ", 'make -C "$'))
    assert folder < clone < run
    assert "chmod" not in script
