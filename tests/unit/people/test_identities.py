from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gua_report.people.identities import resolve
from gua_report.ticks.classify import IDENTITY_FACTS as FACTS
from gua_report.ticks.classify import resolve_all
from gua_sample.identity import ContainerId, find_container, find_person, find_slurm_job
from gua_sample.processes import read_cgroup
from tests.cgroups import be_root, start

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
        (f"/system.slice:docker:{ID}", "docker:3f2a9c81d0b7"),
        (f"/containerd/{ID}", "containerd:3f2a9c81d0b7"),
        (f"/system.slice/containerd-{ID}.scope", "containerd:3f2a9c81d0b7"),
        (POD_SLICE, f"pod:{POD}"),
        ("/lxc.payload/lab", "lxc:lab"),
    ],
)
def test_in_a_container_the_names_of_the_host_do_not_apply(cgroup: str, identity: str) -> None:
    """What runtimes make otherwise: tests/unit/sample/test_cgroups.py."""
    assert resolve(1000, None, "alice", None, cgroup) == identity
    assert resolve(0, None, "root", None, cgroup) == identity
    assert resolve(None, None, None, None, cgroup) == identity


@pytest.mark.parametrize(
    ("cgroup", "identity"),
    [
        (f"/docker/{ID}/docker/{OTHER}", "docker:3f2a9c81d0b7"),
        (f"/lxc.payload.lab{DOCKER}", "lxc:lab"),
        (f"/docker/{ID}/lxc/lab", "docker:3f2a9c81d0b7"),
        (f"/docker/{ID}/kubelet.slice{POD_SLICE}/cri-containerd-{OTHER}.scope", "docker:3f2a9c81d0b7"),
        (f"/docker/{ID}{POD_SLICE}", "docker:3f2a9c81d0b7"),
        (f"/docker/{ID};/docker/{ID}/docker/{OTHER}", "docker:3f2a9c81d0b7"),  # cgroup v1
        (f"/docker/{ID}/docker/{OTHER};/docker/{ID}", "docker:3f2a9c81d0b7"),
        (f"/docker/{ID}{JOB}", "docker:3f2a9c81d0b7"),  # a job's user is the container's too
    ],
)
def test_of_nested_containers_the_outermost_is_meant_as_only_that_one_was_named_by_the_machine(
    cgroup: str, identity: str
) -> None:
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
        # Whoever runs in a unit may name what is below it, perhaps after a service that is exempt.
        ("/system.slice/jupyter.service/ollama.service", "unit:jupyter.service"),
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


@pytest.mark.parametrize("cgroup", [SESSION, MANAGER, f"{MANAGER}/app.slice/x.service", f"/user.slice;{SESSION}"])
def test_the_login_user_comes_first(cgroup: str) -> None:
    assert resolve(0, 1000, "root", "alice", cgroup) == "alice"
    assert resolve(1001, 1000, "bob", None, cgroup) == "uid:1000"
    assert resolve(None, 1000, None, "alice", cgroup) == "alice"
    assert resolve(None, None, None, "alice", cgroup) == "alice"  # imported


@pytest.mark.parametrize("cgroup", [None, "/", JOB, OLLAMA, "/system.slice/cron.service", "/user.slice"])
def test_outside_of_slices_the_login_user_is_the_owner_or_has_become_root(cgroup: str | None) -> None:
    assert resolve(0, 1001, "root", "bob", cgroup) == "bob"
    assert resolve(1001, 1001, "bob", "bob", cgroup) == "bob"
    assert resolve(1001, 1001, None, None, cgroup) == "uid:1001"
    assert resolve(None, None, None, "bob", cgroup) == "bob"


@pytest.mark.parametrize("login_uid", [1001, 0])
@pytest.mark.parametrize("cgroup", [None, "/", JOB, OLLAMA, SESSION, "/user.slice/user-1001.slice"])
def test_nobody_becomes_a_colleague_by_a_login_uid_that_the_process_has_set(cgroup: str | None, login_uid: int) -> None:
    """Where none is set, as in a job of Slurm's, the kernel lets every process set its own to any number."""
    assert resolve(1000, login_uid, "alice", "bob", cgroup) == "alice"
    assert find_person(1000, login_uid, cgroup) == 1000


@pytest.mark.parametrize("uid", [0, 1000, 1001])
@pytest.mark.parametrize("place", ["/system.slice", "/machine.slice", "/user.slice/user-1001.slice"])
def test_no_container_of_the_machines_becomes_a_colleague_by_a_login_uid(place: str, uid: int) -> None:
    assert resolve(uid, 1001, "alice", "bob", f"{place}/docker-{ID}.scope") == "docker:3f2a9c81d0b7"
    assert find_person(uid, 1001, f"{place}/docker-{ID}.scope") is None


@pytest.mark.parametrize("parent", ["user-1001.slice", "user-1001.slice/user-1001-x.slice", "user-1001.slice/session"])
def test_a_container_that_root_put_into_a_colleagues_slice_is_not_the_colleagues(parent: str) -> None:
    """`docker run --cgroup-parent user-1001.slice` needs no rights but those for Docker."""
    cgroup = f"/user.slice/{parent}/docker-{ID}.scope"
    for uid, user in [(0, "root"), (1001, "bob"), (1000, "alice")]:
        assert resolve(uid, None, user, None, cgroup) == "docker:3f2a9c81d0b7"
        assert find_person(uid, None, cgroup) is None


