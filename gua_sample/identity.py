"""The identity that a process belongs to, derived from the raw facts that the sampler stored."""

from __future__ import annotations

import re
import sys
from typing import NamedTuple

UNATTRIBUTED = "(unattributed)"  # holds the memory that no process shows
UNKNOWN = "unknown"


class Pattern(NamedTuple):
    """A regular expression that is compiled only when a cgroup may match.

    Compiling takes milliseconds, and few processes are in a container.
    """

    text: str
    words: tuple[str, ...]  # every match contains one of these words,
    length: int | None = None  # or its path has at least this length


# An id is cut to the 12 digits that `docker ps` shows.
ID = "[0-9a-f]{12}"
REST = "[0-9a-f]{0,52}(?![0-9A-Za-z_-])"
# Static pods have no dashes; with the systemd driver '_' stands for '-'.
POD = "[0-9a-f]{8}(?:[-_]?[0-9a-f]{4}){3}[-_]?[0-9a-f]{12}"
# The name of a group is the prefix of the identity: docker:3f2a9c81d0b7.
CONTAINER = Pattern(
    rf"[/:]docker[-/:](?P<docker>{ID}){REST}"
    rf"|[/:](?:cri-)?containerd[-/:](?P<containerd>{ID}){REST}"
    rf"|[/:]crio[-/:](?P<crio>{ID}){REST}"
    rf"|[/:]libpod-(?:payload-)?(?P<podman>{ID}){REST}"
    # With the cgroupfs driver a pod's containers are bare ids, so the pod is the better identity.
    rf"|kubepods.*?[-/]pod(?P<pod>{POD})(?![0-9A-Za-z_-])(?:/[0-9a-f]{{64}}(?=/|$))?"
    # docker run --cgroup-parent: a container whose runtime is not named.
    rf"|/(?P<container>{ID})[0-9a-f]{{52}}(?=/|$)",
    ("docker", "containerd", "crio", "libpod", "kubepods"),
    1 + 64,
)
LXC = Pattern(r"/lxc(?:\.payload[./]|/)(?P<lxc>[^/]+)", ("lxc",))
# Slurm 26.05 names a job below slurmstepd.scope by its SLUID. Several slurmd on one host prefix their node's name.
SLURM = Pattern(
    r"/(?:slurm[^/]*/uid_[0-9]+|[^/]*slurmstepd\.scope)/(?:job_([0-9]+)|(s[0-9A-Z]{13}))(?=/|$)", ("slurm",)
)
# user@1000.service is the user's own manager: it adds nothing to the user's name.
UNIT = Pattern(r"/(?!user@[0-9]+\.service(?:/|$))([^/]+\.service)(?=/|$)", (".service",))
# Only at the root of the tree: a slice further down is a container's own. Root's slice names nobody.
SLICES = "/user.slice/user-"
USER_SLICE = Pattern(r"^/user\.slice/user-([1-9][0-9]{0,9})\.slice(?=/|$)", ("/user.slice/",))


class ContainerId(NamedTuple):
    runtime: str  # docker, containerd, crio, podman, pod, lxc, or container if the cgroup does not tell
    id: str  # the first 12 digits, a pod's uid with dashes, or an LXC container's name
    slice_uid: int | None  # the user in whose slice it runs, who may have chosen the name of the cgroup; None: root's

    @property
    def key(self) -> str | None:
        """The id by which its name is asked for and stored; None for LXC, where the id is the name."""
        return None if self.runtime == "lxc" else self.id.replace("-", "")

    def __str__(self) -> str:
        return f"{self.runtime}:{self.id}"


def find_container(cgroup: str | None) -> ContainerId | None:
    """The container or pod that a cgroup is in, the innermost one if they are nested.

    What is inside an LXC container is that container: its own root could give a cgroup any name.
    """
    paths = _paths(cgroup)
    found = [match for pattern in (LXC, CONTAINER) if (match := _deepest(pattern, paths))]
    if not found:
        return None
    outer = min(found, key=lambda match: match.start())
    runtime = outer.lastgroup or ""
    name = outer[runtime].replace("_", "-") if runtime == "pod" else outer[runtime]
    slice_uid = _slice_uid(paths)
    return ContainerId(runtime, name, slice_uid if _is_of_user(paths, slice_uid) else None)


def find_pod(cgroup: str | None) -> str | None:
    """The pod that a container is in, as ContainerId.key has it, if the machine's own kubelet named the cgroup."""
    container = find_container(cgroup)
    if container is None or container.runtime == "lxc" or container.slice_uid is not None:
        return None
    pods = [match["pod"] for match in _matches(CONTAINER, _paths(cgroup)) if match.lastgroup == "pod"]
    return pods[-1].replace("-", "").replace("_", "") if pods else None


