"""One question to a Docker-compatible socket: it is answered, or it is said in time why not."""

from __future__ import annotations

import json
import resource
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from gua_report.machine.child import ask
from gua_report.machine.container_socket import ContainerSocket, NoAnswer, Told
from tests.runtimes import HOSTILE, ID, KEY, SECRET, Behaviour, inspection, knows, response, runtime, says

SHORT_SECONDS, SECONDS = 0.5, 5.0


def inspect(path: Path, container: str = KEY, label: str = "gua.owner", seconds: float = SECONDS) -> Told | None:
    return ContainerSocket(str(path), seconds).inspect(container, label, time.monotonic() + seconds)


def test_a_container_is_told_with_its_image_label_and_mounts(tmp_path: Path) -> None:
    document = inspection(labels={"gua.owner": "ada", "other": "x"}, mounts=["/home/ada/data", "/srv"])
    with runtime(tmp_path / "docker.sock", knows(document)):
        told = inspect(tmp_path / "docker.sock")
    assert told == Told("/train-resnet", "pytorch:2.9", "ada", ["/home/ada/data", "/srv"])


def test_nothing_but_get_is_sent(tmp_path: Path) -> None:
    with runtime(tmp_path / "docker.sock", knows(inspection())) as server:
        inspect(tmp_path / "docker.sock", ID)
    (request,) = server.requests
    assert request.startswith(f"GET /containers/{ID}/json HTTP/1.1\r\n".encode())
    assert request.endswith(b"\r\n\r\n")


def test_environment_and_command_are_dropped(tmp_path: Path) -> None:
    with runtime(tmp_path / "docker.sock", knows(inspection())):
        assert SECRET not in str(inspect(tmp_path / "docker.sock"))


def test_a_container_that_the_runtime_does_not_have_is_no_problem(tmp_path: Path) -> None:
    with runtime(tmp_path / "docker.sock", knows()):
        assert inspect(tmp_path / "docker.sock") is None


def test_a_socket_that_is_not_there_is_told_from_one_that_does_not_answer(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        inspect(tmp_path / "docker.sock")
    with pytest.raises(FileNotFoundError):
        inspect(tmp_path / "docker.sock" / "below")
    (tmp_path / "docker.sock").write_text("a file")
    with pytest.raises(NoAnswer, match="Connection refused"):
        inspect(tmp_path / "docker.sock")


def test_a_name_that_looks_like_an_id_is_not_taken_for_it(tmp_path: Path) -> None:
    """Docker finds containers by name first, and anybody with docker rights may name one after a colleague's id."""
    impostor = inspection("f" * 64, name=f"/{KEY}")
    with runtime(tmp_path / "docker.sock", knows(impostor, inspection())), pytest.raises(NoAnswer, match="another"):
        inspect(tmp_path / "docker.sock")


@pytest.mark.parametrize("name", HOSTILE)
def test_whatever_a_server_does_ends_in_time_and_within_bounds(tmp_path: Path, name: str) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    seconds = SHORT_SECONDS if name in ("hang", "drip") else SECONDS
    began = time.monotonic()
    with runtime(tmp_path / "docker.sock", HOSTILE[name]), pytest.raises(NoAnswer) as problem:
        inspect(tmp_path / "docker.sock", seconds=seconds)
    assert time.monotonic() - began < seconds + 1
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000  # kB; the servers are in here too
    assert SECRET not in str(problem.value)
    assert len(str(problem.value)) < 100
    if name in ("flood", "flood in chunks", "go on for ever", "ten megabytes of a name"):
        assert str(problem.value) == "it answered with more than 1 MiB"


@pytest.mark.parametrize(
    "change",
    [
        {"Config": None, "Mounts": None},
        {"Config": {"Image": 7, "Labels": ["gua.owner"]}, "Mounts": {"Source": "/home/ada"}},
        {"Config": {"Labels": None}, "Mounts": [None, 3, "/home/ada", {"Source": None}]},
    ],
)
def test_parts_of_other_types_are_as_if_they_were_missing(tmp_path: Path, change: dict[str, object]) -> None:
    with runtime(tmp_path / "docker.sock", says(response(json.dumps(inspection() | change).encode()))):
        told = inspect(tmp_path / "docker.sock")
    assert told is not None
    assert told.name == "/train-resnet"
    assert told.label is None
    assert set(told.sources) <= {None}


def test_of_very_many_mounts_the_first_are_taken(tmp_path: Path) -> None:
    with runtime(tmp_path / "docker.sock", knows(inspection(mounts=["/srv"] * 1000))):
        told = inspect(tmp_path / "docker.sock")
    assert told
    assert len(told.sources) == 64


@pytest.mark.parametrize("behave", [knows(inspection()), HOSTILE["bad chunks"], HOSTILE["deep"]])
def test_a_child_that_is_nobody_needs_no_further_module(tmp_path: Path, behave: Behaviour) -> None:
    """It may not be allowed to read Python's own files."""

    def imported() -> list[str]:
        before = {*sys.modules}
        with suppress(NoAnswer):
            inspect(tmp_path / "docker.sock")
        return sorted({*sys.modules} - before)

    with runtime(tmp_path / "docker.sock", behave):
        assert ask(imported, 10).value == []
