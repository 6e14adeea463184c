from pathlib import Path

import pytest

from tests.telling import Desk


@pytest.fixture
def desk(open_folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Desk:
    return Desk(open_folder, monkeypatch, capfd)
