"""Names of pods, from the names of folders and nothing else."""

from __future__ import annotations

from pathlib import Path

from gua_report.machine.pod_names import find_pod_names

UID = "0a1b2c3d-1111-2222-3333-444455556666"
KEY = UID.replace("-", "")
STATIC = "abcdefabcdefabcdefabcdefabcdefab"


def test_a_pod_has_its_namespace_and_name(tmp_path: Path) -> None:
    (tmp_path / f"vision_train-7.x_{UID}").mkdir()
    (tmp_path / f"kube-system_etcd-node1_{STATIC}").mkdir()
    (tmp_path / "default_other_11111111-1111-2222-3333-444455556666").mkdir()
    assert find_pod_names({KEY, STATIC}, str(tmp_path)) == {KEY: "vision/train-7.x", STATIC: "kube-system/etcd-node1"}


def test_odd_names_are_passed_over(tmp_path: Path) -> None:
    for name in (f"a_b_c_{UID}", f"a_{UID}", f"a_b_{UID}x", f"A_b_{UID}", f"a_\x1b[2J_{UID}", f"_b_{UID}", UID):
        (tmp_path / name).mkdir()
    assert find_pod_names({KEY}, str(tmp_path)) == {}


def test_without_a_kubelet_there_are_none(tmp_path: Path) -> None:
    assert find_pod_names({KEY}, str(tmp_path / "nowhere")) == {}
    assert find_pod_names(set(), str(tmp_path)) == {}
