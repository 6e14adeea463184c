"""A small laboratory on paper: histories of a few ticks, written by the real store, and the reports of them.

`Naive` counts the same histories again, a tick at a time and without pandas, to have something to compare with.
"""

from __future__ import annotations

import tempfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import NamedTuple
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd

from gua_report.config import Config
from gua_report.people.identities import resolve
from gua_report.summary.build import RECLAIM_AFTER_MS
from gua_report.summary.build import Report as Report
from gua_report.summary.build import build_report as build_report
from gua_report.window import Window
from gua_sample import store
from gua_sample.policy import DEFAULT, STATES, card_state
from gua_sample.records import Boot, Card, CardFacts, Process, Tick, Usage

MONDAY_MS = 1_794_787_200_000  # 2026-11-16, 00:00 UTC
SECOND_MS = 1000
MINUTE_MS = 60 * SECOND_MS
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS
NOON_MS = MONDAY_MS + 12 * HOUR_MS

CONFIG = Config(DEFAULT, None, None, "USD", {})


class Job(NamedTuple):
    """A process on a card."""

    pid: int = 100
    user: str | None = "alice"
    memory_mib: int | None = 2000
    sm_percent: int | None = None
    start_time_ms: int | None = 5000
    uid: int | None = 1000
    login_user: str | None = None
    command: str = "python"
    cgroup: str | None = None
    type: str = "compute"


class Gpu(NamedTuple):
    """A card at a tick. Unless told otherwise it is in order, and its processes' memory is all that is in use."""

    place: int = 0
    utilization: float | None = 0.0
    jobs: tuple[Job, ...] = ()
    used_mib: int | None = -1  # what the processes have
    status: str = "ok"
    total_mib: int | None = 80_000
    mig_index: int | None = None
    parent: str | None = None
    energy: int | None = None
    uuid: str | None = None

    def card(self) -> Card:
        name = self.uuid or (f"GPU-{self.place}" if self.mig_index is None else f"MIG-{self.place}-{self.mig_index}")
        used = self.used_mib if self.used_mib != -1 else sum(job.memory_mib or 0 for job in self.jobs)
        facts = CardFacts(
            name, self.place, self.mig_index, "A100", self.parent, self.total_mib, 500, 1, self.status, None
        )
        usages = [Usage(job.pid, job.type, job.memory_mib, job.sm_percent) for job in self.jobs]
        source = None if self.utilization is None else "samples"
        return Card(facts, self.utilization, source, used, None, self.energy, 40, usages)


# Of these two on a busy card, it is Bob who keeps it busy.
ALICE = Job(100, "alice", sm_percent=0)
BOB = Job(200, "bob", sm_percent=95)


def busy(*jobs: Job, index: int = 0, energy: int | None = None) -> Gpu:
    return Gpu(index, 90.0, jobs or (Job(),), energy=energy)


def held(*jobs: Job, index: int = 0, energy: int | None = None) -> Gpu:
    return Gpu(index, 0.0, jobs or (Job(),), energy=energy)


def free(index: int = 0, energy: int | None = None) -> Gpu:
    return Gpu(index, 0.0, energy=energy)


def lost(index: int = 0) -> Gpu:
    return Gpu(index, None, (), None, "gpu_is_lost", None)


def mig(index: int, mig_index: int, utilization: float | None = 0.0, jobs: tuple[Job, ...] = ()) -> Gpu:
    return Gpu(index, utilization, jobs, total_mib=9856, mig_index=mig_index, parent=f"GPU-{index}")


HIDDEN = Gpu(0, 0.0, (), used_mib=20_000)  # memory that no process shows


def at(text: str, zone: str = "UTC") -> int:
    return round(datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp() * 1000)


def tick(
    ts_ms: int,
    *gpus: Gpu,
    interval_ms: int | None = None,
    boot: str = "boot-1",
    error: str | None = None,
    driver_version: str | None = "570.86",
    nvml_ms: int | None = 3,
) -> Tick:
    processes = {
        job.pid: Process(job.pid, job.start_time_ms, job.uid, None, job.user, job.login_user, job.command, job.cgroup)
        for gpu in gpus
        for job in gpu.jobs
    }
    cards = [gpu.card() for gpu in gpus]
    return Tick(ts_ms, interval_ms, Boot(boot, 1), driver_version, nvml_ms, error, cards, processes, [])


def series(
    start_ms: int,
    count: int,
    *gpus: Gpu,
    every_ms: int = MINUTE_MS,
    interval_ms: int | None = None,
    boot: str = "boot-1",
    error: str | None = None,
) -> list[Tick]:
    """Ticks that all see the same."""
    times = (start_ms + number * every_ms for number in range(count))
    return [tick(ts_ms, *gpus, interval_ms=interval_ms, boot=boot, error=error) for ts_ms in times]


