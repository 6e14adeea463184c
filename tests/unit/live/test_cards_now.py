"""Since when, as gua status tells it: it agrees with the report's episodes, and never says more than ticks tell."""

from __future__ import annotations

import itertools
import time
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gua_report.live import text
from gua_report.live.cards_now import CardSeen, Since, see_card
from gua_report.live.json import process
from gua_report.live.last_tick import fill_in, read_recent
from gua_report.live.observer import find_lasting
from gua_report.ticks.newest import list_history
from gua_report.ticks.open_partition import open_partition
from gua_sample import look_back as looking
from gua_sample.idle_state import from_text, to_text
from gua_sample.idleness import NOTHING, Carried, Rules, Run, follow, runs_now, sight_of
from gua_sample.partition_names import samples_dir
from gua_sample.past_ticks import Past
from gua_sample.policy import ACTIVE, IDLE_HELD
from gua_sample.records import Boot, Process, Tick
from gua_sample.simulate import Laboratory
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
    busy,
    free,
    held,
    lost,
    minutes,
    report_of,
    series,
    tick,
    write,
    written,
)


def carry(folder: Path | str, now: Tick, known: Carried = NOTHING, days: int = 7, seconds: float = 60) -> Carried:
    """The state at the moment of a tick that is not in the history."""
    past = past_of(folder, now, days, seconds)
    return looking.look_back(past, sight_of(now), find_lasting, known)


def look_back(folder: Path | str, now: Tick, days: int = 7, seconds: float = 60) -> list[CardSeen]:
    """What is told at the moment of a tick that is not in the history."""
    return see(now, carry(folder, now, days=days, seconds=seconds))


def see(now: Tick, carried: Carried) -> list[CardSeen]:
    return [see_card(card, now, carried, runs_now(carried), CONFIG) for card in now.cards]


def past_of(folder: Path | str, now: Tick, days: int = 7, seconds: float = 60) -> Past:
    partitions = list_history(samples_dir(str(folder))).partitions
    reach = (now.ts_ms - days * DAY_MS, now.ts_ms)
    return Past(partitions, open_partition, Rules(), reach, print, seconds)


def at(minute: float, *gpus: Gpu, boot: str = "boot-1") -> Tick:
    return tick(MONDAY_MS + round(minute * MINUTE_MS), *gpus, boot=boot)


def minute(since: Since | None) -> tuple[float, bool] | None:
    """Since which minute, and whether the beginning was seen."""
    return since and ((since.ts_ms - MONDAY_MS) / MINUTE_MS, since.is_exact)


def since(told: list[CardSeen]) -> tuple[float, bool] | None:
    return minute(told[0].since)


def idle(told: list[CardSeen]) -> dict[int, tuple[float, bool] | None]:
    """The processes that idle-hold a card, and since when."""
    return {one.pid: minute(one.since) for seen in told for one in seen.processes if one.state == IDLE_HELD}


def test_a_state_lasts_since_the_first_tick_of_it(tmp_path: Path) -> None:
    write(tmp_path, minutes(0, 10, busy()) + minutes(10, 30, held()))
    told = look_back(tmp_path, at(30.5, held()))
    assert since(told) == (10, True)
    assert idle(told) == {100: (10, True)}


def test_a_state_that_no_tick_has_seen_begins_now(tmp_path: Path) -> None:
    write(tmp_path, minutes(0, 10, busy()))
    told = look_back(tmp_path, at(10.5, held()))
    assert since(told) == (10.5, True)
    assert idle(told) == {100: (10.5, True)}


def test_before_the_first_tick_nothing_is_known(tmp_path: Path) -> None:
    write(tmp_path, minutes(0, 10, held()))
    assert since(look_back(tmp_path, at(10.5, held()))) == (0, False)


@pytest.mark.parametrize(
    ("now", "expected"), [(11.4, (0, False)), (11.6, None)], ids=["2.4 intervals", "2.6 intervals"]
)
def test_without_a_recent_tick_nothing_is_known(tmp_path: Path, now: float, expected: Any) -> None:
    write(tmp_path, minutes(0, 10, held()))
    told = look_back(tmp_path, at(now, held()))
    assert since(told) == expected
    assert idle(told) == {100: expected}


@pytest.mark.parametrize("last", range(50, 118, 4))
def test_what_begins_near_the_edge_of_what_is_read_at_first_is_told_exactly(tmp_path: Path, last: int) -> None:
    """The first hour of ticks is read again in part, with those before it."""
    write(tmp_path, minutes(0, last, held()) + minutes(last, last + 1, busy()) + minutes(last + 1, 120, held()))
    told = look_back(tmp_path, at(120.5, held()))
    assert since(told) == (last + 1, True)
    assert idle(told) == {100: (last + 1, True)}


