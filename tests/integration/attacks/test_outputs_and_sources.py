"""Locks, outputs and sources that somebody else can hold, plant or exchange."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
from pathlib import Path

import pytest

from gua_report.upkeep import nightly
from gua_sample import tick
from tests import hostile
from tests.integration.attacks.attempts import WINDOW, command, copy, partition
from tests.users import SOMEBODY, needs_root
from tests.verbs import give, run

pytestmark = needs_root


def test_a_lock_that_is_held_for_ever_does_not_hang_root(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nightly, "LONGEST_WAIT_SECONDS", 0.5)
    (folder / ".rollup.lock").touch()
    give(folder)
    with (folder / ".rollup.lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = command("rollup", folder)
    assert (done.returncode, "is held by another process" in done.stderr) == (1, True), done
    assert command("rollup", folder).returncode == 0


@pytest.mark.parametrize("verb", ["report", "export"])
@pytest.mark.parametrize("planted", ["link", "file"])
def test_an_output_that_somebody_planted_in_a_shared_folder_is_refused(
    folder: Path, open_folder: Path, victim: Path, verb: str, planted: str
) -> None:
    shared = open_folder / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    output = shared / "output.csv"
    output.symlink_to(victim) if planted == "link" else output.write_text("")
    os.chown(output, SOMEBODY, SOMEBODY, follow_symlinks=False)
    done = run(verb, *WINDOW, "-o", output, "--data-dir", folder)
    refusal = "leads through a link of uid" if planted == "link" else "where everybody may write"
    assert (done.returncode, refusal in done.stderr) == (1, True), done
    assert victim.read_text() == "of root's"
    assert os.lstat(output).st_size < 1000
    output.unlink()
    assert run(verb, *WINDOW, "-o", output, "--data-dir", folder).returncode == 0
    assert output.stat().st_uid == 0
    assert run(verb, *WINDOW, "-o", output, "--data-dir", folder).returncode == 0


def test_metrics_of_a_run_that_failed_early_are_not_written_as_root(
    folder: Path, open_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tick, "EARLIEST_MS", 1 << 60)  # the clock was never set
    metrics = open_folder / "metrics"
    metrics.mkdir()
    give(metrics)
    words = ("gua-sample", "--simulate", "--data-dir", folder, "--textfile", metrics / "gua.prom")
    assert run(*words).returncode == 1
    assert {path.stat().st_uid for path in (folder / "idle.state", metrics / "gua.prom")} == {SOMEBODY}


def test_a_folder_that_is_refused_gets_no_state_of_metrics_either(history: Path, open_folder: Path) -> None:
    folder = copy(history, open_folder / "data", 0)
    folder.chmod(0o777)
    done = run("gua-sample", "--simulate", "--data-dir", folder, "--textfile", open_folder / "gua.prom")
    assert done.returncode == 1
    assert not (folder / "idle.state").exists()
    assert not (open_folder / "gua.prom").exists()


@pytest.mark.parametrize("kind", ["folder", "file"])
def test_a_source_of_roots_that_somebody_can_exchange_is_not_read_as_root(
    history: Path, open_folder: Path, kind: str
) -> None:
    theirs = open_folder / "theirs"
    (theirs / "inner").mkdir(parents=True)
    give(theirs)
    source = copy(history, theirs / "inner" / "roots", 0)
    os.chown(theirs / "inner", 0, 0)
    path = source if kind == "folder" else partition(source)
    done = run("import", "--data-dir", open_folder / "other", path)
    assert (done.returncode, f"uid {SOMEBODY}" in done.stderr) == (1, True), done
    assert not (open_folder / "other").exists()


def test_the_doctor_advises_nothing_that_deletes_a_file(folder: Path, victim: Path) -> None:
    """To look at a damaged file as root is to roll back the journal beside it."""
    path = partition(folder)
    hostile.plant_journal(path, victim)
    give(folder)
    done = run("doctor", "--json", "--data-dir", folder)
    remedies = [one["remedy"] for one in json.loads(done.stdout)["findings"] if one["remedy"]]
    advised = [text for text in remedies if "recover" in text]
    assert advised
    for text in advised:
        subprocess.run(["sh", "-c", text], cwd=folder, check=False, capture_output=True)
    assert victim.read_text() == "of root's"
