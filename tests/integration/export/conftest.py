"""Three days to export, and where to."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.disks import mounted
from tests.integration.export.exports import DAYS
from tests.lab import DAY_MS, HOUR_MS, MONDAY_MS, Job, busy, free, held, lost, mig, series, tick, write
from tests.rolling import roll_up_days


@pytest.fixture
def data_dir(open_folder: Path) -> Path:
    """Three days: with states of all kinds, processes, MIG, a lost card and a driver error."""
    folder = open_folder / "data"
    service = Job(3, "root", 300, 0, uid=0, cgroup="/system.slice/ollama.service")
    ticks = []
    for day in range(3):
        start_ms = MONDAY_MS + day * DAY_MS
        ticks += series(start_ms, 30, busy(Job(1, sm_percent=90)), held(service, index=1), free(2), every_ms=1_800_000)
        ticks += series(start_ms + 16 * HOUR_MS, 5, lost(0), mig(1, 0, None, (Job(2, memory_mib=None),)), mig(1, 1))
        ticks += [tick(start_ms + 20 * HOUR_MS, error="driver_not_loaded", driver_version=None)]
    write(folder, ticks)
    return folder


@pytest.fixture
def rolled_up(data_dir: Path) -> Path:
    assert roll_up_days(str(data_dir)) == DAYS
    return data_dir


@pytest.fixture
def small_disk(open_folder: Path) -> Iterator[Path]:
    with mounted(open_folder / "small", "size=16k") as folder:
        yield folder


@pytest.fixture
def parquet() -> Any:
    """pyarrow's own reader: a reader of gua's would not show what others see."""
    return pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed: make venv")
