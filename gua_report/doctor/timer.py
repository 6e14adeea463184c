"""Check whether the timer runs the sampler, and how its last run ended."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator

from gua_report.doctor.findings import COMMENT, Finding, duration, error, moment, ok, shell, warning
from gua_report.doctor.user import User
from gua_report.machine.units import TIMER, Found, Properties, parse_time

ENABLED = ("enabled", "static", "generated", "alias")
# The unit kills a run after 90 s; one that survives this hangs in the driver.
LONGEST_RUN_MS = 120_000
LINGER = "/var/lib/systemd/linger"


def check_timer(
    found: Found, data_dir: str, is_fresh: bool, now_ms: int, user: User, linger: str = LINGER
) -> Iterator[Finding]:
    """Findings about the timer. `is_fresh`: the newest tick is recent, so something runs the sampler."""
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
    """A finding on how the last run ended. `newest_ms`: the newest tick of the folder that it writes to, if known."""
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
    """The command that lets cron run the sampler every minute, without a mail each time.

    Cron knows neither this user's PATH nor GUA_DATA_DIR, and takes a bare % for the end of the line.
    """
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
    text = f", last run {duration(max(0, now_ms - last))} ago" if last else ", has not run yet"
    return text + (f", next in {duration(max(0, following - now_ms))}" if following else "")
