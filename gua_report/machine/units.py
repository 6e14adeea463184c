"""The timer and the service that run the sampler, as systemd describes them."""

# No `from __future__ import annotations` here: it would make NamedTuple compile the text of every field.
import io
import os
import re
import time
from typing import NamedTuple

from gua_report.machine.child import Pipe, Silent, abandon, open_pipe
from gua_sample.processes import printable

TIMER = "gua-sample.timer"
SERVICE = "gua-sample.service"
TIMER_PROPERTIES = "LoadState,ActiveState,UnitFileState,LastTriggerUSec,NextElapseUSecRealtime"
SERVICE_PROPERTIES = (  # LoadState and ActiveState, which both have, are above
    "Result,ExecMainStatus,ExecMainStartTimestamp,User,ExecStart,Environment,StateDirectory,"
    "SupplementaryGroups,ProtectProc,ProtectKernelTunables,ProtectControlGroups"
)
ANSWER_SECONDS = 5.0
LONGEST_OUTPUT_BYTES = 1 << 20
BOOTED = "/run/systemd/system"  # see sd_booted(3)
STATES = "/var/lib"
CLOCK_SLACK_MS = 5_000  # systemctl prints times in whole seconds

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
        """The user that the service names; None for a user's own units."""
        return None if self.of_user else self.service.get("User") or "root"

    @property
    def folder(self) -> str | None:
        """The folder that the service writes to, as far as the unit itself says, in the sampler's own order."""
        option = re.search(r"--data-dir[ =](\S+)", self.service.get("ExecStart", ""))
        variable = re.search(r"(?:^|\s)\"?GUA_DATA_DIR=(\S+?)\"?(?:\s|$)", self.service.get("Environment", ""))
        told = option or variable
        return told[1] if told else self.state_folder

    @property
    def state_folder(self) -> str | None:
        """The folder that systemd creates for the system's service before each run, whether it is used or not."""
        state = self.service.get("StateDirectory", "").split()
        return os.path.join(STATES, state[0].split(":")[0]) if state and not self.of_user else None

    @property
    def has_own_proc(self) -> bool:
        """Whether systemd mounts a new /proc for the service: these settings imply MountAPIVFS=, see systemd.exec(5).

        A user's manager may not mount one.
        """
        settings = (self.service.get(name, "") for name in ("ProtectKernelTunables", "ProtectControlGroups"))
        return not self.of_user and any(value not in ("", "no") for value in settings)

    def feed(self, data_dir: str) -> bool:
        """Whether the units write to this folder, as far as is known."""
        return self.folder is None or os.path.realpath(self.folder) == os.path.realpath(data_dir)


class Found(NamedTuple):
    units: Units | None  # None: none are installed, or it is unknown
    problem: str | None = None  # why it is unknown

    def feeding(self, data_dir: str) -> Units | None:
        """The units if they write to this folder."""
        return self.units if self.units and self.units.feed(data_dir) else None


def find_units(data_dir: str, seconds: float = ANSWER_SECONDS) -> Found:
    """The system's units, or this user's own if only those write to this folder or are installed."""
    system_problem = None
    candidates = []
    for of_user in (False, True):
        shown, problem = show((TIMER, SERVICE), f"{TIMER_PROPERTIES},{SERVICE_PROPERTIES}", of_user, seconds)
        if shown is None:
            # A user without a manager, such as root, is normal, so that problem is not reported.
            system_problem = system_problem if of_user else problem
            if not os.path.isdir(BOOTED):
                break  # without systemd, no user has a manager either
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
    """The properties of each unit, or None and why they can't be read."""
    scope = ["--user"] if of_user else []
    command = ["systemctl", *scope, "show", "--no-pager", *units, "-p", properties]
    try:
        done = _run(command, seconds)
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
    # Units are separated by a blank line, in the requested order.
    texts = text.split("\n\n") + [""] * len(units)
    return [dict(line.split("=", 1) for line in text.splitlines() if "=" in line) for text in texts[: len(units)]], None


def _run(command: list[str], seconds: float) -> tuple[int, str] | None:
    """The exit status and the output of a program; None on a timeout. Raises OSError if it can't be run.

    Does without `subprocess`, which takes about as long to import as systemctl to answer.
    """
    reading, writing = open_pipe()
    with io.BufferedReader(Pipe(reading, seconds)) as file:
        try:
            nothing = (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)
            output = [(os.POSIX_SPAWN_DUP2, writing, stream) for stream in (1, 2)]
            environment = os.environ | {"LC_ALL": "C", "TZ": "UTC"}
            pid = os.posix_spawnp(command[0], command, environment, file_actions=[nothing, *output])
        finally:
            os.close(writing)
        try:
            text = file.read(LONGEST_OUTPUT_BYTES)
        except Silent:
            abandon(pid)
            return None
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), text.decode("utf-8", "backslashreplace")


def parse_time(text: str) -> int | None:
    """Milliseconds of a UTC time as systemctl prints it, 'Mon 2026-11-16 08:20:30 UTC'; None for 'n/a' or nothing."""
    import calendar  # imported late: most callers parse no time

    try:
        _, day, clock, zone = text.split()
        moment_utc = time.strptime(f"{day} {clock.partition('.')[0]}", "%Y-%m-%d %H:%M:%S")
    except ValueError:
        return None
    return calendar.timegm(moment_utc) * 1000 if zone == "UTC" else None


def next_run_ms(units: Units, newest_ms: int, now_ms: int) -> int | None:
    """The time of the timer's next run, if its last run left a tick and the next is not due yet; else None."""
    last = parse_time(units.timer.get("LastTriggerUSec", ""))
    following = parse_time(units.timer.get("NextElapseUSecRealtime", ""))
    if units.timer.get("ActiveState") != "active" or last is None or following is None:
        return None
    return following if following > now_ms and newest_ms >= last - CLOCK_SLACK_MS else None
