from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gua_report.people.identities import apply_mapping, resolve
from gua_report.ticks import classify
from gua_report.ticks.classify import IDENTITY_FACTS as FACTS
from gua_report.ticks.classify import resolve_all

ID = "3f2a9c81d0b7" + "0123456789abcdef" * 3 + "cafe"
OTHER = "e" * 64
POD = "0a1b2c3d-1111-2222-3333-444455556666"
POD_SLICE = f"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{POD.replace('-', '_')}.slice"
SESSION = "/user.slice/user-1000.slice/session-3.scope"
MANAGER = "/user.slice/user-1000.slice/user@1000.service"
JOB = "/system.slice/slurmstepd.scope/job_4711/step_0/user/task_0"
OLLAMA = "/system.slice/ollama.service"
DOCKER = f"/system.slice/docker-{ID}.scope"


@pytest.mark.parametrize(
    ("cgroup", "identity"),
    [
        (f"/docker/{ID}", "docker:3f2a9c81d0b7"),
        (DOCKER, "docker:3f2a9c81d0b7"),
        (f"/system.slice:docker:{ID}", "docker:3f2a9c81d0b7"),
        (f"/docker/{ID}/init.scope", "docker:3f2a9c81d0b7"),
        (f"/containerd/{ID}", "containerd:3f2a9c81d0b7"),
        (f"/system.slice/containerd-{ID}.scope", "containerd:3f2a9c81d0b7"),
        (f"{POD_SLICE}/cri-containerd-{ID}.scope", "containerd:3f2a9c81d0b7"),
        (
            f"/system.slice/containerd.service/kubepods-besteffort-pod{POD}.slice:cri-containerd:{ID}",
            "containerd:3f2a9c81d0b7",
        ),
        (f"{POD_SLICE}/crio-{ID}.scope/container", "crio:3f2a9c81d0b7"),
        (f"{POD_SLICE}/docker-{ID}.scope", "docker:3f2a9c81d0b7"),
        (POD_SLICE, f"pod:{POD}"),
        (f"/kubepods/burstable/pod{POD}/{ID}", f"pod:{POD}"),  # the cgroupfs driver: a bare id
        (f"/kubepods/pod{POD.replace('-', '')}/{ID}", f"pod:{POD.replace('-', '')}"),  # a static pod
        (f"/machine.slice/libpod-{ID}.scope/container", "podman:3f2a9c81d0b7"),
        (f"/libpod_parent/libpod-{ID}", "podman:3f2a9c81d0b7"),
        (f"/system.slice/llm.service/libpod-payload-{ID}", "podman:3f2a9c81d0b7"),
        ("/lxc/lab_1", "lxc:lab_1"),
        ("/lxc/101/ns/system.slice/ssh.service", "lxc:101"),
        ("/lxc.payload.lab/user.slice/user-1000.slice/session-1.scope", "lxc:lab"),
        ("/lxc.payload/lab", "lxc:lab"),
        (f"/gpu-jobs/{ID}", "container:3f2a9c81d0b7"),  # docker run --cgroup-parent
    ],
)
def test_in_a_container_the_names_of_the_host_do_not_apply(cgroup: str, identity: str) -> None:
    assert resolve(1000, None, "alice", None, cgroup) == identity
    assert resolve(0, None, "root", None, cgroup) == identity
    assert resolve(None, None, None, None, cgroup) == identity


@pytest.mark.parametrize(
    ("cgroup", "identity"),
    [
        (f"/docker/{OTHER}/docker/{ID}", "docker:3f2a9c81d0b7"),
        (f"/lxc.payload.lab{DOCKER}", "docker:3f2a9c81d0b7"),
        (f"/docker/{ID}/lxc/lab", "lxc:lab"),
        (f"/docker/{OTHER}/kubelet.slice{POD_SLICE}/cri-containerd-{ID}.scope", "containerd:3f2a9c81d0b7"),
        (f"/docker/{OTHER}{POD_SLICE}", f"pod:{POD}"),
        (f"/docker/{OTHER};/docker/{OTHER}/docker/{ID}", "docker:3f2a9c81d0b7"),  # cgroup v1
        (f"/docker/{OTHER}/docker/{ID};/docker/{OTHER}", "docker:3f2a9c81d0b7"),
        (f"/docker/{ID}{JOB}", "docker:3f2a9c81d0b7"),  # a job's user is the container's too
    ],
)
def test_of_nested_containers_the_deepest_is_meant(cgroup: str, identity: str) -> None:
    assert resolve(1000, None, "alice", None, cgroup) == identity


