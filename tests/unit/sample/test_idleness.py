"""For how long processes have been idle: the same by the file between runs, from the history, and in reports."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gua_sample import idleness, metrics
from gua_sample.idleness import NOTHING, Carried, Trace, follow_tick
from gua_sample.look_back import recall
from gua_sample.policy import AT_0, HOLDS, IDLE_HELD, RESTS
from gua_sample.records import Tick
from gua_sample.simulate import Laboratory
from tests.lab import (
    ALICE,
    BOB,
    DAY_MS,
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
    series,
    tick,
    write,
    written,
)

EVERY_MS = 30 * SECOND_MS
KEY = ("GPU-0", 100, 5000)


def fold(ticks: Iterable[Tick], carried: Carried = NOTHING) -> Carried:
    for one in ticks:
        carried = follow_tick(carried, one)
    return carried


def stored(carried: Carried | None) -> tuple[object, ...]:
    """What of it is in the file."""
    assert carried
    return *carried[:4], {key: trace[:4] for key, trace in carried.traces.items()}


def trace_of(*sm_percents: int | None, key: idleness.Key = KEY) -> Trace:
    """Of a process on a busy card, after ticks with these SM utilizations."""
    jobs = [Job(100, sm_percent=percent) for percent in sm_percents]
    return fold(tick(number * EVERY_MS, busy(job, BOB)) for number, job in enumerate(jobs, 1)).traces[key]


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
    expected = None if since is None else since * EVERY_MS
    assert trace_of(*sm_percents).idle_since_ms == expected


def test_a_process_that_holds_a_card_without_work_is_idle_held_at_once() -> None:
    carried = fold(series(MONDAY_MS, 3, held(Job(100, sm_percent=None)), every_ms=EVERY_MS))
    assert carried.traces[KEY].held_since_ms == MONDAY_MS
    assert carried.traces[KEY].idle_since_ms is None  # nobody knows its SM utilization


def test_a_pid_that_is_used_again_starts_anew() -> None:
    before = series(MONDAY_MS, 5, held(ALICE), every_ms=EVERY_MS)
    again = tick(MONDAY_MS + 5 * EVERY_MS, held(ALICE._replace(start_time_ms=6000)))
    trace = fold([*before, again]).traces["GPU-0", 100, 6000]
    assert trace == Trace(again.ts_ms, again.ts_ms, None, again.ts_ms, HOLDS | RESTS | AT_0, IDLE_HELD)


@pytest.mark.parametrize("away", [2, 3])
def test_missing_ticks_are_bridged_up_to_the_longest_gap(away: int) -> None:
    before = series(MONDAY_MS, 25, held(ALICE), every_ms=EVERY_MS)
    after = tick(MONDAY_MS + (24 + away) * EVERY_MS, held(ALICE))
    trace = fold([*before, after]).traces[KEY]
    assert trace.held_since_ms == (MONDAY_MS if away == 2 else after.ts_ms)
    assert trace.idle_since_ms == (MONDAY_MS + EVERY_MS if away == 2 else None)


def test_a_reboot_ends_everything() -> None:
    before = series(MONDAY_MS, 5, held(ALICE), every_ms=EVERY_MS)
    after = tick(MONDAY_MS + 5 * EVERY_MS, held(ALICE), boot="boot-2")
    assert fold([*before, after]).traces[KEY][:4] == (after.ts_ms, after.ts_ms, None, after.ts_ms)


def test_a_tick_without_cards_is_an_error_and_no_success() -> None:
    ticks = [*series(MONDAY_MS, 3, held(ALICE), every_ms=EVERY_MS), tick(MONDAY_MS + 3 * EVERY_MS, error="timeout")]
    carried = fold(ticks)
    assert (carried.success_ms, carried.errors) == (MONDAY_MS + 2 * EVERY_MS, 1)
    assert fold(series(MONDAY_MS + 4 * EVERY_MS, 1, held(ALICE)), carried).traces[KEY].held_since_ms == MONDAY_MS


def ongoing(folder: str, newest_ms: int) -> dict[tuple[str, int], int]:
    """What a report on the last hour says: since when who holds which card."""
    episodes = report_of(folder, newest_ms - HOUR_MS, newest_ms + EVERY_MS).episodes
    rows = episodes[episodes["ongoing"].astype(bool)]
    columns = rows[["gpu_uuid", "pid", "start_ms"]].itertuples(index=False)
    return {(uuid, int(pid)): int(since) for uuid, pid, since in columns}


def held_since(carried: Carried) -> dict[tuple[str, int], int]:
    now = {key[:2]: one for key, one in carried.traces.items() if one.seen_ms == carried.times_ms[-1]}
    return {key: one.held_since_ms for key, one in now.items() if one.held_since_ms is not None}


@pytest.mark.parametrize("hour", [1, 9])
def test_a_laboratory_that_idles_over_midnight_does_so_as_long_as_reports_say(hour: int) -> None:
    end_ms = MONDAY_MS + 2 * DAY_MS + hour * HOUR_MS
    ticks = list(Laboratory().history(end_ms - 40 * HOUR_MS, end_ms, EVERY_MS))
    carried = fold(ticks)
    with written(ticks) as folder:
        found = ongoing(folder, ticks[-1].ts_ms)
        assert found == held_since(carried)
        assert any(since < end_ms // DAY_MS * DAY_MS for since in found.values())  # one of them since yesterday
        # The same again if there is only the history.
        assert recall(folder, ticks[-1]).traces == carried.traces


GPUS = st.sampled_from(
    [
        *(held(ALICE), held(ALICE, BOB), busy(ALICE, BOB), busy(ALICE._replace(sm_percent=50)), free(), lost()),
        *(Gpu(utilization=None, jobs=(ALICE,)), busy(ALICE._replace(sm_percent=None)), held(Job(100, memory_mib=30))),
    ]
)


@settings(deadline=None, max_examples=40)
@given(st.lists(st.tuples(GPUS, st.sampled_from([1, 1, 1, 1, 2, 3]), st.booleans()), min_size=2, max_size=14))
def test_any_history_gives_the_episodes_of_reports(scenes: list[tuple[Gpu, int, bool]]) -> None:
    ticks = series(MONDAY_MS - 25 * EVERY_MS, 20, free(), every_ms=EVERY_MS, interval_ms=EVERY_MS)
    ts_ms = MONDAY_MS - 5 * EVERY_MS
    for gpu, steps, failed in scenes:
        ts_ms += steps * EVERY_MS
        failed &= steps == 1
        ticks.append(tick(ts_ms, *([] if failed else [gpu]), interval_ms=EVERY_MS, error="timeout" if failed else None))
    if not ticks[-1].cards:
        ticks.pop()
    with written(ticks) as folder:
        assert ongoing(folder, ticks[-1].ts_ms) == held_since(fold(ticks))


# --- between runs ---


def run(folder: Path, one: Tick) -> Carried:
    """As a run of the sampler does it: the tick is stored, and then told from what there is."""
    write(folder, [one])
    carried = metrics.carry(str(folder), idleness.load(str(folder)) or NOTHING, one)
    idleness.save(str(folder), carried)
    return carried


def state(folder: Path) -> Path:
    return folder / idleness.NAME


def test_what_a_run_leaves_is_what_the_next_one_finds(tmp_path: Path) -> None:
    ticks = series(MONDAY_MS - 2 * EVERY_MS, 5, held(ALICE, Job(101, start_time_ms=None)), lost(1), every_ms=EVERY_MS)
    for one in ticks:
        carried = run(tmp_path, one)
    assert stored(idleness.load(str(tmp_path))) == stored(carried) == stored(fold(ticks))
    assert carried.traces[KEY].idle_since_ms == MONDAY_MS - EVERY_MS


@pytest.mark.parametrize("content", [b"", b"\xff\xfe", b"gua idle state, version 1\nend\n", b"{}", None])
def test_a_damaged_or_missing_file_is_made_again_from_the_history(tmp_path: Path, content: bytes | None) -> None:
    ticks = series(MONDAY_MS - 10 * EVERY_MS, 30, held(ALICE), every_ms=EVERY_MS)
    for one in ticks[:-1]:
        run(tmp_path, one)
    if content is None:
        state(tmp_path).unlink()
    else:
        state(tmp_path).write_bytes(content)
    assert stored(run(tmp_path, ticks[-1])) == stored(fold(ticks))


def test_a_file_with_a_line_or_a_word_too_few_is_not_believed(tmp_path: Path) -> None:
    run(tmp_path, tick(MONDAY_MS, held(ALICE)))
    whole = state(tmp_path).read_text()
    for damaged in (
        whole[: len(whole) // 2],
        whole.replace("\t100\t", "\tx\t"),
        whole.replace("\t100\t", "\t"),
    ):
        state(tmp_path).write_text(damaged)
        assert idleness.load(str(tmp_path)) is None


def test_what_a_newer_gua_adds_to_a_line_is_passed_over(tmp_path: Path) -> None:
    run(tmp_path, tick(MONDAY_MS, held(ALICE)))
    expected = idleness.load(str(tmp_path))
    lines = state(tmp_path).read_text().splitlines()
    newer = [f"{line}\tmore" if "\t" in line else line for line in lines]
    assert newer != lines
    state(tmp_path).write_text("\n".join([*newer, ""]))
    assert idleness.load(str(tmp_path)) == expected


def test_ticks_that_went_by_without_the_file_are_looked_up(tmp_path: Path) -> None:
    """As when --textfile was switched off for an hour. The count of errors goes on."""
    run(tmp_path, tick(MONDAY_MS - EVERY_MS, error="driver_not_loaded"))
    run(tmp_path, tick(MONDAY_MS, held(ALICE)))
    write(tmp_path, series(MONDAY_MS + EVERY_MS, 120, held(ALICE), every_ms=EVERY_MS))
    carried = run(tmp_path, tick(MONDAY_MS + 121 * EVERY_MS, held(ALICE)))
    assert carried.traces[KEY].held_since_ms == MONDAY_MS
    assert carried.errors == 1


def test_after_a_clock_was_set_back_time_does_not_run_backwards(tmp_path: Path) -> None:
    for one in series(MONDAY_MS, 5, held(ALICE), every_ms=EVERY_MS):
        run(tmp_path, one)
    carried = run(tmp_path, tick(MONDAY_MS - HOUR_MS, held(ALICE)))
    assert carried.traces[KEY].held_since_ms == MONDAY_MS - HOUR_MS


@pytest.mark.parametrize(("days", "seen"), [(3, 3), (12, 8)])
def test_history_is_read_back_as_far_as_somebody_idles_but_not_for_ever(tmp_path: Path, days: int, seen: int) -> None:
    end_ms = MONDAY_MS + 5 * HOUR_MS
    ticks = series(end_ms - days * DAY_MS, days * 144, held(ALICE), every_ms=10 * MINUTE_MS)
    write(tmp_path, ticks)
    recalled = recall(str(tmp_path), tick(end_ms, held(ALICE)))
    assert recalled.traces[KEY].held_since_ms == end_ms - seen * DAY_MS


def test_a_partition_that_cannot_be_read_is_a_hole(tmp_path: Path) -> None:
    ticks = series(MONDAY_MS - 10 * EVERY_MS, 20, held(ALICE), every_ms=EVERY_MS)
    write(tmp_path, ticks)
    (tmp_path / "samples" / "2026-11-15.sqlite").write_bytes(b"x" * 5000)
    recalled = recall(str(tmp_path), tick(MONDAY_MS + 10 * EVERY_MS, held(ALICE)))
    assert recalled.traces[KEY].held_since_ms == MONDAY_MS
