"""A world recorded by the sampler's own code: `cli.take` at each tick of its timer, on the stand-in driver."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, TextIO
from unittest import mock

import numpy as np

from benchmarks.worlds.driver import START_MS, Driver, card_uuid
from benchmarks.worlds.in_place import in_place_of_pynvml
from benchmarks.worlds.world import HZ, Span, World
from gua_sample import cli, nvml
from gua_sample.policy import LONGEST_GAP_INTERVALS
from gua_sample.records import Boot, Process, Source

FIRST_UID = 1000
LATE_SHARE = 0.002  # of the ticks come seconds late, as on a machine that is busy


class Moment(NamedTuple):
    second: float
    boot: float  # the second at which the host was booted


def moments_of(world: World, interval: float, seed: int) -> list[Moment]:
    """When the timer lets the sampler run: a little late each time, never in an outage or while the host is down."""
    rng = np.random.default_rng(seed)
    due = np.arange(rng.uniform(1, interval), world.seconds - interval, interval)
    late = rng.exponential(0.05, len(due)) + rng.uniform(1, interval / 3, len(due)) * (
        rng.random(len(due)) < LATE_SHARE
    )
    ups = [-86_400.0, *(end for _, end in sorted(world.reboots))]
    away = [*world.outages, *world.reboots]
    return [
        Moment(second, max(up for up in ups if up <= second))
        for second in (due + late).round(3).tolist()
        if not any(begin <= second < end for begin, end in away)
    ]


def observed_spans(moments: list[Moment], interval: float) -> Iterator[Span]:
    """The observed time. A tick that is missed ends it from then on; one that comes late does not."""
    begin = moments[0].second
    for one, other in pairwise(moments):
        if other.boot != one.boot or other.second - one.second > LONGEST_GAP_INTERVALS * interval:
            yield begin, one.second + interval
            begin = other.second
    yield begin, moments[-1].second + interval


def record(driver: Driver, moments: list[Moment], data_dir: Path, answers: TextIO) -> None:
    """Take all ticks. `answers` gets what the same driver tells gpu-usage-audit at these moments, a line each."""
    world = driver.world
    uids = {user: FIRST_UID + number for number, user in enumerate(sorted({one.user for one in world.processes}))}
    with in_place_of_pynvml(driver), mock.patch.object(cli, "warn", _refuse):
        for moment in moments:
            driver.now = moment.second
            answers.write(json.dumps(_answers(driver, moment)) + "\n")
            ts_ms = START_MS + round(moment.second * 1000)
            cli.take(str(data_dir), _source(driver, moment, uids), None, ts_ms, nvml_ms=5)


def _refuse(warning: str) -> NoReturn:
    raise RuntimeError(f"the sampler warns: {warning}")


def _source(driver: Driver, moment: Moment, uids: dict[str, int]) -> Source:
    boot = Boot(f"boot-{moment.boot:.0f}", START_MS + round(moment.boot * 1000))
    alive = {one.pid: one for card in range(len(driver.world.cards)) for one in driver.processes_on(card)}

    def describe(pid: int, boot: Boot) -> Process:
        one = alive[pid]
        start_ms, uid = START_MS + one.first * 1000 // HZ, uids[one.user]
        cgroup = f"/user.slice/user-{uid}.slice/session-1.scope"
        return Process(pid, start_ms, uid, uid, one.user, one.user, "python", cgroup)

    return Source(lambda: boot, nvml.read, describe, lambda uids: dict.fromkeys(uids))


def _answers(driver: Driver, moment: Moment) -> dict[str, Any]:
    """Of whole cards: gpu-usage-audit takes no tick at all where there is one with MIG, so it is not shown any."""
    cards: list[dict[str, Any]] = []
    for number, card in enumerate(driver.world.cards):
        if card.slices:
            continue
        if driver.world.is_lost(card.gpu, moment.second):
            cards.append({"is_lost": True})
            continue
        total, used = driver.memory(number)
        memory = driver.behaviour.tells_memory
        found = [
            (one.pid, one.memory_mib if memory else None, one.user, one.is_graphics)
            for one in driver.processes_on(number)
        ]
        facts = {"uuid": card_uuid(driver.world, number), "rate": driver.rate(number), "total": total, "used": used}
        cards.append({**facts, "is_lost": False, "processes": found})
    return {"ts_ms": START_MS + round(moment.second * 1000), "boot": moment.boot, "cards": cards}
