"""For how long processes have been idle: the same by the file between runs, and in reports."""

import errno
import os
from collections.abc import Iterable
from pathlib import Path
from unittest import mock

import pytest

from gua_sample import idle_state
from gua_sample.idleness import Carried, Run, Trace, begin, follow, runs_now
from gua_sample.policy import DEFAULT, IDLE_HELD, Policy
from gua_sample.records import Tick
from tests.lab import (
    ALICE,
    BOB,
    HOUR_MS,
    MONDAY_MS,
    SECOND_MS,
    Gpu,
    Job,
    busy,
    free,
    held,
    lost,
    series,
    tick,
)

EVERY_MS = 30 * SECOND_MS
KEY = ("GPU-0", 100, 5000)


def fold(ticks: Iterable[Tick], carried: Carried | None = None) -> Carried:
    carried = carried or begin()
    for one in ticks:
        carried = follow(carried, one)
    return carried


def idle_since(carried: Carried) -> int | None:
    trace = carried.traces.get(KEY)
    return trace.idle_since_ms if trace else None


@pytest.mark.parametrize(
    ("sm_percents", "since"),
    [
        ([0], None),
        ([0, 0], 2),
        ([0, 0, 0], 2),
        ([7, 0], None),  # gpu-idle-exporter takes this for idle: it asks for two polls of new processes only
        ([7, 0, 0, 0], 3),
        ([0, 0, 1], None),
        ([0, 0, 1, 0, 0], 5),
        ([None, None], None),
        ([0, None], None),
        ([0, 0, None, 0], 2),  # as after a run by hand: bridged
        ([0, None, 0], 3),
        ([0, 0, None, None, 0, 0], 6),  # too long without knowing
    ],
)
def test_a_process_is_idle_from_its_second_tick_in_a_row_at_0(sm_percents: list[int | None], since: int | None) -> None:
    jobs = [Job(100, sm_percent=percent) for percent in sm_percents]
    carried = fold(tick(number * EVERY_MS, busy(job, BOB)) for number, job in enumerate(jobs, 1))
    assert idle_since(carried) == (None if since is None else since * EVERY_MS)


@pytest.mark.parametrize(("start_ms", "boot"), [(6000, "boot-1"), (5000, "boot-2")])
def test_a_pid_that_is_used_again_or_a_reboot_begins_anew(start_ms: int, boot: str) -> None:
    before = series(MONDAY_MS, 5, held(ALICE), every_ms=EVERY_MS)
    again = tick(MONDAY_MS + 5 * EVERY_MS, held(ALICE._replace(start_time_ms=start_ms)), boot=boot)
    carried, key = fold([*before, again]), ("GPU-0", 100, start_ms)
    assert carried.traces[key] == Trace(again.ts_ms, None)
    assert runs_now(carried)[key] == Run(IDLE_HELD, again.ts_ms)


def test_a_tick_without_cards_is_an_error_and_no_success() -> None:
    ticks = [*series(MONDAY_MS, 3, held(ALICE), every_ms=EVERY_MS), tick(MONDAY_MS + 3 * EVERY_MS, error="timeout")]
    carried = fold(ticks)
    assert (carried.success_ms, carried.errors) == (MONDAY_MS + 2 * EVERY_MS, 1)
    later = fold(series(MONDAY_MS + 4 * EVERY_MS, 1, held(ALICE)), carried)
    assert runs_now(later)[KEY] == Run(IDLE_HELD, MONDAY_MS)


# --- between runs ---


def run(folder: Path, one: Tick, previous_ms: int | None = None, policy: Policy = DEFAULT) -> Carried:
    """As a run of the sampler does it, which must have nothing to complain about."""
    return idle_state.carry_on(str(folder), policy, one, previous_ms, pytest.fail)


def load(folder: Path) -> Carried | None:
    return idle_state.understand(idle_state.read(str(folder)))


def state(folder: Path) -> Path:
    return folder / idle_state.NAME


def test_what_the_last_tick_told_is_judged_by_the_next_run(tmp_path: Path) -> None:
    """Somebody passes, is joined by others, works; the driver fails; a card gets lost."""
    gpus = [free(), held(ALICE), free(), held(ALICE), busy(ALICE, BOB), held(ALICE, BOB), held(ALICE), None]
    gpus += [held(Job(100, memory_mib=None, sm_percent=None, start_time_ms=None)), lost(), held(ALICE)]
    gpus += [Gpu(utilization=30.0, used_mib=5000)]
    ticks = []
    for number, gpu in enumerate(gpus):
        error = None if gpu else "timeout"
        ticks.append(tick(MONDAY_MS + number * EVERY_MS, *([gpu] if gpu else []), error=error, interval_ms=EVERY_MS))
        assert run(tmp_path, ticks[-1]) == load(tmp_path) == fold(ticks)


