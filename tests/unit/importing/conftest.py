"""A data folder to import into, and databases of gpu-usage-audit, old and new, to import."""

from pathlib import Path

import pytest

from tests.gpu_usage_audit import FIRST_SEEN_MS, PeerDatabase
from tests.import_target import Target


@pytest.fixture
def target(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Target:
    return Target(tmp_path / "data", capsys)


@pytest.fixture
def new(tmp_path: Path) -> PeerDatabase:
    """A database of 1.8.0, with one run of its daemon."""
    database = PeerDatabase(tmp_path / "gua.db")
    database.start(FIRST_SEEN_MS)
    return database


@pytest.fixture
def old(tmp_path: Path) -> PeerDatabase:
    """A database of 1.0.2."""
    return PeerDatabase(tmp_path / "old.db", is_old=True)
