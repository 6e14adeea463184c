"""gua-containers as root against user gua, who owns both folders that it uses, and against users with containers."""

import json
import os
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gua_report.people.containers import write_containers
from gua_sample.containers import FILE_NAME, Container, Known
from gua_sample.simulate import Laboratory
from gua_sample.simulate_plan import EXAMPLE_END_MS
from tests import odd_files
from tests.integration.attacks.attempts import ESCAPE, command, is_tame, meanwhile
from tests.integration.containers import KEY, ContainerHost, container_host
from tests.machine import one_line, within
from tests.runtimes import inspection
from tests.users import SOMEBODY, needs_root
from tests.verbs import give

pytestmark = needs_root


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
def test_no_file_of_roots_is_read_by_the_note(
    host: ContainerHost, secret: Path, plant: Callable[[Path, Path], None]
) -> None:
    host.docker.knows(inspection())
    plant(secret, host.note_path)
    assert host.ask() == (0, "", "")
    assert host.docker.calls == []
    assert not os.path.lexists(host.note_path)
    assert secret.read_text() == f"{KEY}\n"


def bind(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as unbound:
        unbound.bind(str(path))


@pytest.mark.parametrize("put", [odd_files.fifo, odd_files.endless, bind])
def test_nothing_in_the_place_of_the_note_stops_it(host: ContainerHost, put: Callable[[Path], None]) -> None:
    put(host.note_path)
    give(host.runs)
    assert host.ask() == (0, "", "")
    assert not os.path.lexists(host.note_path)


def test_a_note_of_a_million_lines_is_worth_no_more_than_fifty(host: ContainerHost) -> None:
    host.docker.knows()
    host.note(*(f"{number:012x}" for number in range(1_000_000)))
    with within(15):
        assert host.ask() == (0, "", "")
    assert len(host.docker.calls) <= 50


def test_while_the_note_is_exchanged_no_file_of_roots_is_read_or_removed(host: ContainerHost, secret: Path) -> None:
    host.docker.knows(inspection())

    def exchange() -> None:
        (host.runs / "new").write_text("f" * 12 + "\n")
        os.rename(host.runs / "new", host.note_path)
        os.symlink(secret, host.runs / "new")
        os.rename(host.runs / "new", host.note_path)

    ends = time.monotonic() + 2
    with meanwhile(SOMEBODY, exchange):
        while time.monotonic() < ends:
            assert host.ask().is_calm
    assert not any(KEY in call for call in host.docker.calls)
    assert secret.exists()


@pytest.mark.parametrize("plant", [os.symlink, os.link])
def test_no_file_of_roots_is_read_or_replaced_by_way_of_the_known_containers(
    host: ContainerHost, secret: Path, plant: Callable[[Path, Path], None]
) -> None:
    host.docker.knows(inspection())
    write_containers(str(host.folder), Known({"5ec2e7000000": Container("docker", "secret", None, None, None, 1)}))
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
    "content",
    [
        *(b"[" * 1_000_000, b"{", b'{"version": 1, "containers": ' + b"9" * 5000 + b"}", b"x" * (9 << 20)),
        *(odd_files.fifo, odd_files.endless),
    ],
)
def test_a_hostile_file_of_known_containers_is_replaced_with_a_line(
    host: ContainerHost, content: bytes | Callable[[Path], None]
) -> None:
    host.docker.knows(inspection())
    path = host.data / "containers.json"
    path.write_bytes(content) if isinstance(content, bytes) else content(path)
    give(host.data)
    host.note(KEY)
    done = host.ask()
    assert (done.returncode, one_line(done.stderr), is_tame(done.stderr)) == (0, True, True)
    assert list(host.known().containers) == [KEY]


def test_names_that_gua_made_up_steer_no_terminal(host: ContainerHost) -> None:
    hostile = {"runtime": "docker", "name": ESCAPE, "image": ESCAPE, "owner": ESCAPE, "how": "label", "seen_ms": 1}
    document = {"version": 1, "containers": {KEY: hostile}}
    (host.data / "containers.json").write_text(json.dumps(document))
    done = host.ask("--list")
    assert done.returncode == 0
    assert is_tame(done.stdout)
    assert done.stdout.count("\n") == 2


def test_a_folder_of_that_name_costs_the_names_and_a_line(host: ContainerHost) -> None:
    (host.data / "containers.json" / "more").mkdir(parents=True)
    give(host.data)
    host.docker.knows(inspection())
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


# -- As a user who runs containers.
def test_a_label_that_names_a_colleague_is_never_a_fact(host: ContainerHost, monkeypatch: pytest.MonkeyPatch) -> None:
    import pwd

    entry = pwd.struct_passwd(("ada", "x", 1001, 1001, "", "/home/ada", "/bin/sh"))
    monkeypatch.setattr(pwd, "getpwnam", lambda name: entry)
    host.docker.knows(inspection(labels={"gua.owner": "ada"}, mounts=["/home/ada"]))
    host.note(KEY)
    assert host.ask() == (0, "", "")
    assert host.known().containers[KEY].owner == "ada"


@pytest.mark.parametrize("name", [f"/{ESCAPE}train", "/" + "x" * 300_000, f"/{KEY}\r\nX-Injected: 1"])
def test_a_hostile_name_is_tame_when_it_is_stored_and_shown(host: ContainerHost, name: str) -> None:
    host.docker.knows(inspection(name=name, image=name))
    host.note(KEY)
    assert host.ask() == (0, "", "")
    entry = json.loads((host.data / "containers.json").read_text())["containers"][KEY]
    assert all(len(entry[field]) <= 256 and entry[field].isprintable() for field in ("name", "image"))
    shown = host.ask("--list").stdout
    assert is_tame(shown)
    assert shown.count("\n") == 2


def test_a_name_of_ten_megabytes_costs_nothing_but_the_name(host: ContainerHost) -> None:
    host.docker.knows(inspection(name="x" * (10 << 20)))
    host.note(KEY)
    done = host.ask()
    assert (done.returncode, one_line(done.stderr)) == (0, True)
    assert "more than 1 MiB" in done.stderr
    assert host.known().containers == {}


NAMING = ["report", "status", "export of processes", "rollup --dry-run"]


def test_root_is_told_the_names_that_the_folders_owner_can_read(folder: Path) -> None:
    write_containers(str(folder), Laboratory(0).containers(EXAMPLE_END_MS, EXAMPLE_END_MS))
    give(folder / FILE_NAME)
    done = command("status", folder)
    assert (done.returncode, done.stderr) == (0, "")
    assert "ada? (docker: resnet50)" in done.stdout


@pytest.mark.parametrize("planted", ["a file of root's", "a pipe"])
@pytest.mark.parametrize("name", NAMING)
def test_root_reads_no_names_that_the_folders_owner_cant_and_no_pipe(folder: Path, name: str, planted: str) -> None:
    if planted == "a pipe":
        os.mkfifo(folder / FILE_NAME)
        os.chown(folder / FILE_NAME, SOMEBODY, SOMEBODY)
    else:
        write_containers(str(folder), Laboratory(0).containers(EXAMPLE_END_MS, EXAMPLE_END_MS))
        (folder / FILE_NAME).chmod(0o600)
    done = command(name, folder)
    assert done.returncode == 0, done
    assert is_tame(done.stdout + done.stderr)
    assert "resnet50" not in done.stdout
    (line,) = done.stderr.splitlines()
    assert "names of containers are missing" in line
    assert planted != "a pipe" or "is no regular file: " in line
