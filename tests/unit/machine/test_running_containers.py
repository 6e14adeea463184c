"""Which containers run, and in whose slices: by the cgroups of all processes, which users name in their own slices."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gua_report.machine.running_containers import Running, find_running
from tests.runtimes import ID, KEY

POD = "0a1b2c3d111122223333444455556666"
POD_SLICE = "/kubepods.slice/kubepods-pod0a1b2c3d_1111_2222_3333_444455556666.slice"


def slice_of(uid: int) -> str:
    return f"/user.slice/user-{uid}.slice/user@{uid}.service/user.slice"


def find(folder: Path, *cgroups: str | bytes, keys: tuple[str, ...] = (KEY, POD)) -> dict[str, Running]:
    """The containers of a machine whose processes are in these cgroups."""
    for pid, cgroup in enumerate(cgroups, 1):
        (folder / str(pid)).mkdir()
        (folder / str(pid) / "cgroup").write_bytes(cgroup if isinstance(cgroup, bytes) else f"0::{cgroup}\n".encode())
    (folder / "self").mkdir()
    (folder / "99").mkdir()  # a process that has just ended
    return find_running(keys, str(folder))


def test_a_container_outside_of_slices_is_the_machines(tmp_path: Path) -> None:
    found = find(tmp_path, f"/system.slice/docker-{ID}.scope", "/init.scope", f"/docker/{'f' * 64}")
    assert found == {KEY: Running("docker", ID, (), None)}


def test_a_container_in_a_slice_is_that_users(tmp_path: Path) -> None:
    found = find(tmp_path, f"{slice_of(1001)}/libpod-{ID}.scope", f"{slice_of(1001)}/libpod-{ID}.scope/inner")
    assert found == {KEY: Running("podman", ID, (1001,), None)}


def test_a_cgroup_that_a_user_named_after_the_machines_container_changes_nothing(tmp_path: Path) -> None:
    made_up, real = f"{slice_of(1001)}/docker-{ID}.scope", f"/system.slice/docker-{ID}.scope"
    assert find(tmp_path, made_up, real)[KEY] == Running("docker", ID, (), None)


def test_a_container_that_two_users_claim_is_told_with_both(tmp_path: Path) -> None:
    found = find(tmp_path, f"{slice_of(1002)}/docker-{ID}.scope", f"{slice_of(1001)}/libpod-{ID}.scope")
    assert found[KEY].slice_uids == (1001, 1002)


@pytest.mark.parametrize("separator", ["\r0::", "\x0b0::", ";"])
def test_no_separator_in_a_name_leads_out_of_a_slice(tmp_path: Path, separator: str) -> None:
    made_up = f"0::{slice_of(1001)}/x{separator}/system.slice/docker-{ID}.scope\n".encode()
    assert find(tmp_path, made_up)[KEY].slice_uids == (1001,)


def test_inside_of_lxc_nothing_is_the_machines(tmp_path: Path) -> None:
    assert find(tmp_path, f"/lxc.payload.guest/system.slice/docker-{ID}.scope") == {}


def test_a_short_or_longer_number_is_no_full_id(tmp_path: Path) -> None:
    assert find(tmp_path, f"/system.slice/docker-{KEY}.scope")[KEY].id == KEY


def test_a_pod_and_what_runs_in_it_are_told_with_the_pod(tmp_path: Path) -> None:
    found = find(tmp_path, POD_SLICE, f"{POD_SLICE}/cri-containerd-{ID}.scope", f"/pods/{POD_SLICE}")
    assert found == {KEY: Running("containerd", ID, (), POD), POD: Running("pod", POD, (), POD)}


def test_a_pod_that_a_user_made_up_is_none_of_the_kubelets(tmp_path: Path) -> None:
    assert find(tmp_path, f"{slice_of(1001)}{POD_SLICE}")[POD] == Running("pod", POD, (1001,), None)


def test_absurdly_long_cgroups_are_passed_over(tmp_path: Path) -> None:
    assert find(tmp_path, f"{slice_of(1001)}{'/kubepods' * 400}/docker-{ID}.scope") == {}


def test_this_machine_can_be_looked_at() -> None:
    assert find_running([KEY]) == {}
    assert os.path.isdir("/proc/1")
