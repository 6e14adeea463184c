"""The timer and the service that run the sampler, as systemd describes them."""

import io
import os
import re
from datetime import timezone
from typing import NamedTuple

from gua_report.machine.child import Pipe, Silent, abandon, open_pipe
from gua_report.window import iso_ms
from gua_sample.processes import printable

TIMER = "gua-sample.timer"
SERVICE = "gua-sample.service"
PROPERTIES = (
    "LoadState,ActiveState,UnitFileState,LastTriggerUSec,NextElapseUSecRealtime,TimersCalendar,"
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
        return None if self.of_user else self.service.get("User") or "root"

    @property
    def folder(self) -> str | None:
        option = re.search(r"--data-dir[ =](\S+)", self.service.get("ExecStart", ""))
        variable = re.search(r"(?:^|\s)\"?GUA_DATA_DIR=(\S+?)\"?(?:\s|$)", self.service.get("Environment", ""))
        told = option or variable
        return told[1] if told else self.state_folder

    @property
    def state_folder(self) -> str | None:
        state = self.service.get("StateDirectory", "").split()
        return os.path.join(STATES, state[0].split(":")[0]) if state and not self.of_user else None

    @property
    def has_own_proc(self) -> bool:
        """Whether systemd mounts a new /proc for it: these settings imply MountAPIVFS= (no user's manager may)."""
        settings = (self.service.get(name, "") for name in ("ProtectKernelTunables", "ProtectControlGroups"))
        return not self.of_user and any(value not in ("", "no") for value in settings)

    def feed(self, data_dir: str) -> bool:
        return self.folder is None or os.path.realpath(self.folder) == os.path.realpath(data_dir)


class Found(NamedTuple):
    units: Units | None  # None: none are installed, or it is unknown
    problem: str | None = None  # why it is unknown

    def feeding(self, data_dir: str) -> Units | None:
        return self.units if self.units and self.units.feed(data_dir) else None


def find_units(data_dir: str, seconds: float = ANSWER_SECONDS) -> Found:
    problem = None
    candidates = []
    for of_user in (False, True):
        try:
            shown = _show(of_user, seconds)
        except SystemctlFailed as failed:
            if not of_user:  # a user without a manager, such as root, is normal
                problem = str(failed)
            if not os.path.isdir(BOOTED):
                break  # without systemd, no user has a manager either
            continue
        if any(unit.get("LoadState", "not-found") != "not-found" for unit in shown):
            candidates.append(Units(*shown, of_user))
            if candidates[-1].feed(data_dir):
                return Found(candidates[-1])
    return Found(candidates[0]) if candidates else Found(None, problem)


class SystemctlFailed(Exception):
    """Units can't be asked for, and why."""


def _show(of_user: bool, seconds: float) -> tuple[Properties, Properties]:
    # Without `subprocess`, which takes about as long to import as systemctl to answer.
    scope = ["--user"] if of_user else []
    command = ["systemctl", *scope, "show", "--no-pager", TIMER, SERVICE, "-p", PROPERTIES]
    reading, writing = open_pipe()
    with io.BufferedReader(Pipe(reading, seconds)) as file:
        nothing = (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)
        output = [(os.POSIX_SPAWN_DUP2, writing, stream) for stream in (1, 2)]
        environment = os.environ | {"LC_ALL": "C", "TZ": "UTC"}
        try:
            pid = os.posix_spawnp("systemctl", command, environment, file_actions=[nothing, *output])
        except FileNotFoundError:
            raise SystemctlFailed("there is no systemctl here") from None
        except OSError as problem:
            raise SystemctlFailed(f"systemctl can't be run ({problem.strerror})") from problem
        finally:
            os.close(writing)
        try:
            text = file.read(LONGEST_OUTPUT_BYTES).decode("utf-8", "backslashreplace")
        except Silent:
            abandon(pid)
            raise SystemctlFailed(f"systemctl does not answer within {seconds:g} s") from None
    if status := os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]):
        said = printable(text.partition("\n")[0]).rstrip(".")
        raise SystemctlFailed(f"systemctl says: {said or f'exit status {status}'}")
    timer, _, service = text.partition("\n\n")  # in the requested order
    return _properties(timer), _properties(service)


def _properties(text: str) -> Properties:
    found: Properties = {}
    for name, _, value in (line.partition("=") for line in text.splitlines() if "=" in line):
        found[name] = f"{found[name]} {value}" if name in found else value  # a line for each calendar of a timer
    return found


def parse_time(text: str) -> int | None:
    """Milliseconds of a UTC time as systemctl prints it, 'Mon 2026-11-16 08:20:30 UTC'; None for 'n/a' or nothing."""
    _, _, moment = text.partition(" ")
    return iso_ms(moment.removesuffix(" UTC"), timezone.utc) if moment.endswith(" UTC") else None


def interval_ms(units: Units) -> int | None:
    if units.timer.get("ActiveState") != "active":
        return None
    # As systemd spells what install.sh, or 'systemctl edit' by our page, has written: one line, or one for each run
    # until a run is on the full minute again.
    calendars = re.findall(r"OnCalendar=\*-\*-\* \*:(\S+)", units.timer.get("TimersCalendar", ""))
    if calendars == ["00:00"]:
        return 3_600_000
    if seconds := re.fullmatch(r"\*:00/(\d{1,2})", " ".join(calendars)):
        return int(seconds[1]) * 1000
    minutes = re.match(r"00/(\d{1,2}):00\b", " ".join(sorted(calendars)))
    return int(minutes[1]) * 60_000 // len(calendars) if minutes else None


def next_run_ms(units: Units, newest_ms: int, now_ms: int) -> int | None:
    last = parse_time(units.timer.get("LastTriggerUSec", ""))
    following = parse_time(units.timer.get("NextElapseUSecRealtime", ""))
    if units.timer.get("ActiveState") != "active" or last is None or following is None:
        return None
    return following if following > now_ms and newest_ms >= last - CLOCK_SLACK_MS else None