def minutes(
    start: int,
    end: int,
    *gpus: Gpu,
    interval_ms: int | None = None,
    boot: str = "boot-1",
    error: str | None = None,
) -> list[Tick]:
    """Ticks a minute apart that all see the same; start and end in minutes from Monday's midnight on."""
    start_ms = MONDAY_MS + start * MINUTE_MS
    return series(start_ms, end - start, *gpus, interval_ms=interval_ms, boot=boot, error=error)


def write(folder: Path | str, ticks: Sequence[Tick]) -> None:
    samples = store.prepare(str(folder))
    store.append_history(samples, ticks)


@contextmanager
def written(ticks: Sequence[Tick]) -> Iterator[str]:
    """A folder with these ticks, for tests that need many of them."""
    with tempfile.TemporaryDirectory(prefix="gua-lab-") as folder:
        write(folder, ticks)
        yield folder


def window(start_ms: int, end_ms: int, zone: str = "UTC") -> Window:
    return Window(start_ms, end_ms, ZoneInfo(zone))


def report_of(
    folder: Path | str,
    start_ms: int,
    end_ms: int,
    zone: str = "UTC",
    config: Config = CONFIG,
    reclaim_after_ms: tuple[int, ...] = RECLAIM_AFTER_MS,
) -> Report:
    return build_report(str(folder), window(start_ms, end_ms, zone), config, reclaim_after_ms)


def report_minutes(folder: Path | str, start: int, end: int) -> Report:
    """The report of a window in minutes from Monday's midnight on."""
    return report_of(folder, MONDAY_MS + start * MINUTE_MS, MONDAY_MS + end * MINUTE_MS)


def hours(report: Report) -> dict[str, float]:
    """GPU-hours by state."""
    return {str(state): float(value) for state, value in report.headline["gpu_hours"].items()}


def hours_by(frame: pd.DataFrame, key: str) -> dict[tuple[str, str], float]:
    """GPU-hours of each thing by state, those that are not 0."""
    found = {}
    for state in STATES:
        column = f"{state.replace('-', '_')}_gpu_hours"
        if column in frame:
            for name, value in zip(frame[key], frame[column], strict=True):
                if value:
                    found[str(name), state] = float(value)
    return found


def gap_seconds(report: Report) -> dict[str, float]:
    sums = ((report.gaps["end_ms"] - report.gaps["start_ms"]) / 1000).groupby(report.gaps["kind"]).sum()
    return {str(kind): float(value) for kind, value in sums.items()}


def cell(report: Report, weekday: int, hour: int) -> float:
    heatmap = report.heatmap
    (value,) = heatmap["active_share"][(heatmap["weekday"] == weekday) & (heatmap["hour"] == hour)]
    return float(value)


def row(frame: pd.DataFrame, key: str, value: object) -> dict[str, object]:
    """The one row in which `key` is `value`."""
    found = frame[frame[key] == value].to_dict("records")
    assert len(found) == 1, frame
    return {str(name): content for name, content in found[0].items()}


def same(one: dict[tuple[str, str], float], other: dict[tuple[str, str], float]) -> None:
    assert set(one) == set(other)
    for key, value in one.items():
        assert np.isclose(value, other[key], rtol=1e-9, atol=1e-9), (key, value, other[key])