def find_slurm_job(cgroup: str | None) -> str | None:
    """The id of the Slurm job that a cgroup is in, as scancel takes it; from Slurm 26.05 on the job's SLUID."""
    # Below a user's slice that user makes the names, in a container its root does: nobody is to cancel a colleague's
    # job by mistake.
    trusted = [path for path in _paths(cgroup) if not path.startswith("/user.slice/")]
    jobs = [job for path in trusted for job in _matches(SLURM, [path]) if not _is_in_container(path[: job.start() + 1])]
    return next((job[1] or job[2] for job in jobs), None)


def _is_in_container(path: str) -> bool:
    return any(_matches(pattern, [path]) for pattern in (LXC, CONTAINER))


def resolve(
    uid: int | None, login_uid: int | None, user: str | None, login_user: str | None, cgroup: str | None
) -> str:
    """The identity of a process, never empty: the first of these that applies.

    1. The login user, if that can be believed: the name, else `uid:N`.
    2. The container or pod, because the host's names do not apply to its uids. Not a rootless one: it belongs to the
       user in whose slice it runs, who could give its cgroup any name, that of a colleague's container too.
    3. The owner, if that is not root and has a name; in a rootless container only if it is the user of the slice.
    4. The Slurm job; the user in whose slice the process runs, as `uid:N`; the systemd unit. These stand in for an
       owner without a name (a dynamic user, a directory that did not answer).
    5. The owner by name (that is root), `uid:N`, `unknown`.
    """
    if (login_user or login_uid is not None) and _is_believed(login_uid, uid, cgroup):
        return login_user or f"uid:{login_uid}"
    container = find_container(cgroup)
    if container and container.slice_uid is None:
        return str(container)

    is_root = uid == 0 or (uid is None and user == "root")
    is_foreign = container is not None and container.slice_uid != uid
    if user and not is_root and not is_foreign:
        return user
    if job := find_slurm_job(cgroup):
        return f"slurm:{job}"
    paths = _paths(cgroup)
    if slice_uid := _slice_uid(paths):
        return f"uid:{slice_uid}"
    # The outermost: whoever runs in a unit may have been given the cgroups below it, and name them after a service.
    if units := _matches(UNIT, paths):
        return f"unit:{min(units, key=_depth)[1]}"
    return user or (UNKNOWN if uid is None else f"uid:{uid}")


def find_person(uid: int | None, login_uid: int | None, cgroup: str | None) -> int | None:
    """The uid of the person whose process it is; None if all that is known is a container, whose uids are its own."""
    if login_uid is not None and _is_believed(login_uid, uid, cgroup):
        return login_uid
    container = find_container(cgroup)
    return uid if container is None else container.slice_uid


def _is_believed(login_uid: int | None, uid: int | None, cgroup: str | None) -> bool:
    """Whether a login uid is that of a login, rather than a colleague's whom the process has chosen.

    Where it is not set, as in a machine's container, in a Slurm job or in a service, the kernel lets every process set
    its own, once and to any number. In the slice of that user it is right, as nobody gets into a colleague's. Elsewhere
    it tells no more than the owner does, unless that is root, who needs no such trick.
    """
    paths = _paths(cgroup)
    if login_uid is None or _is_of_user(paths, login_uid):  # None: imported, with the name alone
        return True
    is_in_slice = any(path.startswith(SLICES) for path in paths)
    return uid in (None, 0, login_uid) and not is_in_slice and find_container(cgroup) is None


def _paths(cgroup: str | None) -> list[str]:
    return (cgroup or "").split(";")  # cgroup v1 has several


def _is_of_user(paths: list[str], uid: int | None) -> bool:
    """Whether a process is in a session of that user's, or below the user's own manager.

    Beside these only root makes cgroups in a user's slice: `docker run --cgroup-parent user-1001.slice` asks for one.
    """
    slices = [f"{path}/" for path in paths if path.startswith(SLICES)]
    begin = f"/user.slice/user-{uid}.slice/"
    own = (f"{begin}user@{uid}.service/", f"{begin}session-")
    return any(path.startswith(begin) for path in slices[:1]) and any(path.startswith(own) for path in slices)


def _slice_uid(paths: list[str]) -> int | None:
    """The user in whose slice a process runs, by the first path: others may be part of a name with a ';' in it."""
    found = (match for path in paths if (match := _deepest(USER_SLICE, [path])))
    return next((int(match[1]) for match in found), None)


def _deepest(pattern: Pattern, paths: list[str]) -> re.Match[str] | None:
    return max(_matches(pattern, paths), key=_depth, default=None)


def _depth(match: re.Match[str]) -> tuple[int, int]:
    return match.string.count("/", 0, match.end()), match.start()


def _matches(pattern: Pattern, paths: list[str]) -> list[re.Match[str]]:
    likely = [
        path
        for path in paths
        if any(word in path for word in pattern.words) or len(path) >= (pattern.length or sys.maxsize)
    ]
    return [match for path in likely for match in re.finditer(pattern.text, path)]