def test_a_hole_ends_what_is_known(tmp_path: Path) -> None:
    write(tmp_path, minutes(0, 30, busy()) + minutes(30, 60, held()) + minutes(63, 90, held()))
    told = look_back(tmp_path, at(90.5, held()))
    assert since(told) == (63, False)
    assert idle(told) == {100: (63, False)}


def test_a_missing_tick_is_bridged(tmp_path: Path) -> None:
    write(tmp_path, minutes(0, 30, busy()) + minutes(30, 60, held()) + minutes(61, 90, held()))
    assert since(look_back(tmp_path, at(90.5, held()))) == (30, True)


def test_a_tick_without_cards_is_passed_over(tmp_path: Path) -> None:
    write(tmp_path, minutes(0, 30, busy()) + minutes(30, 60, held()) + minutes(60, 61, error="timeout"))
    assert since(look_back(tmp_path, at(61.5, held()))) == (30, True)


def test_a_reboot_ends_what_is_known(tmp_path: Path) -> None:
    write(tmp_path, minutes(0, 30, free()) + minutes(30, 60, free(), boot="boot-2"))
    assert since(look_back(tmp_path, at(60.5, free(), boot="boot-2"))) == (30, False)
    assert since(look_back(tmp_path, at(60.5, free(), boot="boot-3"))) is None


def test_unknown_ticks_end_a_state(tmp_path: Path) -> None:
    write(tmp_path, minutes(0, 30, held()) + minutes(30, 31, lost()) + minutes(31, 60, held()))
    told = look_back(tmp_path, at(60.5, held()))
    assert since(told) == (31, True)
    assert idle(told) == {100: (31, True)}


def test_midnight_is_nothing_special(tmp_path: Path) -> None:
    write(tmp_path, minutes(-30, -20, busy()) + minutes(-20, 20, held()))
    assert len(list((tmp_path / "samples").iterdir())) == 2
    assert since(look_back(tmp_path, at(20.5, held()))) == (-20, True)