def test_a_container_in_a_slice_that_is_called_after_a_colleagues_is_told_by_its_own_id() -> None:
    """`docker run --cgroup-parent docker-ID.slice` where systemd makes the cgroups."""
    parent = f"/docker.slice/docker-{OTHER}.slice"
    assert resolve(0, None, "root", None, f"{parent}/{ID}") == "container:3f2a9c81d0b7"
    assert resolve(0, None, "root", None, f"{parent}/docker-{ID}.scope") == "docker:3f2a9c81d0b7"


@pytest.mark.parametrize("name", [f"docker-{ID}.scope", f"user.slice/libpod-{ID}.scope/container", "lxc.payload.x"])
def test_a_container_in_the_slice_of_its_own_owner_is_rootless_and_its_owner_known(name: str) -> None:
    assert resolve(1000, None, "alice", None, f"{MANAGER}/{name}") == "alice"
    assert resolve(1000, None, None, None, f"{MANAGER}/{name}") == "uid:1000"
    # A subordinate uid is no name of the host.
    assert resolve(101000, None, "somebody", None, f"{MANAGER}/{name}") == "uid:1000"


def test_nobody_hides_behind_a_cgroup_he_named_himself() -> None:
    for name in [f"x;/docker/{ID}", f"x;/user.slice/user-1001.slice/docker-{ID}.scope", "x;/system.slice/a.service"]:
        assert resolve(1000, None, "alice", None, f"{MANAGER}/{name}") == "alice"
        assert resolve(101000, None, None, None, f"{MANAGER}/{name}") == "uid:1000"


@pytest.mark.parametrize("name", ["slurm/uid_1001/job_7", "slurmstepd.scope/job_7"])
def test_nobody_gets_a_colleagues_job_by_naming_a_cgroup_after_it(name: str) -> None:
    assert resolve(101000, None, None, None, f"{MANAGER}/{name}") == "uid:1000"
    assert find_slurm_job(f"{MANAGER}/{name}") is None
    assert find_slurm_job(f"/lxc.payload.lab/{name}") is None
    assert find_slurm_job(f"{DOCKER}/{name}") is None
    assert find_slurm_job(f"{POD_SLICE}/{name}") is None
    assert find_slurm_job(f"/slurm/uid_1000/job_8/step_0/{name}") == "8"
    assert find_slurm_job(f"/system.slice/jupyterhub.service/{name}") is None
    assert find_slurm_job(f"{JOB}/{name}/libpod-{ID}") == "4711"  # the job's own container


@pytest.mark.parametrize(("separator", "stored"), [(b";", "\\x3b"), (b"\r0::", "\\r0::"), (b"\x0b1:x:", "\\x0b1:x:")])
def test_the_sampler_stores_a_name_with_a_separator_so_that_it_is_one_path(
    separator: bytes, stored: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    be_root(monkeypatch)
    start(tmp_path / "proc", 42, b"0::/user.slice/user-1000.slice/x%b/slurm/uid_1001/job_7\n" % separator)
    cgroup = read_cgroup(42, str(tmp_path / "proc"))
    assert cgroup == f"/user.slice/user-1000.slice/x{stored}/slurm/uid_1001/job_7"
    assert find_slurm_job(cgroup) is None


def test_a_container_is_told_with_the_slice_that_it_runs_in() -> None:
    assert find_container(DOCKER) == ContainerId("docker", "3f2a9c81d0b7", None)
    assert find_container(f"{MANAGER}/user.slice/libpod-{ID}.scope") == ContainerId("podman", "3f2a9c81d0b7", 1000)
    assert find_container(SESSION) is None
    assert find_container(None) is None


def test_the_key_of_a_container_has_no_dashes_and_lxc_has_none() -> None:
    assert [one.key for one in map(find_container, (DOCKER, POD_SLICE, "/lxc/web/x")) if one] == [
        "3f2a9c81d0b7",
        "0a1b2c3d111122223333444455556666",
        None,
    ]


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


@pytest.mark.parametrize(
    "types",
    [
        {},
        {"uid": "float64", "login_uid": "float64"},
        {"uid": "Int64", "login_uid": "Int64", "user": "string", "login_user": "string", "cgroup": "string"},
        dict.fromkeys(FACTS, "category"),
        None,  # those that pandas chooses
    ],
)
def test_a_frame_is_resolved_whatever_its_types_for_the_missing(types: dict[str, Any] | None) -> None:
    facts = pd.DataFrame(ROWS, columns=FACTS) if types is None else frame(ROWS).astype(types)
    facts.index = pd.Index([7, 7, 3, 2, 1, 0, 9])
    resolved = resolve_all(facts)
    assert list(resolved) == [resolve(*row) for row in ROWS]
    assert resolved.name == "identity"
    pd.testing.assert_index_equal(resolved.index, facts.index)
    none = resolve_all(facts.iloc[:0])
    assert (len(none), none.dtype) == (0, resolved.dtype)


def test_all_kinds_of_missing_are_unknown() -> None:
    assert set(resolve_all(frame([(missing,) * 5 for missing in (None, np.nan, pd.NA)]))) == {"unknown"}


@given(st.lists(st.tuples(uids, uids, names, names, cgroups | st.sampled_from([DOCKER, JOB])), max_size=12))
def test_a_frame_gives_what_its_rows_give(rows: list[tuple[Any, ...]]) -> None:
    assert list(resolve_all(frame(rows))) == [resolve(*row) for row in rows]
