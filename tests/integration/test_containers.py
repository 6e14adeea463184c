"""gua-containers: from the sampler's note, or an id given by hand, to names and owners in the data folder."""

import os
import pwd
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gua_report.config import Containers
from gua_report.machine import container_names
from gua_report.people.containers import write_containers
from gua_report.people.identities import FIRST_UID
from gua_sample.containers import LABEL, MOUNT, Container, Known
from gua_sample.processes import ANSWER_SECONDS
from gua_sample.service import MOST_WANTED
from tests.integration.containers import ID, KEY, ContainerHost, container_host
from tests.machine import complaint, one_line, within
from tests.repository import ROOT
from tests.runtimes import SECRET, inspection
from tests.users import SOMEBODY, needs_root
from tests.verbs import give

POD = "0a1b2c3d-1111-2222-3333-444455556666"


@pytest.fixture
def host(open_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ContainerHost]:
    with container_host(open_folder, monkeypatch) as host:
        yield host


def test_a_noted_container_gets_its_name_and_nothing_is_said(host: ContainerHost) -> None:
    host.docker.knows(inspection())
    host.note(KEY)
    before_ms = time.time_ns() // 1_000_000
    assert host.ask("--debug") == (0, "", "")
    assert SECRET not in (host.data / "containers.json").read_text()  # neither an environment nor a command
    (container,) = host.known().containers.values()
    assert container[:5] == ("docker", "train-resnet", "pytorch:2.9", None, None)
    assert before_ms <= container.seen_ms <= time.time_ns() // 1_000_000
    assert not host.note_path.exists()


def test_a_known_container_is_not_asked_for_again(host: ContainerHost) -> None:
    host.docker.knows(inspection())
    for _ in range(2):
        host.note(KEY, ID)
        assert host.ask() == (0, "", "")
    assert len(host.docker.calls) == 1


def test_pods_and_what_runs_in_them_are_named_by_their_logs(host: ContainerHost) -> None:
    (host.logs / "pods" / f"vision_train-7_{POD}").mkdir(parents=True)
    (host.logs / "containers").mkdir()
    (host.logs / "containers" / f"train-7_vision_main-{ID}.log").symlink_to("/nowhere")
    host.docker.knows(inspection())
    host.note(f"pod:{POD.replace('-', '')}", f"containerd:{KEY}", "pod:" + "f" * 32)
    assert host.ask() == (0, "", "")
    names = {key: one[:2] for key, one in host.known().containers.items()}
    assert names == {POD.replace("-", ""): ("pod", "vision/train-7"), KEY: ("containerd", "vision/train-7")}
    assert host.docker.calls == []


def test_a_directory_of_users_that_hangs_costs_names_alone(
    host: ContainerHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pwd, "getpwnam", lambda name: time.sleep(60))
    monkeypatch.setattr(container_names, "ANSWER_SECONDS", 0.5)
    plain = inspection("c" * 64, name="/plain")
    host.docker.knows(inspection(labels={"gua.owner": "ada"}), plain)
    host.note(KEY, "c" * 12)
    with within(8):
        done = host.ask()
    assert (done.returncode, done.stdout) == (0, "")
    assert one_line(done.stderr)
    assert "the directory of users does not answer: 1 container" in done.stderr
    assert list(host.known().containers) == ["c" * 12]  # in an hour the other may have its owner


def test_the_note_is_gone_even_if_the_configuration_is_wrong(host: ContainerHost) -> None:
    """Otherwise the path unit would start it again and again."""
    (host.folder / "gua.toml").write_text("this is no TOML")
    host.note(KEY)
    assert host.ask("--config", str(host.folder / "gua.toml")).returncode == 2
    assert not host.note_path.exists()


# -- By hand.


