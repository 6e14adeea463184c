"""Check whether the newest tick is recent, and whether the clock is right."""

from __future__ import annotations

import os

from gua_report.doctor.driver import COMMANDS, OTHER_COMMAND
from gua_report.doctor.findings import Finding, as_root, duration, error, moment, named, ok, plural, sudo, warning
from gua_report.ticks.newest import AHEAD_MS, Files, Newest
from gua_report.ticks.open_partition import open_partition
from gua_sample.errors import StoreError
from gua_sample.partition_names import EARLIEST_MS, day_of, partition_path
from gua_sample.records import TIMEOUT

NEWEST = "newest tick"
CLOCK = "clock"


def check_newest(history: Files, newest: Newest | None, now_ms: int, start: str, journal: str) -> Finding:
    """A finding about the newest tick. `start` and `journal`: commands that take a tick by hand and show the log."""
    if history.hidden:
        return warning(NEWEST, f"{history.folder} can't be looked into ({history.hidden})", as_root(history.data_dir))
    if now_ms < EARLIEST_MS:
        return warning(NEWEST, "can't be told while the clock is wrong")
    if newest is None:
        unreadable = [path for path in history.partitions if not os.access(path, os.R_OK)]
        if unreadable:
            return warning(NEWEST, "the partitions are not for this user to read", as_root(history.data_dir))
        return error(NEWEST, "nothing has been recorded yet", start)
    age_ms = max(0, now_ms - newest.ts_ms)
    text = f"{moment(newest.ts_ms)}, {duration(age_ms)} ago"
    if newest.waits:
        text += " (it waits beside the partition, which somebody holds)"
    if newest.is_stale(now_ms):
        text += f": stale, as one is due at least every {duration(newest.stale_ms)}"
        return error(NEWEST, text + (f"; and it failed ({newest.error})" if newest.error else ""), journal)
    if newest.error:
        return error(NEWEST, f"{text}: {explain(newest.error)}", COMMANDS.get(newest.error, OTHER_COMMAND))
    if newest.due_ms is not None and age_ms > newest.stale_ms:
        text += f"; the timer's next run is in {duration(newest.due_ms - now_ms)}"
    return ok(NEWEST, text)


def explain(name: str) -> str:
    """The recorded error in words."""
    if name == TIMEOUT:
        return "the run was killed (timeout): the driver took too long"
    try:
        from gua_sample.nvml import driver_error
    except (ImportError, AttributeError):
        return f"the run failed ({name})"
    return str(driver_error(name))


def check_clock(history: Files, now_ms: int) -> list[Finding]:
    if now_ms < EARLIEST_MS:
        text = f"it says {moment(now_ms)}: nothing is recorded until it is set"
        return [error(CLOCK, text, "timedatectl")]
    today, latest = (partition_path(history.folder, day_of(ms)) for ms in (now_ms, now_ms + AHEAD_MS))
    future = [
        warning(
            CLOCK,
            f"{path} is of a day to come: was the clock set back, or wrong?",
            f"timedatectl; {sudo('mv', '-T', path, path + '.future')}",
        )
        for path in history.partitions
        if path > latest
    ]
    findings = named(future, "partitions of days to come")
    if today in history.partitions and (ahead := _count_ahead(today, now_ms)):
        text = f"{plural(ahead, 'tick')} of today in the future: was the clock set back?"
        findings.append(warning(CLOCK, text, "timedatectl"))
    return findings or [ok(CLOCK, moment(now_ms))]


def _count_ahead(path: str, now_ms: int) -> int:
    sql = "SELECT count(*) FROM tick WHERE ts_ms > ?"
    try:
        with open_partition(path) as connection:
            count: int = connection.execute(sql, (now_ms + AHEAD_MS,)).fetchone()[0]
    except StoreError:  # reported by check_partitions
        return 0
    return count
