from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import pytest

# Most people don't have pyarrow, and pandas keeps texts in another way then. `gua export` is run as a command, with it.
if version("pandas") >= "3":
    sys.modules["pyarrow"] = None  # type: ignore[assignment]  # which is how a module is said not to be there
    import pandas  # noqa: F401 - only so that it looks now

    del sys.modules["pyarrow"]

pytest.register_assert_rewrite("tests.machine")  # so that a failed tick shows what it said

from tests.driver import build  # noqa: E402 - after what is above
from tests.machine import Machine  # noqa: E402

# What the user who runs the tests may have set must not decide where anything is written.
for variable in ("GUA_DATA_DIR", "STATE_DIRECTORY", "XDG_STATE_HOME", "LD_PRELOAD"):
    os.environ.pop(variable, None)


def _open_folder() -> Path:
    """Unlike tmp_path, other users may enter it."""
    folder = Path(tempfile.mkdtemp(prefix="gua-test-"))
    folder.chmod(0o755)
    return folder


@pytest.fixture(scope="session")
def driver() -> Iterator[Path]:
    """The folder of the compiled stand-in driver."""
    folder = _open_folder()
    yield build(folder)
    shutil.rmtree(folder)


@pytest.fixture
def open_folder() -> Iterator[Path]:
    folder = _open_folder()
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def machine(driver: Path, open_folder: Path) -> Machine:
    return Machine(driver, open_folder)