def test_a_file_that_is_cut_or_another_one_tells_nothing_and_the_next_run_begins_anew(tmp_path: Path) -> None:
    ticks = series(MONDAY_MS, 5, held(ALICE), busy(ALICE, BOB)._replace(place=1), every_ms=EVERY_MS)
    for one in ticks[:-1]:
        run(tmp_path, one)
    whole = state(tmp_path).read_bytes()
    cut = [whole[:size] for size in range(0, len(whole) - 1, 7)]
    version_2 = b"gua idle state, version 2\nboot-1\n1794787200000\n1794787200000\n1794787200000\n0\nend\n"
    for damaged in (*cut, version_2, b"\xff\xfe" * 100, b"{}"):
        state(tmp_path).write_bytes(damaged)
        assert load(tmp_path) is None, damaged
    assert run(tmp_path, ticks[-1]) == load(tmp_path) == fold(ticks[-1:])
    for place in range(0, len(whole), 3):  # a byte that is damaged costs no tick
        state(tmp_path).write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        run(tmp_path, ticks[-1])


@pytest.mark.parametrize(
    "line",
    [
        "run\tGPU-0\t-\t-\tidle-held\t{since_ms}",
        "used\tGPU-0\t-",
        "process\tGPU-0\t1\t1\talice\tTrue",
        f"run\tGPU-0\t{'9' * 5000}",
    ],
)
def test_a_whole_file_that_makes_no_sense_tells_nothing(tmp_path: Path, line: str) -> None:
    """Whoever owns the folder can write what they like."""
    run(tmp_path, tick(MONDAY_MS, held(ALICE)))
    *lines, end = state(tmp_path).read_text().splitlines(keepends=True)
    for since_ms in (MONDAY_MS - 1, MONDAY_MS + 1):
        assert idle_state.understand("".join([*lines, line.format(since_ms=since_ms), "\n", end])) is None


def test_a_run_that_stored_a_tick_and_was_killed_makes_nobody_idle(tmp_path: Path) -> None:
    """What that tick told is not known any more: it may have been work."""
    times = [MONDAY_MS + number * EVERY_MS for number in range(4)]
    for place in (0, 1):
        run(tmp_path, tick(times[place], held(ALICE)), previous_ms=times[place - 1] if place else None)
    carried = run(tmp_path, tick(times[3], held(ALICE)), previous_ms=times[2])
    assert runs_now(carried)[KEY] == Run(IDLE_HELD, times[3])
    assert carried.unbroken_ms == times[3]


def test_with_other_thresholds_everything_begins_anew_but_the_count_of_errors(tmp_path: Path) -> None:
    run(tmp_path, tick(MONDAY_MS - EVERY_MS, error="driver_not_loaded"))
    run(tmp_path, tick(MONDAY_MS, held(ALICE)))
    other = Policy(20.0, 50.0, 512.0)
    for number in (1, 2):
        carried = run(tmp_path, tick(MONDAY_MS + number * EVERY_MS, held(ALICE)), policy=other)
    assert runs_now(carried)[KEY] == Run(IDLE_HELD, MONDAY_MS + EVERY_MS)
    assert (carried.policy, carried.errors) == (other, 1)


def test_when_a_card_was_last_used_outlasts_a_change_of_thresholds(tmp_path: Path) -> None:
    before = run(tmp_path, tick(MONDAY_MS, held(ALICE)))
    assert list(before.used_ms.values()) == [MONDAY_MS]
    assert run(tmp_path, tick(MONDAY_MS + EVERY_MS, free()), policy=Policy(20.0, 50.0, 512.0)).used_ms == before.used_ms


def test_what_can_not_be_written_is_one_line_and_leaves_nothing_outdated(tmp_path: Path) -> None:
    run(tmp_path, tick(MONDAY_MS, held(ALICE)))
    said: list[str] = []
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    with mock.patch.object(idle_state, "replace_file", side_effect=full):
        idle_state.carry_on(str(tmp_path), DEFAULT, tick(MONDAY_MS + EVERY_MS, busy(ALICE)), MONDAY_MS, said.append)
    (line,) = said
    assert line.startswith(f"{state(tmp_path)} can't be written (No space left on device): ")
    later = run(tmp_path, tick(MONDAY_MS + 2 * EVERY_MS, held(ALICE)))
    assert later.unbroken_ms == MONDAY_MS + 2 * EVERY_MS


def test_after_a_clock_was_set_back_time_does_not_run_backwards(tmp_path: Path) -> None:
    for one in series(MONDAY_MS, 5, held(ALICE), every_ms=EVERY_MS):
        run(tmp_path, one)
    carried = run(tmp_path, tick(MONDAY_MS - HOUR_MS, held(ALICE)))
    assert runs_now(carried)[KEY].since_ms == MONDAY_MS - HOUR_MS
