"""A machine with containers: its docker, podman and logs of pods in a folder, and gua-containers to ask them."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from gua_report.machine import container_names
from gua_report.machine.container_names import find_pod_names
from gua_sample.containers import Known, read_containers
from tests.runtimes import ID, KEY, Program
from tests.users import SOMEBODY
from tests.verbs import Done, run

__all__ = ["ID", "KEY", "ContainerHost", "container_host"]


class ContainerHost:
    """`run` is the sampler's runtime folder and `data` the data folder; both are somebody's, as they would be gua's."""

    def __init__(self, folder: Path, owner: int) -> None:
        self.folder = folder
        self.data, self.runs, self.logs = (folder / name for name in ("data", "run", "log"))
        for path in (self.data, self.runs, self.logs):
            path.mkdir()
        for path in (self.data, self.runs):
            os.chown(path, owner, owner)
        self.note_path = self.runs / "containers.wanted"
        self.docker, self.podman = (Program(folder / "bin" / name) for name in ("docker", "podman"))

    def note(self, *lines: str) -> None:
        self.note_path.write_text("\n".join([*lines, ""]))

    def ask(self, *arguments: str, uid: int = 0) -> Done:
        place = ("--data-dir", str(self.data), "--note", str(self.note_path))
        return run("gua-containers", *place, *arguments, uid=uid)

    def known(self) -> Known:
        return read_containers(str(self.data))


@contextmanager
def container_host(folder: Path, patch: pytest.MonkeyPatch, owner: int = SOMEBODY) -> Iterator[ContainerHost]:
    """Such a machine in an empty folder that everybody may enter."""
    patch.setattr(container_names, "FOLDERS", f"{folder}/bin")
    patch.setattr(container_names, "QUESTION_SECONDS", 1.5)
    patch.setattr(container_names, "find_pod_names", partial(find_pod_names, logs=f"{folder}/log"))
    yield ContainerHost(folder, owner if os.geteuid() == 0 else os.geteuid())
