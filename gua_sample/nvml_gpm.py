"""Utilization of MIG instances, measured between two GPM samples.

Only Hopper and newer cards support that; on older ones the utilization stays None.
"""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Any, NamedTuple

import pynvml

from gua_sample.records import Card

APART_SECONDS = 0.11  # the driver refreshes its counters every 100 ms


class Meter(NamedTuple):
    """A measurement under way on one GPU instance."""

    parent: Any
    gpu_instance: int
    first: Any
    started: float

    def read(self, card: Card) -> Card:
        """The card with its utilization, if that can be measured. Waits until the first sample is old enough."""
        time.sleep(max(0.0, self.started + APART_SECONDS - time.monotonic()))
        percent = _between(self.parent, self.gpu_instance, self.first)
        if percent is None:
            return card
        missing = [entry for entry in (card.facts.missing or "").split() if not entry.startswith("utilization:")]
        facts = card.facts._replace(missing=" ".join(missing) or None)
        return card._replace(facts=facts, utilization_percent=percent, utilization_source="gpm")


def start(parent: Any, instances: list[Any]) -> list[Meter | None]:
    """A meter for each instance, or None for those that can't be measured."""
    try:
        if not pynvml.nvmlGpmQueryDeviceSupport(parent).isSupportedDevice:
            return [None] * len(instances)
        gpu_instances = [pynvml.nvmlDeviceGetGpuInstanceId(instance) for instance in instances]
    except pynvml.NVMLError:
        return [None] * len(instances)
    # A sample covers a whole GPU instance: several compute instances in it can't be told apart.
    return [
        _start_one(parent, gpu_instance) if gpu_instances.count(gpu_instance) == 1 else None
        for gpu_instance in gpu_instances
    ]


def _start_one(parent: Any, gpu_instance: int) -> Meter | None:
    first = _sample(parent, gpu_instance)
    return None if first is None else Meter(parent, gpu_instance, first, time.monotonic())


def _between(parent: Any, gpu_instance: int, first: Any) -> float | None:
    second = _sample(parent, gpu_instance)
    try:
        return None if second is None else _utilization(first, second)
    finally:
        for sample in (first, second):
            _free(sample)


def _sample(parent: Any, gpu_instance: int) -> Any:
    try:
        sample = pynvml.nvmlGpmSampleAlloc()
    except pynvml.NVMLError:
        return None
    try:
        return pynvml.nvmlGpmMigSampleGet(parent, gpu_instance, sample)
    except pynvml.NVMLError:
        _free(sample)
        return None


def _free(sample: Any) -> None:
    if sample is not None:
        with suppress(pynvml.NVMLError):  # the process ends anyway
            pynvml.nvmlGpmSampleFree(sample)


def _utilization(first: Any, second: Any) -> float | None:
    request = pynvml.c_nvmlGpmMetricsGet_t()
    request.version = pynvml.NVML_GPM_METRICS_GET_VERSION
    request.numMetrics = 1
    request.sample1, request.sample2 = first, second
    request.metrics[0].metricId = pynvml.NVML_GPM_METRIC_GRAPHICS_UTIL
    try:
        metric = pynvml.nvmlGpmMetricsGet(request).metrics[0]
    except pynvml.NVMLError:
        return None
    if metric.nvmlReturn != pynvml.NVML_SUCCESS or not 0 <= metric.value <= 100:
        return None
    return round(float(metric.value), 2)
