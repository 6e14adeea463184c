"""Idle-held episodes: where they begin, where they end, and whose they are."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gua_sample.partition_names import samples_dir
from gua_sample.records import Tick
from gua_sample.store import append_history
from tests.lab import (
    ALICE,
    BOB,
    CONFIG,
    DAY_MS,
    HOUR_MS,
    MINUTE_MS,
    MONDAY_MS,
    Gpu,
    Job,
    Report,
    busy,
    free,
    held,
    lost,
    minutes,
    report_minutes,
    report_of,
    row,
    series,
    tick,
    write,
    written,
)


def spans(report: Report) -> list[tuple[int, int, int]]:
    """pid, start and end in minutes from Monday on, in time order."""
    frame = report.episodes.sort_values(["start_ms", "end_ms", "pid"])
    return [
        (pid, (start - MONDAY_MS) // MINUTE_MS, (end - MONDAY_MS) // MINUTE_MS)
        for pid, start, end in frame[["pid", "start_ms", "end_ms"]].itertuples(index=False)
    ]


def episodes(folder: Path, ticks: list[Tick], start: int, end: int) -> list[tuple[int, int, int]]:
    write(folder, ticks)
    return spans(report_minutes(folder, start, end))


def test_an_episode_lasts_as_long_as_the_process_holds_and_the_card_idles(tmp_path: Path) -> None:
    ticks = minutes(0, 10, busy()) + minutes(10, 40, held()) + minutes(40, 60, free())
    assert episodes(tmp_path, ticks, 0, 60) == [(100, 10, 40)]


def test_an_episode_tells_who_what_and_how_much(tmp_path: Path) -> None:
    small, large = Job(memory_mib=500, command="old"), Job(memory_mib=3000, command="new")
    write(tmp_path, minutes(0, 10, held(small)) + minutes(10, 20, held(large)) + minutes(20, 30, held(small)))
    report = report_minutes(tmp_path, 0, 30)
    found = row(report.episodes, "pid", 100)
    assert found["identity"] == "alice"
    assert found["gpu_uuid"] == "GPU-0"
    assert found["gpu_index"] == 0
    assert found["seconds"] == 1800
    assert found["peak_memory_mib"] == 3000
    assert found["command"] == "old"  # its last name


def test_an_active_tick_ends_an_episode(tmp_path: Path) -> None:
    ticks = minutes(0, 10, held()) + minutes(10, 11, busy()) + minutes(11, 20, held())
    # The minutes before and after it are judged by what it tells, too.
    assert episodes(tmp_path, ticks, 0, 20) == [(100, 0, 9), (100, 11, 20)]


@pytest.mark.parametrize(
    "gpu",
    [lost(), Gpu(utilization=None, jobs=(Job(),)), Gpu(jobs=(Job(),), status="unknown")],
    ids=["lost", "not measurable", "failed"],
)
def test_an_unknown_tick_ends_an_episode(tmp_path: Path, gpu: Gpu) -> None:
    ticks = minutes(0, 10, held()) + minutes(10, 11, gpu) + minutes(11, 20, held())
    assert episodes(tmp_path, ticks, 0, 20) == [(100, 0, 10), (100, 11, 20)]


def test_a_tick_without_the_process_ends_an_episode(tmp_path: Path) -> None:
    other = Job(200, "bob")
    ticks = minutes(0, 10, held()) + minutes(10, 12, held(other)) + minutes(12, 20, held())
    assert episodes(tmp_path, ticks, 0, 20) == [(100, 0, 10), (200, 10, 12), (100, 12, 20)]


def test_a_process_that_is_seen_at_a_single_tick_holds_nothing(tmp_path: Path) -> None:
    ticks = minutes(0, 10, free()) + minutes(10, 11, held()) + minutes(11, 20, free())
    assert episodes(tmp_path, ticks, 0, 20) == []


def test_a_process_that_is_seen_at_a_single_tick_of_a_slow_series_holds_its_card(tmp_path: Path) -> None:
    series_of = [free(), held(), free()]
    write(tmp_path, [tick(MONDAY_MS + 5 * number * MINUTE_MS, gpu) for number, gpu in enumerate(series_of)])
    assert spans(report_minutes(tmp_path, 0, 15)) == [(100, 5, 10)]


def test_a_process_that_has_just_come_holds_its_card(tmp_path: Path) -> None:
    assert episodes(tmp_path, minutes(0, 10, free()) + minutes(10, 11, held()), 0, 11) == [(100, 10, 11)]


def test_a_missing_tick_is_bridged(tmp_path: Path) -> None:
    ticks = [one for one in minutes(0, 30, held()) if one.ts_ms != MONDAY_MS + 15 * MINUTE_MS]
    assert episodes(tmp_path, ticks, 0, 30) == [(100, 0, 30)]


def test_a_gap_of_two_and_a_half_intervals_is_bridged_and_a_longer_one_is_not(tmp_path: Path) -> None:
    first = series(MONDAY_MS, 10, held(), interval_ms=MINUTE_MS)
    for name, late_ms in (("bridged", 0), ("broken", 1)):
        again = series(MONDAY_MS + 9 * MINUTE_MS + 150_000 + late_ms, 10, held(), interval_ms=MINUTE_MS)
        write(tmp_path / name, first + again)
    assert len(report_minutes(tmp_path / "bridged", 0, 30).episodes) == 1
    assert len(report_minutes(tmp_path / "broken", 0, 30).episodes) == 2


def test_a_hole_ends_an_episode(tmp_path: Path) -> None:
    ticks = minutes(0, 20, held()) + minutes(30, 50, held())
    assert episodes(tmp_path, ticks, 0, 60) == [(100, 0, 20), (100, 30, 50)]


def test_one_tick_with_a_driver_error_is_bridged_and_several_are_not(tmp_path: Path) -> None:
    ticks = minutes(0, 10, held()) + minutes(10, 11, error="timeout") + minutes(11, 20, held())
    assert episodes(tmp_path / "one", ticks, 0, 20) == [(100, 0, 20)]
    ticks = minutes(0, 10, held()) + minutes(10, 13, error="timeout") + minutes(13, 20, held())
    assert episodes(tmp_path / "three", ticks, 0, 20) == [(100, 0, 10), (100, 13, 20)]


def test_a_reboot_ends_an_episode(tmp_path: Path) -> None:
    ticks = minutes(0, 10, held()) + minutes(10, 20, held(), boot="boot-2")
    assert episodes(tmp_path, ticks, 0, 20) == [(100, 0, 10), (100, 10, 20)]


def test_a_pid_that_another_process_got_is_another_episode(tmp_path: Path) -> None:
    ticks = minutes(0, 10, held(Job(start_time_ms=1))) + minutes(10, 20, held(Job(start_time_ms=2)))
    assert episodes(tmp_path, ticks, 0, 20) == [(100, 0, 10), (100, 10, 20)]


def test_a_pid_that_another_process_got_at_midnight_is_another_episode(tmp_path: Path) -> None:
    ticks = minutes(-10, 0, held(Job(start_time_ms=1))) + minutes(0, 10, held(Job(start_time_ms=2)))
    assert episodes(tmp_path, ticks, -10, 10) == [(100, -10, 0), (100, 0, 10)]


def test_a_process_that_changes_its_name_goes_on_with_its_episode(tmp_path: Path) -> None:
    ticks = minutes(-10, 0, held(Job(command="python"))) + minutes(0, 10, held(Job(command="pt_main_thread")))
    assert episodes(tmp_path, ticks, -10, 10) == [(100, -10, 10)]


def test_a_process_on_two_cards_has_an_episode_on_each(tmp_path: Path) -> None:
    ticks = minutes(0, 10, held(), held(index=1)) + minutes(10, 20, busy(), held(index=1))
    assert episodes(tmp_path, ticks, 0, 20) == [(100, 0, 9), (100, 0, 20)]


def test_a_process_without_a_start_time_has_episodes_too(tmp_path: Path) -> None:
    ticks = minutes(-10, 10, held(Job(start_time_ms=None)))
    assert episodes(tmp_path, ticks, -10, 10) == [(100, -10, 10)]


def test_an_episode_over_midnight_is_one(tmp_path: Path) -> None:
    write(tmp_path, minutes(-30, -20, busy()) + minutes(-20, 20, held()) + minutes(20, 30, busy()))
    report = report_minutes(tmp_path, -30, 30)
    assert spans(report) == [(100, -20, 19)]
    assert report.episodes["seconds"].tolist() == [39 * 60]


def test_an_episode_over_many_midnights_is_one(tmp_path: Path) -> None:
    ticks = series(MONDAY_MS, 9 * 24, held(), every_ms=HOUR_MS)
    write(tmp_path, ticks)
    report = report_of(tmp_path, MONDAY_MS, MONDAY_MS + 9 * DAY_MS)
    assert report.episodes["seconds"].tolist() == [9 * 24 * 3600]


def test_a_missing_tick_at_midnight_is_bridged(tmp_path: Path) -> None:
    ticks = [one for one in minutes(-30, 30, held()) if one.ts_ms != MONDAY_MS]
    assert episodes(tmp_path, ticks, -30, 30) == [(100, -30, 30)]


@pytest.mark.parametrize("minute", [-1, 0])
def test_a_tick_with_a_driver_error_next_to_midnight_is_bridged(tmp_path: Path, minute: int) -> None:
    ticks = minutes(-30, minute, held()) + minutes(minute, minute + 1, error="timeout")
    assert episodes(tmp_path, ticks + minutes(minute + 1, 30, held()), -30, 30) == [(100, -30, 30)]


@pytest.mark.parametrize("minute", [-1, 0])
def test_an_active_tick_next_to_midnight_ends_an_episode(tmp_path: Path, minute: int) -> None:
    ticks = minutes(-30, minute, held()) + minutes(minute, minute + 1, busy()) + minutes(minute + 1, 30, held())
    assert episodes(tmp_path, ticks, -30, 30) == [(100, -30, minute - 1), (100, minute + 1, 30)]


def test_an_episode_that_ends_with_the_day_is_not_joined_to_a_later_one(tmp_path: Path) -> None:
    ticks = minutes(-30, 0, held()) + minutes(0, 10, free()) + minutes(10, 30, held())
    assert episodes(tmp_path, ticks, -30, 30) == [(100, -30, 0), (100, 10, 30)]


@pytest.mark.parametrize("start", [-29, 0, 15])
def test_an_episode_is_not_clipped_to_the_start_of_the_window(tmp_path: Path, start: int) -> None:
    ticks = minutes(-60, -30, busy()) + minutes(-30, 30, held())
    assert episodes(tmp_path, ticks, start, 30) == [(100, -30, 30)]


@pytest.mark.parametrize("end", [-29, 0, 15])
def test_an_episode_is_not_clipped_to_the_end_of_the_window(tmp_path: Path, end: int) -> None:
    ticks = minutes(-60, -30, busy()) + minutes(-30, 30, held()) + minutes(30, 60, busy())
    assert episodes(tmp_path, ticks, -60, end) == [(100, -30, 29)]


def test_an_episode_reaches_back_over_days_before_the_window_and_on_over_days_after_it(tmp_path: Path) -> None:
    write(tmp_path, series(MONDAY_MS, 6 * 24, held(), every_ms=HOUR_MS))
    for start, end in [(5 * DAY_MS, 6 * DAY_MS), (0, DAY_MS), (3 * DAY_MS, 3 * DAY_MS + HOUR_MS)]:
        report = report_of(tmp_path, MONDAY_MS + start, MONDAY_MS + end)
        assert report.episodes["seconds"].tolist() == [6 * 24 * 3600]
        assert report.episodes["ongoing"].tolist() == [True]


def test_what_ended_before_the_window_or_began_after_it_is_left_out(tmp_path: Path) -> None:
    ticks = minutes(0, 10, held()) + minutes(10, 20, free()) + minutes(20, 30, held()) + minutes(30, 40, free())
    ticks += minutes(40, 50, held())
    write(tmp_path, ticks)
    assert spans(report_minutes(tmp_path, 10, 40)) == [(100, 20, 30)]
    assert spans(report_minutes(tmp_path, 9, 41)) == [(100, 0, 10), (100, 20, 30), (100, 40, 50)]


def test_only_what_reaches_the_newest_tick_is_ongoing(tmp_path: Path) -> None:
    one, other = held(), held(Job(200, "bob"), index=1)
    write(tmp_path, minutes(0, 20, one, other) + minutes(20, 30, free(), other))
    report = report_minutes(tmp_path, 0, 30)
    assert report.episodes["pid"].tolist() == [200, 100]
    assert report.episodes["ongoing"].tolist() == [True, False]


def test_an_ongoing_episode_is_ongoing_in_a_window_that_ended_before(tmp_path: Path) -> None:
    write(tmp_path, minutes(0, 60, held()))
    assert report_minutes(tmp_path, 0, 30).episodes["ongoing"].tolist() == [True]


def test_what_ended_after_the_window_is_not_ongoing(tmp_path: Path) -> None:
    write(tmp_path, minutes(0, 40, held()) + minutes(40, 60, free()))
    assert report_minutes(tmp_path, 0, 30).episodes["ongoing"].tolist() == [False]


def test_ongoing_ones_come_first_and_then_the_longest(tmp_path: Path) -> None:
    long, short, now = Job(1, "long"), Job(2, "short"), Job(3, "now")
    ticks = minutes(0, 10, held(long), free(1), free(2)) + minutes(10, 30, held(long), held(short, index=1), free(2))
    ticks += minutes(30, 40, free(), free(1), held(now, index=2))
    write(tmp_path, ticks)
    assert report_minutes(tmp_path, 0, 40).episodes["identity"].tolist() == ["now", "long", "short"]


def test_one_who_idles_on_a_card_that_somebody_else_keeps_busy_has_an_episode(tmp_path: Path) -> None:
    assert episodes(tmp_path, minutes(0, 30, busy(ALICE, BOB)), 0, 30) == [(100, 0, 30)]


def test_a_single_tick_of_rest_on_a_busy_card_is_no_episode(tmp_path: Path) -> None:
    working = ALICE._replace(sm_percent=40)
    ticks = [*minutes(0, 10, busy(working, BOB)), *minutes(10, 11, busy(ALICE, BOB))]
    assert episodes(tmp_path, ticks + minutes(11, 20, busy(working, BOB)), 0, 20) == []


def test_rest_that_is_not_known_on_a_busy_card_is_no_episode(tmp_path: Path) -> None:
    quiet = ALICE._replace(sm_percent=None)
    assert episodes(tmp_path, minutes(0, 20, busy(quiet, BOB)), 0, 20) == []


def test_a_tick_before_a_hole_is_judged_by_itself(tmp_path: Path) -> None:
    ticks = minutes(0, 20, busy(ALICE, BOB)) + minutes(40, 60, busy(ALICE._replace(sm_percent=90), BOB))
    assert episodes(tmp_path, ticks, 0, 60) == [(100, 0, 20)]


def test_an_episode_on_a_busy_card_over_midnight_is_one(tmp_path: Path) -> None:
    assert episodes(tmp_path, minutes(-30, 30, busy(ALICE, BOB)), -30, 30) == [(100, -30, 30)]


@pytest.mark.parametrize("edge", [-28, -1, 0, 1, 29])
def test_an_episode_on_a_busy_card_is_not_clipped_to_the_window(tmp_path: Path, edge: int) -> None:
    write(tmp_path, minutes(-30, 30, busy(ALICE, BOB)))
    assert spans(report_minutes(tmp_path, edge, 30)) == [(100, -30, 30)]
    assert spans(report_minutes(tmp_path, -30, edge)) == [(100, -30, 30)]


@pytest.mark.parametrize(("minute", "edge"), [(-2, -1), (-1, 0), (0, 0), (0, 1), (5, 5), (5, 6)])
def test_a_driver_error_at_the_edge_of_the_window_is_bridged_as_anywhere(
    tmp_path: Path, minute: int, edge: int
) -> None:
    ticks = minutes(-30, minute, held()) + minutes(minute, minute + 1, error="timeout")
    write(tmp_path, ticks + minutes(minute + 1, 30, held()))
    assert spans(report_minutes(tmp_path, edge, 30)) == [(100, -30, 30)]
    assert spans(report_minutes(tmp_path, -30, edge)) == [(100, -30, 30)]


def test_an_episode_goes_on_when_the_neighbour_comes_and_goes(tmp_path: Path) -> None:
    ticks = minutes(0, 10, held(ALICE)) + minutes(10, 20, busy(ALICE, BOB)) + minutes(20, 30, held(ALICE))
    assert episodes(tmp_path, ticks, 0, 30) == [(100, 0, 30)]


def test_a_desktop_beside_an_idle_notebook_is_no_holder(tmp_path: Path) -> None:
    desktop = Job(300, "root", 60, type="graphics", uid=0)
    assert episodes(tmp_path, minutes(0, 30, held(Job(), desktop)), 0, 30) == [(100, 0, 30)]


def test_memory_that_is_not_told_is_held_if_the_card_says_so(tmp_path: Path) -> None:
    wsl = Gpu(jobs=(Job(memory_mib=None),), used_mib=3000)
    write(tmp_path, minutes(0, 30, wsl))
    report = report_minutes(tmp_path, 0, 30)
    assert spans(report) == [(100, 0, 30)]
    assert report.episodes["peak_memory_mib"].isna().all()


def test_people_of_the_configuration_are_named(tmp_path: Path) -> None:
    write(tmp_path, minutes(0, 30, held()))
    config = CONFIG._replace(people={"alice": "Alice Liddell"})
    report = report_of(tmp_path, MONDAY_MS, MONDAY_MS + HOUR_MS, config=config)
    assert report.episodes["identity"].tolist() == ["Alice Liddell"]


def test_ticks_that_were_written_late_and_out_of_order_make_no_difference(tmp_path: Path) -> None:
    ticks = minutes(-20, 20, busy(ALICE, BOB), held(Job(300, "carol"), index=1))
    write(tmp_path / "in order", ticks)
    late = ticks[7::5]
    write(tmp_path / "late", [one for one in ticks if one not in late])
    append_history(samples_dir(str(tmp_path / "late")), late[::-1])
    expected = report_minutes(tmp_path / "in order", -20, 20)
    found = report_minutes(tmp_path / "late", -20, 20)
    assert spans(expected) == [(100, -20, 20), (300, -20, 20)]
    pd.testing.assert_frame_equal(found.episodes, expected.episodes)
    pd.testing.assert_frame_equal(found.identities, expected.identities)
    pd.testing.assert_frame_equal(found.headline, expected.headline)


def test_no_episodes_is_an_empty_frame_with_the_same_columns(tmp_path: Path) -> None:
    write(tmp_path / "none", minutes(0, 10, free()))
    write(tmp_path / "some", minutes(0, 10, held()))
    none, some = (report_minutes(tmp_path / name, 0, 10).episodes for name in ("none", "some"))
    assert none.empty
    assert list(none.columns) == list(some.columns)


# What a card does at a tick, for alice's process on it: None is a tick that is missing, "!" one without cards.
DOING: dict[str, Gpu] = {
    "busy": busy(Job()),
    "held": held(Job()),
    "gone": free(),
    "lost": lost(),
    "reused": held(Job(start_time_ms=6000)),
}
steps = st.lists(
    st.tuples(st.sampled_from(["held", "held", "held", *DOING, "!", "missing"]), st.integers(1, 6)),
    min_size=1,
    max_size=10,
)


def expected_episodes(doing: list[str], boots: list[int]) -> list[tuple[int, int]]:
    """First and last minute of each run, told a minute at a time; the interval is a minute."""
    runs: list[list[int]] = []
    last: tuple[int, str] | None = None
    for minute, what in enumerate(doing):
        if what in ("!", "missing"):
            continue
        idles = what in ("held", "reused") and not _works_or_passes(doing, boots, minute)
        if idles:
            near = last is not None and minute - last[0] <= 2 and boots[last[0]] == boots[minute]
            if near and last is not None and last[1] == what:
                runs[-1][1] = minute
            else:
                runs.append([minute, minute])
        last = (minute, what if idles else "")
    return [(first, final) for first, final in runs]


def _works_or_passes(doing: list[str], boots: list[int], minute: int) -> bool:
    """Whether an idle process works before the next tick, or is at neither of the ticks beside this one."""

    def beside(step: int) -> str | None:
        for other in (minute + step, minute + 2 * step):
            if 0 <= other < len(doing) and doing[other] != "missing":
                return doing[other] if boots[other] == boots[minute] and doing[other] not in ("!", "lost") else None
        return None

    before, after = beside(-1), beside(1)
    passes = None not in (before, after) and not {before, after} & {"held", "busy", "reused"}
    # The other process of that pid has the same owner: they are judged together, with the card.
    return after == "busy" or passes


@settings(deadline=None, max_examples=25)
@given(steps, st.integers(0, 30), st.integers(0, 40))
def test_episodes_are_the_longest_runs_wherever_midnight_and_a_reboot_fall(
    drawn: list[tuple[str, int]], midnight: int, reboot: int
) -> None:
    doing = ["held", *(what for what, count in drawn for _ in range(count)), "held"]
    boots = [int(minute >= reboot) for minute in range(len(doing))]
    start_ms = MONDAY_MS - midnight * MINUTE_MS
    ticks = []
    for minute, what in enumerate(doing):
        if what != "missing":
            gpus = () if what == "!" else (DOING[what],)
            error = "unknown" if what == "!" else None
            at_ms = start_ms + minute * MINUTE_MS
            ticks.append(tick(at_ms, *gpus, interval_ms=MINUTE_MS, boot=f"boot-{boots[minute]}", error=error))
    with written(ticks) as folder:
        report = report_of(folder, start_ms, start_ms + len(doing) * MINUTE_MS)
        found = sorted((start - start_ms) // MINUTE_MS for start in report.episodes["start_ms"])
        assert found == [first for first, _ in expected_episodes(doing, boots)]
        assert len(report.episodes) == len(found)
        ends = sorted((report.episodes["end_ms"] - start_ms) // MINUTE_MS)
        for end, (_, final) in zip(ends, expected_episodes(doing, boots), strict=True):
            assert final < end <= final + 2  # as long as its last tick stands for
