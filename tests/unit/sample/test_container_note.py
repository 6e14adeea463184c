"""The note by which the sampler asks for the names of containers: few lines, seldom written, and never worth a tick."""

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from gua_report.people.containers import write_containers
from gua_sample import service
from gua_sample.containers import Container, Known
from gua_sample.processes import uptime_ms
from gua_sample.service import ASKED, WANTED, ask_for_names
from tests import odd_files

DOCKER = f"/system.slice/docker-3f2a9c81d0b7{'0' * 52}.scope"
POD = "/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod0a1b2c3d_1111_2222_3333_444455556666.slice"
ROOTLESS = f"/user.slice/user-1001.slice/user@1001.service/user.slice/libpod-abcabcabcabc{'1' * 52}.scope"
PODMAN = f"/machine.slice/libpod-abcdefabcdef{'1' * 52}.scope"
OTHERS = ["/user.slice/user-1001.slice/session-4.scope", "/lxc.payload.web/system.slice/x.service", None]


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The runtime folder of the unit."""
    folder = tmp_path / "run"
    folder.mkdir()
    monkeypatch.setenv("RUNTIME_DIRECTORY", str(folder))
    return folder


@pytest.fixture
def data_dir(tmp_path: Path) -> str:
    (tmp_path / "data").mkdir()
    return str(tmp_path / "data")


def take(runs: Path) -> list[str]:
    """The lines of the note, which is removed, as gua-containers does it."""
    note = runs / WANTED
    ids = note.read_text().splitlines() if note.exists() else []
    note.unlink(missing_ok=True)
    return ids


def test_the_machines_containers_are_noted_once_an_hour_pods_without_dashes(
    runs: Path, data_dir: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cgroups = [DOCKER, POD, PODMAN, ROOTLESS, *OTHERS]
    ask_for_names(cgroups, data_dir)
    first = take(runs)
    assert sorted(first) == ["docker:3f2a9c81d0b7", "pod:0a1b2c3d111122223333444455556666", "podman:abcdefabcdef"]
    before = (runs / ASKED).stat()
    ask_for_names(cgroups, data_dir)
    assert (take(runs), (runs / ASKED).stat()) == ([], before)
    later_ms = uptime_ms() + service.HOUR_MS
    monkeypatch.setattr(service, "uptime_ms", lambda: later_ms)
    ask_for_names(cgroups, data_dir)
    assert take(runs) == first


def test_without_containers_or_a_runtime_folder_that_can_be_used_nothing_is_written(
    runs: Path, data_dir: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask_for_names([ROOTLESS, *OTHERS], data_dir)
    for folder in ("", str(runs / "nowhere")):
        monkeypatch.setenv("RUNTIME_DIRECTORY", folder)
        ask_for_names([DOCKER], data_dir)
    assert [os.listdir(runs), os.listdir(data_dir)] == [[], []]


@pytest.mark.parametrize("plant", [None, odd_files.fifo, odd_files.endless, odd_files.folder])
def test_a_container_whose_name_is_known_is_not_noted(
    runs: Path, data_dir: str, plant: Callable[[Path], None] | None
) -> None:
    """An odd file of names is as none."""
    if plant is None:
        write_containers(data_dir, Known({"3f2a9c81d0b7": Container("docker", "train", None, None, None, 1)}))
    else:
        plant(Path(data_dir) / "containers.json")
    ask_for_names([DOCKER], data_dir)
    assert take(runs) == ([] if plant is None else ["docker:3f2a9c81d0b7"])
    ask_for_names([DOCKER, PODMAN], data_dir)  # a new one at once, and alone
    assert take(runs) == ["podman:abcdefabcdef"]


def test_a_note_that_nobody_takes_is_not_rewritten_for_an_hour(runs: Path, data_dir: str) -> None:
    ask_for_names([DOCKER], data_dir)
    before = (runs / WANTED).stat()
    ask_for_names([DOCKER, PODMAN], data_dir)
    assert (runs / WANTED).stat() == before
    os.utime(runs / WANTED, (time.time() - 3600,) * 2)
    ask_for_names([DOCKER, PODMAN], data_dir)
    assert take(runs) == ["podman:abcdefabcdef"]


def test_containers_beyond_the_fiftieth_wait_for_the_next_note(runs: Path, data_dir: str) -> None:
    cgroups = [f"/docker/{number:012x}{0:052x}" for number in range(60)]
    ask_for_names(cgroups, data_dir)
    first = take(runs)
    ask_for_names(cgroups, data_dir)
    second = take(runs)
    assert (len(first), len(second), len({*first, *second})) == (50, 10, 60)


@pytest.mark.parametrize("name", [ASKED, WANTED])
@pytest.mark.parametrize("put", [odd_files.fifo, odd_files.endless, odd_files.folder])
def test_odd_files_cost_at_most_the_note(runs: Path, data_dir: str, name: str, put: Callable[[Path], None]) -> None:
    """Nor is a note left that could not be remembered: gua-containers would be started at every tick."""
    put(runs / name)
    if not (runs / name).is_symlink():
        os.utime(runs / name, (1, 1))
    ask_for_names([DOCKER], data_dir)
    assert {path.name for path in runs.iterdir()} <= {ASKED, WANTED}
    assert (runs / ASKED).is_file() or name == WANTED or not (runs / WANTED).exists()