@pytest.mark.parametrize("spelling", [KEY, ID, f"docker:{KEY}", KEY.upper()])
def test_an_id_is_asked_for_at_once_and_shown(host: ContainerHost, spelling: str) -> None:
    write_containers(str(host.data), Known({KEY: Container("docker", "old", None, None, None, 1)}))
    give(host.data) if os.geteuid() == 0 else None
    host.docker.knows(inspection())
    host.note("f" * 12)
    done = host.ask(spelling)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[1] == "docker:3f2a9c81d0b7      train-resnet              pytorch:2.9"
    assert host.known().containers[KEY].name == "train-resnet"
    assert host.note_path.exists()


def test_an_id_that_nobody_knows_is_an_error_of_one_line(host: ContainerHost) -> None:
    assert f"nobody knows {POD.replace('-', '')}" in complaint(host.ask(f"pod:{POD}"), 1)


def test_what_is_known_is_listed_within_78_columns_the_newest_first(host: ContainerHost) -> None:
    pod = POD.replace("-", "")
    containers = {
        KEY: Container("docker", "train" * 20, "registry.example.com/pytorch:2.9", "ada", LABEL, 1),
        "f" * 12: Container("podman", "serve", None, "somebody", MOUNT, 2),
        pod: Container("pod", "vision/train-7", None, None, None, 3),
    }
    write_containers(str(host.data), Known(containers))
    assert host.ask("--list").stdout.splitlines() == [
        "container                name                      image           owner",
        "pod:0a1b2c3d1111         vision/train-7",
        "podman:ffffffffffff      serve                                     somebody? …",
        "docker:3f2a9c81d0b7      traintraintraintraintra…  registry.exam…  ada? label",
    ]
    # And as docs/people.md shows it.
    containers = {
        "3f2a9c81d0b7": Container("docker", "train-resnet", "pytorch:2.9", "ada", LABEL, 3),
        "91be07c2d4f8": Container("podman", "notebook", "localhost/jupyter:latest", None, None, 2),
        pod: Container("pod", "vision/serve-llama-0", None, None, None, 1),
    }
    write_containers(str(host.data), Known(containers))
    shown = (ROOT / "docs" / "people.md").read_text().split("    $ gua-containers --list\n")[1].split("\n\n")[0]
    assert host.ask("--list").stdout.splitlines() == [line.removeprefix("    ") for line in shown.splitlines()]


def test_the_pages_tell_the_limits() -> None:
    page = " ".join((ROOT / "docs" / "security.md").read_text().split())
    one, everything = container_names.QUESTION_SECONDS, container_names.ALL_SECONDS
    assert f"{one:g} s for a container, {everything:g} s for all, {container_names.MOST_BYTES >> 20} MiB" in page
    assert f"{ANSWER_SECONDS:g} s for the directory of users" in page
    assert f"at most {MOST_WANTED} ids" in page
    unit = (ROOT / "systemd" / "gua-containers.path").read_text()
    assert "TriggerLimitIntervalSec=10min\nTriggerLimitBurst=20\n" in unit
    assert "fails 20 times in ten minutes" in page
    people = (ROOT / "docs" / "people.md").read_text()
    assert f"uid {FIRST_UID} and up" in people
    assert "gua.owner=$USER" in people
    assert Containers().owner_label == "gua.owner"


def test_an_empty_list_says_how_to_fill_it_and_a_missing_folder_is_said(host: ContainerHost) -> None:
    done = host.ask("--list")
    assert (done.returncode, done.stdout) == (3, "")
    assert "CONTAINERS=yes" in done.stderr
    host.data.rmdir()
    host.note(KEY)
    assert host.ask().returncode == 3


@needs_root
def test_without_root_ones_own_folder_is_filled_and_others_are_refused(host: ContainerHost) -> None:
    host.docker.knows(inspection())
    assert host.ask(KEY, uid=SOMEBODY).returncode == 0
    assert host.known().containers[KEY].name == "train-resnet"
    refused = host.ask(KEY, uid=SOMEBODY + 1)
    assert refused.returncode == 1
    assert refused.stderr.endswith(
        "containers.json can't be written (Permission denied): check its owner, mode and mount\n"
    )
