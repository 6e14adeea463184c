"""Take one fresh reading of the driver, as the sampler does, but with a timeout and without storing it."""

from __future__ import annotations

import time
from typing import Any

from gua_report.machine.child import NO_ANSWER, ask
from gua_sample import pending, processes
from gua_sample.errors import DriverError
from gua_sample.records import Previous, Source, Tick

SAY = "'gua doctor' says more"


def machine() -> Source:
    """This machine as a source. Modules are imported here, once, and not again in each child that asks."""
    try:
        from gua_sample import nvml
    except ImportError as error:
        raise DriverError("nvidia_ml_py_missing", f"NVML can't be asked ({error}); {SAY}") from error
    return Source(processes.read_boot, nvml.read, processes.describe, processes.user_names)


def take(source: Source, previous: Previous | None, ts_ms: int, seconds: float) -> Tick:
    """The cards and who is on them, as a tick. `previous`: what the last tick left.

    A child asks, as a thread that hangs in the kernel could not even be abandoned.
    """
    answer = ask(lambda: _look_or_fail(source, previous, ts_ms), seconds)
    if answer.problem == NO_ANSWER:
        text = f"NVML does not answer within {seconds:g} s: give it longer with --timeout; {SAY}"
        raise DriverError("no_answer", text)
    if answer.problem:
        raise DriverError("crashed", f"NVML crashed; {SAY}")
    if "error" in answer.value:
        raise DriverError(answer.value["error"], f"{answer.value['text']}; {SAY}")
    return pending.restore(answer.value["tick"])


def _look_or_fail(source: Source, previous: Previous | None, ts_ms: int) -> dict[str, Any]:
    try:
        return {"tick": look(source, previous, ts_ms)}
    except DriverError as error:
        return {"error": error.name, "text": str(error)}


def look(source: Source, previous: Previous | None, ts_ms: int) -> Tick:
    """Take the reading in this process, without a timeout."""
    boot = source.boot()
    if previous and previous.boot.id == boot.id:
        boot = previous.boot  # with its stored time, so that start times of processes match the stored ones
    else:
        previous = None
    began = time.monotonic()
    reading = source.read(previous)
    nvml_ms = round((time.monotonic() - began) * 1000)
    described = processes.describe_all(reading.cards, boot, source)
    return Tick(ts_ms, None, boot, reading.driver_version, nvml_ms, None, reading.cards, described, [])


def simulate(seed: int, ts_ms: int) -> Tick:
    from gua_sample.simulate import Laboratory

    return look(Laboratory(seed).source(ts_ms), None, ts_ms)
