"""Utilization of MIG instances, measured between two GPM samples.

Only Hopper and newer cards support that; on older ones the utilization stays None. Samples are not freed: the process
that takes them ends soon.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pynvml

from gua_sample.records import Card

APART_SECONDS = 0.11  # the driver refreshes its counters every 100 ms

Meter = Callable[[Card], Card]


def start(parent: Any, instances: list[Any]) -> list[Meter | None]:
    """A meter for each instance, which gives its card the utilization since now; None if it can't be measured."""
    support = _or_none(pynvml.nvmlGpmQueryDeviceSupport, parent)
    if support is None or not support.isSupportedDevice:
        return [None] * len(instances)
    gpu_instances = [_or_none(pynvml.nvmlDeviceGetGpuInstanceId, instance) for instance in instances]
    if None in gpu_instances:
        return [None] * len(instances)
    # A sample covers a whole GPU instance: several compute instances in it can't be told apart.
    return [_start(parent, one) if gpu_instances.count(one) == 1 else None for one in gpu_instances]


def _start(parent: Any, gpu_instance: int) -> Meter | None:
    first, started = _sample(parent, gpu_instance), time.monotonic()
    if first is None:
        return None

    def read(card: Card) -> Card:
        """The card with its utilization, if that could be measured. Waits until the first sample is old enough."""
        time.sleep(max(0.0, started + APART_SECONDS - time.monotonic()))
        percent = _utilization(first, _sample(parent, gpu_instance))
        if percent is None:
            return card
        missing = [entry for entry in (card.facts.missing or "").split() if not entry.startswith("utilization:")]
        facts = card.facts._replace(missing=" ".join(missing) or None)
        return card._replace(facts=facts, utilization_percent=percent, utilization_source="gpm")

    return read


def _sample(parent: Any, gpu_instance: int) -> Any:
    sample = _or_none(pynvml.nvmlGpmSampleAlloc)
    return None if sample is None else _or_none(pynvml.nvmlGpmMigSampleGet, parent, gpu_instance, sample)


def _utilization(first: Any, second: Any) -> float | None:
    if second is None:
        return None
    request = pynvml.c_nvmlGpmMetricsGet_t()
    request.version = pynvml.NVML_GPM_METRICS_GET_VERSION
    request.numMetrics = 1
    request.sample1, request.sample2 = first, second
    request.metrics[0].metricId = pynvml.NVML_GPM_METRIC_GRAPHICS_UTIL
    answer = _or_none(pynvml.nvmlGpmMetricsGet, request)
    metric = answer.metrics[0] if answer else None
    if metric is None or metric.nvmlReturn != pynvml.NVML_SUCCESS or not 0 <= metric.value <= 100:
        return None
    return round(float(metric.value), 2)


def _or_none(function: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return function(*arguments)
    except pynvml.NVMLError:
        return None
