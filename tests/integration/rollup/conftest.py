"""The five days: as they were sampled, rolled up, and what a report says of them."""

from pathlib import Path

import pytest

from gua_sample import store
from tests.integration.rollup.five_days import END_MS, KEPT_DAYS, START_MS, copy, rollup, ticks, write_config
from tests.lab import DAY_MS, Report, report_of
from tests.rolling import TODAY_MS


@pytest.fixture(scope="session")
def untouched(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A history that was never rolled up. Not to be changed."""
    folder = tmp_path_factory.mktemp("history")
    samples = store.prepare(str(folder))
    for days in (9, 5):
        store.append_history(samples, ticks(TODAY_MS - days * DAY_MS, 2 * DAY_MS))
    store.append_history(samples, ticks(TODAY_MS, 1))
    return folder


@pytest.fixture(scope="session")
def expected(untouched: Path) -> Report:
    """What a report says, and must say for ever."""
    report = report_of(untouched, START_MS, END_MS)
    assert report.from_rollups_seconds == 0
    return report


@pytest.fixture(scope="session")
def finished(untouched: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same, rolled up. Not to be changed."""
    folder = copy(untouched, tmp_path_factory.mktemp("finished") / "data")
    done = rollup(folder)
    assert (done.returncode, done.stderr) == (0, "")
    return folder


@pytest.fixture
def data_dir(untouched: Path, tmp_path: Path) -> Path:
    return copy(untouched, tmp_path / "data")


@pytest.fixture
def rolled_up(finished: Path, tmp_path: Path) -> Path:
    return copy(finished, tmp_path / "data")


@pytest.fixture
def config(tmp_path: Path) -> str:
    """Ticks go, all else stays."""
    return write_config(tmp_path / "gua.toml", raw_days=KEPT_DAYS)
