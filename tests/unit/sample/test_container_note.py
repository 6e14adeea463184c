"""The note by which the sampler asks for the names of containers: few lines, seldom written, and never worth a tick."""

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from gua_report.people.containers import write_containers
from gua_sample import containers, service
from gua_sample.containers import Container, Known
from gua_sample.processes import uptime_ms
from gua_sample.service import LOOKED_AT, WANTED
from tests import odd_files

DOCKER = f"/system.slice/docker-3f2a9c81d0b7{'0' * 52}.scope"
POD = "/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod0a1b2c3d_1111_2222_3333_444455556666.slice"
ROOTLESS = f"/user.slice/user-1001.slice/user@1001.service/user.slice/libpod-abcabcabcabc{'1' * 52}.scope"
PODMAN = f"/machine.slice/libpod-abcdefabcdef{'1' * 52}.scope"
SESSION = "/user.slice/user-1001.slice/session-4.scope"
LXC = "/lxc.payload.web/system.slice/x.service"


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The runtime folder of the unit."""
    folder = tmp_path / "run"
    folder.mkdir()
    monkeypatch.setenv("RUNTIME_DIRECTORY", str(folder))
    return folder


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    folder.mkdir()
    return folder


def take(runs: Path) -> list[str]:
    """The ids of the note, which is removed, as gua-containers does it."""
    note = runs / WANTED
    ids = note.read_text().splitlines() if note.exists() else []
    note.unlink(missing_ok=True)
    return ids


def wait(by_ms: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let it be so much later than now."""
    then_ms = uptime_ms()
    monkeypatch.setattr(service, "uptime_ms", lambda: then_ms + by_ms)


def test_the_machines_containers_are_noted_one_a_line_pods_without_dashes(runs: Path, data_dir: Path) -> None:
    service.ask_for_names([DOCKER, POD, PODMAN, ROOTLESS, SESSION, LXC, None], str(data_dir))
    assert sorted(take(runs)) == ["docker:3f2a9c81d0b7", "pod:0a1b2c3d111122223333444455556666", "podman:abcdefabcdef"]


def test_an_unknown_container_is_noted_once_an_hour(
    runs: Path, data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    service.ask_for_names([DOCKER], str(data_dir))
    assert take(runs) == ["docker:3f2a9c81d0b7"]
    service.ask_for_names([DOCKER], str(data_dir))
    assert take(runs) == []
    wait(service.HOUR_MS, monkeypatch)
    service.ask_for_names([DOCKER], str(data_dir))
    assert take(runs) == ["docker:3f2a9c81d0b7"]


def test_without_a_runtime_folder_that_can_be_used_nothing_is_noted(
    runs: Path, data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    service.ask_for_names([SESSION, LXC], str(data_dir))  # nor without containers
    assert not (runs / WANTED).exists()
    (runs / LOOKED_AT).unlink()
    for folder in ("", str(runs / "nowhere")):
        monkeypatch.setenv("RUNTIME_DIRECTORY", folder)
        service.ask_for_names([DOCKER], str(data_dir))
    assert [os.listdir(runs), os.listdir(data_dir)] == [[], []]


@pytest.mark.parametrize("plant", [None, odd_files.fifo, odd_files.endless, odd_files.folder])
def test_a_container_whose_name_is_known_is_not_noted(
    runs: Path, data_dir: Path, plant: Callable[[Path], None] | None
) -> None:
    """An odd file of names is as none."""
    if plant is None:
        write_containers(str(data_dir), Known({"3f2a9c81d0b7": Container("docker", "train", None, None, None, 1)}))
    else:
        plant(data_dir / "containers.json")
    service.ask_for_names([DOCKER], str(data_dir))
    assert take(runs) == ([] if plant is None else ["docker:3f2a9c81d0b7"])
    service.ask_for_names([DOCKER, PODMAN], str(data_dir))  # a new one at once, and alone
    assert take(runs) == ["podman:abcdefabcdef"]


def test_a_note_that_nobody_takes_neither_grows_nor_is_rewritten_for_an_hour(runs: Path, data_dir: Path) -> None:
    service.ask_for_names([DOCKER], str(data_dir))
    before = (runs / WANTED).stat()
    service.ask_for_names([DOCKER, PODMAN], str(data_dir))
    assert (runs / WANTED).stat() == before
    os.utime(runs / WANTED, (time.time() - 3600,) * 2)
    service.ask_for_names([DOCKER, PODMAN], str(data_dir))
    assert take(runs) == ["podman:abcdefabcdef"]
    service.ask_for_names([DOCKER, PODMAN], str(data_dir))
    assert take(runs) == []


def test_containers_beyond_the_fiftieth_wait_for_the_next_note(runs: Path, data_dir: Path) -> None:
    cgroups = [f"/docker/{number:064x}" for number in range(7 << 208, (7 << 208) + (60 << 208), 1 << 208)]
    service.ask_for_names(cgroups, str(data_dir))
    first = take(runs)
    service.ask_for_names(cgroups, str(data_dir))
    second = take(runs)
    assert (len(first), len(second), len({*first, *second})) == (50, 10, 60)


def test_an_ordinary_tick_neither_looks_nor_writes(runs: Path, data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    service.ask_for_names([DOCKER, SESSION], str(data_dir))
    before = {path.name: path.stat() for path in runs.iterdir()}

    def look(*_: object) -> None:
        raise AssertionError

    monkeypatch.setattr(containers, "list_wanted", look)
    service.ask_for_names([DOCKER, SESSION], str(data_dir))
    assert {path.name: path.stat() for path in runs.iterdir()} == before


def test_no_more_is_remembered_than_can_be_read_at_a_tick(runs: Path, data_dir: Path) -> None:
    for batch in range(3):
        service.ask_for_names([f"/{batch}/{number}/{'é' * 900}" for number in range(300)], str(data_dir))
    assert (runs / LOOKED_AT).read_text().count("\n") <= service.MOST_CGROUPS
    assert (runs / LOOKED_AT).stat().st_size <= service.MOST_BYTES


@pytest.mark.parametrize("name", [LOOKED_AT, WANTED])
@pytest.mark.parametrize("put", [odd_files.fifo, odd_files.endless, odd_files.folder])
def test_odd_files_cost_at_most_the_note(runs: Path, data_dir: Path, name: str, put: Callable[[Path], None]) -> None:
    put(runs / name)
    if not (runs / name).is_symlink():
        os.utime(runs / name, (1, 1))
    service.ask_for_names([DOCKER], str(data_dir))
    assert {path.name for path in runs.iterdir()} <= {LOOKED_AT, WANTED}


@pytest.mark.parametrize("content", [b"\xff\xfe", b"\0" * 100, b"9" * 5000 + b" /x", b"\n\n \n", "² /x\n".encode()])
def test_nonsense_is_as_if_nothing_was_looked_at(runs: Path, data_dir: Path, content: bytes) -> None:
    (runs / LOOKED_AT).write_bytes(content)
    service.ask_for_names([DOCKER], str(data_dir))
    assert take(runs) == ["docker:3f2a9c81d0b7"]
    service.ask_for_names([DOCKER], str(data_dir))
    assert take(runs) == []


def test_no_note_is_left_that_could_not_be_remembered(runs: Path, data_dir: Path) -> None:
    """Otherwise gua-containers would be started at every tick."""
    (runs / LOOKED_AT).mkdir()
    service.ask_for_names([DOCKER], str(data_dir))
    assert not (runs / WANTED).exists()
