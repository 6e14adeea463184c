"""Who is asked about which container, with whose rights, and for how long."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from gua_report.machine import container_runtimes
from gua_report.machine.container_runtimes import Description, ask_runtimes
from gua_report.machine.container_socket import ContainerSocket
from gua_report.machine.running_containers import Running
from tests.runtimes import HOSTILE, ID, KEY, SECRET, Behaviour, Server, hang, inspection, knows, runtime
from tests.users import SOMEBODY, needs_root

ANOTHER = SOMEBODY + 1
OTHER_ID = "abcdefabcdef" + "1" * 52


class Sockets:
    """The sockets of a machine, in a folder instead of /run."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.folder, self.stack = folder, stack
        self.complaints: list[str] = []

    def machine(self, name: str, behave: Behaviour) -> Server:
        return self.stack.enter_context(runtime(self.folder / name, behave))

    def user(self, uid: int, name: str, behave: Behaviour) -> Server:
        path = self.folder / "user" / str(uid) / name
        server = self.stack.enter_context(runtime(path, behave, uid))
        for folder in (self.folder / "user" / str(uid), path.parent):
            folder.chmod(0o700)
            os.chown(folder, uid, uid)
        return server

    def ask(self, *wanted: tuple[str, Running | None], label: str = "gua.owner") -> dict[str, Description | None]:
        return ask_runtimes(wanted, label, self.complaints.append)


@pytest.fixture
def sockets(open_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Sockets]:
    machine = {f"{open_folder}/docker.sock": "docker", f"{open_folder}/podman/podman.sock": "podman"}
    monkeypatch.setattr(container_runtimes, "MACHINE_SOCKETS", machine)
    user = {f"{open_folder}/user/{{uid}}/docker.sock": "docker", f"{open_folder}/user/{{uid}}/podman.sock": "podman"}
    monkeypatch.setattr(container_runtimes, "USER_SOCKETS", user)
    for name in ("QUESTION_SECONDS", "SPEAKER_SECONDS", "USERS_SECONDS"):
        monkeypatch.setattr(container_runtimes, name, getattr(container_runtimes, name) / 4)
    with ExitStack() as stack:
        yield Sockets(open_folder, stack)
        shutil.rmtree(open_folder / "user", ignore_errors=True)


def of_machine(full_id: str = ID) -> Running:
    return Running("docker", full_id, (), None)


def of_user(*uids: int) -> Running:
    return Running("podman", ID, uids, None)


def test_the_machines_containers_are_asked_of_the_machines_sockets(sockets: Sockets) -> None:
    document = inspection(labels={"team.owner": "ada"}, mounts=["/home/ada"])
    sockets.machine("docker.sock", knows())
    sockets.machine("podman/podman.sock", knows(document))
    answers = sockets.ask((KEY, Running("container", ID, (), None)), (OTHER_ID[:12], None), label="team.owner")
    assert answers == {
        KEY: Description("podman", "train-resnet", "pytorch:2.9", "ada", ["/home/ada"]),
        OTHER_ID[:12]: None,
    }
    assert sockets.complaints == []


def test_a_container_that_does_not_run_any_more_is_asked_of_the_machine(sockets: Sockets) -> None:
    sockets.machine("docker.sock", knows(inspection()))
    answer = sockets.ask((KEY, None))[KEY]
    assert answer
    assert (answer.runtime, answer.name) == ("docker", "train-resnet")


def test_by_the_whole_id_nobody_is_found_who_has_it_as_a_name(sockets: Sockets) -> None:
    """With the id's first digits as a name, anybody could keep a colleague's container without a name."""
    impostor = inspection("f" * 64, name=f"/{KEY}")
    sockets.machine("docker.sock", knows(impostor, inspection()))
    answer = sockets.ask((KEY, of_machine()))[KEY]
    assert answer
    assert answer.name == "train-resnet"


def test_without_any_socket_nobody_knows_it_and_nothing_is_said(sockets: Sockets) -> None:
    assert sockets.ask((KEY, of_machine())) == {KEY: None}
    assert sockets.complaints == []


