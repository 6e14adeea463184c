"""A machine's cgroups in a folder: the hierarchies with their owners, and a /proc that tells where they are mounted."""

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import pytest

from gua_sample import processes

VERSION_2 = "0::"


def be_root(patch: pytest.MonkeyPatch) -> None:
    """Let whoever runs the tests be root to those who ask whose a cgroup is."""
    patch.setattr(processes, "ROOT", os.getuid())


def start(
    proc: Path, pid: int | str, lines: str | bytes, owners: Mapping[str, int] | None = None, above: str = "/"
) -> None:
    """Let a process be in these cgroups, the lines of /proc/PID/cgroup.

    `owners` are those of paths that are not root's. `above` is what mountinfo calls the root of what is mounted.
    """
    tree = proc.with_name(f"{proc.name}-cgroups")
    (proc / str(pid)).mkdir(parents=True)
    lines = lines.encode() if isinstance(lines, str) else lines
    (proc / str(pid) / "cgroup").write_bytes(lines)
    mounts = []
    for line in lines.rstrip(b"\n").split(b"\n"):
        number, controllers, path = line.split(b":", 2)
        folder = tree / controllers.decode() if controllers else tree / "unified"
        options = f"cgroup cgroup rw,{controllers.decode()}" if controllers else "cgroup2 cgroup2 rw,nsdelegate"
        mounts.append(f"{int(number) + 30} 23 0:28 {above} {folder} rw,nosuid,relatime shared:4 - {options}\n")
        place = os.fsencode(folder)
        for name in path.removeprefix(above.rstrip("/").encode()).split(b"/"):
            place = os.path.join(place, name)
            with suppress(OSError):  # too long a path
                os.makedirs(place, exist_ok=True)
                os.chmod(place, 0o755)  # noqa: S103 - as the kernel makes them
        for path_of_user, owner in (owners or {}).items():
            if os.path.isdir(f"{folder}{path_of_user}"):
                os.chown(f"{folder}{path_of_user}", owner, owner)
    (proc / "self").mkdir(exist_ok=True)
    (proc / "self" / "cgroup").write_text("0::/\n")
    info = proc / "self" / "mountinfo"
    before = info.read_text() if info.exists() else "22 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw\n"
    info.write_text(before + "".join(mount for mount in mounts if mount not in before))
