"""What docker and podman tell of containers: bounded, in time, checked, and never more than was asked for."""

import os
from pathlib import Path

import pytest

from gua_report.machine import container_names
from gua_report.machine.container_names import find_names, find_pod_names, take_note
from gua_sample.containers import UNNAMED, Container
from gua_sample.errors import StoreError
from tests.machine import within
from tests.runtimes import FINE, HOSTILE, ID, KEY, SECRET, Program, inspection, says
from tests.users import SOMEBODY, needs_root

OTHER = "abcdefabcdef" + "1" * 52
NOW_MS = 5


class Desk:
    def __init__(self, folder: Path) -> None:
        self.docker, self.podman = (Program(folder / "bin" / name) for name in ("docker", "podman"))
        self.complaints: list[str] = []

    def find(self, label: str = "gua.owner", **wanted: str) -> dict[str, Container]:
        """The names of containers. `wanted` has them by runtime."""
        keys = {key: runtime for runtime, keys in wanted.items() for key in keys.split()}
        return find_names(keys, label, NOW_MS, self.complaints.append)


@pytest.fixture
def desk(open_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    monkeypatch.setattr(container_names, "FOLDERS", f"{open_folder}/bin")
    monkeypatch.setattr(container_names, "QUESTION_SECONDS", 1.0)
    return Desk(open_folder)


def test_a_container_is_asked_of_the_runtime_that_its_cgroup_names(desk: Desk) -> None:
    desk.docker.knows(inspection())
    desk.podman.knows(inspection(OTHER, "serve", image=None))
    assert desk.find(docker=KEY, podman=OTHER[:12]) == {
        KEY: Container("docker", "train-resnet", "pytorch:2.9", None, None, NOW_MS),
        OTHER[:12]: Container("podman", "serve", None, None, None, NOW_MS),
    }
    assert len(desk.podman.calls) == 1
    (call,) = desk.docker.calls
    assert call.startswith("container inspect --format ")
    assert not [word for word in ("Env", "Cmd", "Args", "Entrypoint", "State") if word in call]
    assert desk.find(containerd=KEY) == {}  # outside of a pod, nobody knows it
    assert len(desk.docker.calls) == 1
    desk.docker.path.unlink()
    assert desk.find(docker=KEY) == {}
    assert desk.complaints == []


def test_one_of_an_unnamed_runtime_is_asked_of_each_until_one_knows_it(desk: Desk) -> None:
    desk.docker.knows(inspection())
    desk.podman.knows(inspection(OTHER))
    found = desk.find(**{UNNAMED: f"{KEY} {OTHER[:12]} {'0' * 12}"})
    assert {key: one.runtime for key, one in found.items()} == {KEY: "docker", OTHER[:12]: "podman"}
    assert (len(desk.docker.calls), len(desk.podman.calls)) == (3, 2)
    assert desk.complaints == []


@pytest.mark.parametrize(("script", "said"), HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_answer_costs_its_own_name_and_a_line(desk: Desk, script: str, said: str) -> None:
    desk.docker.does(script)
    desk.podman.knows(inspection(OTHER))
    with within(5):
        found = desk.find(docker=KEY, podman=OTHER[:12])
    assert list(found) == [OTHER[:12]]
    (complaint,) = desk.complaints
    assert complaint.startswith(f"1 container left without a name: docker: {said}")
    assert complaint.isprintable()
    assert SECRET not in complaint


def test_a_runtime_that_hangs_takes_no_more_than_the_time_for_all(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(container_names, "ALL_SECONDS", 2.5)
    desk.docker.does("exec sleep 60")
    with within(6):
        assert desk.find(docker=" ".join(f"{number:012x}" for number in range(50))) == {}
    assert desk.complaints == [
        "3 containers left without a name: docker: it does not answer in time",
        "47 containers left without a name: docker: there is no time left",
    ]


@pytest.mark.parametrize("name", ["/", "", " \t", None, 7, ["x"]])
def test_a_container_without_a_name_is_unknown(desk: Desk, name: object) -> None:
    desk.docker.does(says(ID, name, *FINE))
    assert desk.find(docker=KEY) == {}


@pytest.mark.parametrize("odd", [None, 7, "x", [1, None], {"gua.owner": ["ada"]}, [{"Source": 7}], [{"Source": "x"}]])
def test_labels_and_mounts_of_another_type_name_nobody(desk: Desk, odd: object) -> None:
    desk.docker.does(says(ID, "/train", odd, odd, odd))
    one = desk.find(docker=KEY)[KEY]
    assert (one.name, one.owner) == ("train", None)


@needs_root
@pytest.mark.parametrize("place", ["bin", "bin/docker"])
def test_root_runs_no_program_that_somebody_else_could_exchange(desk: Desk, place: str) -> None:
    desk.docker.knows(inspection())
    os.chown(desk.docker.path.parents[1] / place, SOMEBODY, SOMEBODY)
    assert desk.find(docker=KEY) == {}
    assert desk.docker.calls == []
    (complaint,) = desk.complaints
    assert "not run as root" in complaint


def test_a_program_has_an_environment_of_its_own(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "tcp://evil.example")
    monkeypatch.setenv("LD_PRELOAD_OF_NOBODY", "x")
    desk.docker.does(f"env >{desk.docker.path}.environment; pwd >>{desk.docker.path}.environment")
    desk.find(docker=KEY)
    seen = Path(f"{desk.docker.path}.environment").read_text()
    assert "evil" not in seen
    assert "NOBODY" not in seen
    assert seen.endswith("\n/\n")


UID = "0a1b2c3d-1111-2222-3333-444455556666"
POD_KEY = UID.replace("-", "")
STATIC = "abcdefabcdefabcdefabcdefabcdefab"
LONG = "3f2a9c81d0b7" + "5" * 52


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    for name in ("pods", "containers"):
        (tmp_path / name).mkdir()
    return tmp_path


def test_a_pod_and_a_container_in_it_have_its_namespace_and_name(logs: Path, tmp_path: Path) -> None:
    (logs / "pods" / f"vision_train-7.x_{UID}").mkdir()
    (logs / "pods" / f"kube-system_etcd-node1_{STATIC}").mkdir()
    (logs / "pods" / "default_other_11111111-1111-2222-3333-444455556666").mkdir()
    expected = {POD_KEY: "vision/train-7.x", STATIC: "kube-system/etcd-node1"}
    assert find_pod_names({POD_KEY, STATIC}, str(logs)) == expected
    # As the kubelet calls its links: kube-proxy-6xsx9_kube-system_kube-proxy-c269a184....log
    (logs / "containers" / f"train-7.x_vision_trainer-1-{LONG}.log").symlink_to("/nowhere")
    (logs / "containers" / f"other_default_x-{'f' * 64}.log").symlink_to("/nowhere")
    assert find_pod_names({LONG[:12]}, str(logs)) == {LONG[:12]: "vision/train-7.x"}
    assert find_pod_names({POD_KEY}, str(tmp_path / "nowhere")) == find_pod_names(set(), str(logs)) == {}


def test_odd_names_are_passed_over(logs: Path) -> None:
    for name in (f"a_b_c_{UID}", f"a_{UID}", f"a_b_{UID}x", f"A_b_{UID}", f"a_\x1b[2J_{UID}", f"_b_{UID}", UID):
        (logs / "pods" / name).mkdir()
    for name in (
        f"a_b-{LONG}.log",
        f"a_b_c{LONG}.log",
        f"a_b_c-{LONG}",
        f"a_b_c-{LONG[1:]}.log",
        f"a_\x1b_c-{LONG}.log",
    ):
        (logs / "containers" / name).touch()
    assert find_pod_names({POD_KEY, LONG[:12]}, str(logs)) == {}


LINES = ["docker:3f2a9c81d0b7", "pod:0a1b2c3d111122223333444455556666", "f" * 64]
WANTED = {"3f2a9c81d0b7": "docker", "0a1b2c3d111122223333444455556666": "pod", "f" * 12: "container"}


def test_what_is_asked_for_is_read_and_the_note_is_gone(tmp_path: Path) -> None:
    note = tmp_path / "containers.wanted"
    note.write_text("\n".join([*LINES, LINES[0], ""]))
    assert take_note(str(note)) == WANTED
    assert os.listdir(tmp_path) == []
    assert take_note(str(note)) == {}


def test_what_is_no_id_is_passed_over(tmp_path: Path) -> None:
    note = tmp_path / "note"
    lines = ["3f2a9c81d0b", "f" * 65, "../../etc/passwd", "3f2a9c81d0b7/../x", " 3f2a9c81d0b7", "", "é" * 12]
    note.write_text("\n".join([*lines, "3f2a9c81d0b7\r", "\0" * 12, "--help:3f2a9c81d0b7"]))
    assert take_note(str(note)) == {"3f2a9c81d0b7": "container"}


def test_a_folder_is_said_to_be_in_the_way(tmp_path: Path) -> None:
    (tmp_path / "note").mkdir()
    with pytest.raises(StoreError, match=r"note can't be removed \(Is a directory\): remove it"):
        take_note(str(tmp_path / "note"))


def test_a_folder_that_is_missing_has_no_note(tmp_path: Path) -> None:
    assert take_note(str(tmp_path / "nowhere" / "note")) == {}