class Naive:
    """The rules of the design once more, for ticks in time order, without shortcuts."""

    def __init__(self, ticks: Sequence[Tick]) -> None:
        self.ticks = ticks
        self.weights = [self._weight(position) for position in range(len(ticks))]

    def _interval(self, position: int) -> float:
        told = self.ticks[position].interval_ms
        if told is not None:
            return told
        day = self.ticks[position].ts_ms // DAY_MS
        times = [one.ts_ms for one in self.ticks if one.ts_ms // DAY_MS == day]
        place = times.index(self.ticks[position].ts_ms)
        gaps = [later - earlier for earlier, later in pairwise(times)]
        around = gaps[max(0, place - 10) : place + 10]
        if place == len(gaps):  # the day's last tick has no gap of its own there: as the one before
            around = gaps[max(0, place - 11) : place + 9]
        around = [gap for gap in around if gap <= 2 * HOUR_MS]  # a longer one is a hole
        return median(around) if around else 30_000

    def _weight(self, position: int) -> int:
        interval = self._interval(position)
        if position + 1 == len(self.ticks):
            return round(interval)
        this, following = self.ticks[position], self.ticks[position + 1]
        gap = following.ts_ms - this.ts_ms
        if gap <= 2.5 * interval and this.boot.id == following.boot.id:
            return gap
        return min(gap, round(interval))

    def pieces(self, start_ms: int, end_ms: int, step_ms: int) -> Iterator[tuple[Tick, int, int]]:
        """Parts of ticks that don't cross a multiple of `step_ms`: the tick, when the part begins, how long it is."""
        for one, weight in zip(self.ticks, self.weights, strict=True):
            begin, end = max(one.ts_ms, start_ms), min(one.ts_ms + weight, end_ms)
            while begin < end:
                until = min(end, (begin // step_ms + 1) * step_ms)
                yield one, begin, until - begin
                begin = until

    def gpus(self, start_ms: int, end_ms: int) -> dict[tuple[str, str], float]:
        """GPU-hours by uuid and state."""
        sums: dict[tuple[str, str], float] = defaultdict(float)
        for one, _, length in self.pieces(start_ms, end_ms, DAY_MS):
            for card in one.cards:
                sums[card.facts.uuid, card_state(card)] += length * _share(card, one) / HOUR_MS
        return dict(sums)

    def identities(self, start_ms: int, end_ms: int) -> dict[tuple[str, str], float]:
        """GPU-hours by identity and state, where nobody's own utilization is known and all processes are large."""
        sums: dict[tuple[str, str], float] = defaultdict(float)
        for one, _, length in self.pieces(start_ms, end_ms, DAY_MS):
            for card in one.cards:
                state = card_state(card)
                names = set()
                for usage in card.usages:
                    who = one.processes[usage.pid]
                    names.add(resolve(who.uid, who.login_uid, who.user, who.login_user, who.cgroup))
                known = sum(usage.memory_mib or 0 for usage in card.usages)
                if state == "idle-held" and (card.memory_used_mib or 0) - known > 1024:
                    names.add("(unattributed)")
                for name in names:
                    sums[name, state] += length * _share(card, one) / HOUR_MS
        return dict(sums)

    def heatmap(self, start_ms: int, end_ms: int, zone: str) -> dict[tuple[int, int], float]:
        """The active share of what is known, by weekday and hour. Zones change by no less than 15 minutes."""
        known: dict[tuple[int, int], float] = defaultdict(float)
        active: dict[tuple[int, int], float] = defaultdict(float)
        for one, begin, length in self.pieces(start_ms, end_ms, 15 * MINUTE_MS):
            local = datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(milliseconds=begin)
            local = local.astimezone(ZoneInfo(zone))
            for card in one.cards:
                state = card_state(card)
                key = (local.weekday(), local.hour)
                if state != "unknown":
                    known[key] += length * _share(card, one)
                if state == "active":
                    active[key] += length * _share(card, one)
        return {key: active[key] / value for key, value in known.items()}

    def gaps(self, start_ms: int, end_ms: int) -> dict[str, float]:
        """Seconds without card time by kind, from the first tick on."""
        sums: dict[str, float] = defaultdict(float)

        def add(kind: str, begin: float, until: float) -> None:
            begin, until = max(begin, start_ms), min(until, end_ms)
            if begin < until:
                sums[kind] += (until - begin) / 1000

        for position, (one, weight) in enumerate(zip(self.ticks, self.weights, strict=True)):
            following = self.ticks[position + 1] if position + 1 < len(self.ticks) else None
            next_ms = following.ts_ms if following else float("inf")
            rebooted = following is not None and following.boot.id != one.boot.id
            known_until: float = one.ts_ms + weight
            if one.error is not None:
                run_end = one.ts_ms + (one.nvml_ms or 0)
                if run_end > known_until:
                    waits = next_ms - run_end <= 2.5 * self._interval(position) and not rebooted
                    known_until = next_ms if waits else min(run_end, next_ms)
                add("sampler killed (timeout)" if one.error == "timeout" else "driver error", one.ts_ms, known_until)
            add("host down" if rebooted else "sampler not running", known_until, next_ms)
        return dict(sums)

    def observed_ms(self, start_ms: int, end_ms: int) -> int:
        return sum(length for one, _, length in self.pieces(start_ms, end_ms, DAY_MS) if one.cards)


def _share(card: Card, one: Tick) -> float:
    parent = card.facts.parent_uuid
    if parent is None:
        return 1.0
    sisters = [other for other in one.cards if other.facts.parent_uuid == parent]
    return (card.facts.memory_total_mib or 0) / sum(other.facts.memory_total_mib or 0 for other in sisters)
