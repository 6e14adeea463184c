"""For how long processes have been idle: the same by the file between runs, from the history, and in reports."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gua_sample import carried_state, idle_state
from gua_sample.idleness import NOTHING, Carried, Run, Trace, follow_tick, runs_now
from gua_sample.look_back import recall
from gua_sample.policy import ACTIVE, IDLE_HELD, TRULY_IDLE
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


def idle_since(carried: Carried) -> int | None:
    trace = carried.traces.get(KEY)
    return trace.idle_since_ms if trace else None


def after(*gpus: Gpu, every_ms: int = EVERY_MS) -> Carried:
    """The state after one tick of each."""
    return fold(tick(MONDAY_MS + number * every_ms, gpu, interval_ms=every_ms) for number, gpu in enumerate(gpus))


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


def test_a_process_that_holds_a_card_without_work_is_idle_held_at_once() -> None:
    carried = fold(series(MONDAY_MS, 3, held(Job(100, sm_percent=None)), every_ms=EVERY_MS))
    assert runs_now(carried)[KEY] == Run(IDLE_HELD, MONDAY_MS)
    assert idle_since(carried) is None  # nobody knows its SM utilization


def test_a_pid_that_is_used_again_starts_anew() -> None:
    before = series(MONDAY_MS, 5, held(ALICE), every_ms=EVERY_MS)
    again = tick(MONDAY_MS + 5 * EVERY_MS, held(ALICE._replace(start_time_ms=6000)))
    carried, key = fold([*before, again]), ("GPU-0", 100, 6000)
    assert carried.traces[key] == Trace(again.ts_ms, None)
    assert runs_now(carried)[key] == Run(IDLE_HELD, again.ts_ms)


@pytest.mark.parametrize("away", [2, 3])
def test_missing_ticks_are_bridged_up_to_the_longest_gap(away: int) -> None:
    before = series(MONDAY_MS, 25, held(ALICE), every_ms=EVERY_MS)
    after = tick(MONDAY_MS + (24 + away) * EVERY_MS, held(ALICE))
    carried = fold([*before, after])
    assert runs_now(carried)[KEY].since_ms == (MONDAY_MS if away == 2 else after.ts_ms)
    assert idle_since(carried) == (MONDAY_MS + EVERY_MS if away == 2 else None)


def test_a_reboot_ends_everything() -> None:
    before = series(MONDAY_MS, 5, held(ALICE), every_ms=EVERY_MS)
    after = tick(MONDAY_MS + 5 * EVERY_MS, held(ALICE), boot="boot-2")
    carried = fold([*before, after])
    assert runs_now(carried)[KEY] == Run(IDLE_HELD, after.ts_ms)
    assert carried.traces == {KEY: Trace(after.ts_ms, None)}


def test_a_tick_without_cards_is_an_error_and_no_success() -> None:
    ticks = [*series(MONDAY_MS, 3, held(ALICE), every_ms=EVERY_MS), tick(MONDAY_MS + 3 * EVERY_MS, error="timeout")]
    carried = fold(ticks)
    assert (carried.success_ms, carried.errors) == (MONDAY_MS + 2 * EVERY_MS, 1)
    later = fold(series(MONDAY_MS + 4 * EVERY_MS, 1, held(ALICE)), carried)
    assert runs_now(later)[KEY] == Run(IDLE_HELD, MONDAY_MS)


def test_the_time_between_two_ticks_is_judged_when_the_second_is_there() -> None:
    ticks = [held(ALICE)] * 3 + [Gpu(utilization=30.0, jobs=(ALICE,)), held(ALICE), held(ALICE)]
    times = [MONDAY_MS + number * EVERY_MS for number in range(len(ticks))]
    told = [runs_now(after(*ticks[:count]))[KEY] for count in range(3, 7)]
    # With a mean of 15 %, the time before the fourth tick and that after it were no idle time.
    assert told == [Run(IDLE_HELD, times[0]), Run(ACTIVE, times[2]), Run(IDLE_HELD, times[4]), Run(IDLE_HELD, times[4])]


@pytest.mark.parametrize(("every_ms", "since"), [(MINUTE_MS, 0), (2 * MINUTE_MS, 2)])
def test_who_is_seen_at_a_single_tick_of_a_short_interval_has_held_nothing(every_ms: int, since: int) -> None:
    held_now = after(free(), held(ALICE), every_ms=every_ms)
    assert runs_now(held_now)["GPU-0", None, None] == Run(IDLE_HELD, MONDAY_MS + every_ms)
    gone = after(free(), held(ALICE), free(), every_ms=every_ms)
    assert runs_now(gone)["GPU-0", None, None] == Run(TRULY_IDLE, MONDAY_MS + since * every_ms)


def test_who_is_there_again_after_the_card_failed_is_not_seen_for_the_first_time() -> None:
    carried = after(held(ALICE), lost(), held(ALICE), free())
    assert carried.runs["GPU-0", None, None] == Run(IDLE_HELD, MONDAY_MS + 2 * EVERY_MS)


def test_who_comes_to_an_idle_card_and_works_ends_no_idle_time_of_others() -> None:
    working = held(ALICE, BOB)._replace(utilization=90.0)
    assert runs_now(after(held(ALICE), held(ALICE), working, working))[KEY] == Run(IDLE_HELD, MONDAY_MS)


def ongoing(folder: str, newest_ms: int) -> dict[tuple[str, int], int]:
    """What a report on the last hour says: since when who holds which card."""
    episodes = report_of(folder, newest_ms - HOUR_MS, newest_ms + EVERY_MS).episodes
    rows = episodes[episodes["ongoing"].astype(bool)]
    columns = rows[["gpu_uuid", "pid", "start_ms"]].itertuples(index=False)
    return {(uuid, int(pid)): int(since) for uuid, pid, since in columns}


def held_since(carried: Carried) -> dict[tuple[str, int], int]:
    found = runs_now(carried).items()
    return {(uuid, pid): run.since_ms for (uuid, pid, _), run in found if pid is not None and run.state == IDLE_HELD}


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
        recalled = recall(folder, ticks[-1])
        assert (held_since(recalled), recalled.traces) == (held_since(carried), carried.traces)


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
    while not ticks[-1].cards:
        ticks.pop()
    with written(ticks) as folder:
        assert ongoing(folder, ticks[-1].ts_ms) == held_since(fold(ticks))


# --- between runs ---


def run(folder: Path, one: Tick) -> Carried:
    """As a run of the sampler does it: the tick is stored, and then told from what there is."""
    write(folder, [one])
    carried = carried_state.follow(str(folder), idle_state.load(str(folder)) or NOTHING, one)
    idle_state.save(str(folder), carried)
    return carried


def state(folder: Path) -> Path:
    return folder / idle_state.NAME


def test_what_a_run_leaves_is_what_the_next_one_finds(tmp_path: Path) -> None:
    ticks = series(MONDAY_MS - 2 * EVERY_MS, 5, held(ALICE, Job(101, start_time_ms=None)), lost(1), every_ms=EVERY_MS)
    for one in ticks:
        carried = run(tmp_path, one)
    assert idle_state.load(str(tmp_path)) == carried == fold(ticks)
    assert idle_since(carried) == MONDAY_MS - EVERY_MS


def test_what_the_last_tick_told_is_judged_by_the_next_run(tmp_path: Path) -> None:
    """Somebody passes, is joined by others, works; the driver fails; a card gets lost."""
    gpus = [free(), held(ALICE), free(), held(ALICE), busy(ALICE, BOB), held(ALICE, BOB), held(ALICE), None]
    gpus += [
        held(Job(100, memory_mib=None, sm_percent=None)),
        Gpu(utilization=30.0, used_mib=5000),
        lost(),
        held(ALICE),
    ]
    ticks = []
    for number, gpu in enumerate(gpus):
        error = None if gpu else "timeout"
        ticks.append(tick(MONDAY_MS + number * EVERY_MS, *([gpu] if gpu else []), error=error, interval_ms=EVERY_MS))
        assert run(tmp_path, ticks[-1]) == idle_state.load(str(tmp_path)) == fold(ticks)


def test_a_file_of_version_1_is_made_anew_from_the_history(tmp_path: Path) -> None:
    write(tmp_path, series(MONDAY_MS, 30, held(ALICE), every_ms=EVERY_MS))
    newest_ms = MONDAY_MS + 29 * EVERY_MS
    lines = ["gua idle state, version 1", "boot-1", f"{newest_ms - EVERY_MS} {newest_ms}", str(newest_ms), "3"]
    state(tmp_path).write_text("\n".join([*lines, f"GPU-0\t100\t5000\t{newest_ms}\t-\t-\t5", "end", ""]))
    assert runs_now(run(tmp_path, tick(newest_ms + EVERY_MS, held(ALICE))))[KEY] == Run(IDLE_HELD, MONDAY_MS)
    assert state(tmp_path).read_text().startswith("gua idle state, version 2\n")


@pytest.mark.parametrize("content", [b"", b"\xff\xfe", b"gua idle state, version 2\nend\n", b"{}", None])
def test_a_damaged_or_missing_file_is_made_again_from_the_history(tmp_path: Path, content: bytes | None) -> None:
    ticks = series(MONDAY_MS - 10 * EVERY_MS, 30, held(ALICE), every_ms=EVERY_MS)
    for one in ticks[:-1]:
        run(tmp_path, one)
    if content is None:
        state(tmp_path).unlink()
    else:
        state(tmp_path).write_bytes(content)
    assert run(tmp_path, ticks[-1]) == fold(ticks)


def test_a_file_with_a_line_or_a_word_too_few_is_not_believed(tmp_path: Path) -> None:
    run(tmp_path, tick(MONDAY_MS, held(ALICE)))
    whole = state(tmp_path).read_text()
    for damaged in (
        whole[: len(whole) // 2],
        whole.replace("\t100\t", "\tx\t"),
        whole.replace("\t100\t", "\t"),
    ):
        state(tmp_path).write_text(damaged)
        assert idle_state.load(str(tmp_path)) is None


def test_what_a_newer_gua_adds_to_a_line_is_passed_over(tmp_path: Path) -> None:
    run(tmp_path, tick(MONDAY_MS, held(ALICE)))
    expected = idle_state.load(str(tmp_path))
    lines = state(tmp_path).read_text().splitlines()
    newer = [f"{line}\tmore" if "\t" in line else line for line in lines]
    assert newer != lines
    state(tmp_path).write_text("\n".join([*newer, ""]))
    assert idle_state.load(str(tmp_path)) == expected


def test_ticks_that_went_by_without_the_file_are_looked_up(tmp_path: Path) -> None:
    """As when --textfile was switched off for an hour. The count of errors goes on."""
    run(tmp_path, tick(MONDAY_MS - EVERY_MS, error="driver_not_loaded"))
    run(tmp_path, tick(MONDAY_MS, held(ALICE)))
    write(tmp_path, series(MONDAY_MS + EVERY_MS, 120, held(ALICE), every_ms=EVERY_MS))
    carried = run(tmp_path, tick(MONDAY_MS + 121 * EVERY_MS, held(ALICE)))
    assert runs_now(carried)[KEY].since_ms == MONDAY_MS
    assert carried.errors == 1


def test_after_a_clock_was_set_back_time_does_not_run_backwards(tmp_path: Path) -> None:
    for one in series(MONDAY_MS, 5, held(ALICE), every_ms=EVERY_MS):
        run(tmp_path, one)
    carried = run(tmp_path, tick(MONDAY_MS - HOUR_MS, held(ALICE)))
    assert runs_now(carried)[KEY].since_ms == MONDAY_MS - HOUR_MS


@pytest.mark.parametrize(("days", "seen"), [(3, 3), (12, 8)])
def test_history_is_read_back_as_far_as_somebody_idles_but_not_for_ever(tmp_path: Path, days: int, seen: int) -> None:
    end_ms = MONDAY_MS + 5 * HOUR_MS
    ticks = series(end_ms - days * DAY_MS, days * 144, held(ALICE), every_ms=10 * MINUTE_MS)
    write(tmp_path, ticks)
    recalled = recall(str(tmp_path), tick(end_ms, held(ALICE)))
    assert runs_now(recalled)[KEY].since_ms == end_ms - seen * DAY_MS


def test_a_partition_that_cannot_be_read_is_a_hole(tmp_path: Path) -> None:
    ticks = series(MONDAY_MS - 10 * EVERY_MS, 20, held(ALICE), every_ms=EVERY_MS)
    write(tmp_path, ticks)
    (tmp_path / "samples" / "2026-11-15.sqlite").write_bytes(b"x" * 5000)
    recalled = recall(str(tmp_path), tick(MONDAY_MS + 10 * EVERY_MS, held(ALICE)))
    assert runs_now(recalled)[KEY].since_ms == MONDAY_MS
