"""gua rollup cut short while it publishes: the copy is the older or the newer one, and whole."""

import errno
import os
import shutil
import signal
from pathlib import Path

import pytest

from gua_report.rollups.index import read_index, read_meta
from tests.disks import fill, mounted
from tests.integration.rollup.five_days import CLOSED, copy, here
from tests.integration.rollup.runs import Runs
from tests.machine import one_line
from tests.users import needs_mounts

MOST_CHANGES = 200
NAME = "rollups.sqlite"
# That fail without harm: SQLite goes on without what only makes it faster, and so does what is synced or tidied up.
HARMLESS_CHANGES = 5


@pytest.fixture
def config(tmp_path: Path) -> str:
    path = tmp_path / "gua.toml"
    path.write_text("[fleet]\npublish = true\n")
    return str(path)


@pytest.fixture
def published(rolled_up: Path, config: str) -> Path:
    """A data folder with a copy of its days."""
    assert here("rollup", rolled_up, "--config", config).returncode == 0
    assert days(rolled_up) == CLOSED
    return rolled_up


def days(data_dir: Path) -> list[str]:
    """The days of the published copy, which must be whole."""
    return list(read_index(str(data_dir / "publish" / NAME), check=True))


def published_ms(data_dir: Path) -> int:
    return read_meta(str(data_dir / "publish" / NAME)).published_ms


@pytest.mark.real
@pytest.mark.parametrize("fault", [None, errno.EIO, errno.ENOSPC])
def test_cut_short_at_any_change_the_copy_is_the_old_or_the_new_one_and_the_next_run_tidies_up(
    published: Path, driver: Path, tmp_path: Path, config: str, fault: int | None
) -> None:
    """Killed before each change in turn, or each in turn fails, until one run is let be."""
    old_ms, data_dir = published_ms(published), tmp_path / "short"
    failed = 0
    with Runs(driver, tmp_path, "--config", config, watched=data_dir / "publish") as runs:
        for moment in range(1, MOST_CHANGES):
            shutil.rmtree(data_dir, ignore_errors=True)
            copy(published, data_dir)
            said = len(runs.errors())
            (status,) = runs.run(data_dir, kill_at=moment, fault=fault)
            assert status in ((0, -signal.SIGKILL) if fault is None else (0, 1))
            assert days(data_dir) == CLOSED
            assert (published_ms(data_dir) > old_ms) >= (status == 0)
            if status == 1:
                assert one_line(runs.errors()[said:])
                assert "not published" in runs.errors()[said:]
                assert os.listdir(data_dir / "publish") == [NAME]
            failed += status != 0
            if status == 0 and moment - failed > HARMLESS_CHANGES:
                break
            assert runs.run(data_dir) == [0], runs.errors()
            assert os.listdir(data_dir / "publish") == [NAME]
            assert published_ms(data_dir) > old_ms
        else:
            pytest.fail("it never came to an end")
    assert failed > 10


@needs_mounts
@pytest.mark.parametrize("leave_kib", [0, 8, 60])
def test_without_space_the_older_copy_stays(published: Path, tmp_path: Path, config: str, leave_kib: int) -> None:
    with mounted(tmp_path / "disk", "size=2m") as folder:
        copy(published, folder)
        before = (folder / "publish" / NAME).read_bytes()
        fill(folder, leave_kib * 1024)
        done = here("rollup", folder, "--config", config)
        assert done.returncode == 1
        assert one_line(done.stderr)
        assert "not published: no space left for" in done.stderr
        assert (folder / "publish" / NAME).read_bytes() == before
        assert os.listdir(folder / "publish") == [NAME]
        (folder / "ballast").unlink()
        assert here("rollup", folder, "--config", config).returncode == 0
        assert (folder / "publish" / NAME).read_bytes() != before
