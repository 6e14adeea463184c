"""A machine with containers: its sockets, processes and logs of pods in a folder, and gua-containers to ask them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import pytest

from gua_report.machine import container_names, container_runtimes
from gua_report.machine.pod_names import find_pod_names
from gua_report.machine.running_containers import find_running
from gua_sample.containers import Known, read_containers
from tests.runtimes import ID, KEY, Behaviour, Server, runtime
from tests.users import SOMEBODY
from tests.verbs import Done, run

__all__ = ["ID", "KEY", "ContainerHost", "container_host"]


class ContainerHost:
    """`run` is the sampler's runtime folder and `data` the data folder; both are somebody's, as they would be gua's."""

    def __init__(self, folder: Path, stack: ExitStack, owner: int) -> None:
        self.folder, self._stack = folder, stack
        self.data, self.runs, self.proc, self.pods = (folder / name for name in ("data", "run", "proc", "pods"))
        for path in (self.data, self.runs, self.proc, self.pods):
            path.mkdir()
        for path in (self.data, self.runs):
            os.chown(path, owner, owner)
        self.note_path = self.runs / "containers.wanted"

    def start(self, cgroup: str) -> None:
        """Let a process run in that cgroup."""
        process = self.proc / str(len(os.listdir(self.proc)) + 1)
        process.mkdir()
        (process / "cgroup").write_text(f"0::{cgroup}\n")

    def serve(self, name: str, behave: Behaviour) -> Server:
        """Let one of the machine's runtimes behave so: docker.sock or podman.sock."""
        return self._stack.enter_context(runtime(self.folder / name, behave))

    def serve_user(self, uid: int, behave: Behaviour) -> Server:
        folder = self.folder / "user" / str(uid)
        server = self._stack.enter_context(runtime(folder / "docker.sock", behave, uid))
        folder.chmod(0o700)
        os.chown(folder, uid, uid)
        return server

    def note(self, *ids: str) -> None:
        self.note_path.write_text("\n".join([*ids, ""]))

    def ask(self, *arguments: str, uid: int = 0) -> Done:
        place = ("--data-dir", str(self.data), "--note", str(self.note_path))
        return run("gua-containers", *place, *arguments, uid=uid)

    def known(self) -> Known:
        return read_containers(str(self.data))


@contextmanager
def container_host(folder: Path, patch: pytest.MonkeyPatch, owner: int = SOMEBODY) -> Iterator[ContainerHost]:
    """Such a machine in an empty folder that everybody may enter."""
    machine = {f"{folder}/docker.sock": "docker", f"{folder}/podman.sock": "podman"}
    patch.setattr(container_runtimes, "MACHINE_SOCKETS", machine)
    patch.setattr(container_runtimes, "USER_SOCKETS", {f"{folder}/user/{{uid}}/docker.sock": "docker"})
    patch.setattr(container_runtimes, "QUESTION_SECONDS", 1.5)
    patch.setattr(container_names, "find_running", partial(find_running, proc=f"{folder}/proc"))
    patch.setattr(container_names, "find_pod_names", partial(find_pod_names, logs=f"{folder}/pods"))
    with ExitStack() as stack:
        yield ContainerHost(folder, stack, owner if os.geteuid() == 0 else os.geteuid())
