"""Replays what `gua doctor --record` wrote: the real pynvml and the real code of a tick, on recorded answers.

Only the functions of the driver's library, and the clock, are replaced, by what they answered in the recording.
"""

import ctypes
import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pynvml

from gua_report.doctor.recording import plain
from gua_sample import nvml
from gua_sample.errors import DriverError
from gua_sample.records import Boot, Previous, Process, Reading

RECORDINGS = Path(__file__).parent / "recordings"
MOST_HANDLES = 100_000
HANDLES = {number: number for number in range(1, MOST_HANDLES)}  # the handle #1 is a pointer to address 1
CLOCK = "clock_gettime_ns"
BOOT = Boot("recorded", 0)

Line = dict[str, Any]


class RecordedTick(NamedTuple):
    ts_ms: int
    calls: list[Line]
    reading: Line | None  # as JSON
    error: str | None  # of the driver, if there is no reading
    processes: list[Process]


class NotRecorded(Exception):
    """The code asks what it did not ask when the recording was made, so that nobody knows the answer."""


def read_recording(path: Path) -> tuple[Line, list[RecordedTick]]:
    """The header of a recording, and its whole ticks. What was asked between them, once a second, is left out."""
    header, *lines = map(json.loads, path.read_text().splitlines())
    ticks: list[RecordedTick] = []
    begin, calls = 0, list[Line]()
    for line in lines:
        if "begin" in line:
            begin, calls = line["ts_ms"], []
        elif "call" in line:
            calls.append(line)
        elif "reading" in line or "error" in line:
            processes = [Process(**process) for process in line.get("processes", ())]
            ticks.append(RecordedTick(begin, calls, line.get("reading"), line.get("error"), processes))
            calls = []
    return header, ticks


def replay(ticks: list[RecordedTick]) -> Iterator[tuple[RecordedTick, Reading | None, str | None]]:
    """Read the cards again for each tick, after what the tick before left; gives the reading, or the driver's error."""
    previous = None
    for tick in ticks:
        try:
            with replaying(tick.calls):
                reading = nvml.read(previous)
        except DriverError as error:
            yield tick, None, error.name
        else:
            previous = Previous(BOOT, reading.driver_version, reading.cursors)
            yield tick, reading, None


@contextmanager
def replaying(calls: list[Line]) -> Iterator[None]:
    """pynvml and the clock answer with these calls. Those that were asked the same answer in the recorded order."""
    answers: dict[str, list[Line]] = {}
    for line in calls:
        answers.setdefault(json.dumps([line["call"], line["args"]]), []).append(line)
    names = {line["call"] for line in calls}

    def load() -> None:
        if "nvmlInitWithFlags" not in names:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)

    def find(name: str) -> Callable[..., int]:
        if name not in names:  # as in a driver that does not have it
            raise pynvml.NVMLError(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)
        return answering(name)

    def answering(name: str) -> Callable[..., int]:
        def call(*given: Any) -> int:
            key = json.dumps([name, [plain(one, HANDLES) for one in given]])
            if key not in answers:
                raise NotRecorded(key)
            line = answers[key].pop(0) if len(answers[key]) > 1 else answers[key][0]
            for number, value in line["result"].items():
                fill(getattr(given[int(number)], "_obj", given[int(number)]), value)
            return int(line["return"])

        return call

    module, clock = vars(pynvml), vars(time)
    kept = {name: module[name] for name in ("_nvmlGetFunctionPointer", "_LoadNvmlLibrary")}, clock[CLOCK]
    module.update(_nvmlGetFunctionPointer=find, _LoadNvmlLibrary=load)
    clock[CLOCK] = answering(CLOCK)
    try:
        yield
    finally:
        module.update(kept[0])
        clock[CLOCK] = kept[1]


def fill(target: Any, value: Any) -> None:
    """Write a value of the recording into an argument of a C function: the opposite of `plain`."""
    if isinstance(target, ctypes._Pointer):
        ctypes.c_void_p.from_buffer(target).value = int(value[1:]) if value else None
    elif isinstance(target, ctypes.Union):
        ctypes.memmove(ctypes.addressof(target), value.to_bytes(ctypes.sizeof(target), sys.byteorder), 8)
    elif isinstance(target, ctypes.Structure):
        for name, part in value.items():
            held = getattr(target, name)
            if isinstance(held, ctypes.Structure | ctypes.Union | ctypes.Array | ctypes._Pointer):
                fill(held, part)
            else:
                setattr(target, name, encoded(part))
    elif isinstance(target, ctypes.Array) and isinstance(value, list):
        for number, row in enumerate(value):
            fill(target[number], row)
    else:
        target.value = encoded(value)


def encoded(value: Any) -> Any:
    return value.encode("utf-8", "surrogateescape") if isinstance(value, str) else value
