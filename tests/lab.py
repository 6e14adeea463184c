"""A small laboratory: histories of a few ticks, written by the real store, and reports on them."""

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import NamedTuple
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import pytest

from gua_report.config import Config
from gua_report.summary.build import RECLAIM_AFTER_MS
from gua_report.summary.build import build_report as build_report
from gua_report.summary.report import Report as Report
from gua_report.window import Window
from gua_sample import store
from gua_sample.policy import DEFAULT, STATES
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
    """A card at a tick. By default it is healthy, and its processes' memory is all that is in use."""

    place: int = 0
    utilization: float | None = 0.0
    jobs: tuple[Job, ...] = ()
    used_mib: int | None = -1  # -1: the sum of the processes
    status: str = "ok"
    total_mib: int | None = 80_000
    mig_index: int | None = None
    parent: str | None = None
    energy: int | None = None
    uuid: str | None = None
    slices: int | None = None  # of a MIG instance
    most_slices: int | None = None
    parent_mib: int | None = None
    source: str = "samples"  # of the utilization

    def card(self) -> Card:
        name = self.uuid or (f"GPU-{self.place}" if self.mig_index is None else f"MIG-{self.place}-{self.mig_index}")
        used = self.used_mib if self.used_mib != -1 else sum(job.memory_mib or 0 for job in self.jobs)
        facts = CardFacts(
            *(name, self.place, self.mig_index, "A100", self.parent, self.total_mib, 500, 1, self.status, None),
            *(self.slices, self.most_slices, self.parent_mib),
        )
        usages = [Usage(job.pid, job.type, job.memory_mib, job.sm_percent) for job in self.jobs]
        source = None if self.utilization is None else self.source
        return Card(facts, self.utilization, source, used, None, self.energy, 40, usages)


# If both are on a busy card, only Bob keeps it busy.
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


def sliced(
    index: int, mig_index: int, slices: int = 1, utilization: float | None = 0.0, jobs: tuple[Job, ...] = ()
) -> Gpu:
    """A MIG instance that tells its compute slices, of seven."""
    return mig(index, mig_index, utilization, jobs)._replace(slices=slices, most_slices=7, parent_mib=81_920)


def failed(instance: Gpu) -> Gpu:
    """The MIG instance, lost: it tells nothing more."""
    return Gpu(instance.place, None, (), None, "gpu_is_lost", None, instance.mig_index, instance.parent)


def unpartitioned(index: int = 0) -> Gpu:
    """A card with MIG on and no instance."""
    return Gpu(index, None, (), 500, "unpartitioned")


HIDDEN = Gpu(0, 0.0, (), used_mib=20_000)  # unattributed memory


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
    """Ticks at equal intervals that all see the same."""
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
    """Ticks a minute apart that all see the same; start and end are in minutes since Monday's midnight."""
    start_ms = MONDAY_MS + start * MINUTE_MS
    return series(start_ms, end - start, *gpus, interval_ms=interval_ms, boot=boot, error=error)


def hour(*gpus: Gpu, start_ms: int = MONDAY_MS) -> list[Tick]:
    """An hour of ticks that all see the same, by default Monday's first hour."""
    return series(start_ms, 60, *gpus)


def write(folder: Path | str, ticks: Sequence[Tick]) -> None:
    samples = store.prepare(str(folder))
    store.append_history(samples, ticks)


def write_story(
    folder: Path | str, story: str, cards: Mapping[str, Gpu], interval_ms: int | None = None
) -> tuple[int, int]:
    """Write ticks a minute apart; returns when they begin and end, in minutes from Monday on.

    A story such as "-10: held 9 timeout 1 hole 5 held@2 5" says when it begins, what a card does for how many minutes,
    and after which boot. What is none of the cards is the error of ticks without any, and in a hole is no tick.
    """
    begin, _, rest = story.rpartition(": ")
    start = minute = int(begin or 0)
    words, ticks = rest.split(), []
    for what, count in zip(words[::2], words[1::2], strict=True):
        name, _, boot = what.partition("@")
        seen, error = ([cards[name]], None) if name in cards else ([], name)
        if name != "hole":
            until = minute + int(count)
            ticks += minutes(minute, until, *seen, interval_ms=interval_ms, boot=boot or "boot-1", error=error)
        minute += int(count)
    write(folder, ticks)
    return start, minute


@contextmanager
def written(ticks: Sequence[Tick]) -> Iterator[str]:
    """A temporary folder with these ticks, for tests that need many folders."""
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
    """The report of a window given in minutes since Monday's midnight."""
    return report_of(folder, MONDAY_MS + start * MINUTE_MS, MONDAY_MS + end * MINUTE_MS)


def report_hour(folder: Path, *gpus: Gpu) -> Report:
    """Write an hour of ticks that all see the same; returns its report."""
    write(folder, hour(*gpus))
    return report_of(folder, MONDAY_MS, MONDAY_MS + HOUR_MS)


def hours(report: Report) -> dict[str, float]:
    """GPU-hours by state."""
    return {str(state): float(value) for state, value in report.headline["gpu_hours"].items()}


def expect(report: Report, **states: float) -> None:
    """Check the report's GPU-hours by state; a state that is not named must have none."""
    names = {name.replace("_", "-"): value for name, value in states.items()}
    assert hours(report) == pytest.approx({state: names.get(state, 0.0) for state in STATES})


def hours_by(frame: pd.DataFrame, key: str) -> dict[tuple[str, str], float]:
    """GPU-hours by name (in column `key`) and state, without zeros."""
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
    """The only row whose `key` is `value`."""
    found = frame[frame[key] == value].to_dict("records")
    assert len(found) == 1, frame
    return {str(name): content for name, content in found[0].items()}


def same(one: dict[tuple[str, str], float], other: dict[tuple[str, str], float]) -> None:
    """Check that the hours are the same; those of an instance that weighs nothing may be 0, or not there."""
    one, other = ({key: value for key, value in hours.items() if value} for hours in (one, other))
    assert set(one) == set(other)
    for key, value in one.items():
        assert np.isclose(value, other[key], rtol=1e-9, atol=1e-9), (key, value, other[key])