@needs_root
def test_root_reads_the_machines_answers_as_nobody(sockets: Sockets, monkeypatch: pytest.MonkeyPatch) -> None:
    original = ContainerSocket.inspect

    def inspect(self: object, container: str, label: str, deadline: float) -> object:
        told = original(self, container, label, deadline)  # type: ignore[arg-type]
        assert told
        return told._replace(name=f"/{os.getresuid()} {os.getresgid()} {os.getgroups()}")

    monkeypatch.setattr(ContainerSocket, "inspect", inspect)
    sockets.machine("docker.sock", knows(inspection()))
    answer = sockets.ask((KEY, of_machine()))[KEY]
    assert answer
    assert answer.name == "(65534, 65534, 65534) (65534, 65534, 65534) []"
    assert os.geteuid() == 0


@needs_root
def test_a_container_in_a_slice_is_asked_of_that_users_sockets_alone(sockets: Sockets) -> None:
    machine = sockets.machine("docker.sock", knows(inspection(name="/of-the-machine")))
    other = sockets.user(ANOTHER, "docker.sock", knows(inspection(name="/of-another")))
    sockets.user(SOMEBODY, "podman.sock", knows(inspection(name="/of-somebody")))
    answer = sockets.ask((KEY, of_user(SOMEBODY)))[KEY]
    assert answer
    assert (answer.runtime, answer.name) == ("podman", "of-somebody")
    assert machine.requests == other.requests == []


@needs_root
def test_a_users_socket_speaks_for_no_container_of_the_machines(sockets: Sockets) -> None:
    server = sockets.user(SOMEBODY, "docker.sock", knows(inspection(), inspection(OTHER_ID)))
    assert sockets.ask((KEY, of_machine()), (OTHER_ID[:12], None)) == {KEY: None, OTHER_ID[:12]: None}
    assert server.requests == []


@needs_root
def test_a_container_that_is_put_into_a_colleagues_slice_gets_no_owner_by_that(sockets: Sockets) -> None:
    """docker run --cgroup-parent can do so. The colleague does not know it, and the machine is not asked."""
    machine = sockets.machine("docker.sock", knows(inspection()))
    sockets.user(SOMEBODY, "docker.sock", knows())
    assert sockets.ask((KEY, of_user(SOMEBODY))) == {KEY: None}
    assert machine.requests == []


@needs_root
def test_a_container_that_two_users_claim_is_asked_of_nobody(sockets: Sockets) -> None:
    servers = [sockets.user(uid, "docker.sock", knows(inspection())) for uid in (SOMEBODY, ANOTHER)]
    assert sockets.ask((KEY, of_user(SOMEBODY, ANOTHER))) == {KEY: None}
    assert [server.requests for server in servers] == [[], []]


@needs_root
@pytest.mark.parametrize("target", ["docker.sock", f"user/{ANOTHER}/docker.sock"])
def test_a_link_to_somebody_elses_socket_leads_nowhere(sockets: Sockets, target: str) -> None:
    """Not even if the user is in a group that may use it: groups are not taken on."""
    theirs = sockets.machine("docker.sock", knows(inspection(name="/of-the-machine")))
    another = sockets.user(ANOTHER, "docker.sock", knows(inspection(name="/of-another")))
    folder = sockets.folder / "user" / str(SOMEBODY)
    folder.mkdir(parents=True)
    (folder / "docker.sock").symlink_to(sockets.folder / target)
    os.chown(folder, SOMEBODY, SOMEBODY)
    assert sockets.ask((KEY, of_user(SOMEBODY))) == {KEY: None}
    assert theirs.requests == another.requests == []
    assert sockets.complaints == [
        f"1 container of the runtimes of uid {SOMEBODY} left without a name: {folder}/docker.sock: Permission denied"
    ]


