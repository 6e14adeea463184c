"""gua-containers as root against user gua, who owns both folders that it uses, and against users with containers."""

from __future__ import annotations

import json
import os
import signal
import socket
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gua_report.people.containers import write_containers
from gua_sample.containers import Known, key_of
from tests import odd_files
from tests.integration.attacks.attempts import ANOTHER, ESCAPE, is_tame, meanwhile
from tests.integration.containers import ID, KEY, ContainerHost, container_host
from tests.machine import one_line
from tests.runtimes import inspection, knows, runtime
from tests.users import SOMEBODY, needs_root
from tests.verbs import give

pytestmark = needs_root

DOCKER = f"/system.slice/docker-{ID}.scope"


def slice_of(uid: int) -> str:
    return f"/user.slice/user-{uid}.slice/user@{uid}.service/user.slice"


@pytest.fixture
def host(open_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ContainerHost]:
    with container_host(open_folder, monkeypatch) as host:
        yield host


@pytest.fixture
def secret(host: ContainerHost) -> Path:
    """A file that only root may read, in the format of the note and beside what gua owns."""
    path = host.folder / "secret"
    path.write_text(f"{KEY}\n")
    path.chmod(0o600)
    return path


# -- As user gua.


@pytest.mark.parametrize("plant", [os.symlink, os.link])
def test_no_file_of_roots_is_read_by_way_of_the_note(
    host: ContainerHost, secret: Path, plant: Callable[[Path, Path], None]
) -> None:
    docker = host.serve("docker.sock", knows(inspection()))
    plant(secret, host.note_path)
    assert host.ask() == (0, "", "")
    assert docker.requests == []
    assert not os.path.lexists(host.note_path)
    assert secret.read_text() == f"{KEY}\n"


@pytest.mark.parametrize("put", [odd_files.fifo, odd_files.endless, odd_files.folder])
def test_nothing_in_the_place_of_the_note_stops_it(host: ContainerHost, put: Callable[[Path], None]) -> None:
    put(host.note_path)
    give(host.runs)
    assert host.ask() == (0, "", "")
    assert not os.path.lexists(host.note_path)


def test_a_note_of_a_million_lines_is_worth_fifty(host: ContainerHost) -> None:
    docker = host.serve("docker.sock", knows())
    host.note(*(f"{number:012x}" for number in range(1_000_000)))
    began = time.monotonic()
    assert host.ask() == (0, "", "")
    assert time.monotonic() - began < 15
    assert len(docker.requests) <= 50


def test_while_the_note_is_exchanged_no_file_of_roots_is_read_or_removed(host: ContainerHost, secret: Path) -> None:
    docker = host.serve("docker.sock", knows(inspection()))

    def exchange() -> None:
        (host.runs / "new").write_text("f" * 12 + "\n")
        os.rename(host.runs / "new", host.note_path)
        os.symlink(secret, host.runs / "new")
        os.rename(host.runs / "new", host.note_path)

    ends = time.monotonic() + 2
    with meanwhile(SOMEBODY, exchange):
        while time.monotonic() < ends:
            assert host.ask().is_calm
    assert not any(KEY.encode() in request for request in docker.requests)
    assert secret.exists()


@pytest.mark.parametrize("plant", [os.symlink, os.link])
def test_no_file_of_roots_is_read_or_replaced_by_way_of_the_known_containers(
    host: ContainerHost, secret: Path, plant: Callable[[Path, Path], None]
) -> None:
    host.serve("docker.sock", knows(inspection()))
    write_containers(str(host.folder), Known({}, {"5ec2e7000000": 1}))
    (host.folder / "containers.json").rename(secret)
    secret.chmod(0o600)
    plant(secret, host.data / "containers.json")
    host.note(KEY)
    done = host.ask()
    assert done.returncode == 0
    assert one_line(done.stderr)
    assert "was made anew" in done.stderr
    assert "5ec2e7000000" not in (host.data / "containers.json").read_text() + done.stderr
    assert "5ec2e7000000" in secret.read_text()
    assert (host.data / "containers.json").stat().st_uid == SOMEBODY
    assert list(host.known().containers) == [KEY]


