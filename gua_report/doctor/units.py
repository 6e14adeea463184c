"""The timer and the service that run the sampler, as systemd tells of them."""

# No `from __future__ import annotations` here: it would make NamedTuple compile the text of every field.
import os
import re
import time
from typing import TYPE_CHECKING, NamedTuple

from gua_report.doctor.child import run
from gua_report.doctor.findings import COMMENT, Finding, duration, error, moment, ok, warning
from gua_sample.processes import printable

if TYPE_CHECKING:
    from gua_report.doctor.user import User

TIMER = "gua-sample.timer"
SERVICE = "gua-sample.service"
TIMER_PROPERTIES = "LoadState,ActiveState,UnitFileState,LastTriggerUSec,NextElapseUSecRealtime"
SERVICE_PROPERTIES = (  # and those two that both have
    "Result,ExecMainStatus,ExecMainStartTimestamp,User,ExecStart,Environment,StateDirectory,"
    "SupplementaryGroups,ProtectProc,ProtectKernelTunables,ProtectControlGroups"
)
ENABLED = ("enabled", "static", "generated", "alias")
ANSWER_SECONDS = 5.0
# The unit kills a run after 90 s; one that is still there then hangs in the driver.
LONGEST_RUN_MS = 120_000
BOOTED = "/run/systemd/system"  # see sd_booted(3)
LINGER = "/var/lib/systemd/linger"
STATES = "/var/lib"
CLOCK_SLACK_MS = 5_000  # systemctl tells times in whole seconds

Properties = dict[str, str]


class Units(NamedTuple):
    """The pair of timer and service that feeds a data folder."""

    timer: Properties
    service: Properties
    of_user: bool  # a user's own, not the system's

    @property
    def systemctl(self) -> str:
        return "systemctl --user" if self.of_user else "sudo systemctl"

    @property
    def journal(self) -> str:
        return f"journalctl {'--user ' if self.of_user else ''}-u gua-sample -n 20"

    @property
    def user(self) -> str | None:
        """As the service names it; None if it is the user whose units they are."""
        return None if self.of_user else self.service.get("User") or "root"

    @property
    def folder(self) -> str | None:
        """Where the service writes to, as far as the unit itself says."""
        return folder_of(self.service, self.of_user)

    @property
    def state_folder(self) -> str | None:
        """What systemd makes for the system's service before each run, whether it is written to or not."""
        return None if self.of_user else state_folder_of(self.service)

    @property
    def has_own_proc(self) -> bool:
        """Whether systemd mounts a new /proc for the service: these settings imply MountAPIVFS=, see systemd.exec(5).

        A user's manager may not mount one.
        """
        settings = (self.service.get(name, "") for name in ("ProtectKernelTunables", "ProtectControlGroups"))
        return not self.of_user and any(value not in ("", "no") for value in settings)

    def feed(self, data_dir: str) -> bool:
        """Whether they write to this folder, as far as one can tell."""
        return self.folder is None or os.path.realpath(self.folder) == os.path.realpath(data_dir)


class Found(NamedTuple):
    units: Units | None  # None: none are installed that concern this folder
    problem: str | None = None  # why nothing can be told


def find_units(data_dir: str, seconds: float = ANSWER_SECONDS) -> Found:
    """The system's units, or this user's own if those write to this folder, or the system's are not installed."""
    system_problem = None
    candidates = []
    for of_user in (False, True):
        shown, problem = show((TIMER, SERVICE), f"{TIMER_PROPERTIES},{SERVICE_PROPERTIES}", of_user, seconds)
        if shown is None:
            # That a user, such as root, has no manager of his own is nothing to speak of.
            system_problem = system_problem if of_user else problem
            if not os.path.isdir(BOOTED):
                break  # nor has anybody else a manager then
        elif any(unit.get("LoadState", "not-found") != "not-found" for unit in shown):
            candidates.append(Units(shown[0], shown[1], of_user))
            if candidates[-1].feed(data_dir):
                break
    if chosen := [units for units in candidates if units.feed(data_dir)] or candidates:
        return Found(chosen[0])
    return Found(None, system_problem)


def show(
    units: tuple[str, ...], properties: str, of_user: bool, seconds: float
) -> tuple[list[Properties] | None, str | None]:
    """Properties of each of the units, or None and why they can't be had."""
    scope = ["--user"] if of_user else []
    command = ["systemctl", *scope, "show", "--no-pager", *units, "-p", properties]
    try:
        done = run(command, os.environ | {"LC_ALL": "C", "TZ": "UTC"}, seconds)
    except FileNotFoundError:
        return None, "there is no systemctl here"
    except OSError as problem:
        return None, f"systemctl can't be run ({problem.strerror})"
    if done is None:
        return None, f"systemctl does not answer within {seconds:g} s"
    status, text = done
    if status != 0:
        said = printable(text.partition("\n")[0]).rstrip(".")
        return None, f"systemctl says: {said or f'exit status {status}'}"
    # A blank line between two units, and they come as they were asked for.
    texts = text.split("\n\n") + [""] * len(units)
    return [dict(line.split("=", 1) for line in text.splitlines() if "=" in line) for text in texts[: len(units)]], None


