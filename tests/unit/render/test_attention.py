"""What is worth a mail, and what is not."""

import json
import re
from dataclasses import replace
from functools import partial
from pathlib import Path

import pandas as pd
import pytest

from gua_report.render import MOST_UNKNOWN, text
from gua_report.render import json as as_json
from gua_report.render.attention import reasons
from gua_sample.partition_names import day_of, partition_path, samples_dir
from gua_sample.records import Tick
from tests.lab import (
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
    mig,
    minutes,
    report_of,
    series,
    write,
    write_story,
)

told = partial(minutes, interval_ms=MINUTE_MS)


def found(folder: Path, ticks: list[Tick], start: int = 0, end: int = 600, longest_ms: int = HOUR_MS) -> list[str]:
    """The reasons in a window of these ticks; times in minutes from Monday on."""
    write(folder, ticks)
    return reasons(report_of(folder, MONDAY_MS + start * MINUTE_MS, MONDAY_MS + end * MINUTE_MS), longest_ms)


def report_of_held(folder: Path) -> Report:
    write(folder, told(0, 120, held()))
    return report_of(folder, MONDAY_MS, MONDAY_MS + 2 * HOUR_MS)


@pytest.mark.parametrize(
    ("story", "expected"),
    [
        ("busy 100 held 59 free 441", []),
        ("busy 100 held 60 free 440", ["1 idle-held episode of 1h or more (alice 1h)"]),
        ("busy 300 hole 31 busy 269", ["94.8% observed (sampler not running 31m)"]),
        (
            "busy 300 driver_not_loaded 100 hole 30 busy 170",
            ["78.3% observed (driver error 1h 40m, sampler not running 30m)"],
        ),
        ("free 597 unknown 3", ["not known who holds what right now: driver error since 16 Nov 09:57 (unknown)"]),
        ("free 599 unknown 1", []),  # a single tick that failed
    ],
)
def test_what_is_something_to_act_on(tmp_path: Path, story: str, expected: list[str]) -> None:
    write_story(tmp_path, story, {"busy": busy(), "held": held(), "free": free()}, interval_ms=MINUTE_MS)
    assert found(tmp_path, []) == expected


def test_an_episode_counts_with_all_its_length_though_the_window_has_little_of_it(tmp_path: Path) -> None:
    ticks = told(0, 120, held()) + told(120, 600, free())
    assert found(tmp_path, ticks, 115) == ["1 idle-held episode of 1h or more (alice ≥ 2h)"]
    assert found(tmp_path, [], 121) == []


def test_those_who_hold_longest_are_named_once_each_and_the_others_counted(tmp_path: Path) -> None:
    jobs = [Job(1, "ada"), Job(2, "ben"), Job(3, "eva"), Job(4, "kim"), Job(5, "zoe"), Job(6, "ada")]

    def held_by(*pids: int) -> list[Gpu]:
        return [held(job, index=place) if job.pid in pids else free(place) for place, job in enumerate(jobs)]

    ticks = told(0, 200, *held_by(1, 2, 3, 4, 5, 6)) + told(200, 300, *held_by(2, 3, 4, 5))
    ticks += told(300, 600, *held_by(4))
    assert found(tmp_path, ticks) == [
        "6 idle-held episodes of 1h or more by 5 holders (longest: kim ≥ 10h, ben ≥ 5h, eva ≥ 5h and 2 more)"
    ]


def test_memory_that_no_process_shows_is_something_to_act_on(tmp_path: Path) -> None:
    ticks = told(0, 10, free()) + told(10, 600, HIDDEN)
    assert found(tmp_path, ticks) == ["1 idle-held episode of 1h or more ((unattributed) 9h 50m)"]
    report = report_of(tmp_path, MONDAY_MS, MONDAY_MS + 600 * MINUTE_MS)
    shown = text.render(report)
    assert "Nobody holds a card idle." not in shown
    assert re.search(r"0 +\(unattributed\) +16 Nov 00:10 +9h 50m +19\.5", shown)
    (one,) = json.loads(as_json.render(report))["episodes"]
    assert (one["identity"], one["pid"], one["command"]) == ("(unattributed)", None, None)


def test_names_are_made_printable(tmp_path: Path) -> None:
    report = report_of_held(tmp_path)
    hostile = report.episodes.assign(identity="\x1b[2J\nbob\u202e")
    (reason,) = reasons(replace(report, episodes=hostile), HOUR_MS)
    assert reason == r"1 idle-held episode of 1h or more (\x1b[2J\nbob\u202e ≥ 2h)"