@pytest.mark.parametrize(
    "cgroup",
    [
        "/system.slice/docker.service",
        "/system.slice/containerd.service",
        "/system.slice/containerd-stargz-grpc.service",
        "/docker/buildkit/abc",
        "/system.slice/docker-3f2a.scope",
        f"/docker/{ID}0",
        f"/docker/{ID[:20]}-not-an-id",
        f"/undocker/{ID[:20]}",
        f"/lab/pod{POD}",
        "/lxc.monitor.lab",
        "/lxc",
        "/",
    ],
)
def test_what_only_looks_like_a_container_is_none(cgroup: str) -> None:
    assert resolve(1000, None, "alice", None, cgroup) == "alice"


@pytest.mark.parametrize(
    ("cgroup", "identity"),
    [
        (JOB, "slurm:4711"),
        ("/system.slice/slurmstepd.scope/job_4711", "slurm:4711"),
        ("/system.slice/node7_slurmstepd.scope/job_4711/step_batch/user/task_0", "slurm:4711"),
        ("/system.slice/slurmstepd.scope/s0123456789ABC/step_0/user/task_0", "slurm:s0123456789ABC"),
        ("/slurm/uid_5001/job_4711/step_0/task_0", "slurm:4711"),
        ("/slurm_node7/uid_5001/job_4711/step_batch", "slurm:4711"),
        ("/system.slice/slurmd.service;/slurm/uid_5001/job_4711/step_0", "slurm:4711"),
        (OLLAMA, "unit:ollama.service"),
        ("/system.slice/system-llm.slice/llm@70b.service/worker", "unit:llm@70b.service"),
        ("/system.slice/outer.service/inner.service", "unit:inner.service"),
        ("/system.slice/slurmd.service", "unit:slurmd.service"),
        ("/user.slice/user-0.slice/user@0.service/app.slice/jupyter.service", "unit:jupyter.service"),
        (SESSION, "uid:1000"),  # sudo on a kernel without login uids
        (f"{MANAGER}/app.slice/jupyter.service", "uid:1000"),
        (f"/user.slice;{SESSION}", "uid:1000"),
    ],
)
def test_root_and_owners_without_a_name_are_told_by_job_user_slice_or_unit(cgroup: str, identity: str) -> None:
    assert resolve(0, None, "root", None, cgroup) == identity
    assert resolve(61184, None, None, None, cgroup) == identity
    assert resolve(None, None, None, None, cgroup) == identity
    assert resolve(1000, None, "alice", None, cgroup) == "alice"


@pytest.mark.parametrize(
    "cgroup",
    [
        None,
        "",
        "/",
        ";",
        "/init.scope",
        "/user.slice/user-0.slice/session-3.scope",
        "/user.slice/user-0.slice/user@0.service/init.scope",
        "/system.slice/run-u12.scope",
        "/system.slice/slurmstepd.scope/system",
        "/system.slice/slurmstepd.scope/s0123456789ABCD",
        "/system.slice/slurmstepd.scope/job_",
        "/home/user.slice/user-1000.slice",
        "/system.slice",
        "/.service",
    ],
)
def test_scopes_slices_and_managers_are_not_worth_a_name(cgroup: str | None) -> None:
    assert resolve(0, None, "root", None, cgroup) == "root"
    assert resolve(0, None, None, None, cgroup) == "uid:0"
    assert resolve(1000, None, None, None, cgroup) == "uid:1000"
    assert resolve(None, None, None, None, cgroup) == "unknown"


@pytest.mark.parametrize("cgroup", [None, DOCKER, JOB, OLLAMA, SESSION])
def test_the_login_user_comes_first(cgroup: str | None) -> None:
    assert resolve(0, 1001, "root", "bob", cgroup) == "bob"
    assert resolve(1000, 1001, "alice", None, cgroup) == "uid:1001"
    assert resolve(1000, 0, "alice", None, cgroup) == "uid:0"
    assert resolve(None, None, None, "bob", cgroup) == "bob"


@pytest.mark.parametrize("name", [f"docker-{ID}.scope", f"user.slice/libpod-{ID}.scope/container", "lxc.payload.x"])
def test_a_container_in_the_slice_of_its_own_owner_is_rootless_and_its_owner_known(name: str) -> None:
    assert resolve(1000, None, "alice", None, f"{MANAGER}/{name}") == "alice"
    assert resolve(1000, None, None, None, f"{MANAGER}/{name}") == "uid:1000"
    # A subordinate uid is no name of the host.
    assert ":" in resolve(101000, None, "somebody", None, f"{MANAGER}/{name}")


