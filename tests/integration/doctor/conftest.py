"""A machine on which everything works, with a systemctl that knows what a test tells it."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.disks import mounted
from tests.machine import Machine
from tests.systemctl import install, replace_systemctl


@pytest.fixture(autouse=True)
def no_systemctl(open_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The machine that runs the tests may have units of its own. This one has none, until a test installs some."""
    return replace_systemctl(open_folder, monkeypatch)


@pytest.fixture
def healthy(machine: Machine, no_systemctl: Path) -> Machine:
    """A machine on which everything works; where it runs, that there is no systemd is all there is to say."""
    machine.scenario.add_card()
    machine.scenario.add_card()
    machine.tick()
    now = time.strftime("%a %Y-%m-%d %H:%M:%S UTC", time.gmtime())
    install(no_systemctl, "timer", LastTriggerUSec=now, NextElapseUSecRealtime=now)
    user = str(machine.data_dir.stat().st_uid)
    install(no_systemctl, "service", ActiveState="inactive", Result="success", ExecMainStatus="0", User=user)
    return machine


@pytest.fixture
def small_disk(machine: Machine, request: pytest.FixtureRequest) -> Iterator[Path]:
    with mounted(machine.data_dir, request.param) as folder:
        yield folder