@needs_root
def test_the_child_that_asks_a_users_socket_has_that_users_rights_and_no_groups(
    sockets: Sockets, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = ContainerSocket.inspect

    def inspect(self: object, container: str, label: str, deadline: float) -> object:
        told = original(self, container, label, deadline)  # type: ignore[arg-type]
        assert told
        return told._replace(name=f"/{os.getresuid()} {os.getresgid()} {os.getgroups()}")

    monkeypatch.setattr(ContainerSocket, "inspect", inspect)
    sockets.user(SOMEBODY, "docker.sock", knows(inspection()))
    answer = sockets.ask((KEY, of_user(SOMEBODY)))[KEY]
    assert answer
    assert answer.name == f"{(SOMEBODY,) * 3} (65534, 65534, 65534) []"


@needs_root
@pytest.mark.parametrize("name", ["hang", "drip", "flood", "deep", "redirect", "another container"])
def test_a_hostile_user_costs_nobody_else_a_name(sockets: Sockets, name: str) -> None:
    sockets.machine("docker.sock", knows(inspection(OTHER_ID)))
    sockets.user(SOMEBODY, "docker.sock", HOSTILE[name])
    sockets.user(ANOTHER, "docker.sock", knows(inspection("c" * 64, name="/fine")))
    began = time.monotonic()
    answers = sockets.ask(
        (KEY, of_user(SOMEBODY)),
        ("c" * 12, Running("docker", "c" * 64, (ANOTHER,), None)),
        (OTHER_ID[:12], of_machine(OTHER_ID)),
    )
    assert time.monotonic() - began < 8
    assert [answer and answer.name for answer in answers.values()] == ["train-resnet", None, "fine"]
    (complaint,) = sockets.complaints
    assert f"uid {SOMEBODY}" in complaint
    assert SECRET not in complaint
    assert "\n" not in complaint


@needs_root
def test_a_user_with_very_many_containers_uses_up_no_more_than_a_share_of_the_time(sockets: Sockets) -> None:
    sockets.user(SOMEBODY, "docker.sock", hang)
    wanted = [(f"{number:012x}", Running("docker", f"{number:064x}", (SOMEBODY,), None)) for number in range(50)]
    began = time.monotonic()
    answers = sockets.ask(*wanted)
    assert time.monotonic() - began < container_runtimes.SPEAKER_SECONDS + 2
    assert 1 <= len(answers) < 10  # those that are not there were not asked, and may be asked again at once
    assert set(answers.values()) == {None}


def test_a_runtime_that_hangs_leaves_the_others_their_time(sockets: Sockets) -> None:
    sockets.machine("docker.sock", hang)
    sockets.machine("podman/podman.sock", knows(inspection()))
    answer = sockets.ask((KEY, None))[KEY]
    assert answer
    assert answer.runtime == "podman"
    assert sockets.complaints == []


def test_the_runtime_that_the_cgroup_names_is_asked_first(sockets: Sockets) -> None:
    docker = sockets.machine("docker.sock", knows(inspection()))
    sockets.machine("podman/podman.sock", knows(inspection()))
    answer = sockets.ask((KEY, Running("podman", ID, (), None)))[KEY]
    assert answer
    assert answer.runtime == "podman"
    assert docker.requests == []


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("/a\x1b[2J\u202e\n\0b", "a\\x1b[2J\\u202e\\n\\x00b"),
        ("/" + "x" * 200_000, "x" * 256),
        ("x", "x"),
    ],
)
def test_a_name_is_made_printable_and_short(sockets: Sockets, name: str, shown: str) -> None:
    sockets.machine("docker.sock", knows(inspection(name=name, image=name, labels={"gua.owner": name})))
    answer = sockets.ask((KEY, of_machine()))[KEY]
    assert answer
    assert answer.name == shown
    assert all(text is not None and text.isprintable() and len(text) <= 256 for text in answer[:4])


@pytest.mark.parametrize("name", ["/", "", " \t"])
def test_a_container_without_a_name_is_unknown(sockets: Sockets, name: str) -> None:
    sockets.machine("docker.sock", knows(inspection(name=name)))
    assert sockets.ask((KEY, of_machine())) == {KEY: None}


def test_without_root_other_users_are_left_out_and_it_is_said(
    sockets: Sockets, monkeypatch: pytest.MonkeyPatch
) -> None:
    uid = os.geteuid() or SOMEBODY
    monkeypatch.setattr(os, "geteuid", lambda: uid)
    sockets.machine("docker.sock", knows(inspection(OTHER_ID)))
    answers = sockets.ask((KEY, of_user(uid + 1)), (OTHER_ID[:12], of_machine(OTHER_ID)))
    assert list(answers) == [OTHER_ID[:12]]
    assert sockets.complaints == ["1 container of other users can't be asked for: run this as root"]
