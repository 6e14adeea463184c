"""A stand-in for pynvml whose driver keeps real buffers of a world, and a clock that moves only when it is told to.

Buffers are as NVIDIA's are known to be: utilization at 6 Hz for about 16 s with timestamps in microseconds; a record a
second for each process that did something; the rate is that of the last second. A MIG instance has neither, but GPM.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import lru_cache
from types import FunctionType, SimpleNamespace
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
import pynvml

from benchmarks.worlds.world import HZ, RESERVED_MIB, SLICES, Process, World
from gua_sample import nvml_gpm, processes

START_MS = 1_791_158_400_000  # Monday 2026-10-05, 00:00 UTC
DRIVER_VERSION = "580.65.06"
GPU_MIB, MIB = 81_920, 1_048_576
IDLE_WATTS, WATTS_PER_PERCENT = 55.0, 3.2


class Behaviour(NamedTuple):
    """What this driver does otherwise than most."""

    buffer_seconds: float = 16.0
    writes_zeros: bool = True  # else, nothing is added to the buffer while a card idles
    has_samples: bool = True  # else, there are only instantaneous rates
    tells_memory: bool = True  # of processes; WSL does not


class Sample(NamedTuple):
    timeStamp: int  # noqa: N815 - as NVML spells it
    sampleValue: Any  # noqa: N815


class Record(NamedTuple):
    timeStamp: int  # noqa: N815
    pid: int
    smUtil: int  # noqa: N815
    memUtil: int = 0  # noqa: N815
    encUtil: int = 0  # noqa: N815
    decUtil: int = 0  # noqa: N815


class Handle(NamedTuple):
    """Of a GPU, or of one of its MIG instances."""

    gpu: int
    card: int | None  # None: a GPU that is divided into instances


VALUES = [SimpleNamespace(uiVal=value) for value in range(101)]


class CardHistory:
    """One card of the world, as the driver knows it."""

    def __init__(self, world: World, card: int) -> None:
        self.load = world.card_load(card)
        self.percent_seconds = np.concatenate([[0.0], np.cumsum(self.load.reshape(-1, HZ).mean(axis=1))])
        found = world.on_card(card)
        self.changes = sorted({0, *(edge for one in found for edge in (one.first, one.end))})
        self.alive: list[list[Process]] = [[] for _ in self.changes]
        position = {edge: number for number, edge in enumerate(self.changes)}
        for one in found:
            for number in range(position[one.first], position[one.end]):
                self.alive[number].append(one)
        self.busy = {one: _busy_seconds(one) for one in found}

    def at(self, sample: int) -> list[Process]:
        return self.alive[bisect_right(self.changes, sample) - 1]

    def records(self, begin: int, end: int) -> Iterator[tuple[int, Process, int]]:
        """Second, process and percent of each second from `begin` to before `end` in which a process did something."""
        stretches = range(bisect_right(self.changes, begin * HZ) - 1, bisect_right(self.changes, end * HZ))
        for one in dict.fromkeys(one for number in stretches for one in self.alive[number]):
            first, percents = self.busy[one]
            since, until = max(begin, first), min(end, first + len(percents))
            for second, percent in enumerate(percents[since - first : max(since, until) - first].tolist(), since):
                if percent:
                    yield second, one, percent

    def percent_seconds_until(self, second: float) -> float:
        """The load added up until then."""
        whole = min(max(0, int(second)), len(self.percent_seconds) - 2)
        begin, end = self.percent_seconds[whole : whole + 2].tolist()
        return float(begin + (end - begin) * (second - whole)) if second > 0 else 0.0


def _busy_seconds(process: Process) -> tuple[int, Any]:
    """The first second of a process, and the mean of its load in each of its seconds."""
    first = process.first // HZ
    padded = np.zeros((-(-process.end // HZ) - first) * HZ)
    padded[process.first - first * HZ :][: len(process.load)] = process.load
    return first, np.rint(padded.reshape(-1, HZ).mean(axis=1)).astype(np.int64)


def _fails(error: int) -> pynvml.NVMLError:
    return pynvml.NVMLError(error)


class Driver:
    """The functions of pynvml, by their own names, at `now` seconds of a world."""

    def __init__(self, world: World, behaviour: Behaviour) -> None:
        self.world, self.behaviour = world, behaviour
        self.now = 0.0
        self.histories = [CardHistory(world, card) for card in range(len(world.cards))]
        self.handles: list[list[Handle]] = [[] for _ in range(1 + max(card.gpu for card in world.cards))]
        for number, card in enumerate(world.cards):
            self.handles[card.gpu].append(Handle(card.gpu, number))

    # What a person could see, in the driver's own words.

    def boot_second(self) -> float:
        """When the host was booted; a day before the world begins, or at the end of a reboot."""
        return max((end for _, end in self.world.reboots if end <= self.now), default=-86_400.0)

    def processes_on(self, card: int) -> list[Process]:
        return self.histories[card].at(int(self.now * HZ))

    def rate(self, card: int) -> int:
        """Percent of the last second."""
        newest = self._newest()
        last: list[int] = self.histories[card].load[max(0, newest - HZ) : newest].tolist()
        return round(sum(last) / HZ)

    def memory(self, card: int) -> tuple[int, int]:
        """Total and used MiB, without the driver's reserve."""
        return self.world.cards[card].memory_mib, sum(one.memory_mib for one in self.processes_on(card))

    def _newest(self) -> int:
        """How many samples are complete."""
        return min(int(self.now * HZ), self.world.seconds * HZ)

    def _oldest_second(self) -> float:
        """Of what the buffers hold; they are empty after a boot."""
        return max(self.now - self.behaviour.buffer_seconds, self.boot_second(), 0.0)

    def _card(self, handle: Handle) -> int:
        """The whole card of a handle; a lost one fails, and what MIG instances don't tell is not supported."""
        self._check(handle)
        if handle.card is None or self.world.cards[handle.card].slices:
            raise _fails(pynvml.NVML_ERROR_NOT_SUPPORTED)
        return handle.card

    def _check(self, handle: Handle) -> None:
        if self.world.is_lost(handle.gpu, self.now):
            raise _fails(pynvml.NVML_ERROR_GPU_IS_LOST)

    # The functions that the sampler calls.

    def nvmlInit(self) -> None:  # noqa: N802 - as NVML spells it
        pass

    def nvmlShutdown(self) -> None:  # noqa: N802
        pass

    def nvmlSystemGetDriverVersion(self) -> str:  # noqa: N802
        return DRIVER_VERSION

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return len(self.handles)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> Handle:  # noqa: N802
        first = self.handles[index][0]
        self._check(first)
        assert first.card is not None
        return Handle(index, None) if self.world.cards[first.card].slices else first

    def nvmlDeviceGetUUID(self, handle: Handle) -> str:  # noqa: N802
        self._check(handle)
        return uuid_of(self.world, handle)

    def nvmlDeviceGetName(self, handle: Handle) -> str:  # noqa: N802
        self._check(handle)
        return "NVIDIA H100 80GB HBM3"

    def nvmlDeviceGetMigMode(self, handle: Handle) -> list[int]:  # noqa: N802
        self._check(handle)
        return [int(handle.card is None)] * 2

    def nvmlDeviceGetMaxMigDeviceCount(self, handle: Handle) -> int:  # noqa: N802
        return SLICES

    def nvmlDeviceGetMigDeviceHandleByIndex(self, handle: Handle, index: int) -> Handle:  # noqa: N802
        instances = self.handles[handle.gpu]
        if index >= len(instances):
            raise _fails(pynvml.NVML_ERROR_NOT_FOUND)
        return instances[index]

    def nvmlDeviceGetAttributes(self, handle: Handle) -> Any:  # noqa: N802
        assert handle.card is not None
        slices = self.world.cards[handle.card].slices
        return SimpleNamespace(computeInstanceSliceCount=slices, gpuInstanceSliceCount=slices)

    def nvmlDeviceGetMemoryInfo(self, handle: Handle, version: int | None = None) -> Any:  # noqa: N802
        self._check(handle)
        total, used = (GPU_MIB, 0) if handle.card is None else self.memory(handle.card)
        free = total - used - RESERVED_MIB
        if version is None:  # the first version counts the reserve as used
            return SimpleNamespace(total=total * MIB, free=free * MIB, used=(total - free) * MIB)
        return SimpleNamespace(total=total * MIB, free=free * MIB, used=used * MIB, reserved=RESERVED_MIB * MIB)

    def nvmlDeviceGetSamples(self, handle: Handle, kind: int, since: int) -> tuple[int, list[Sample]]:  # noqa: N802
        load = self.histories[self._card(handle)].load
        if not self.behaviour.has_samples or kind != pynvml.NVML_GPU_UTILIZATION_SAMPLES:
            raise _fails(pynvml.NVML_ERROR_NOT_SUPPORTED)
        newest = self._newest()
        oldest = min(newest, int(self._oldest_second() * HZ))
        found = [
            Sample(stamp, VALUES[value])
            for stamp, value in zip(_stamps(oldest, newest), load[oldest:newest].tolist(), strict=True)
            if stamp > since and (value or self.behaviour.writes_zeros)
        ]
        if not found:
            raise _fails(pynvml.NVML_ERROR_NOT_FOUND)
        return pynvml.NVML_VALUE_TYPE_UNSIGNED_INT, found

    def nvmlDeviceGetUtilizationRates(self, handle: Handle) -> Any:  # noqa: N802
        return SimpleNamespace(gpu=self.rate(self._card(handle)), memory=0)

    def nvmlDeviceGetProcessUtilization(self, handle: Handle, since: int) -> list[Record]:  # noqa: N802
        history = self.histories[self._card(handle)]
        end, begin = int(self.now), -int(-self._oldest_second() // 1)
        stamped = (
            (START_MS * 1000 + (second + 1) * 1_000_000, one, sm) for second, one, sm in history.records(begin, end)
        )
        found = [Record(stamp, one.pid, sm) for stamp, one, sm in stamped if stamp > since]
        if not found:
            raise _fails(pynvml.NVML_ERROR_NOT_FOUND)
        return found

    def nvmlDeviceGetComputeRunningProcesses_v3(self, handle: Handle) -> list[Any]:  # noqa: N802
        return self._list(handle, False)

    def nvmlDeviceGetGraphicsRunningProcesses_v3(self, handle: Handle) -> list[Any]:  # noqa: N802
        return self._list(handle, True)

    def nvmlDeviceGetMPSComputeRunningProcesses_v3(self, handle: Handle) -> list[Any]:  # noqa: N802
        self._check(handle)
        return []

    def _list(self, handle: Handle, is_graphics: bool) -> list[Any]:
        self._check(handle)
        found = self.processes_on(handle.card) if handle.card is not None else []
        tells = self.behaviour.tells_memory
        return [
            SimpleNamespace(pid=one.pid, usedGpuMemory=one.memory_mib * MIB if tells else None)
            for one in found
            if one.is_graphics == is_graphics
        ]

    def nvmlDeviceGetPowerUsage(self, handle: Handle) -> int:  # noqa: N802
        return round(1000 * (IDLE_WATTS + WATTS_PER_PERCENT * self.rate(self._card(handle))))

    def nvmlDeviceGetTotalEnergyConsumption(self, handle: Handle) -> int:  # noqa: N802
        worked = self.histories[self._card(handle)].percent_seconds_until
        booted = self.boot_second()
        joules = IDLE_WATTS * (self.now - booted) + WATTS_PER_PERCENT * (worked(self.now) - worked(booted))
        return round(1000 * joules)

    def nvmlDeviceGetTemperature(self, handle: Handle, sensor: int) -> int:  # noqa: N802
        return 31 + self.rate(self._card(handle)) // 2

    def nvmlDeviceGetPersistenceMode(self, handle: Handle) -> int:  # noqa: N802
        self._check(handle)
        return 1

    # GPM: utilization of a MIG instance between two samples of its counters.

    def nvmlGpmQueryDeviceSupport(self, handle: Handle) -> Any:  # noqa: N802
        return SimpleNamespace(isSupportedDevice=1)

    def nvmlDeviceGetGpuInstanceId(self, handle: Handle) -> int | None:  # noqa: N802
        return handle.card

    def nvmlGpmSampleAlloc(self) -> Any:  # noqa: N802
        return SimpleNamespace()

    def nvmlGpmMigSampleGet(self, handle: Handle, gpu_instance: int, sample: Any) -> Any:  # noqa: N802
        sample.card, sample.second = gpu_instance, self.now
        return sample

    def nvmlGpmMetricsGet(self, request: Any) -> Any:  # noqa: N802
        load = self.histories[request.sample1.card].load
        first, last = (min(int(sample.second * HZ), len(load) - 1) for sample in (request.sample1, request.sample2))
        request.metrics[0].value = float(load[first : last + 1].mean())
        request.metrics[0].nvmlReturn = pynvml.NVML_SUCCESS
        return request


def _gpm_request() -> Any:
    return SimpleNamespace(metrics=[SimpleNamespace()])


@lru_cache(1)
def _stamps(first: int, end: int) -> list[int]:
    """Microseconds of the ends of samples."""
    return [START_MS * 1000 + sample * 1_000_000 // HZ for sample in range(first + 1, end + 1)]


def uuid_of(world: World, handle: Handle) -> str:
    is_instance = handle.card is not None and world.cards[handle.card].slices
    number = handle.card if is_instance else handle.gpu
    return f"{'MIG' if is_instance else 'GPU'}-{number:08x}-0000-4000-8000-000000000000"


def card_uuid(world: World, card: int) -> str:
    return uuid_of(world, Handle(world.cards[card].gpu, card))


class VirtualTime:
    """The module `time`, except for what tells the driver's time or would wait for it."""

    CLOCK_BOOTTIME = time.CLOCK_BOOTTIME

    def __init__(self, driver: Driver) -> None:
        self._driver = driver

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)

    def time_ns(self) -> int:
        return START_MS * 1_000_000 + round(self._driver.now * 1e9)

    def clock_gettime_ns(self, clock: int) -> int:
        return round((self._driver.now - self._driver.boot_second()) * 1e9)

    def monotonic(self) -> float:
        return self._driver.now

    def sleep(self, seconds: float) -> None:
        self._driver.now += seconds


@contextmanager
def in_place_of_pynvml(driver: Driver) -> Iterator[None]:
    """Let the sampler's modules in this process ask this driver, by its clock. What it lacks is not supported."""

    def not_supported(*arguments: Any) -> Any:
        raise _fails(pynvml.NVML_ERROR_NOT_SUPPORTED)

    functions: dict[str, Any] = {
        name: getattr(driver, name, not_supported)
        for name, value in vars(pynvml).items()
        if name.startswith("nvml") and isinstance(value, FunctionType)
    }
    virtual = VirtualTime(driver)
    with ExitStack() as stack:
        stack.enter_context(mock.patch.multiple(pynvml, c_nvmlGpmMetricsGet_t=_gpm_request, **functions))
        for module in (processes, nvml_gpm):
            stack.enter_context(mock.patch.object(module, "time", virtual))
        yield
