"""Check the machine: its Python, whether processes can be seen, and whether the timer runs the sampler."""

import os
import re
import shlex
import shutil
import sqlite3
import sys
from collections.abc import Iterator

from gua_report.console.spelling import duration
from gua_report.doctor.findings import COMMENT, OK, Finding, error, moment, ok, shell, sudo, warning
from gua_report.doctor.user import User, group_name, ourselves
from gua_report.machine.units import TIMER, Found, Properties, Units, parse_time
from gua_sample import __version__, schema
from gua_sample.processes import printable, read_file

# Names of the values of hidepid=, which were numbers before Linux 5.8.
HIDE = {"1": "noaccess", "2": "invisible", "4": "ptraceable"}
PROCESSES = "processes"
HIDES_PER_MOUNT = (5, 8)  # before this Linux, all /proc mounts of a PID namespace shared hidepid=
ENABLED = ("enabled", "static", "generated", "alias")
# The unit kills a run after 90 s; one that survives this hangs in the driver.
LONGEST_RUN_MS = 120_000
LINGER = "/var/lib/systemd/linger"


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
    version = tuple(map(int, re.findall(r"\d+", linux or os.uname().release)[:2]))
    if units and units.has_own_proc and version >= HIDES_PER_MOUNT:
        return ok(PROCESSES, f"{option}, but the unit has its own /proc: {in_sight}")
    # Permission to trace a process does not depend on groups (Documentation/filesystems/proc.rst).
    granted = units.service.get("SupplementaryGroups", "").split() if units else []
    if how != "ptraceable" and (gid in user.groups or {group, str(gid)}.intersection(granted)):
        return ok(PROCESSES, f"{option}, but for group {group}: {in_sight}")
    seen = "not what they are called" if how == "noaccess" else "not whose they are"
    text = f"{option}: {user} sees how much memory processes hold, but {seen}"
    return warning(PROCESSES, text, _unhide(user, units, how, group if gid else None))


def check_own_sight(user: User) -> Iterator[Finding]:
    finding = check_processes(ourselves(), None)
    if not user.is_us and finding.status != OK:
        text = f"{finding.text}; so gua status says unknown, where no recent tick tells more"
        yield warning(PROCESSES, text, "sudo gua status")


def read_hiding(mountinfo: str) -> tuple[str, int] | None:
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


def check_timer(
    found: Found, data_dir: str, is_fresh: bool, now_ms: int, user: User, linger: str = LINGER
) -> Iterator[Finding]:
    units, problem = found
    load = units.timer.get("LoadState", "") if units else "not-found"
    name = TIMER + (" of this user" if units and units.of_user else "")
    if problem:
        yield _idle(is_fresh, problem, None if is_fresh else add_to_crontab(data_dir))
        return
    if units is None or load == "not-found":
        yield _idle(is_fresh, f"{name} is not installed", "sudo make install")
        return
    state, enabled = units.timer.get("ActiveState", ""), units.timer.get("UnitFileState", "")
    enable = f"{units.systemctl} enable --now {TIMER}"
    text = f"{name} is active{_runs(units.timer, now_ms)}"
    if not units.feed(data_dir):
        text += f"; it writes to {units.folder}, not to {data_dir}"
    if load == "masked":
        yield _idle(is_fresh, f"{name} is masked", f"{units.systemctl} unmask {TIMER} && {enable}")
    elif load != "loaded":
        yield _idle(is_fresh, f"{name} can't be loaded ({load})", f"systemd-analyze verify {TIMER}")
    elif state != "active":
        yield _idle(is_fresh, f"{name} is {state or 'not active'}", enable)
    elif enabled not in ENABLED:
        yield warning("timer", f"{text}; but {enabled or 'not enabled'}: it will not start at the next boot", enable)
    else:
        yield ok("timer", text)
        if units.of_user and user.name and not os.path.exists(os.path.join(linger, user.name)):
            yield warning("timer", "it stops when this user logs out", "loginctl enable-linger")


def check_service(found: Found, now_ms: int, newest_ms: int | None = None) -> Iterator[Finding]:
    units = found.units
    if units is None or units.service.get("LoadState") != "loaded":
        return
    service = units.service
    began_ms = parse_time(service.get("ExecMainStartTimestamp", ""))
    began = f" of {moment(began_ms)}" if began_ms else ""
    result, status = service.get("Result", ""), service.get("ExecMainStatus", "0")
    if service.get("ActiveState") in ("activating", "deactivating", "active"):
        if began_ms and now_ms - began_ms > LONGEST_RUN_MS:
            text = f"the run{began} has not ended: it hangs, most likely in the driver"
            yield error("service", text, f"{units.systemctl} status gua-sample; sudo dmesg | grep -i nvrm")
        else:
            yield ok("service", "a run is going on")
    elif result not in ("", "success") or status not in ("", "0"):
        shown = result if result not in ("", "success") else "the same failure as one already logged this hour"
        text = f"the last run{began} ended with: {shown} (exit status {status})"
        if began_ms and newest_ms is not None and newest_ms < began_ms:
            yield error("service", f"{text} and recorded nothing", units.journal)
        else:
            yield warning("service", text, units.journal)
    elif began_ms:
        yield ok("service", f"the last run{began} ended well")


def add_to_crontab(data_dir: str) -> str:
    """Cron knows neither this user's PATH nor GUA_DATA_DIR, and takes a bare % for the end of the line."""
    sampler = shutil.which("gua-sample", path=os.path.dirname(sys.executable)) or shutil.which("gua-sample")
    command = shell(os.path.abspath(sampler or "gua-sample"), "--data-dir", data_dir).replace("%", r"\%")
    line = shell(f"* * * * * {command} >/dev/null 2>&1")
    return f"(crontab -l; echo {line}) | crontab -{COMMENT}once a minute"


def _idle(is_fresh: bool, text: str, remedy: str | None) -> Finding:
    if is_fresh:
        return warning("timer", f"{text}; but the newest tick is recent: something else runs gua-sample", remedy)
    return error("timer", text, remedy)


def _runs(timer: Properties, now_ms: int) -> str:
    last = parse_time(timer.get("LastTriggerUSec", ""))
    following = parse_time(timer.get("NextElapseUSecRealtime", ""))
    text = f", last run {duration(max(0, now_ms - last) / 1000)} ago" if last else ", has not run yet"
    return text + (f", next in {duration(max(0, following - now_ms) / 1000)}" if following else "")
