"""One tick: heal, look at the cards, find out who is on them, write it down."""

from __future__ import annotations

import time
from typing import NamedTuple

from gua_sample import store
from gua_sample.errors import DriverError
from gua_sample.records import Boot, Previous, Reading, Source, Tick
from gua_sample.writer import storage_error


class Done(NamedTuple):
    tick: Tick
    outcome: store.Outcome
    driver_error: DriverError | None  # recorded with the tick


def run(data_dir: str, source: Source, interval_ms: int | None, ts_ms: int, warn: store.Warn) -> Done:
    """Take one tick and store it. No lock is held while the driver is asked: it may take its time."""
    folder = store.prepare(data_dir)
    try:
        store.heal(folder, warn)
        boot = source.boot()
        previous = store.read_previous(folder, ts_ms, boot.id)
        tick, driver_error = take(source, interval_ms, ts_ms, boot, previous)
        outcome = store.append(folder, tick, warn)
    except OSError as error:
        raise storage_error(error, error.filename or folder) from error
    return Done(tick, outcome, driver_error)


def take(
    source: Source, interval_ms: int | None, ts_ms: int, boot: Boot, previous: Previous | None
) -> tuple[Tick, DriverError | None]:
    """Look at the cards and at who is on them. A driver that can't be used gives a tick without cards."""
    if previous:
        boot = previous.boot  # its time, as first seen: the clock may have been set since
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
