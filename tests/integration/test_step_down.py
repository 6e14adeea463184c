"""Root becomes the owner of a data folder: from then on, nothing of Python's own files is needed any more."""

import os
import subprocess
import time
from pathlib import Path

import pytest

from gua_report.main import VERBS
from gua_sample import store
from gua_sample.partition_names import DAY_MS
from gua_sample.pending import keep
from gua_sample.simulate import Laboratory
from tests.gpu_usage_audit import NOON_MS, PeerDatabase, Seen, times
from tests.integration.attacks.attempts import copy
from tests.machine import GUA, SCRIPTS, Machine
from tests.notes import make_spool
from tests.repository import ROOT
from tests.users import SOMEBODY, needs_root

pytestmark = needs_root

NOW_MS, EVERY_MS = time.time_ns() // 1_000_000, 120_000
WATCHER = ROOT / "tests" / "driver" / "step_down"
WINDOW = ("--since", "2d")
COMMANDS = {
    "text": ("report", *WINDOW),
    "brief": ("report", *WINDOW, "--brief"),
    "json": ("report", *WINDOW, "--json"),
    "csv": ("report", *WINDOW, "--format", "csv", "--section", "gpus"),
    "html": ("report", *WINDOW, "--format", "html"),
    "markdown": ("report", *WINDOW, "--format", "markdown"),
    "export csv": ("export", *WINDOW, "--format", "csv"),
    "export jsonl": ("export", *WINDOW, "--format", "jsonl"),
    "export parquet": ("export", *WINDOW, "--format", "parquet", "--output", "OUT/history.parquet"),
    "page": ("page", "OUT", "--names", "none"),
    "import": ("import", "OUT/gua.db"),
    "import a folder": ("import", "OUT/other"),
    "note": ("note", "--until", "3d", "--gpu", "0", "for a test"),
    "note list": ("note", "--list"),
    "hook": ("hook",),
    "hook log": ("hook", "--log"),
    "mail": ("mail", "--dry-run", "--to", "head@example.org"),
    "status": ("status",),
    "status json": ("status", "--json"),
    "free": ("free",),
    "remind": ("remind",),
    "remind send": ("remind", "--send", "--to", "head@example.org"),
    "rollup": ("rollup", "--compact"),
    "doctor": ("doctor", "--deep"),
}


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two and a half days up to now, and a tick that waits beside them. Not to be changed."""
    folder = tmp_path_factory.mktemp("history")
    samples = store.prepare(str(folder))
    *ticks, last = Laboratory(0, 3).history(NOW_MS - 5 * DAY_MS // 2, NOW_MS - EVERY_MS // 2, EVERY_MS)
    store.append_history(samples, ticks)
    keep(samples, last)
    return folder


def run_watched(machine: Machine, log: Path, *command: str) -> tuple[str, list[str]]:
    """The command's errors, and what it imported or opened too late."""
    machine.scenario.add_card()
    log.touch()
    log.chmod(0o666)
    variables = {**machine.environment(), "PYTHONPATH": str(WATCHER), "GUA_TEST_STEP_DOWN_LOG": str(log)}
    done = subprocess.run([*command], env=variables, capture_output=True, text=True, check=False)
    return done.stderr, sorted(set(log.read_text().splitlines()))


def prepare(folder: Path, history: Path) -> Path:
    """A configuration for all commands; what they import, or write to, lies in OUT."""
    out = folder / "OUT"
    out.mkdir()
    other = PeerDatabase(out / "gua.db")
    other.start(NOON_MS)
    other.add(times(NOON_MS, 20), Seen(0, ((4711, 8000),)))
    copy(history, out / "other", SOMEBODY)
    config = folder / "gua.toml"
    spool = make_spool(folder)
    config.write_text(f'[notes]\nspool = "{spool}"\n[hook]\nrun = "/usr/bin/true"\nidle_after = "1s"\n')
    return config


@pytest.mark.parametrize("arguments", COMMANDS.values(), ids=COMMANDS.keys())
def test_nothing_is_imported_after_the_step_down(
    machine: Machine, history: Path, open_folder: Path, arguments: tuple[str, ...]
) -> None:
    data_dir = copy(history, open_folder / "data", SOMEBODY)
    config = prepare(open_folder, history)
    words = [word.replace("OUT", str(open_folder / "OUT")) for word in arguments]
    words += ["--config", str(config)] if words[0] != "import" else []
    errors, late = run_watched(machine, open_folder / "log", GUA, *words, "--data-dir", str(data_dir))
    assert late == [], errors
    assert "this is a bug" not in errors
    assert "usage" not in errors


def test_every_command_that_reads_a_folder_is_tried() -> None:
    apart = {"sample", "demo", "fleet"}  # is tried below; has a folder of its own; refuses root
    assert {arguments[0] for arguments in COMMANDS.values()} == set(VERBS) - apart


def test_a_tick_imports_nothing_either_even_if_others_wait(machine: Machine, history: Path, open_folder: Path) -> None:
    data_dir = copy(history, open_folder / "data", SOMEBODY)
    files = (f"--textfile={data_dir / 'gua.prom'}", f"--held-file={data_dir / 'held'}")
    command = (str(SCRIPTS / "gua-sample"), "--data-dir", str(data_dir), "--json", *files)
    assert run_watched(machine, open_folder / "log", *command) == ("", [])
    assert not list((data_dir / "samples").glob("*.pending")), "the tick that waited was taken in"


@pytest.mark.parametrize("words", [["--list"], ["3f2a9c81d0b7"]])
def test_what_looks_up_containers_imports_nothing_either(
    machine: Machine, history: Path, open_folder: Path, words: list[str]
) -> None:
    data_dir = copy(history, open_folder / "data", SOMEBODY)
    command = (str(SCRIPTS / "gua-containers"), *words, "--data-dir", str(data_dir))
    errors, late = run_watched(machine, open_folder / "log", *command)
    assert late == [], errors
    assert "this is a bug" not in errors


def test_who_cant_reach_the_folder_is_named(machine: Machine, history: Path, open_folder: Path) -> None:
    closed = open_folder / "closed"
    closed.mkdir(0o700)
    data_dir = copy(history, closed / "data", SOMEBODY)
    for command in (("report", *WINDOW), ("rollup",)):
        done = subprocess.run(
            [GUA, *command, "--data-dir", str(data_dir)], env=dict(os.environ), capture_output=True, text=True
        )
        assert done.returncode == 1
        assert f"is out of reach of uid {SOMEBODY}: let that user enter each folder above it" in done.stderr
        assert len(done.stderr.splitlines()) == 1
