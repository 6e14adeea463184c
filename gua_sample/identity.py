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
    r"|/lxc(?:\.payload[./]|/)(?P<lxc>[^/]+)"
    # docker run --cgroup-parent: a container whose runtime is not named.
    rf"|/(?P<container>{ID})[0-9a-f]{{52}}(?=/|$)",
    ("docker", "containerd", "crio", "libpod", "kubepods", "lxc"),
    1 + 64,
)
# Slurm 26.05 names a job below slurmstepd.scope by its SLUID. Several slurmd on one host prefix their node's name.
SLURM = Pattern(
    r"/(?:slurm[^/]*/uid_[0-9]+|[^/]*slurmstepd\.scope)/(?:job_([0-9]+)|(s[0-9A-Z]{13}))(?=/|$)", ("slurm",)
)
# user@1000.service is the user's own manager: it adds nothing to the user's name.
UNIT = Pattern(r"/(?!user@[0-9]+\.service(?:/|$))([^/]+\.service)(?=/|$)", (".service",))
# Only at the root of the tree: a slice further down is a container's own. Root's slice names nobody.
USER_SLICE = Pattern(r"^/user\.slice/user-([1-9][0-9]{0,9})\.slice(?=/|$)", ("/user.slice/",))


def resolve(
    uid: int | None, login_uid: int | None, user: str | None, login_user: str | None, cgroup: str | None
) -> str:
    """The identity of a process, never empty: the first of these that applies.

    1. The login user: the name, else `uid:N`.
    2. The container or pod, the innermost one if they are nested, because the host's names do not apply to its uids. A
       rootless container is passed over if its process belongs to the user in whose slice it runs: there the host's
       names do apply, and that user could give a cgroup any name.
    3. The owner, if that is not root and has a name.
    4. The Slurm job; the user in whose slice the process runs, as `uid:N`; the systemd unit. These stand in for an
       owner without a name (a dynamic user, a directory that did not answer).
    5. The owner by name (that is root), `uid:N`, `unknown`.
    """
    if login_user or login_uid is not None:
        return login_user or f"uid:{login_uid}"
    paths = (cgroup or "").split(";")  # cgroup v1 has several
    slice_user = _deepest(USER_SLICE, paths)
    slice_uid = slice_user[1] if slice_user else None

    container = _deepest(CONTAINER, paths)
    if container and container.lastgroup and slice_uid != str(uid):
        name = container[container.lastgroup]
        return f"{container.lastgroup}:{name.replace('_', '-') if container.lastgroup == 'pod' else name}"

    is_root = uid == 0 or (uid is None and user == "root")
    if user and not is_root:
        return user
    if job := _deepest(SLURM, paths):
        return f"slurm:{job[1] or job[2]}"
    if slice_uid:
        return f"uid:{slice_uid}"
    if unit := _deepest(UNIT, paths):
        return f"unit:{unit[1]}"
    return user or (UNKNOWN if uid is None else f"uid:{uid}")


def _deepest(pattern: Pattern, paths: list[str]) -> re.Match[str] | None:
    likely = [
        path
        for path in paths
        if any(word in path for word in pattern.words) or len(path) >= (pattern.length or sys.maxsize)
    ]
    matches = [match for path in likely for match in re.finditer(pattern.text, path)]
    return max(matches, key=lambda match: (match.string.count("/", 0, match.end()), match.start()), default=None)
