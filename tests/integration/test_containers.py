"""gua-containers: from the sampler's note, or an id given by hand, to names and owners in the data folder."""

from __future__ import annotations

import json
import os
import pwd
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gua_report.config import Containers
from gua_report.machine import container_names, container_runtimes, container_socket
from gua_report.people.accounts import FIRST_UID
from gua_report.people.containers import write_containers
from gua_sample.container_note import MOST_WANTED
from gua_sample.containers import ASK_AGAIN_MS, LABEL, MOUNT, SOCKET, Container, Known, key_of
from gua_sample.processes import ANSWER_SECONDS
from tests.integration.containers import ID, KEY, ContainerHost, container_host
from tests.machine import one_line
from tests.repository import ROOT
from tests.runtimes import SECRET, hang, inspection, knows
from tests.users import SOMEBODY, needs_root
from tests.verbs import give

DOCKER = f"/system.slice/docker-{ID}.scope"
ROOTLESS = f"/user.slice/user-{SOMEBODY}.slice/user@{SOMEBODY}.service/user.slice/docker-{ID}.scope"
POD = "0a1b2c3d-1111-2222-3333-444455556666"
POD_CGROUP = f"/kubepods/besteffort/pod{POD}"


@pytest.fixture
def host(open_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ContainerHost]:
    with container_host(open_folder, monkeypatch) as host:
        yield host


