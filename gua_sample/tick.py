"""One tick: heal partitions, read the cards, identify their processes, store the result."""

# No `from __future__ import annotations` here: see records.py.

import time
from typing import NamedTuple

from gua_sample import store
from gua_sample.errors import DriverError, StoreError
from gua_sample.partition_file import storage_error
from gua_sample.partition_names import EARLIEST_MS, day_of
from gua_sample.processes import read_boot
from gua_sample.records import TIMEOUT, Boot, Previous, Process, Reading, Source, Tick
from gua_sample.rights import others_who_may_write


class Done(NamedTuple):
    tick: Tick
    outcome: store.Outcome
    driver_error: DriverError | None  # recorded with the tick


def run(data_dir: str, source: Source, interval_ms: int | None, ts_ms: int, warn: store.Warn) -> Done:
    """Take one tick and store it. No lock is held while the driver is read, since that may take long."""
    check_clock(ts_ms)
    folder = store.prepare(data_dir)
    if problem := others_who_may_write(data_dir):
        warn(str(problem))
    try:
        store.heal(folder, warn)
        boot = source.boot()
        previous = store.read_previous(folder, ts_ms, boot.id, warn)
        tick, driver_error = take(source, interval_ms, ts_ms, boot, previous)
        tick = tick._replace(processes=name_users(tick.processes, source, folder, ts_ms, warn))
        outcome = store.append(folder, tick, warn)
    except OSError as error:
        raise storage_error(error, error.filename or folder) from error
    return Done(tick, outcome, driver_error)


def record_timeout(data_dir: str, started_ms: int, killed_ms: int, warn: store.Warn) -> Tick:
    """Store the tick of a run that hung from `started_ms` until it was killed at `killed_ms`."""
    check_clock(started_ms)
    folder = store.prepare(data_dir)
    try:
        boot = read_boot()
        previous = store.read_previous(folder, started_ms, boot.id, warn)
        boot = previous.boot if previous else boot
        tick = Tick(started_ms, None, boot, None, killed_ms - started_ms, TIMEOUT, [], {}, [])
        store.append(folder, tick, warn)
    except OSError as error:
        raise storage_error(error, error.filename or folder) from error
    return tick


def check_clock(ts_ms: int) -> None:
    """Raise StoreError if the clock was never set.

    A machine without a clock battery may boot in 1970, and a tick of that time would never be found again.
    """
    if ts_ms < EARLIEST_MS:
        raise StoreError(f"the clock says {day_of(ts_ms)}: nothing is recorded until it is set; see 'timedatectl'")


def name_users(
    processes: dict[int, Process], source: Source, folder: str, ts_ms: int, warn: store.Warn
) -> dict[int, Process]:
    """Fill in the names of users. If the directory does not answer, the last stored names are used."""
    uids = {uid for one in processes.values() for uid in (one.uid, one.login_uid) if uid is not None}
    names = source.names(uids) if uids else {}
    if unanswered := uids - names.keys():
        warn("the directory of users does not answer: names come from earlier ticks where they are known")
        stored = store.read_names(folder, ts_ms)
        names |= {uid: stored.get(uid) for uid in unanswered}

    def name(uid: int | None) -> str | None:
        return None if uid is None else names.get(uid)

    return {
        pid: one._replace(user=one.user or name(one.uid), login_user=one.login_user or name(one.login_uid))
        for pid, one in processes.items()
    }


def take(
    source: Source, interval_ms: int | None, ts_ms: int, boot: Boot, previous: Previous | None
) -> tuple[Tick, DriverError | None]:
    """Read the cards and their processes. An unusable driver gives a tick without cards, and the error."""
    if previous:
        boot = previous.boot  # with the boot time as first seen: the clock may have been set since
    started = time.monotonic()
    reading, error = Reading(None, [], []), None
    try:
        reading = source.read(previous)
    except DriverError as driver_error:
        error = driver_error
    nvml_ms = round((time.monotonic() - started) * 1000)
    pids = dict.fromkeys(usage.pid for card in reading.cards for usage in card.usages)
    tick = Tick(
        ts_ms=ts_ms,
        interval_ms=interval_ms,
        boot=boot,
        driver_version=reading.driver_version,
        nvml_ms=nvml_ms,
        error=error.name if error else None,
        cards=reading.cards,
        processes={pid: source.describe(pid, boot) for pid in pids},
        cursors=reading.cursors,
    )
    return tick, error
