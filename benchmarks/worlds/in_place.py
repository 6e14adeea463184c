"""Putting a driver and its clock in place of pynvml and the real clock, for the sampler's code in this process."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import FunctionType, SimpleNamespace
from typing import Any
from unittest import mock

import pynvml

from benchmarks.worlds.driver import START_MS, Driver
from gua_sample import nvml_card, processes


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
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)

    functions: dict[str, Any] = {
        name: getattr(driver, name, not_supported)
        for name, value in vars(pynvml).items()
        if name.startswith("nvml") and isinstance(value, FunctionType)
    }
    virtual = VirtualTime(driver)
    with ExitStack() as stack:
        stack.enter_context(mock.patch.multiple(pynvml, c_nvmlGpmMetricsGet_t=_gpm_request, **functions))
        for module in (processes, nvml_card):
            stack.enter_context(mock.patch.object(module, "time", virtual))
        yield


def _gpm_request() -> Any:
    return SimpleNamespace(metrics=[SimpleNamespace()])