@pytest.fixture
def people(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this machine have the users ada and somebody."""
    entries = [
        pwd.struct_passwd((name, "x", uid, uid, "", f"/home/{name}", "/bin/sh"))
        for name, uid in (("ada", 1001), ("somebody", SOMEBODY))
    ]

    def find(field: int, value: object) -> pwd.struct_passwd:
        found = [entry for entry in entries if entry[field] == value]
        if not found:
            raise KeyError(value)
        return found[0]

    monkeypatch.setattr(pwd, "getpwnam", lambda name: find(0, name))
    monkeypatch.setattr(pwd, "getpwuid", lambda uid: find(2, uid))


def test_a_noted_container_gets_its_name_and_nothing_is_said(host: ContainerHost) -> None:
    host.serve("docker.sock", knows(inspection()))
    host.start(DOCKER)
    host.note(KEY)
    before_ms = time.time_ns() // 1_000_000
    done = host.ask()
    assert done == (0, "", "")
    (container,) = host.known().containers.values()
    assert container[:6] == ("docker", "train-resnet", "pytorch:2.9", None, None, None)
    assert before_ms <= container.seen_ms <= time.time_ns() // 1_000_000
    assert not host.note_path.exists()


def test_neither_environment_nor_command_is_stored_or_said(host: ContainerHost) -> None:
    host.serve("docker.sock", knows(inspection()))
    host.note(KEY)
    done = host.ask("--debug")
    text = (host.data / "containers.json").read_text()
    assert SECRET not in text + done.stdout + done.stderr
    assert set(json.loads(text)["containers"][KEY]) == set(Container._fields)


def test_without_a_note_there_is_nothing_to_do(host: ContainerHost) -> None:
    assert host.ask() == (0, "", "")
    assert os.listdir(host.data) == []


def test_a_known_container_is_not_asked_for_again(host: ContainerHost) -> None:
    server = host.serve("docker.sock", knows(inspection()))
    for _ in range(2):
        host.note(KEY, ID)
        assert host.ask() == (0, "", "")
    assert len(server.requests) == 1


def test_an_unknown_container_is_asked_for_again_after_an_hour(host: ContainerHost) -> None:
    server = host.serve("docker.sock", knows())
    for _ in range(2):
        host.note(KEY)
        assert host.ask() == (0, "", "")
    assert len(server.requests) == 1
    (asked_ms,) = host.known().asked_ms.values()
    write_containers(str(host.data), Known({}, {KEY: asked_ms - ASK_AGAIN_MS}))
    give(host.data)
    host.note(KEY)
    assert host.ask().returncode == 0
    assert len(server.requests) == 2


def test_those_that_nobody_knew_before_are_asked_for_last(host: ContainerHost) -> None:
    """So a container whose runtime hangs takes no time from new ones, run after run."""
    server = host.serve("docker.sock", knows())
    write_containers(str(host.data), Known({}, {"0" * 12: time.time_ns() // 1_000_000 - 2 * ASK_AGAIN_MS}))
    give(host.data)
    host.note("0" * 12, "a" * 12)
    host.ask()
    assert [request.split(b"/")[2] for request in server.requests] == [b"a" * 12, b"0" * 12]


def test_no_more_than_fifty_are_asked_for_at_a_time(host: ContainerHost) -> None:
    server = host.serve("docker.sock", knows())
    host.note(*(f"{number:012x}" for number in range(1000)))
    assert host.ask() == (0, "", "")
    assert len(server.requests) <= 50
    assert len(host.known().asked_ms) <= 50


def test_pods_and_what_runs_in_them_are_named_by_the_folders_of_their_logs(host: ContainerHost) -> None:
    (host.pods / f"vision_train-7_{POD}").mkdir()
    docker = host.serve("docker.sock", knows(inspection()))
    host.start(POD_CGROUP)
    host.start(f"/kubepods.slice/kubepods-pod{POD.replace('-', '_')}.slice/cri-containerd-{ID}.scope")
    host.note(POD.replace("-", ""), KEY, "f" * 32)
    assert host.ask() == (0, "", "")
    names = {key: one[:2] for key, one in host.known().containers.items()}
    assert names == {POD.replace("-", ""): ("pod", "vision/train-7"), KEY: ("containerd", "vision/train-7")}
    assert list(host.known().asked_ms) == ["f" * 32]
    assert docker.requests == []


@needs_root
def test_the_owner_of_a_rootless_container_is_a_fact(host: ContainerHost, people: None) -> None:
    labels = {"gua.owner": "ada"}
    machine = host.serve("docker.sock", knows(inspection(name="/of-the-machine")))
    host.serve_user(SOMEBODY, knows(inspection(labels=labels, mounts=["/home/ada"])))
    host.start(ROOTLESS)
    host.note(KEY)
    assert host.ask() == (0, "", "")
    container = host.known().containers[key_of(KEY, SOMEBODY)]
    assert (container.owner, container.how, container.slice_uid) == ("somebody", SOCKET, SOMEBODY)
    assert container.is_fact
    assert machine.requests == []


@pytest.mark.parametrize(
    ("labels", "mounts", "owner", "how"),
    [
        ({"team": "ada"}, [], "ada", LABEL),
        ({"team": "ada"}, ["/home/somebody"], "ada", LABEL),
        ({"team": "nobody-here"}, ["/home/ada/data"], "ada", MOUNT),
        ({"gua.owner": "ada"}, [], None, None),  # the configuration names another label
        ({"com.docker.compose.project": "ada"}, [], None, None),
        ({"team": "root"}, ["/root"], None, None),
    ],
)
def test_a_label_and_a_home_directory_are_hints(
    host: ContainerHost, people: None, labels: dict[str, str], mounts: list[str], owner: str | None, how: str | None
) -> None:
    (host.folder / "gua.toml").write_text('[containers]\nowner_label = "team"\n')
    host.serve("docker.sock", knows(inspection(labels=labels, mounts=mounts)))
    host.start(DOCKER)
    host.note(KEY)
    assert host.ask("--config", str(host.folder / "gua.toml")) == (0, "", "")
    container = host.known().containers[KEY]
    assert (container.owner, container.how, container.is_fact) == (owner, how, False)


def test_a_directory_of_users_that_hangs_costs_nothing_but_names(
    host: ContainerHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pwd, "getpwnam", lambda name: time.sleep(60))
    monkeypatch.setattr(container_names, "ANSWER_SECONDS", 0.5)
    plain = inspection("c" * 64, name="/plain")
    host.serve("docker.sock", knows(inspection(labels={"gua.owner": "ada"}), plain))
    host.note(KEY, "c" * 12)
    began = time.monotonic()
    done = host.ask()
    assert time.monotonic() - began < 8
    assert (done.returncode, done.stdout) == (0, "")
    assert one_line(done.stderr)
    assert "the directory of users does not answer: 1 container" in done.stderr
    known = host.known()
    assert list(known.containers) == ["c" * 12]
    assert list(known.asked_ms) == [KEY]  # in an hour it may have its owner


def test_a_runtime_that_hangs_costs_a_line_and_no_more_than_its_time(host: ContainerHost) -> None:
    host.serve("docker.sock", hang)
    host.start(DOCKER)
    host.note(KEY)
    began = time.monotonic()
    done = host.ask()
    assert time.monotonic() - began < 5
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == (
        "gua-containers: warning: 1 container of the machine's runtimes left without a name:"
        f" {host.folder}/docker.sock: it does not answer in time\n"
    )
    assert list(host.known().asked_ms) == [KEY]


def test_the_note_is_gone_even_if_the_configuration_is_wrong(host: ContainerHost) -> None:
    """Otherwise the path unit would start it again and again."""
    (host.folder / "gua.toml").write_text("this is no TOML")
    host.note(KEY)
    assert host.ask("--config", str(host.folder / "gua.toml")).returncode == 2
    assert not host.note_path.exists()


@needs_root
def test_what_is_written_belongs_to_the_folders_owner_and_its_readers_can_read_it(host: ContainerHost) -> None:
    host.serve("docker.sock", knows(inspection()))
    host.note(KEY)
    assert host.ask().returncode == 0
    found = (host.data / "containers.json").stat()
    assert (found.st_uid, found.st_mode & 0o777) == (SOMEBODY, 0o644)
    assert os.listdir(host.data) == ["containers.json"]


# -- By hand.


@pytest.mark.parametrize("spelling", [KEY, ID, f"docker:{KEY}", KEY.upper()])
def test_an_id_is_asked_for_at_once_and_shown(host: ContainerHost, spelling: str) -> None:
    write_containers(str(host.data), Known({KEY: Container("docker", "old", None, None, None, None, 1)}, {}))
    give(host.data) if os.geteuid() == 0 else None
    host.serve("docker.sock", knows(inspection()))
    host.note("f" * 12)
    done = host.ask(spelling)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[1] == "docker:3f2a9c81d0b7      train-resnet              pytorch:2.9"
    assert host.known().containers[KEY].name == "train-resnet"
    assert host.note_path.exists()


def test_an_id_that_nobody_knows_is_an_error_of_one_line(host: ContainerHost) -> None:
    done = host.ask(f"pod:{POD}")
    assert (done.returncode, done.stdout) == (1, "")
    assert one_line(done.stderr)
    assert f"nobody knows {POD.replace('-', '')}" in done.stderr


@pytest.mark.parametrize("text", ["3f2a9c81d0b", "docker:", "train-resnet", "f" * 65, "../../x"])
def test_what_is_no_id_is_wrong_usage(host: ContainerHost, text: str) -> None:
    done = host.ask(text)
    assert done.returncode == 2
    assert one_line(done.stderr)


def test_what_is_known_is_listed_within_78_columns_the_newest_first(host: ContainerHost) -> None:
    containers = {
        KEY: Container("docker", "train" * 20, "registry.example.com/pytorch:2.9", "ada", LABEL, None, 1),
        key_of("f" * 12, SOMEBODY): Container("podman", "serve", None, "somebody", SOCKET, SOMEBODY, 2),
        POD.replace("-", ""): Container("pod", "vision/train-7", None, None, None, None, 3),
    }
    write_containers(str(host.data), Known(containers, {}))
    done = host.ask("--list")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        "container                name                      image           owner",
        "pod:0a1b2c3d1111         vision/train-7",
        "podman:ffffffffffff      serve                                     somebody",
        "docker:3f2a9c81d0b7      traintraintraintraintra…  registry.exam…  ada? label",
    ]
    assert max(map(len, done.stdout.splitlines())) <= 78


def test_the_page_shows_what_the_list_prints(host: ContainerHost) -> None:
    page = (ROOT / "docs" / "people.md").read_text()
    shown = page.split("    $ gua-containers --list\n")[1].split("\n\n")[0]
    containers = {
        "3f2a9c81d0b7": Container("docker", "train-resnet", "pytorch:2.9", "ada", LABEL, None, 3),
        "91be07c2d4f8": Container("podman", "notebook", "localhost/jupyter:latest", "ben", SOCKET, 1001, 2),
        POD.replace("-", ""): Container("pod", "vision/serve-llama-0", None, None, None, None, 1),
    }
    write_containers(str(host.data), Known(containers, {}))
    assert host.ask("--list").stdout.splitlines() == [line.removeprefix("    ") for line in shown.splitlines()]


def test_the_pages_tell_the_limits() -> None:
    page = " ".join((ROOT / "docs" / "security.md").read_text().split())
    seconds = (
        container_runtimes.QUESTION_SECONDS,
        container_runtimes.SPEAKER_SECONDS,
        container_runtimes.USERS_SECONDS,
    )
    one, speaker, users = (f"{value:g}" for value in seconds)
    assert (
        f"{one} s for a container, {speaker} s for all of the machine's or of one user's, {users} s for all users"
        in page
    )
    assert f"{container_socket.MOST_BYTES >> 20} MiB for an answer, {ANSWER_SECONDS:g} s for the directory" in page
    assert f"at most {MOST_WANTED} ids" in page
    unit = (ROOT / "systemd" / "gua-containers.path").read_text()
    assert "TriggerLimitIntervalSec=10min\nTriggerLimitBurst=20\n" in unit
    assert "fails 20 times in ten minutes" in page
    people = (ROOT / "docs" / "people.md").read_text()
    assert f"uid {FIRST_UID} and up" in people
    assert "gua.owner=$USER" in people
    assert Containers().owner_label == "gua.owner"


def test_an_empty_list_says_how_to_fill_it(host: ContainerHost) -> None:
    done = host.ask("--list")
    assert (done.returncode, done.stdout) == (3, "")
    assert "CONTAINERS=yes" in done.stderr


def test_a_folder_that_is_missing_is_said(host: ContainerHost) -> None:
    host.data.rmdir()
    host.note(KEY)
    assert host.ask().returncode == 3


@needs_root
def test_without_root_ones_own_folder_is_filled_and_others_are_refused(host: ContainerHost) -> None:
    host.serve("docker.sock", knows(inspection()))
    (host.folder / "docker.sock").chmod(0o666)
    assert host.ask(KEY, uid=SOMEBODY).returncode == 0
    assert host.known().containers[KEY].name == "train-resnet"
    refused = host.ask(KEY, uid=SOMEBODY + 1)
    assert refused.returncode == 1
    assert refused.stderr.endswith(
        "containers.json can't be written (Permission denied): check its owner, mode and mount\n"
    )


def test_pandas_is_not_imported(tmp_path: Path) -> None:
    code = (
        "import sys; from gua_report.commands.containers import main;"
        f"main(['--data-dir', {str(tmp_path)!r}, 'f' * 12]); print('pandas' in sys.modules, 'numpy' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False False\n"