def test_a_sampler_that_has_stopped_is_something_to_act_on_however_little_is_lost(tmp_path: Path) -> None:
    assert found(tmp_path, told(0, 594, busy())) == ["the sampler seems to have stopped: no tick since 16 Nov 09:53"]
    # As long as a tick may be late, or has come since, it has not.
    assert found(tmp_path, [], end=599) == []
    assert found(tmp_path, told(620, 630, busy())) == []


def test_a_sampler_that_runs_once_an_hour_has_not_stopped_for_that(tmp_path: Path) -> None:
    write(tmp_path, minutes(0, 300, busy(), interval_ms=HOUR_MS))
    report = report_of(tmp_path, MONDAY_MS, MONDAY_MS + 280 * MINUTE_MS)
    assert reasons(report, HOUR_MS) == []
    assert "stopped" not in text.render(report)


def test_a_young_history_is_nothing_to_act_on(tmp_path: Path) -> None:
    assert found(tmp_path, told(540, 600, busy()), -7 * 24 * 60) == []
    assert found(tmp_path, [], -7 * 24 * 60, 1200) == [
        "the sampler seems to have stopped: no tick since 16 Nov 09:59",
        "9.1% observed (sampler not running 10h)",
    ]


def test_a_hole_before_the_window_is_nothing_to_act_on_but_one_at_its_start_is(tmp_path: Path) -> None:
    ticks = told(0, 60, busy()) + told(300, 600, busy())
    assert found(tmp_path, ticks, 300) == []
    assert found(tmp_path, [], 200) == ["75.0% observed (sampler not running 1h 40m)"]


def test_cards_that_are_unknown_for_long_are_something_to_act_on(tmp_path: Path) -> None:
    assert MOST_UNKNOWN == 0.05
    slices = (mig(2, 0, 90.0), mig(2, 1, None)._replace(status="gpu_is_lost"))
    ticks = told(0, 30, lost(), lost(1), *slices) + told(30, 31, busy(), lost(1), *slices)
    ticks += told(31, 600, busy(), busy(index=1), *slices)
    assert found(tmp_path, ticks) == ["2 cards unknown for over 5% of the time (GPU 2:1 100.0%, GPU 1 5.2%)"]


def test_a_card_is_measured_by_its_own_time(tmp_path: Path) -> None:
    ticks = told(0, 10, busy(), lost(1)) + told(10, 20, busy(), busy(index=1)) + told(20, 600, busy())
    assert found(tmp_path, ticks) == ["1 card unknown for over 5% of the time (GPU 1 50.0%)"]


def test_a_fresh_install_is_not_called_unobserved(tmp_path: Path) -> None:
    write(tmp_path, series(MONDAY_MS, 2, busy(), every_ms=2000, interval_ms=None))  # make install, and the timer
    asked = partial(report_of, tmp_path, MONDAY_MS - HOUR_MS)
    assert asked(MONDAY_MS + 20_000).coverage_share < 0.5
    assert reasons(asked(MONDAY_MS + 20_000), HOUR_MS) == []
    assert "0.6% observed (sampler not running 10m)" in reasons(asked(MONDAY_MS + 11 * MINUTE_MS), HOUR_MS)


def test_a_partition_that_can_not_be_read_is_something_to_act_on(tmp_path: Path) -> None:
    write(tmp_path, series(MONDAY_MS, 3 * 24, busy(), every_ms=HOUR_MS, interval_ms=HOUR_MS))
    broken = partition_path(samples_dir(str(tmp_path)), day_of(MONDAY_MS + DAY_MS))
    Path(broken).write_bytes(b"broken" * 1000)
    assert reasons(report_of(tmp_path, MONDAY_MS, MONDAY_MS + 3 * DAY_MS), HOUR_MS) == [
        "66.7% observed (partition not readable 1d)",
        "1 partition not readable",
    ]
    # Outside of the window it does not change what was observed, but somebody has to look at it.
    assert reasons(report_of(tmp_path, MONDAY_MS + 2 * DAY_MS, MONDAY_MS + 3 * DAY_MS), HOUR_MS) == [
        "1 partition not readable"
    ]


def test_a_report_without_rows_has_nothing_but_gaps_to_act_on(tmp_path: Path) -> None:
    report = report_of_held(tmp_path)
    empty = replace(
        report,
        episodes=pd.DataFrame(columns=report.episodes.columns),
        gpus=report.gpus.iloc[:0],
        coverage_share=0.5,
        gaps=pd.DataFrame(columns=["start_ms", "end_ms", "kind"]),
    )
    assert reasons(empty, HOUR_MS) == ["50.0% observed"]