def test_no_further_than_so_many_days(tmp_path: Path) -> None:
    every = 30
    write(tmp_path, series(MONDAY_MS, 3 * 24 * 60 // every, held(), every_ms=every * MINUTE_MS))
    now = tick(MONDAY_MS + 3 * DAY_MS, held())
    assert look_back(tmp_path, now, days=2)[0].since == Since(MONDAY_MS + DAY_MS, False)


def test_no_longer_than_so_many_seconds(tmp_path: Path) -> None:
    write(tmp_path, minutes(0, 30, held()))
    assert since(look_back(tmp_path, at(30.5, held()))) == (0, False)
    assert since(look_back(tmp_path, at(30.5, held()), seconds=-1)) is None


def test_what_is_read_within_these_seconds_is_told(tmp_path: Path) -> None:
    write(tmp_path, minutes(0, 600, held()))
    with mock.patch.object(time, "process_time", side_effect=itertools.count(0, 0.001).__next__):  # a ms for each tick
        told = since(look_back(tmp_path, at(600.5, held()), seconds=0.3))
    assert told
    assert 400 < told[0] < 480
    assert not told[1]


def test_an_idle_process_beside_a_busy_one_is_found(tmp_path: Path) -> None:
    working = Job(100, "alice", sm_percent=50)
    write(tmp_path, minutes(0, 30, busy(working, BOB)) + minutes(30, 60, busy(ALICE, BOB)))
    told = look_back(tmp_path, at(60.5, busy(ALICE, BOB)))
    assert since(told) == (0, False)
    assert idle(told) == {100: (30, True)}


def test_a_process_is_idle_beside_others_at_once(tmp_path: Path) -> None:
    write(tmp_path, minutes(0, 30, busy(Job(100, "alice", sm_percent=50), BOB)))
    assert idle(look_back(tmp_path, at(30.5, busy(ALICE, BOB)))) == {100: (30.5, True)}
    assert idle(look_back(tmp_path / "nowhere", at(30.5, busy(ALICE, BOB)))) == {100: None}


def test_two_identities_of_one_person_are_judged_as_one(tmp_path: Path) -> None:
    ticks = minutes(0, 30, busy(ALICE, BOB))
    write(tmp_path, ticks)
    rules, now = Rules(people={"alice": "Eve", "bob": "Eve"}), at(30.5, busy(ALICE, BOB))
    past = Past(
        list_history(samples_dir(str(tmp_path))).partitions, open_partition, rules, (MONDAY_MS, now.ts_ms), print
    )
    runs = runs_now(looking.look_back(past, sight_of(now, rules), find_lasting))
    assert set(runs.values()) == {Run(ACTIVE, MONDAY_MS)}


def test_a_new_process_with_the_pid_of_an_old_one_begins_anew(tmp_path: Path) -> None:
    write(tmp_path, minutes(0, 30, held(ALICE._replace(start_time_ms=1))) + minutes(30, 60, held(ALICE)))
    told = look_back(tmp_path, at(60.5, held(ALICE)))
    assert since(told) == (0, False)
    assert idle(told) == {100: (30, True)}


def test_small_processes_hold_a_card_together_and_a_desktop_beside_a_notebook_holds_nothing(tmp_path: Path) -> None:
    small = [Job(pid, memory_mib=40, sm_percent=0) for pid in (1, 2, 3)]
    write(tmp_path, minutes(0, 10, held(*small)))
    assert set(idle(look_back(tmp_path, at(10.5, held(*small))))) == {1, 2, 3}
    assert set(idle(look_back(tmp_path, at(10.5, held(small[0], ALICE))))) == {100}


def test_what_was_told_before_is_taken_over(tmp_path: Path) -> None:
    write(tmp_path, minutes(0, 90, held()))
    now = at(90.5, held())
    known = carry(tmp_path, now)
    # Something that the ticks don't say: so it must come from there.
    runs = {key: run._replace(since_ms=5 if key[1] is None else 6) for key, run in known.runs.items()}
    claimed = from_text(to_text(known._replace(runs=runs, unbroken_ms=1)))

    def told(minute: float) -> tuple[list[int], int | None]:
        carried = carry(tmp_path, at(minute, held()), claimed)
        return [run.since_ms for run in runs_now(carried).values()], carried.unbroken_ms

    assert told(90.5) == ([5, 6], 1)
    write(tmp_path, minutes(91, 100, held()))
    assert told(100.5) == ([5, 6], 1)
    write(tmp_path, minutes(101, 102, busy()) + minutes(102, 105, held()))
    changed = at(105.5, held())
    assert since(see(changed, carry(tmp_path, changed, claimed))) == (102, True)


def test_what_was_told_before_a_hole_is_not_taken_over(tmp_path: Path) -> None:
    write(tmp_path, minutes(0, 90, held()))
    known = carry(tmp_path, at(90.5, held()))
    write(tmp_path, minutes(100, 190, held()))
    now = at(190.5, held())
    assert since(see(now, carry(tmp_path, now, known))) == (100, False)


def test_the_last_use_is_the_newest_tick_that_saw_one_across_holes(tmp_path: Path) -> None:
    gpus = [busy(index=0), held(index=1), free(2), lost(3)]
    idle_ones = [free(index) for index in range(4)]
    write(tmp_path, minutes(0, 10, *gpus) + minutes(10, 11, busy(), *idle_ones[1:]) + minutes(50, 60, *idle_ones))
    now = at(60.5, *idle_ones)
    found = looking.find_last_use(past_of(tmp_path, now), {f"GPU-{index}" for index in range(4)})
    assert found == {"GPU-0": MONDAY_MS + 10 * MINUTE_MS, "GPU-1": MONDAY_MS + 9 * MINUTE_MS}


def ongoing(folder: Path | str, newest_ms: int) -> dict[tuple[str, int], int]:
    """The episodes that the report calls ongoing, with their starts."""
    frame = report_of(folder, newest_ms - HOUR_MS, newest_ms + 1).episodes
    frame = frame[frame["ongoing"].astype(bool)]
    rows = zip(frame["gpu_uuid"].tolist(), frame["pid"].tolist(), frame["start_ms"].tolist(), strict=True)
    return {(uuid, pid): start for uuid, pid, start in rows}


def starts(told: list[CardSeen]) -> dict[tuple[str, int], int]:
    return {(seen.card.facts.uuid, one.pid): one.since.ts_ms for seen in told for one in seen.processes if one.since}


def test_a_simulated_laboratory_idles_since_when_the_report_says(tmp_path: Path) -> None:
    # Wednesday, with a card that gets lost; beginning so that there is midnight within.
    history = list(Laboratory(3).history(MONDAY_MS + DAY_MS, MONDAY_MS + 3 * DAY_MS, 60_000))
    seen = 0
    for end in range(25 * 60 + 7, len(history), 311):
        with written(history[:end]) as folder:
            newest = history[end - 1]
            expected = ongoing(folder, newest.ts_ms)
            # A moment after the newest tick, and just as it was then.
            told = look_back(folder, newest._replace(ts_ms=newest.ts_ms + 1))
            assert starts(told) == expected
            seen += len(expected)
    assert seen > 10


def test_of_what_is_not_hidden_the_sampler_adds_names_alone(tmp_path: Path) -> None:
    """Whoever can write the history could say of any process that it is somebody's."""
    claimed = Job(1, "alice", uid=1000, login_user="bob", cgroup="/system.slice/cron.service")
    write(tmp_path, [seen := at(0, held(claimed))])
    recent = read_recent(list_history(samples_dir(str(tmp_path))).partitions, seen.ts_ms)
    assert recent
    recent = recent._replace(processes={1: recent.processes[1]._replace(login_uid=1001)})
    process = seen.processes[1]._replace(user=None, login_user=None, cgroup=None)

    def fill(login_uid: int | None = None) -> Process:
        now = seen._replace(processes={1: process._replace(login_uid=login_uid)})
        return fill_in(now, recent, MINUTE_MS).processes[1]

    assert fill() == process._replace(user="alice")
    assert fill(1002) == process._replace(user="alice", login_uid=1002)
    assert fill(1001) == process._replace(user="alice", login_uid=1001, login_user="bob")


def test_what_is_hidden_now_is_as_the_sampler_saw_it(tmp_path: Path) -> None:
    seen = at(0, held(Job(1, "alice", uid=1000), Job(2, "bob", uid=1001), Job(3, "eve", start_time_ms=1)))
    write(tmp_path, [seen])
    recent = read_recent(list_history(samples_dir(str(tmp_path))).partitions, seen.ts_ms)
    assert recent
    hidden = {pid: Process(pid, None, None, None, None, None, None, None) for pid in (1, 4)}
    changed = {2: seen.processes[2]._replace(uid=0, user=None), 3: hidden[4]._replace(pid=3, start_time_ms=2)}
    now = seen._replace(ts_ms=seen.ts_ms + MINUTE_MS, processes={**hidden, **changed})
    told = fill_in(now, recent, 2 * MINUTE_MS).processes
    assert told == {**now.processes, 1: seen.processes[1]}
    for other in (now._replace(ts_ms=seen.ts_ms + 3 * MINUTE_MS), now._replace(boot=Boot("boot-2", 1))):
        assert fill_in(other, recent, 2 * MINUTE_MS) == other
    assert fill_in(now, None, 2 * MINUTE_MS) == now


GPUS = [busy(), held(), free(), lost(), busy(ALICE, BOB), held(ALICE, BOB), busy(ALICE), held(Job(memory_mib=None))]
GPUS += [busy(ALICE._replace(sm_percent=6), BOB._replace(sm_percent=5)), Gpu(0, 95.0)]
GPUS += [Gpu(0, 4.0, (Job(100, sm_percent=4), BOB)), Gpu(0, None, (ALICE,)), Gpu(0, 0.0, (), used_mib=5000)]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from([20, 30, 30, 30, 30, 61, 74, 76, 200]),
            st.sampled_from([*GPUS, GPUS[1], GPUS[4], GPUS[4], None]),
            st.sampled_from([None, None, 30_000, 60_000]),
            st.sampled_from(["boot-1"] * 20 + ["boot-2"]),
        ),
        min_size=1,
        max_size=40,
    )
)
def test_whatever_happened_it_agrees_with_the_report(steps: list[tuple[int, Gpu | None, int | None, str]]) -> None:
    ts_ms, history = MONDAY_MS - 10 * MINUTE_MS, []
    for seconds, gpu, interval_ms, boot in steps:
        ts_ms += seconds * 1000
        cards = () if gpu is None else (gpu,)
        error = "timeout" if gpu is None else None
        history.append(tick(ts_ms, *cards, interval_ms=interval_ms, boot=boot, error=error))
    with written(history) as folder:
        newest = history[-1]
        if newest.cards:
            told = look_back(folder, newest._replace(ts_ms=ts_ms + 1))
            # The moment after is a tick more: what begins with it the report can't know yet.
            assert {key: ms for key, ms in starts(told).items() if ms <= ts_ms} == ongoing(folder, ts_ms)


def test_a_process_in_a_slurm_job_is_shown_with_it_beside_the_person() -> None:
    ada = Job(100, "ada", cgroup="/slurm/uid_1001/job_4711/step_0")
    bob = Job(200, "bob", cgroup="/user.slice/user-1002.slice/user@1002.service/slurm/uid_1001/job_7")
    now = at(0, held(ada, bob))
    (seen,) = see(now, follow(NOTHING, sight_of(now), lambda ts_ms: 0))
    assert [(one.user, one.slurm_job) for one in seen.processes] == [("ada", "4711"), ("bob", None)]
    style = text.Style()
    lines = [text.process_line(one, MONDAY_MS, style) for one in seen.processes]
    assert lines[0].endswith("  ada, job 4711")
    assert lines[1].endswith("  bob")
    assert [process(one, MONDAY_MS)["slurm_job"] for one in seen.processes] == ["4711", None]
    long = seen.processes[0]._replace(user="a" * 90, slurm_job="\x1b[2J")
    assert len(text.process_line(long, MONDAY_MS, style)) <= text.WIDTH
    assert "\x1b" not in text.process_line(long._replace(user="ada"), MONDAY_MS, style)