@pytest.mark.parametrize(
    "content", [b"[" * 1_000_000, b"{", b'{"version": 1, "containers": ' + b"9" * 5000 + b"}", b"x" * (9 << 20)]
)
def test_a_hostile_file_of_known_containers_is_replaced_with_a_line(host: ContainerHost, content: bytes) -> None:
    host.serve("docker.sock", knows(inspection()))
    (host.data / "containers.json").write_bytes(content)
    give(host.data)
    host.note(KEY)
    done = host.ask()
    assert done.returncode == 0
    assert one_line(done.stderr)
    assert is_tame(done.stderr)
    assert list(host.known().containers) == [KEY]


def test_names_that_gua_made_up_steer_no_terminal(host: ContainerHost) -> None:
    hostile = {"runtime": "docker", "name": ESCAPE, "image": ESCAPE, "owner": ESCAPE, "how": "label", "seen_ms": 1}
    document = {"version": 1, "containers": {KEY: hostile | {"slice_uid": None}}, "asked_ms": {}}
    (host.data / "containers.json").write_text(json.dumps(document))
    done = host.ask("--list")
    assert done.returncode == 0
    assert is_tame(done.stdout)
    assert done.stdout.count("\n") == 2


@pytest.mark.parametrize("put", [odd_files.fifo, odd_files.endless])
def test_a_pipe_or_a_device_of_known_containers_stops_nothing(host: ContainerHost, put: Callable[[Path], None]) -> None:
    host.serve("docker.sock", knows(inspection()))
    put(host.data / "containers.json")
    host.note(KEY)
    done = host.ask()
    assert (done.returncode, one_line(done.stderr)) == (0, True)
    assert list(host.known().containers) == [KEY]


def test_a_folder_of_that_name_costs_the_names_and_a_line(host: ContainerHost) -> None:
    (host.data / "containers.json" / "more").mkdir(parents=True)
    give(host.data)
    host.serve("docker.sock", knows(inspection()))
    host.note(KEY)
    done = host.ask()
    assert (done.returncode, one_line(done.stderr)) == (1, True)
    assert "containers.json can't be written" in done.stderr
    assert not host.note_path.exists()


def test_a_data_folder_that_is_a_link_of_guas_is_refused(host: ContainerHost) -> None:
    roots = host.folder / "of root's"
    roots.mkdir()
    theirs = host.folder / "theirs"
    theirs.mkdir()
    (theirs / "data").symlink_to(roots)
    give(theirs)
    host.note(KEY)
    done = host.ask("--data-dir", str(theirs / "data"))
    assert done.returncode == 1
    assert "not as root" in done.stderr
    assert os.listdir(roots) == []


# -- As a user who runs containers, with docker rights or with a runtime of their own.


def test_a_label_that_names_a_colleague_is_never_a_fact(host: ContainerHost, monkeypatch: pytest.MonkeyPatch) -> None:
    import pwd

    entry = pwd.struct_passwd(("ada", "x", 1001, 1001, "", "/home/ada", "/bin/sh"))
    monkeypatch.setattr(pwd, "getpwnam", lambda name: entry)
    host.serve("docker.sock", knows(inspection(labels={"gua.owner": "ada"}, mounts=["/home/ada"])))
    host.start(DOCKER)
    host.note(KEY)
    assert host.ask() == (0, "", "")
    known = host.known()
    assert (known.containers[KEY].owner, known.containers[KEY].is_fact) == ("ada", False)
    assert known.people() == {}


def test_a_socket_of_ones_own_claims_no_container_of_the_machine(host: ContainerHost) -> None:
    """Even with a cgroup in one's own slice that is named after it."""
    host.serve("docker.sock", knows(inspection(name="/of-the-machine")))
    lying = host.serve_user(SOMEBODY, knows(inspection(name="/mine")))
    host.start(f"{slice_of(SOMEBODY)}/docker-{ID}.scope")
    host.start(DOCKER)
    host.note(KEY)
    assert host.ask() == (0, "", "")
    assert host.known().containers[KEY].name == "of-the-machine"
    assert lying.requests == []


def test_a_socket_of_ones_own_claims_no_container_of_a_colleagues(host: ContainerHost) -> None:
    servers = [host.serve_user(uid, knows(inspection())) for uid in (SOMEBODY, ANOTHER)]
    for uid in (SOMEBODY, ANOTHER):
        host.start(f"{slice_of(uid)}/docker-{ID}.scope")
    host.note(KEY)
    assert host.ask() == (0, "", "")
    assert host.known().containers == {}
    assert [server.requests for server in servers] == [[], []]


