"""One tick: heal partitions, read the cards, identify their processes, store the result."""

# No `from __future__ import annotations` here: see records.py.

import time
from typing import NamedTuple

from gua_sample import store
from gua_sample.errors import DriverError, StoreError
from gua_sample.partition_file import storage_error
from gua_sample.partition_names import EARLIEST_MS, day_of
from gua_sample.processes import describe_all
from gua_sample.records import Reading, Source, Tick
from gua_sample.rights import others_who_may_write


class Done(NamedTuple):
    tick: Tick
    outcome: store.Outcome
    driver_error: DriverError | None  # recorded with the tick


def run(
    data_dir: str, source: Source, interval_ms: int | None, ts_ms: int, warn: store.Warn, nvml_ms: int | None = None
) -> Done:
    """Take one tick and store it; `nvml_ms` is measured if not given.

    An unusable driver gives a tick without cards. No lock is held while the driver is read, since that may take long.
    """

    def recall_names() -> dict[int, str]:
        warn("the directory of users does not answer: names come from earlier ticks where they are known")
        return store.read_names(folder, ts_ms)

    check_clock(ts_ms)
    folder = store.prepare(data_dir)
    if opening := others_who_may_write(data_dir):
        warn(str(opening))
    try:
        store.heal(folder, warn)
        boot = source.boot()
        previous = store.read_previous(folder, ts_ms, boot.id, warn)
        if previous:
            boot = previous.boot  # with the boot time as first seen: the clock may have been set since
        started = time.monotonic()
        reading, driver_error = Reading(None, [], []), None
        try:
            reading = source.read(previous)
        except DriverError as error:
            driver_error = error
        if nvml_ms is None:
            nvml_ms = round((time.monotonic() - started) * 1000)
        tick = Tick(
            ts_ms=ts_ms,
            interval_ms=interval_ms,
            boot=boot,
            driver_version=reading.driver_version,
            nvml_ms=nvml_ms,
            error=driver_error.name if driver_error else None,
            cards=reading.cards,
            processes=describe_all(reading.cards, boot, source, recall_names),
            cursors=reading.cursors,
        )
        outcome = store.append(folder, tick, warn)
    except OSError as error:
        raise storage_error(error, error.filename or folder) from error
    return Done(tick, outcome, driver_error)


def check_clock(ts_ms: int) -> None:
    """Raise StoreError if the clock was never set.

    A machine without a clock battery may boot in 1970, and a tick of that time would never be found again.
    """
    if ts_ms < EARLIEST_MS:
        raise StoreError(f"the clock says {day_of(ts_ms)}: nothing is recorded until it is set; see 'timedatectl'")
