"""A machine without units, until a test installs some, and a process to be on its cards."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.status.shown import sleeping
from tests.systemctl import replace_systemctl


@pytest.fixture(autouse=True)
def units(open_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return replace_systemctl(open_folder, monkeypatch)


@pytest.fixture
def sleeper() -> Iterator[int]:
    with sleeping() as (pid,):
        yield pid
