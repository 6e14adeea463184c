"""The identity that a process belongs to, derived from the raw facts that the sampler stored."""

from collections.abc import Collection
from typing import NamedTuple

UNATTRIBUTED = "(unattributed)"  # holds the memory that no process shows
UNKNOWN = "unknown"

# Names are compared component by component, without regular expressions: users choose some of them, and could choose
# one that takes long.
HEX_DIGITS = "0123456789abcdef"
SLUID_DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"
SHORT_ID = 12  # digits of an id that `docker ps` shows
FULL_ID = 64
# What stands before an id, in the same name or in the one around it.
RUNTIMES = {"docker": "docker", "containerd": "containerd", "nerdctl": "containerd", "crio": "crio", "libpod": "podman"}
NSPAWN = ("systemd-nspawn@", "machine-")  # units of systemd-nspawn, with the container below them in `payload`
NAMED_BY_HAND = ("lxc", "unit")  # kinds of containers that have no id
SLICES = "/user.slice/user-"
Found = tuple[int, str, str]  # a container on a path: the number of components down to it, its runtime and id


class ContainerId(NamedTuple):
    runtime: str  # docker, containerd, crio, podman, pod, lxc, unit, or container if the cgroup does not tell
    id: str  # the first 12 digits, a pod's uid with dashes, an LXC container's name, or systemd-nspawn's unit
    slice_uid: int | None  # the user in whose slice it runs, who may have chosen the name of the cgroup; None: root's

    @property
    def key(self) -> str | None:
        """The id by which its name is asked for and stored; None where the id is the name."""
        return None if self.runtime in NAMED_BY_HAND else self.id.replace("-", "")

    def __str__(self) -> str:
        return f"{self.runtime}:{self.id}"


def find_container(cgroup: str | None) -> ContainerId | None:
    """The outermost container or pod that a cgroup is in: its own root names those inside."""
    paths = _paths(cgroup)
    found = max(filter(None, map(find_containers, paths)), key=lambda one: one[-1][0], default=None)
    if found is None:
        return None
    # With the cgroupfs driver a pod's containers are bare ids, so the pod is the better identity.
    _, runtime, ident = found[0] if found[-1][1] == "container" else found[-1]
    return ContainerId(runtime, ident, _find_user(paths))


def find_containers(path: str) -> list[Found]:
    """The outermost container on a path; of a pod, the pod and its container. Others are not believed."""
    found: list[Found] = []
    before, is_kubelets = "", False
    for depth, component in enumerate(path.split("/")):
        if found and depth > found[0][0] + 1:
            break
        for name in component.split(":"):  # system.slice:docker:3f2a...
            is_kubelets = is_kubelets or "kubepods" in name
            runtime, ident = _recognize(before, name, is_kubelets)
            if runtime and not (found and runtime == "pod"):
                found.append((depth, runtime, ident))
                if runtime != "pod":
                    return found
            before = name
    return found


def _recognize(before: str, name: str, is_kubelets: bool) -> tuple[str, str]:
    if before in ("lxc", "lxc.payload") and name:
        return "lxc", name
    if name.startswith("lxc.payload.") and name != "lxc.payload.":
        return "lxc", name.removeprefix("lxc.payload.")
    if name == "payload" and before.startswith(NSPAWN) and before.endswith((".service", ".scope")):
        return "unit", before
    prefix, _, ident = name.removesuffix(".scope").removesuffix(".service").rpartition("-")
    runtime = RUNTIMES.get((prefix or before).removeprefix("cri-").removesuffix("-payload"))
    if runtime and _is_made_of(HEX_DIGITS, ident, range(SHORT_ID, FULL_ID + 1)):
        return runtime, ident[:SHORT_ID]
    # Static pods have no dashes; with the systemd driver '_' stands for '-'.
    slices, pod, uid = name.removesuffix(".slice").replace("_", "-").rpartition("pod")
    is_whole = pod and slices[-1:] in ("", "-")
    if is_kubelets and is_whole and _is_made_of(HEX_DIGITS, uid.replace("-", ""), (32,)):
        return "pod", uid
    # docker run --cgroup-parent: a container whose runtime is not named. Podman's own parent has pods in it.
    if _is_made_of(HEX_DIGITS, name, (FULL_ID,)) and before != "libpod_parent":
        return "container", name[:SHORT_ID]
    return "", ""


def _is_made_of(digits: str, text: str, lengths: Collection[int]) -> bool:
    return len(text) in lengths and not text.strip(digits)


def find_slurm_job(cgroup: str | None) -> str | None:
    """The Slurm job that a cgroup is in, where Slurm makes cgroups: elsewhere others may."""
    for path in _paths(cgroup):
        top, parent, around, job, *_ = f"{path}////".split("/")
        # Several slurmd on one host prefix their node's name.
        is_version_2 = (top, parent) == ("", "system.slice") and f"_{around}".endswith("_slurmstepd.scope")
        is_version_1 = top == "" and parent.startswith("slurm") and _number_in(around, "uid_", "") is not None
        if (is_version_1 or is_version_2) and _number_in(job, "job_", "") is not None:
            return job.removeprefix("job_")
        if is_version_2 and job.startswith("s") and _is_made_of(SLUID_DIGITS, job[1:], (13,)):
            return job
    return None


