"""The process that keeps one guest; guest.py starts it in a mount namespace of its own.

It mounts the guest's files, starts its systemd and prints the pid of that. Once the guest has ended, or stdin is closed
(also by the death of the process at its other end), it removes everything of the guest.
"""

import json
import os
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

# The namespace's own /run: nobody else sees it, and nothing can talk to the host's systemd by mistake.
RUN = Path("/run")
ROOT = RUN / "root"


def mount(*arguments: str | Path) -> None:
    if subprocess.run(["mount", "--no-mtab", *arguments], check=False).returncode != 0:
        raise SystemExit(f"mount {' '.join(map(str, arguments))} failed")


def mount_files(folder: Path, layers: Sequence[str]) -> None:
    """Stack the host's root file system, the layers, and the guest's own files on top."""
    mount("--types", "tmpfs", "--options", "mode=755", "tmpfs", RUN)
    base, empty = RUN / "base", RUN / "empty"
    files, work = folder / "files", folder / "work"
    for directory in (base, empty, ROOT, files, work):
        directory.mkdir(exist_ok=True)
    # A layer below / can't be stacked on /, but on an overlay that shows / unchanged it can.
    mount("--types", "overlay", "--options", f"lowerdir={empty}:/", "overlay", base)
    lower = ":".join([*(f"{layer}/files" for layer in reversed(layers)), str(base)])
    options = f"lowerdir={lower},upperdir={files},workdir={work}"
    mount("--types", "overlay", "--options", options, "overlay", ROOT)


def forget_the_host() -> None:
    """Make the guest start none of the host's services, mount none of its disks, keep its journal, and keep /tmp, which
    Debian empties at boot."""
    for pattern in ("etc/systemd/system/*.wants", "etc/systemd/system/*.requires", "etc/rc?.d"):
        for directory in ROOT.glob(pattern):
            shutil.rmtree(directory)
    (ROOT / "etc/fstab").unlink(missing_ok=True)
    (ROOT / "etc/tmpfiles.d").mkdir(exist_ok=True)
    (ROOT / "etc/tmpfiles.d/tmp.conf").unlink(missing_ok=True)
    (ROOT / "etc/tmpfiles.d/tmp.conf").symlink_to("/dev/null")
    (ROOT / "var/log/journal").mkdir(parents=True, exist_ok=True)


def new_machine_id() -> None:
    (ROOT / "etc/machine-id").unlink(missing_ok=True)
    (ROOT / "etc/machine-id").write_text(Path("/proc/sys/kernel/random/uuid").read_text().replace("-", ""))


def share_read_only(directory: str) -> None:
    inside = ROOT / directory.lstrip("/")
    inside.mkdir(parents=True, exist_ok=True)
    mount("--rbind", directory, inside)
    mount("--options", "remount,bind,ro", inside)


def make_cgroup() -> Path:
    hierarchy = RUN / "cgroup"  # mounted here, since a host may have version 2 elsewhere, or only version 1
    hierarchy.mkdir()
    mount("--types", "cgroup2", "cgroup2", hierarchy)
    cgroup = hierarchy / f"gua-guest-{os.getpid()}"
    cgroup.mkdir()
    return cgroup


def start(cgroup: Path, network: bool) -> subprocess.Popen[bytes]:
    """Start the parent of the guest's PID 1. Each dies with its parent, should this process be killed."""
    namespaces = ["--pid", "--mount", "--uts", "--ipc", *([] if network else ["--net"])]
    become_init = ["sh", str(Path(__file__).with_name("become_init.sh")), str(ROOT), str(cgroup)]
    command = ["setpriv", "--pdeathsig", "KILL", "unshare", "--fork", "--kill-child", *namespaces, "--", *become_init]
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=2)


def only_child(process: subprocess.Popen[bytes]) -> int:
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    while process.poll() is None:
        if pids := children.read_text().split():
            return int(pids[0])
        time.sleep(0.005)
    raise SystemExit("the guest has ended before it began")


def remove(cgroup: Path) -> None:
    """Kill all processes in the cgroup, and remove it. Killed processes take a moment to be gone."""
    (cgroup / "cgroup.kill").write_text("1")
    deadline = time.monotonic() + 10
    while cgroup.exists() and time.monotonic() < deadline:
        with suppress(OSError):
            for directory, _, _ in os.walk(cgroup, topdown=False):
                os.rmdir(directory)
        time.sleep(0.005)


def main(folder: Path, layers: Sequence[str], read_only: Sequence[str], network: bool) -> None:
    os.umask(0o022)
    is_new = not (folder / "files").exists()
    mount_files(folder, layers)
    if is_new:
        new_machine_id()
        if not layers:
            forget_the_host()
    for directory in read_only:
        share_read_only(directory)
    cgroup = make_cgroup()
    try:
        guest = start(cgroup, network)
        print(only_child(guest), flush=True)
        select.select([sys.stdin, os.pidfd_open(guest.pid)], [], [])
    finally:
        remove(cgroup)
    guest.wait()


if __name__ == "__main__":
    plan = json.loads(sys.argv[1])
    main(Path(plan.pop("folder")), **plan)
