"""Whose files they are after gua rollup by root, and what it says to those who may not write."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests import verbs
from tests.integration.rollup.five_days import (
    CLOSED,
    KEPT_DAYS,
    TODAY,
    assert_report,
    copy,
    files,
    here,
    rollup,
    tree,
    whole,
    write_config,
)
from tests.lab import Report
from tests.machine import one_line
from tests.rolling import RECENT
from tests.users import SOMEBODY, needs_root


def as_somebody(data_dir: Path, *arguments: str) -> verbs.Done:
    here("rollup", data_dir, *arguments, "--dry-run")  # other users can't import what lies in root's home
    return verbs.run("rollup", "--data-dir", data_dir, *arguments, uid=SOMEBODY)


@needs_root
@pytest.mark.parametrize("exists", [True, False])
def test_without_write_permission_it_says_what_to_do(
    untouched: Path, finished: Path, open_folder: Path, exists: bool
) -> None:
    data_dir = copy(finished if exists else untouched, open_folder / "data")
    data_dir.chmod(0o755)
    before = tree(data_dir)
    done = as_somebody(data_dir, "--rebuild")
    assert done.returncode == 1
    assert one_line(done.stderr)
    assert str(data_dir) in done.stderr
    assert "check its owner" in done.stderr
    dry = as_somebody(data_dir, "--rebuild", "--dry-run")
    assert (dry.returncode, dry.stderr) == (0, "")
    assert tree(data_dir) == before


@contextmanager
def owned_by_somebody(folder: Path) -> Iterator[None]:
    for path in [folder, *folder.rglob("*")]:
        os.chown(path, SOMEBODY, SOMEBODY)
    yield
    owners = {(path.stat().st_uid, path.stat().st_gid) for path in [folder, *folder.rglob("*")]}
    assert owners == {(SOMEBODY, SOMEBODY)}


@needs_root
def test_root_by_hand_leaves_the_files_to_the_owner_of_the_folder(
    untouched: Path, open_folder: Path, expected: Report
) -> None:
    data_dir = copy(untouched, open_folder / "data")
    data_dir.chmod(0o755)
    config = write_config(open_folder / "gua.toml", raw_days=KEPT_DAYS)
    os.chmod(config, 0o600)
    with owned_by_somebody(data_dir):
        for arguments in ([], ["--config", config]):
            done = rollup(data_dir, *arguments)
            assert (done.returncode, done.stderr) == (0, "")
    assert files(data_dir) == whole([*RECENT, TODAY], CLOSED)
    assert_report(data_dir, expected)


@needs_root
def test_root_on_a_folder_of_its_own_stays_root(data_dir: Path) -> None:
    assert here("rollup", data_dir).returncode == 0
    assert {path.stat().st_uid for path in data_dir.rglob("*")} == {0}
