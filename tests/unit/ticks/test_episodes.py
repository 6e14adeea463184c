"""Idle-held episodes: where they begin, where they end, and whose they are."""

from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gua_report.ticks.classify import NO_PID
from gua_sample.partition_names import samples_dir
from gua_sample.store import append_history
from tests.lab import (
    ALICE,
    BOB,
    CONFIG,
    DAY_MS,
    HIDDEN,
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
    write_story,
    written,
)
from tests.rolling import roll_up_days


def spans(report: Report) -> list[tuple[int, int, int]]:
    """pid, start and end in minutes from Monday on, in time order."""
    frame = report.episodes.sort_values(["start_ms", "end_ms", "pid"])
    return [
        (pid, (start - MONDAY_MS) // MINUTE_MS, (end - MONDAY_MS) // MINUTE_MS)
        for pid, start, end in frame[["pid", "start_ms", "end_ms"]].itertuples(index=False)
    ]


# What a card does at a tick.
DOING: dict[str, Gpu] = {
    "busy": busy(Job()),
    "held": held(Job()),
    "gone": free(),
    "lost": lost(),
    "reused": held(Job(start_time_ms=6000)),  # another process with the same pid
}
CARDS = {
    **DOING,
    "unmeasurable": Gpu(utilization=None, jobs=(Job(),)),
    "failed": Gpu(jobs=(Job(),), status="unknown"),
    "other": held(Job(200, "bob")),
    "renamed": held(Job(command="pt_main_thread")),
    "unbegun": held(Job(start_time_ms=None)),
    "shared": busy(ALICE, BOB),
    "working": busy(ALICE._replace(sm_percent=90), BOB),
    "untold": busy(ALICE._replace(sm_percent=None), BOB),
    "alone": held(ALICE),
    "desktop": held(Job(), Job(300, "root", 60, type="graphics", uid=0)),
    "hidden": HIDDEN,
    "both": HIDDEN._replace(jobs=(ALICE,)),
}


@pytest.mark.parametrize(
    ("story", "expected"),
    [
        ("busy 10 held 30 gone 20", [(100, 10, 40)]),
        # The minutes before and after an active tick are judged by what it tells, too.
        ("held 10 busy 1 held 9", [(100, 0, 9), (100, 11, 20)]),
        *(
            (f"held 10 {unknown} 1 held 9", [(100, 0, 10), (100, 11, 20)])
            for unknown in ("lost", "unmeasurable", "failed")
        ),
        ("held 10 other 2 held 8", [(100, 0, 10), (200, 10, 12), (100, 12, 20)]),
        ("gone 10 held 1 gone 9", []),  # it passes
        ("gone 10 held 1", [(100, 10, 11)]),  # it has just come
        ("held 15 hole 1 held 14", [(100, 0, 30)]),
        ("held 20 hole 10 held 20", [(100, 0, 20), (100, 30, 50)]),
        ("held 10 timeout 1 held 9", [(100, 0, 20)]),
        ("held 10 timeout 3 held 7", [(100, 0, 10), (100, 13, 20)]),
        ("held 10 held@2 10", [(100, 0, 10), (100, 10, 20)]),
        ("held 10 reused 10", [(100, 0, 10), (100, 10, 20)]),
        ("-10: held 10 reused 10", [(100, -10, 0), (100, 0, 10)]),
        ("-10: held 10 renamed 10", [(100, -10, 10)]),
        ("-10: unbegun 20", [(100, -10, 10)]),
        ("-30: busy 10 held 40 busy 10", [(100, -20, 19)]),
        ("-30: held 30 hole 1 held 29", [(100, -30, 30)]),
        ("-30: held 29 timeout 1 held 30", [(100, -30, 30)]),
        ("-30: held 30 timeout 1 held 29", [(100, -30, 30)]),
        # The time before a tick is judged by both, but not on another day.
        ("-30: held 29 busy 1 held 30", [(100, -30, -2), (100, 0, 30)]),
        ("-30: held 30 busy 1 held 29", [(100, -30, 0), (100, 1, 30)]),
        ("-30: held 30 gone 10 held 20", [(100, -30, 0), (100, 10, 30)]),
        ("shared 30", [(100, 0, 30)]),  # one idles on a card that the other keeps busy
        ("-30: shared 60", [(100, -30, 30)]),
        ("working 10 shared 1 working 9", []),  # a single tick of rest
        ("untold 20", []),
        ("shared 20 hole 20 working 20", [(100, 0, 20)]),
        ("alone 10 shared 10 alone 10", [(100, 0, 30)]),
        ("desktop 30", [(100, 0, 30)]),
        ("gone 10 both 30 gone 20", [(NO_PID, 10, 40), (100, 10, 40)]),
    ],
)
def test_episodes_are_these(tmp_path: Path, story: str, expected: list[tuple[int, int, int]]) -> None:
    start, end = write_story(tmp_path, story, CARDS)
    assert spans(report_minutes(tmp_path, start, end)) == expected


EDGES = [-29, -28, -1, 0, 1, 15, 29]
ERRORS = [(-2, -1), (-1, 0), (0, 0), (0, 1), (5, 5), (5, 6)]


@pytest.mark.parametrize(
    ("story", "edge"),
    [
        *(("-60: busy 30 held 60", edge) for edge in EDGES),
        *(("-30: shared 60", edge) for edge in EDGES[1:]),
        *((f"-30: held {30 + minute} timeout 1 held {29 - minute}", edge) for minute, edge in ERRORS),
    ],
)
def test_an_episode_reaches_back_before_the_window_and_ends_with_it(tmp_path: Path, story: str, edge: int) -> None:
    start, _ = write_story(tmp_path, story, CARDS)
    assert spans(report_minutes(tmp_path, edge, 30)) == [(100, -30, 30)]
    assert spans(report_minutes(tmp_path, start, edge)) == [(100, -30, edge)]


def test_what_ended_before_the_window_or_began_after_it_is_left_out_and_only_what_goes_on_is_ongoing(
    tmp_path: Path,
) -> None:
    write_story(tmp_path, "held 10 gone 10 held 10 gone 10 held 10", CARDS)
    assert spans(report_minutes(tmp_path, 10, 40)) == [(100, 20, 30)]
    assert spans(report_minutes(tmp_path, 9, 41)) == [(100, 0, 10), (100, 20, 30), (100, 40, 41)]
    for window, is_ongoing in (((0, 5), False), ((20, 25), False), ((40, 45), True)):
        assert report_minutes(tmp_path, *window).episodes["ongoing"].tolist() == [is_ongoing]


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


def test_a_process_that_is_seen_at_a_single_tick_of_a_slow_series_holds_its_card(tmp_path: Path) -> None:
    series_of = [free(), held(), free()]
    write(tmp_path, [tick(MONDAY_MS + 5 * number * MINUTE_MS, gpu) for number, gpu in enumerate(series_of)])
    assert spans(report_minutes(tmp_path, 0, 15)) == [(100, 5, 10)]


def test_a_gap_of_two_and_a_half_intervals_is_bridged_and_a_longer_one_is_not(tmp_path: Path) -> None:
    first = series(MONDAY_MS, 10, held(), interval_ms=MINUTE_MS)
    for name, late_ms in (("bridged", 0), ("broken", 1)):
        again = series(MONDAY_MS + 9 * MINUTE_MS + 150_000 + late_ms, 10, held(), interval_ms=MINUTE_MS)
        write(tmp_path / name, first + again)
    assert len(report_minutes(tmp_path / "bridged", 0, 30).episodes) == 1
    assert len(report_minutes(tmp_path / "broken", 0, 30).episodes) == 2


def test_a_boot_after_its_ticks_is_a_clock_that_was_set_since(tmp_path: Path) -> None:
    """Nothing is known of the machine before its first tick of the day then, and the time is not lost."""
    ticks = [one._replace(ts_ms=one.ts_ms + 20_000) for one in minutes(-30, 30, held())]
    late = [one._replace(boot=one.boot._replace(time_ms=MONDAY_MS + DAY_MS)) for one in ticks]
    write(tmp_path, late)
    report = report_minutes(tmp_path, -30, 30)
    assert len(report.episodes) == 1
    assert report.coverage_share == 1


def test_an_episode_reaches_back_over_days_before_the_window_and_goes_on_after_it(tmp_path: Path) -> None:
    write(tmp_path, series(MONDAY_MS, 6 * 24, held(), every_ms=HOUR_MS))
    for start, end in [(5 * DAY_MS, 6 * DAY_MS), (0, DAY_MS), (3 * DAY_MS, 3 * DAY_MS + HOUR_MS)]:
        report = report_of(tmp_path, MONDAY_MS + start, MONDAY_MS + end)
        assert report.episodes["seconds"].tolist() == [end / 1000]
        assert report.episodes["ongoing"].tolist() == [True]


def test_ongoing_ones_come_first_and_then_the_longest(tmp_path: Path) -> None:
    long, short, now = Job(1, "long"), Job(2, "short"), Job(3, "now")
    ticks = minutes(0, 10, held(long), free(1), free(2)) + minutes(10, 30, held(long), held(short, index=1), free(2))
    ticks += minutes(30, 40, free(), free(1), held(now, index=2))
    write(tmp_path, ticks)
    assert report_minutes(tmp_path, 0, 40).episodes["identity"].tolist() == ["now", "long", "short"]


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


steps = st.lists(
    st.tuples(st.sampled_from(["held", "held", "held", *DOING, "!", "missing"]), st.integers(1, 6)),
    min_size=1,
    max_size=10,
)


def expected_episodes(doing: list[str], boots: list[int], midnight: int) -> list[tuple[int, int]]:
    """First and last minute of each run, told a minute at a time; the interval is a minute."""
    runs: list[list[int]] = []
    last: tuple[int, str] | None = None
    for minute, what in enumerate(doing):
        if what in ("!", "missing"):
            continue
        idles = what in ("held", "reused") and not _works_or_passes(doing, boots, minute, midnight)
        if idles:
            # Each day on its own may miss two ticks beside midnight.
            longest = 2 if last is None or (last[0] < midnight) == (minute < midnight) else 4
            near = last is not None and minute - last[0] <= longest and boots[last[0]] == boots[minute]
            near = near and (longest == 2 or abs(minute - midnight) <= 2 >= midnight - (last or (0,))[0])
            if near and last is not None and last[1] == what:
                runs[-1][1] = minute
            else:
                is_first = minute >= midnight and (last is None or last[0] < midnight)
                runs.append([midnight if is_first and minute - midnight <= 2 else minute, minute])
        last = (minute, what if idles else "")
    return [(first, final) for first, final in runs]


def _works_or_passes(doing: list[str], boots: list[int], minute: int, midnight: int) -> bool:
    """Whether an idle process works before the next tick, or is at neither of the ticks beside this one."""

    def beside(step: int) -> str | None:
        for other in (minute + step, minute + 2 * step):
            if 0 <= other < len(doing) and (other < midnight) == (minute < midnight) and doing[other] != "missing":
                return doing[other] if boots[other] == boots[minute] and doing[other] not in ("!", "lost") else None
        return None

    before, after = beside(-1), beside(1)
    passes = None not in (before, after) and not {before, after} & {"held", "busy", "reused"}
    # The other process of that pid has the same owner: they are judged together, with the card.
    return after == "busy" or passes


def begun_with(boot: int, gpu: Gpu) -> Gpu:
    """No process survives a reboot."""
    return gpu._replace(jobs=tuple(job._replace(start_time_ms=(job.start_time_ms or 0) + boot) for job in gpu.jobs))


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
            gpus = () if what == "!" else (begun_with(boots[minute], DOING[what]),)
            error = "unknown" if what == "!" else None
            at_ms = start_ms + minute * MINUTE_MS
            ticks.append(tick(at_ms, *gpus, interval_ms=MINUTE_MS, boot=f"boot-{boots[minute]}", error=error))
    with written(ticks) as folder:
        report = report_of(folder, start_ms, start_ms + len(doing) * MINUTE_MS)
        found = sorted((start - start_ms) // MINUTE_MS for start in report.episodes["start_ms"])
        expected = expected_episodes(doing, boots, midnight)
        assert found == [first for first, _ in expected]
        assert len(report.episodes) == len(found)
        ends = sorted((report.episodes["end_ms"] - start_ms) // MINUTE_MS)
        for end, (_, final) in zip(ends, expected, strict=True):
            assert final < end <= final + 2  # as long as its last tick stands for


def test_memory_that_no_process_shows_is_an_episode_of_nobody_visible(tmp_path: Path) -> None:
    ticks = minutes(0, 10, free()) + minutes(10, 40, HIDDEN) + minutes(40, 60, free())
    write(tmp_path, ticks)
    assert spans(report_minutes(tmp_path, 0, 60)) == [(NO_PID, 10, 40)]
    report = report_minutes(tmp_path, 0, 60)
    (one,) = report.episodes.to_dict("records")
    assert (one["identity"], one["peak_memory_mib"], pd.isna(one["command"])) == ("(unattributed)", 20_000, True)
    assert report.identities.set_index("identity")["idle_held_gpu_hours"]["(unattributed)"] == 0.5


@pytest.mark.parametrize("is_stored", [False, True])
def test_memory_that_no_process_shows_is_one_episode_over_midnight(tmp_path: Path, is_stored: bool) -> None:
    write(tmp_path, series(MONDAY_MS + DAY_MS - 10 * MINUTE_MS, 20, HIDDEN, interval_ms=MINUTE_MS))
    if is_stored:
        roll_up_days(str(tmp_path), {0})
    found = report_of(tmp_path, MONDAY_MS, MONDAY_MS + 2 * DAY_MS).episodes
    assert found[["pid", "seconds", "start_is_exact"]].to_dict("records") == [
        {"pid": NO_PID, "seconds": 20 * 60, "start_is_exact": False}
    ]


@pytest.mark.parametrize("is_stored", [False, True])
def test_only_a_beginning_that_a_tick_before_has_seen_is_exact(tmp_path: Path, is_stored: bool) -> None:
    first = minutes(0, 10, held(ALICE), held(BOB, index=1)) + minutes(10, 20, held(ALICE), free(1))
    after_a_hole = minutes(60, 70, held(ALICE), free(1)) + minutes(70, 80, held(ALICE), held(BOB, index=1))
    rebooted = minutes(80, 90, held(ALICE), held(BOB, index=1), boot="boot-2")
    write(tmp_path, first + after_a_hole + rebooted)
    if is_stored:
        roll_up_days(str(tmp_path))
    found = report_minutes(tmp_path, 5, 90).episodes
    begun = (found["start_ms"] - MONDAY_MS) // MINUTE_MS
    exact = sorted(zip(found["pid"], begun, found["start_is_exact"], strict=True))
    unseen = [(100, 0, False), (100, 60, False), (100, 80, False), (200, 0, False)]
    assert exact == [*unseen, (200, 70, True), (200, 80, False)]
