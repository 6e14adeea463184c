"""Check the machine, its Python, and whether the sampler may see whose processes are on the cards."""

from __future__ import annotations

import os
import re
import shlex
import sqlite3
import sys
from collections.abc import Iterator

from gua_report.doctor.findings import COMMENT, OK, Finding, error, ok, sudo, warning
from gua_report.doctor.user import User, group_name, ourselves
from gua_report.machine.units import Units
from gua_sample import __version__, schema
from gua_sample.processes import printable, read_file

# Names of the values of hidepid=, which were numbers before Linux 5.8.
HIDE = {"1": "noaccess", "2": "invisible", "4": "ptraceable"}
PROCESSES = "processes"
HIDES_PER_MOUNT = (5, 8)  # before this Linux, all /proc mounts of a PID namespace shared hidepid=


def check_os(root: str = "/") -> Finding:
    release = _release(os.path.join(root, "etc/os-release"))
    system = os.uname()
    text = f"{release}, {system.sysname} {system.release}"
    if system.sysname != "Linux":
        return warning("os", f"{text}: gua is made for Linux")
    if not os.path.isdir(os.path.join(root, "run/systemd/system")):
        return warning("os", f"{text}, not booted with systemd: something else has to run gua-sample")
    return ok("os", f"{text}, systemd")


def check_python(
    binding_problem: str | None, is_sampled: bool, sqlite_version: tuple[int, ...] = sqlite3.sqlite_version_info
) -> Finding:
    """A finding about Python, SQLite and nvidia-ml-py.

    `binding_problem`: why nvidia-ml-py can't be imported. `is_sampled`: the sampler, with its own Python, can.
    """
    version = ".".join(map(str, sys.version_info[:3]))
    sqlite = ".".join(map(str, sqlite_version))
    text = f"gua {__version__}, Python {version} ({sys.executable}), SQLite {sqlite}"
    if sqlite_version < schema.OLDEST_SQLITE:
        oldest = ".".join(map(str, schema.OLDEST_SQLITE))
        return error("python", f"{text}: SQLite {oldest} or newer is needed, as newer Pythons bring it")
    if binding_problem:
        install = f"{shlex.quote(sys.executable)} -m pip install nvidia-ml-py"
        problem = warning if is_sampled else error
        return problem("python", f"{text}; nvidia-ml-py can't be imported ({binding_problem})", install)
    return ok("python", f"{text}, nvidia-ml-py")


def check_processes(user: User, units: Units | None, proc: str = "/proc", linux: str | None = None) -> Finding:
    """A finding on whether the sampler's user sees other users' processes. Root, who may be asking, always does.

    `units`: those that write to the folder in question, if any; `linux`: the kernel's release.
    """
    in_sight = f"{user} may see whose they are"
    if user.uid == 0:
        return ok(PROCESSES, in_sight)
    if units and units.service.get("ProtectProc", "default") not in ("", "default"):
        text = f"the service has ProtectProc={units.service['ProtectProc']}: it can't tell whose processes they are"
        return warning(PROCESSES, text, _edit(units, "ProtectProc=default"))
    hiding = read_hiding(f"{proc}/self/mountinfo")
    if hiding is None:
        return ok(PROCESSES, in_sight)
    how, gid = hiding
    group = group_name(gid)
    option = f"/proc is mounted with hidepid={how}"
    if units and units.has_own_proc and _version(linux or os.uname().release) >= HIDES_PER_MOUNT:
        return ok(PROCESSES, f"{option}, but the unit has its own /proc: {in_sight}")
    # Permission to trace a process does not depend on groups (Documentation/filesystems/proc.rst).
    if how != "ptraceable" and _in_group(user, units, gid, group):
        return ok(PROCESSES, f"{option}, but for group {group}: {in_sight}")
    seen = "not what they are called" if how == "noaccess" else "not whose they are"
    text = f"{option}: {user} sees how much memory processes hold, but {seen}"
    return warning(PROCESSES, text, _unhide(user, units, how, group if gid else None))


def check_own_sight(user: User) -> Iterator[Finding]:
    """A warning if this user can't see other users' processes: gua status does not run as the sampler's user."""
    finding = check_processes(ourselves(), None)
    if not user.is_us and finding.status != OK:
        text = f"{finding.text}; so gua status says unknown, where no recent tick tells more"
        yield warning(PROCESSES, text, "sudo gua status")


def read_hiding(mountinfo: str) -> tuple[str, int] | None:
    """How /proc hides processes of other users (see HIDE), and the group that sees them nevertheless."""
    options: list[str] = []
    for line in (read_file(mountinfo) or b"").decode("utf-8", "replace").splitlines():
        mount, _, file_system = line.partition(" - ")
        fields, kind = mount.split(), file_system.split()
        # The last mount on a path hides earlier ones.
        if len(fields) > 5 and fields[4] == "/proc" and len(kind) > 2 and kind[0] == "proc":
            options = fields[5].split(",") + kind[2].split(",")
    values = dict(option.partition("=")[::2] for option in options)
    how = HIDE.get(values.get("hidepid", ""), values.get("hidepid", "off"))
    if how not in HIDE.values():
        return None
    return how, int(values["gid"]) if values.get("gid", "").isdigit() else 0


def _version(release: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", release)[:2])


def _in_group(user: User, units: Units | None, gid: int, group: str) -> bool:
    granted = units.service.get("SupplementaryGroups", "").split() if units else []
    return gid in user.groups or group in granted or str(gid) in granted


def _unhide(user: User, units: Units | None, how: str, group: str | None) -> str:
    if how == "ptraceable":
        return f"sudo mount -o remount,hidepid=0 /proc{COMMENT}and in /etc/fstab"
    if group is None:
        return f"sudo mount -o remount,gid={group_name(user.gid)} /proc{COMMENT}and in /etc/fstab"
    if units and not units.of_user:
        return _edit(units, f"SupplementaryGroups={group}")
    return sudo("usermod", "-aG", group, user.spelled)


def _edit(units: Units, setting: str) -> str:
    return f"{units.systemctl} edit gua-sample{COMMENT}under [Service]: {setting}"


def _release(path: str) -> str:
    for line in (read_file(path) or b"").decode("utf-8", "replace").splitlines():
        if line.startswith("PRETTY_NAME="):
            words = shlex.split(line.partition("=")[2])
            return printable(words[0]) if words else "unknown distribution"
    return "unknown distribution"