def folder_of(service: Properties, of_user: bool) -> str | None:
    """--data-dir, $GUA_DATA_DIR or the state folder of a service, in the sampler's own order."""
    option = re.search(r"--data-dir[ =](\S+)", service.get("ExecStart", ""))
    variable = re.search(r"(?:^|\s)\"?GUA_DATA_DIR=(\S+?)\"?(?:\s|$)", service.get("Environment", ""))
    if option or variable:
        return (option or variable)[1]  # type: ignore[index]  # one of them is there
    return None if of_user else state_folder_of(service)


def state_folder_of(service: Properties) -> str | None:
    state = service.get("StateDirectory", "").split()
    return os.path.join(STATES, state[0].split(":")[0]) if state else None


def parse_time(text: str) -> int | None:
    """Milliseconds of what systemctl prints in UTC: 'Mon 2026-11-16 08:20:30 UTC'; None for 'n/a' or nothing."""
    import calendar  # most who look at units have no time to understand

    try:
        _, day, clock, zone = text.split()
        moment_utc = time.strptime(f"{day} {clock.partition('.')[0]}", "%Y-%m-%d %H:%M:%S")
    except ValueError:
        return None
    return calendar.timegm(moment_utc) * 1000 if zone == "UTC" else None


def check_timer(
    found: Found, data_dir: str, is_fresh: bool, now_ms: int, user: "User", linger: str = LINGER
) -> list[Finding]:
    """`is_fresh`: the newest tick is recent, so somebody runs the sampler."""
    units = found.units
    if units is None:
        return [_no_timer(found.problem, is_fresh)]
    state, enabled = units.timer.get("ActiveState", ""), units.timer.get("UnitFileState", "")
    load = units.timer.get("LoadState", "")
    name = TIMER + (" of this user" if units.of_user else "")
    enable = f"{units.systemctl} enable --now {TIMER}"
    if load == "not-found":
        return [_idle(is_fresh, f"{name} is not installed", "sudo make install")]
    if load == "masked":
        return [_idle(is_fresh, f"{name} is masked", f"{units.systemctl} unmask {TIMER} && {enable}")]
    if load != "loaded":
        return [_idle(is_fresh, f"{name} can't be loaded ({load})", f"systemd-analyze verify {TIMER}")]
    if state != "active":
        return [_idle(is_fresh, f"{name} is {state or 'not active'}", enable)]
    text = f"{name} is active{_runs(units.timer, now_ms)}"
    if not units.feed(data_dir):
        text += f"; it writes to {units.folder}, not to {data_dir}"
    if enabled not in ENABLED:
        return [warning("timer", f"{text}; but {enabled or 'not enabled'}: gone after the next boot", enable)]
    findings = [ok("timer", text)]
    if units.of_user and user.name and not os.path.exists(os.path.join(linger, user.name)):
        findings.append(warning("timer", "it stops when this user logs out", "loginctl enable-linger"))
    return findings


def next_run_ms(units: Units, newest_ms: int, now_ms: int) -> int | None:
    """When the timer runs next, if its last run left a tick and the next is not due yet; else None."""
    last = parse_time(units.timer.get("LastTriggerUSec", ""))
    following = parse_time(units.timer.get("NextElapseUSecRealtime", ""))
    if units.timer.get("ActiveState") != "active" or last is None or following is None:
        return None
    return following if following > now_ms and newest_ms >= last - CLOCK_SLACK_MS else None


def check_service(found: Found, now_ms: int, newest_ms: int | None = None) -> list[Finding]:
    """How the last run ended. `newest_ms`: the newest tick of the folder that it writes to, if that can be told."""
    units = found.units
    if units is None or units.service.get("LoadState") != "loaded":
        return []
    service = units.service
    began_ms = parse_time(service.get("ExecMainStartTimestamp", ""))
    began = f" of {moment(began_ms)}" if began_ms else ""
    result, status = service.get("Result", ""), service.get("ExecMainStatus", "0")
    running = service.get("ActiveState") in ("activating", "deactivating", "active")
    if running and began_ms and now_ms - began_ms > LONGEST_RUN_MS:
        text = f"the run{began} has not ended: it hangs, most likely in the driver"
        return [error("service", text, f"{units.systemctl} status gua-sample; sudo dmesg | grep -i nvrm")]
    if running:
        return [ok("service", "a run is going on")]
    if result not in ("", "success") or status not in ("", "0"):
        shown = result if result not in ("", "success") else "failed, as logged within the hour"
        text = f"the last run{began} ended with: {shown} (exit status {status})"
        if began_ms and newest_ms is not None and newest_ms < began_ms:
            return [error("service", f"{text} and recorded nothing", units.journal)]
        return [warning("service", text, units.journal)]
    return [ok("service", f"the last run{began} ended well")] if began_ms else []


def _no_timer(problem: str | None, is_fresh: bool) -> Finding:
    if problem is None:
        return _idle(is_fresh, f"{TIMER} is not installed", "sudo make install")
    return _idle(is_fresh, problem, None if is_fresh else f"crontab -e{COMMENT}add the line: * * * * * gua-sample")


def _idle(is_fresh: bool, text: str, remedy: str | None) -> Finding:
    if is_fresh:
        return warning("timer", f"{text}; but the newest tick is recent: something else runs gua-sample", remedy)
    return error("timer", text, remedy)


def _runs(timer: Properties, now_ms: int) -> str:
    last = parse_time(timer.get("LastTriggerUSec", ""))
    following = parse_time(timer.get("NextElapseUSecRealtime", ""))
    text = f", last run {duration(max(0, now_ms - last))} ago" if last else ", has not run yet"
    return text + (f", next in {duration(max(0, following - now_ms))}" if following else "")