def _number_in(name: str, begin: str, end: str) -> int | None:
    """The number between the two in a name; None if there is none."""
    digits = name[len(begin) : len(name) - len(end)]
    is_number = name == begin + digits + end and digits.isascii() and digits.isdigit() and len(digits) <= 10
    return int(digits) if is_number else None


def resolve(
    uid: int | None, login_uid: int | None, user: str | None, login_user: str | None, cgroup: str | None
) -> str:
    """The identity of a process, never empty: the first of these that applies.

    1. The login user, if that can be believed: the name, else `uid:N`.
    2. The container or pod, because the host's names do not apply to its uids. Not a rootless one: it belongs to the
       user in whose slice it runs, who could give its cgroup any name, that of a colleague's container too.
    3. The user in whose slice the process runs, whatever its uid: nobody gets into a colleague's slice.
    4. The owner, if that is not root and has a name.
    5. The Slurm job; the slice's user, if root put the process there; the systemd unit. These stand in for an owner
       without a name (a dynamic user, a directory that did not answer).
    6. The owner by name (that is root), `uid:N`, `unknown`.
    """
    if (login_user or login_uid is not None) and _is_believed(login_uid, uid, cgroup):
        return login_user or f"uid:{login_uid}"
    container = find_container(cgroup)
    if container and container.slice_uid is None:
        return str(container)

    paths = _paths(cgroup)
    if own_uid := _find_user(paths):
        return user if user and uid == own_uid else f"uid:{own_uid}"
    is_root = uid == 0 or (uid is None and user == "root")
    if user and not is_root:
        return user
    if job := find_slurm_job(cgroup):
        return f"slurm:{job}"
    if slice_uid := _slice_uid(paths):
        return f"uid:{slice_uid}"
    if unit := _find_unit(paths):
        return f"unit:{unit}"
    return user or (UNKNOWN if uid is None else f"uid:{uid}")


def find_person(uid: int | None, login_uid: int | None, cgroup: str | None) -> int | None:
    """The uid of the person whose process it is; None if only a container is known."""
    if login_uid is not None and _is_believed(login_uid, uid, cgroup):
        return login_uid
    return _find_user(_paths(cgroup)) or (uid if find_container(cgroup) is None else None)


def _is_believed(login_uid: int | None, uid: int | None, cgroup: str | None) -> bool:
    """Whether a login uid is that of a login, rather than a colleague's whom the process has chosen.

    Where it is not set, as in a container or a service, every process can set its own, once and to any number. In the
    slice of that user it is right. Elsewhere it tells no more than the owner does, unless that is root.
    """
    paths = _paths(cgroup)
    if login_uid is None or _is_of_user(paths, login_uid):  # None: imported, with the name alone
        return True
    is_in_slice = any(path.startswith(SLICES) for path in paths)
    return uid in (None, 0, login_uid) and not is_in_slice and find_container(cgroup) is None


def _paths(cgroup: str | None) -> list[str]:
    return (cgroup or "").split(";")  # cgroup v1 has several


def _is_of_user(paths: list[str], uid: int | None) -> bool:
    """Whether a process is in that user's session, or below the user's own manager."""
    slices = [f"{path}/" for path in paths if path.startswith(SLICES)]
    begin = f"/user.slice/user-{uid}.slice/"
    own = (f"{begin}user@{uid}.service/", f"{begin}session-")
    return any(path.startswith(begin) for path in slices[:1]) and any(path.startswith(own) for path in slices)


def _find_user(paths: list[str]) -> int | None:
    """The user whose own a process is by the slice that it runs in; None: nobody's, or root's."""
    slice_uid = _slice_uid(paths)
    return slice_uid if _is_of_user(paths, slice_uid) else None


def _slice_uid(paths: list[str]) -> int | None:
    """The user in whose slice a process runs, by the first path: others may be part of a name with a ';' in it."""
    # Only at the root of the tree: a slice further down is a container's own. Root's slice names nobody.
    names = (path.split("/", 3)[2] for path in paths if path.startswith(SLICES))
    return next(filter(None, (_number_in(name, "user-", ".slice") for name in names)), None)


def _find_unit(paths: list[str]) -> str | None:
    """The outermost service: whoever runs in it may name the cgroups below after another."""
    units = [
        (depth, name)
        for path in paths
        for depth, name in enumerate(path.split("/"))
        if name.endswith(".service") and name != ".service" and _number_in(name, "user@", ".service") is None
    ]
    return min(units, key=lambda unit: unit[0])[1] if units else None
