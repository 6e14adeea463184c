"""The stand-in driver keeps buffers as long as they are said to be, and tells what is in the world."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pynvml
import pytest

from benchmarks.worlds.driver import START_MS, Behaviour, Driver
from benchmarks.worlds.in_place import in_place_of_pynvml
from benchmarks.worlds.world import HZ, Card, Process, World
from gua_sample import nvml
from gua_sample.processes import uptime_ms
from gua_sample.records import Boot, Previous

START_US = START_MS * 1000
AS_MOST = Behaviour()
UTILIZATION = pynvml.NVML_GPU_UTILIZATION_SAMPLES


def make(behaviour: Behaviour = AS_MOST) -> Driver:
    """A card that works from second 100 to 110 of 200, beside one of two MIG instances."""
    load = np.zeros(200 * HZ, np.uint8)
    load[100 * HZ : 110 * HZ] = 60
    worker = Process(0, 7, "ada", "any", 0, load, 5000)
    inside = Process(2, 8, "bob", "any", 0, np.full(200 * HZ, 40, np.uint8), 3000)
    cards = [Card(0), Card(1, 3, 30_000), Card(1, 2, 20_000)]
    return Driver(World(200, cards, [worker, inside], losses=[(0, 150.0, 160.0)]), behaviour)


@contextmanager
def at(driver: Driver, second: float) -> Iterator[Any]:
    """Pynvml's functions at that second, and the handle of the whole card."""
    driver.now = second
    with in_place_of_pynvml(driver):
        yield pynvml.nvmlDeviceGetHandleByIndex(0)


def test_the_buffer_holds_the_last_16_seconds_and_gives_what_is_newer_than_asked_for() -> None:
    with at(make(), 112.05) as handle:
        _, samples = pynvml.nvmlDeviceGetSamples(handle, UTILIZATION, 0)
        stamps = [sample.timeStamp - START_US for sample in samples]
        assert len(samples) == 16 * HZ
        assert stamps[-1] == 112_000_000
        # A sample is stamped when it ends: the first of the work ends a sixth after second 100.
        busy = [stamp for stamp, sample in zip(stamps, samples, strict=True) if sample.sampleValue.uiVal]
        assert (busy[0], busy[-1], len(busy)) == (100_166_666, 110_000_000, 60)
        newer = pynvml.nvmlDeviceGetSamples(handle, UTILIZATION, START_US + 111_000_000)[1]
        assert len(newer) == HZ


def test_processes_have_a_record_for_each_second_in_which_they_did_something() -> None:
    with at(make(), 112) as handle:
        records = pynvml.nvmlDeviceGetProcessUtilization(handle, 0)
        assert {(one.pid, one.smUtil) for one in records} == {(7, 60)}
        assert [(one.timeStamp - START_US) // 1_000_000 for one in records] == list(range(101, 111))
    with at(make(), 140) as handle, pytest.raises(pynvml.NVMLError_NotFound):
        pynvml.nvmlDeviceGetProcessUtilization(handle, 0)


def test_the_sampler_reads_it_as_it_reads_a_real_one() -> None:
    driver = make()
    with at(driver, 112):
        first = nvml.read(None)
        driver.now = 142.0
        second = nvml.read(Previous(Boot("any", 0), first.driver_version, first.cursors))
        assert uptime_ms() == 86_400_000 + 142_110  # a meter of MIG waits for a tenth of a second
    (worker, empty, inside), (later, *_) = first.cards, second.cards
    assert worker.utilization_percent == pytest.approx(60 * 10 / 16, abs=0.01)
    assert (later.utilization_percent, later.utilization_source) == (0.0, "samples")
    assert (worker.usages[0].pid, worker.usages[0].memory_mib, worker.memory_used_mib) == (7, 5000, 5000)
    assert (empty.utilization_percent, inside.utilization_percent, inside.utilization_source) == (0.0, 40.0, "gpm")
    assert (inside.facts.compute_slices, inside.facts.most_compute_slices) == (2, 7)
    assert later.energy_joules is not None
    assert worker.energy_joules is not None
    assert later.energy_joules - worker.energy_joules == pytest.approx(30 * 55, abs=1)


def test_a_lost_card_fails_alone() -> None:
    driver = make()
    with at(driver, 112):
        before = nvml.read(None)
        driver.now = 155.0
        cards = nvml.read(Previous(Boot("any", 0), before.driver_version, before.cursors)).cards
    assert sorted((card.facts.uuid[:3], card.facts.status) for card in cards) == [
        ("GPU", "gpu_is_lost"),
        ("MIG", "ok"),
        ("MIG", "ok"),
    ]