def test_nobody_hides_behind_a_cgroup_he_named_himself() -> None:
    for name in [f"x;/docker/{ID}", f"x;/user.slice/user-1001.slice/docker-{ID}.scope", "x;/system.slice/a.service"]:
        identity = resolve(1000, None, "alice", None, f"{MANAGER}/{name}")
        assert identity == "alice"


def test_an_owner_known_by_name_only_is_enough() -> None:
    assert resolve(None, None, "alice", None, OLLAMA) == "alice"
    assert resolve(None, None, "root", None, OLLAMA) == "unit:ollama.service"
    assert resolve(None, None, "root", None, None) == "root"


def test_an_empty_name_is_no_name() -> None:
    assert resolve(1000, None, "", "", "") == "uid:1000"


uids = st.none() | st.integers(0, 2**32 - 1) | st.sampled_from([0, 1000])
names = st.none() | st.text(max_size=8) | st.sampled_from(["root", "alice"])
# Pieces of paths that mean something, and whatever else, in any order.
pieces = [ID, POD, POD_SLICE, SESSION, MANAGER, JOB, OLLAMA, DOCKER, *"/;-:._", "docker", "lxc", "kubepods", "pod"]
cgroups = st.none() | st.text() | st.lists(st.sampled_from(pieces) | st.text(max_size=3), max_size=12).map("".join)


@given(uids, uids, names, names, cgroups)
@example(None, None, None, None, "/user.slice/user-" + "9" * 5000 + ".slice")
@example(None, None, None, None, "kubepods/pod" * 400)
def test_whatever_the_facts_somebody_is_named(
    uid: int | None, login_uid: int | None, user: str | None, login_user: str | None, cgroup: str | None
) -> None:
    assert resolve(uid, login_uid, user, login_user, cgroup)


def frame(rows: list[tuple[Any, ...]]) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=FACTS, dtype=object)


ROWS: list[tuple[Any, ...]] = [
    (1000, 1000, "alice", "alice", SESSION),
    (0, None, "root", None, DOCKER),
    (1000, 1000, "alice", "alice", SESSION),
    (1005, None, None, None, "/"),
    (0, None, "root", None, OLLAMA),
    (None, None, None, None, None),
    (0, None, "root", None, DOCKER),
]
IDENTITIES = [
    "alice",
    "docker:3f2a9c81d0b7",
    "alice",
    "uid:1005",
    "unit:ollama.service",
    "unknown",
    "docker:3f2a9c81d0b7",
]


@pytest.mark.parametrize(
    "types",
    [
        {},
        {"uid": "float64", "login_uid": "float64"},
        {"uid": "Int64", "login_uid": "Int64", "user": "string", "login_user": "string", "cgroup": "string"},
        dict.fromkeys(FACTS, "category"),
    ],
)
def test_a_frame_is_resolved_whatever_its_types_for_the_missing(types: dict[str, Any]) -> None:
    facts = frame(ROWS).astype(types)
    facts.index = pd.Index([7, 7, 3, 2, 1, 0, 9])
    resolved = resolve_all(facts)
    assert list(resolved) == IDENTITIES
    assert resolved.name == "identity"
    pd.testing.assert_index_equal(resolved.index, facts.index)


@pytest.mark.parametrize("missing", [None, np.nan, pd.NA])
def test_all_kinds_of_missing_are_unknown(missing: object) -> None:
    assert list(resolve_all(frame([(missing,) * 5, (None,) * 5]))) == ["unknown", "unknown"]


def test_default_types_of_pandas_are_taken() -> None:
    assert list(resolve_all(pd.DataFrame(ROWS, columns=FACTS))) == IDENTITIES


def test_an_empty_frame_gives_an_empty_series_of_the_same_type() -> None:
    empty = resolve_all(frame([]))
    assert len(empty) == 0
    assert empty.dtype == resolve_all(frame(ROWS)).dtype


def test_each_distinct_row_is_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[Any, ...]] = []

    def watch(*facts: Any) -> str:
        seen.append(facts)
        return resolve(*facts)

    monkeypatch.setattr(classify, "resolve", watch)
    assert list(resolve_all(frame(ROWS * 100))) == IDENTITIES * 100
    assert seen == list(dict.fromkeys(ROWS))


@given(st.lists(st.tuples(uids, uids, names, names, cgroups | st.sampled_from([DOCKER, JOB])), max_size=12))
def test_a_frame_gives_what_its_rows_give(rows: list[tuple[Any, ...]]) -> None:
    assert list(resolve_all(frame(rows))) == [resolve(*row) for row in rows]


def test_the_configuration_names_the_person() -> None:
    people = {"docker:3f2a9c81d0b7": "alice"}
    assert apply_mapping("docker:3f2a9c81d0b7", people) == "alice"
    assert apply_mapping("bob", people) == "bob"
