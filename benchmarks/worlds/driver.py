"""A driver in place of NVIDIA's that knows a world and keeps real buffers of it: the functions that pynvml has.

Buffers are as NVIDIA's are known to be: utilization at 6 Hz for about 16 s with timestamps in microseconds; a record a
second for each process that did something; the rate is that of the last second. A MIG instance has neither, but GPM.
"""

from __future__ import annotations

from functools import lru_cache
from types import SimpleNamespace
from typing import Any, NamedTuple

import pynvml

from benchmarks.worlds.card_history import CardHistory
from benchmarks.worlds.world import HZ, RESERVED_MIB, SLICES, Process, World

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
    timeStamp: int
    sampleValue: Any


class Record(NamedTuple):
    timeStamp: int
    pid: int
    smUtil: int
    memUtil: int = 0
    encUtil: int = 0
    decUtil: int = 0


class Handle(NamedTuple):
    """Of a GPU, or of one of its MIG instances."""

    gpu: int
    card: int | None  # None: a GPU that is divided into instances


VALUES = [SimpleNamespace(uiVal=value) for value in range(101)]


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

    def nvmlInit(self) -> None:
        pass

    def nvmlShutdown(self) -> None:
        pass

    def nvmlSystemGetDriverVersion(self) -> str:
        return DRIVER_VERSION

    def nvmlDeviceGetCount(self) -> int:
        return len(self.handles)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> Handle:
        first = self.handles[index][0]
        self._check(first)
        assert first.card is not None
        return Handle(index, None) if self.world.cards[first.card].slices else first

    def nvmlDeviceGetUUID(self, handle: Handle) -> str:
        self._check(handle)
        return uuid_of(self.world, handle)

    def nvmlDeviceGetName(self, handle: Handle) -> str:
        self._check(handle)
        return "NVIDIA H100 80GB HBM3"

    def nvmlDeviceGetMigMode(self, handle: Handle) -> list[int]:
        self._check(handle)
        return [int(handle.card is None)] * 2

    def nvmlDeviceGetMaxMigDeviceCount(self, handle: Handle) -> int:
        return SLICES

    def nvmlDeviceGetMigDeviceHandleByIndex(self, handle: Handle, index: int) -> Handle:
        instances = self.handles[handle.gpu]
        if index >= len(instances):
            raise _fails(pynvml.NVML_ERROR_NOT_FOUND)
        return instances[index]

    def nvmlDeviceGetAttributes(self, handle: Handle) -> Any:
        assert handle.card is not None
        slices = self.world.cards[handle.card].slices
        return SimpleNamespace(computeInstanceSliceCount=slices, gpuInstanceSliceCount=slices)

    def nvmlDeviceGetMemoryInfo(self, handle: Handle, version: int | None = None) -> Any:
        self._check(handle)
        total, used = (GPU_MIB, 0) if handle.card is None else self.memory(handle.card)
        free = total - used - RESERVED_MIB
        if version is None:  # the first version counts the reserve as used
            return SimpleNamespace(total=total * MIB, free=free * MIB, used=(total - free) * MIB)
        return SimpleNamespace(total=total * MIB, free=free * MIB, used=used * MIB, reserved=RESERVED_MIB * MIB)

    def nvmlDeviceGetSamples(self, handle: Handle, kind: int, since: int) -> tuple[int, list[Sample]]:
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

    def nvmlDeviceGetUtilizationRates(self, handle: Handle) -> Any:
        return SimpleNamespace(gpu=self.rate(self._card(handle)), memory=0)

    def nvmlDeviceGetProcessUtilization(self, handle: Handle, since: int) -> list[Record]:
        history = self.histories[self._card(handle)]
        end, begin = int(self.now), -int(-self._oldest_second() // 1)
        stamped = (
            (START_MS * 1000 + (second + 1) * 1_000_000, one, sm) for second, one, sm in history.records(begin, end)
        )
        found = [Record(stamp, one.pid, sm) for stamp, one, sm in stamped if stamp > since]
        if not found:
            raise _fails(pynvml.NVML_ERROR_NOT_FOUND)
        return found

    def nvmlDeviceGetComputeRunningProcesses_v3(self, handle: Handle) -> list[Any]:
        return self._list(handle, False)

    def nvmlDeviceGetGraphicsRunningProcesses_v3(self, handle: Handle) -> list[Any]:
        return self._list(handle, True)

    def nvmlDeviceGetMPSComputeRunningProcesses_v3(self, handle: Handle) -> list[Any]:
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

    def nvmlDeviceGetPowerUsage(self, handle: Handle) -> int:
        return round(1000 * (IDLE_WATTS + WATTS_PER_PERCENT * self.rate(self._card(handle))))

    def nvmlDeviceGetTotalEnergyConsumption(self, handle: Handle) -> int:
        worked = self.histories[self._card(handle)].percent_seconds_until
        booted = self.boot_second()
        joules = IDLE_WATTS * (self.now - booted) + WATTS_PER_PERCENT * (worked(self.now) - worked(booted))
        return round(1000 * joules)

    def nvmlDeviceGetTemperature(self, handle: Handle, sensor: int) -> int:
        return 31 + self.rate(self._card(handle)) // 2

    def nvmlDeviceGetPersistenceMode(self, handle: Handle) -> int:
        self._check(handle)
        return 1

    # GPM: utilization of a MIG instance between two samples of its counters.

    def nvmlGpmQueryDeviceSupport(self, handle: Handle) -> Any:
        return SimpleNamespace(isSupportedDevice=1)

    def nvmlDeviceGetGpuInstanceId(self, handle: Handle) -> int | None:
        return handle.card

    def nvmlGpmSampleAlloc(self) -> Any:
        return SimpleNamespace()

    def nvmlGpmMigSampleGet(self, handle: Handle, gpu_instance: int, sample: Any) -> Any:
        sample.card, sample.second = gpu_instance, self.now
        return sample

    def nvmlGpmMetricsGet(self, request: Any) -> Any:
        load = self.histories[request.sample1.card].load
        first, last = (min(int(sample.second * HZ), len(load) - 1) for sample in (request.sample1, request.sample2))
        request.metrics[0].value = float(load[first : last + 1].mean())
        request.metrics[0].nvmlReturn = pynvml.NVML_SUCCESS
        return request


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
