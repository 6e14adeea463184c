"""A folder of somebody's for root to read, and a file of root's that must stay as it is."""

from pathlib import Path

import pytest

from gua_sample import store
from gua_sample.partition_names import DAY_MS
from gua_sample.simulate import Laboratory
from gua_sample.simulate_plan import EXAMPLE_END_MS
from tests.integration.attacks.attempts import copy
from tests.telling import Desk
from tests.users import SOMEBODY
from tests.verbs import give


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three days. Not to be changed."""
    folder = tmp_path_factory.mktemp("history")
    samples = store.prepare(str(folder))
    ticks = Laboratory(0, 3).history(EXAMPLE_END_MS - 2 * DAY_MS - DAY_MS // 2, EXAMPLE_END_MS, 300_000)
    store.append_history(samples, ticks)
    return folder


@pytest.fixture
def folder(history: Path, open_folder: Path) -> Path:
    """A copy of it, in a folder of root's, that belongs to somebody."""
    return copy(history, open_folder / "data", SOMEBODY)


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    path = tmp_path / "victim"
    path.write_text("of root's")
    path.chmod(0o600)
    return path


@pytest.fixture
def roots(open_folder: Path) -> Path:
    """A folder of root's, with nothing in it."""
    path = open_folder / "roots"
    path.mkdir()
    return path


@pytest.fixture
def theirs(open_folder: Path) -> Path:
    """A folder of somebody's, who can exchange whatever is in it."""
    path = open_folder / "theirs"
    path.mkdir()
    give(path)
    return path


@pytest.fixture
def shared(open_folder: Path) -> Path:
    """A folder that everybody may write to, as /tmp is."""
    path = open_folder / "shared"
    path.mkdir()
    path.chmod(0o1777)
    return path


@pytest.fixture
def desk(open_folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Desk:
    return Desk(open_folder, monkeypatch, capfd)
