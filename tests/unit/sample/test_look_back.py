"""Since when, found in past ticks: as if each of them had been followed, and as reports tell it."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple
from unittest import mock

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from gua_report.live.observer import find_lasting
from gua_sample import look_back as looking
from gua_sample import past_ticks
from gua_sample.idleness import NOTHING, Carried, Key, Rules, Runs, follow_idle, runs_now, sight_of
from gua_sample.look_back import find_intervals, look_back
from gua_sample.partition_file import Writer, open_to_read
from gua_sample.partition_names import list_partitions, samples_dir
from gua_sample.past_ticks import Past
from gua_sample.policy import IDLE_HELD
from gua_sample.records import Tick
from tests.histories import many
from tests.lab import (
    ALICE,
    BOB,
    HIDDEN,
    HOUR_MS,
    MINUTE_MS,
    MONDAY_MS,
    SECOND_MS,
    Gpu,
    Job,
    busy,
    free,
    held,
    lost,
    report_of,
    tick,
    unpartitioned,
    write,
    written,
)

SMALL = [Job(pid, memory_mib=60, sm_percent=0) for pid in (301, 302)]
GPUS = [
    *(busy(), held(), free(), lost(), HIDDEN),
    *(busy(ALICE, BOB), busy(ALICE._replace(sm_percent=None), BOB), busy(ALICE._replace(sm_percent=3), BOB)),
    *(busy(BOB), held(ALICE, BOB), held(*SMALL), held(SMALL[0], ALICE), held(SMALL[0], Job(memory_mib=None))),
    *(Gpu(utilization=None, jobs=(ALICE,)), Gpu(utilization=4.0, jobs=(ALICE, BOB))),
    *(busy(ALICE._replace(sm_percent=6), BOB._replace(sm_percent=5)), busy(ALICE, ALICE._replace(pid=101))),
    *(held(ALICE, Job(7, "gdm", None, 3, type="graphics")), Gpu(0, 0.0, (Job(7, "gdm", None, type="graphics"),), 300)),
    *(Gpu(0, 60.0, (Job(100, memory_mib=None, sm_percent=0), Job(200, "bob", None, 70)), 9000), Gpu(0, 95.0)),
    unpartitioned(),
    None,  # no such card
]


class Stretch(NamedTuple):
    """Ticks that all see the same."""

    gpus: tuple[int, int]  # positions in GPUS, one for each card
    failed: bool  # the driver failed instead
    gap: float  # in intervals, before the first
    ticks: int
    told: bool
    reboots: bool


STRETCHES = st.builds(
    Stretch,
    st.tuples(st.sampled_from([*range(len(GPUS)), 5, 5]), st.sampled_from([1, 5, len(GPUS) - 1])),
    st.sampled_from([False] * 9 + [True]),
    st.sampled_from([1, 1, 1, 1, 0.5, 2, 2.4, 2.6, 9, 100]),
    st.sampled_from([1, 1, 2, 3, 5, 30]),
    st.booleans(),
    st.sampled_from([False] * 9 + [True]),
)


def history_of(stretches: list[Stretch], every_ms: int) -> list[Tick]:
    ts_ms, boot, ticks = MONDAY_MS - 20 * MINUTE_MS, 1, []
    for stretch in stretches:
        boot += stretch.reboots
        gpus = []
        for index, kind in enumerate(stretch.gpus):
            if gpu := GPUS[kind]:
                jobs = tuple(job._replace(start_time_ms=boot) for job in gpu.jobs)
                gpus.append(gpu._replace(place=index, jobs=jobs))
        failed = stretch.failed or not gpus
        for number in range(stretch.ticks):
            ts_ms += every_ms if number else round(stretch.gap * every_ms)
            ticks.append(
                tick(
                    ts_ms,
                    *([] if failed else gpus),
                    interval_ms=every_ms if stretch.told else None,
                    boot=f"boot-{boot}",
                    error="timeout" if failed else None,
                )
            )
    return ticks


def past_of(folder: Path | str, end_ms: int) -> Past:
    partitions = list_partitions(samples_dir(str(folder)))
    return Past(partitions, open_to_read, Rules(), (end_ms - 7 * 24 * HOUR_MS, end_ms), print)


def follow_each(folder: str, now: Tick) -> Carried:
    """The state by the plain way: every past tick is read and followed."""
    carried, sights = NOTHING, past_of(folder, now.ts_ms).read((now.ts_ms - 7 * 24 * HOUR_MS, now.ts_ms))[::-1]
    intervals = find_intervals(sights)
    for sight in [*sights, sight_of(now)]:
        carried = follow_idle(carried, sight, intervals.__getitem__)
    return carried


def findings(told: Carried) -> tuple[object, ...]:
    """What there is to be found: the states of cards and processes, since when, and whether that is exact."""
    runs = runs_now(told)
    exact = {key: run.since_ms != told.unbroken_ms for key, run in runs.items()}
    return runs, exact, told.traces, told.success_ms, told.boot_id


def find_all(carried: Carried, runs: Runs, edge_ms: int) -> set[Key]:
    return find_lasting(carried, runs, edge_ms) | looking._find_idle(carried, runs, edge_ms)


@many
@given(st.lists(STRETCHES, min_size=1, max_size=10), st.sampled_from([30, 60]))
def test_any_history_is_told_as_if_every_tick_had_been_followed_and_as_in_reports(
    stretches: list[Stretch], seconds: int
) -> None:
    ticks = history_of(stretches, seconds * SECOND_MS)
    assume(any(one.cards for one in ticks))  # else there is no report
    while not ticks[-1].cards:
        ticks.pop()
    newest = ticks[-1]
    now = newest._replace(ts_ms=newest.ts_ms + 1)
    with written(ticks) as folder:
        # Portions are short, so that there are some.
        with mock.patch.object(past_ticks, "FIRST_PORTION_MS", 5 * MINUTE_MS):
            told = look_back(past_of(folder, now.ts_ms), sight_of(now), find_all, step=follow_idle)
        assert findings(told) == findings(follow_each(folder, now))
        held = {key: run.since_ms for key, run in runs_now(told).items() if run.state == IDLE_HELD}
        # The moment after is a tick more: what begins with it the report can't know yet.
        assert {(uuid, pid): ms for (uuid, pid, _), ms in held.items() if pid and ms <= newest.ts_ms} == {
            (one.gpu_uuid, one.pid): one.start_ms
            for one in report_of(folder, newest.ts_ms - HOUR_MS, now.ts_ms).episodes.itertuples()
            if one.ongoing
        }


def test_a_partition_that_cannot_be_read_is_reported_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, [tick(MONDAY_MS, held())])
    path = tmp_path / "samples" / "2026-11-16.sqlite"
    path.write_bytes(b"x" * 5000)
    look_back(past_of(tmp_path, MONDAY_MS + 9 * HOUR_MS), sight_of(tick(MONDAY_MS, held())), find_all)
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith(f"skipped: {path} is not usable")


def test_the_first_tick_of_a_day_has_the_interval_of_those_before_midnight(tmp_path: Path) -> None:
    write(tmp_path, [tick(MONDAY_MS - 5 * number * MINUTE_MS, held()) for number in range(30, -1, -1)])
    now = tick(MONDAY_MS + 4 * MINUTE_MS, held())
    told = look_back(past_of(tmp_path, now.ts_ms), sight_of(now), find_all, step=follow_idle)
    assert {run.since_ms for run in runs_now(told).values()} == {MONDAY_MS - 150 * MINUTE_MS}


def test_ticks_of_another_day_in_a_partition_do_no_harm(tmp_path: Path) -> None:
    write(tmp_path, [tick(MONDAY_MS + number * SECOND_MS, held()) for number in range(60)])
    with Writer(str(tmp_path / "samples" / "2026-11-15.sqlite")) as writer:
        writer.write([], [tick(MONDAY_MS + number * MINUTE_MS, held()) for number in range(60)])
    now = tick(MONDAY_MS + HOUR_MS // 2, held())
    told = look_back(past_of(tmp_path, now.ts_ms), sight_of(now), find_all, step=follow_idle)
    assert told.success_ms == now.ts_ms