def test_a_container_that_docker_put_into_a_colleagues_slice_is_the_machines(host: ContainerHost) -> None:
    """As `docker run --cgroup-parent user-N.slice` does, for anybody with rights for Docker."""
    theirs = host.serve_user(ANOTHER, knows(inspection(name="/theirs")))
    host.serve("docker.sock", knows(inspection()))
    host.start(f"/user.slice/user-{ANOTHER}.slice/docker-{ID}.scope")
    host.note(KEY)
    assert host.ask() == (0, "", "")
    container = host.known().containers[KEY]
    assert (container.name, container.owner, container.slice_uid) == ("train-resnet", None, None)
    assert theirs.requests == []
    assert host.known().people() == {}


def test_a_link_to_the_machines_socket_gives_nobody_a_say(host: ContainerHost) -> None:
    """By a user in the group docker: the question is asked with that user's uid, and with none of the groups."""
    machine = host.serve("docker.sock", knows(inspection(name="/of-the-machine")))
    folder = host.folder / "user" / str(SOMEBODY)
    folder.mkdir(parents=True)
    (folder / "docker.sock").symlink_to(host.folder / "docker.sock")
    give(folder)
    host.start(f"{slice_of(SOMEBODY)}/docker-{ID}.scope")
    host.note(KEY)
    done = host.ask()
    assert (done.returncode, one_line(done.stderr)) == (0, True)
    assert "Permission denied" in done.stderr
    assert machine.requests == []
    assert host.known().containers == {}


@pytest.mark.parametrize("name", [f"/{ESCAPE}train", "/" + "x" * 300_000, f"/{KEY}\r\nX-Injected: 1"])
def test_a_hostile_name_is_tame_when_it_is_stored_and_shown(host: ContainerHost, name: str) -> None:
    host.serve_user(SOMEBODY, knows(inspection(name=name, image=name)))
    host.start(f"{slice_of(SOMEBODY)}/docker-{ID}.scope")
    host.note(KEY)
    assert host.ask() == (0, "", "")
    entry = json.loads((host.data / "containers.json").read_text())["containers"][key_of(KEY, SOMEBODY)]
    assert all(len(entry[field]) <= 256 and entry[field].isprintable() for field in ("name", "image"))
    shown = host.ask("--list").stdout
    assert is_tame(shown)
    assert shown.count("\n") == 2


def test_a_name_of_ten_megabytes_costs_nothing_but_the_name(host: ContainerHost) -> None:
    host.serve_user(SOMEBODY, knows(inspection(name="x" * (10 << 20))))
    host.start(f"{slice_of(SOMEBODY)}/docker-{ID}.scope")
    host.note(KEY)
    done = host.ask()
    assert (done.returncode, one_line(done.stderr)) == (0, True)
    assert "more than 1 MiB" in done.stderr
    assert (host.data / "containers.json").stat().st_size < 1000


def test_a_user_who_stops_the_child_that_asks_holds_nothing_up(host: ContainerHost) -> None:
    stopped = []

    def stop(connection: socket.socket, request: bytes) -> None:
        pid = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]
        os.kill(pid, signal.SIGSTOP)
        stopped.append(pid)
        time.sleep(10)

    host.serve_user(SOMEBODY, stop)
    host.start(f"{slice_of(SOMEBODY)}/docker-{ID}.scope")
    host.note(KEY)
    began = time.monotonic()
    done = host.ask()
    assert time.monotonic() - began < 8
    assert (done.returncode, one_line(done.stderr)) == (0, True)
    assert stopped
    with pytest.raises(ProcessLookupError):
        os.kill(stopped[0], 0)


def test_a_socket_that_another_user_put_into_a_users_folder_is_not_asked_as_root(host: ContainerHost) -> None:
    """A rootless socket of mode 0600 that is root's own can't be opened with the user's rights."""
    folder = host.folder / "user" / str(SOMEBODY)
    folder.mkdir(parents=True)
    host.start(f"{slice_of(SOMEBODY)}/docker-{ID}.scope")
    host.note(KEY)
    with runtime(folder / "docker.sock", knows(inspection()), uid=0, mode=0o600) as server:
        done = host.ask()
    assert "Permission denied" in done.stderr
    assert server.requests == []
