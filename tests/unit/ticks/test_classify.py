"""The state of the time between two ticks: what both of them tell of cards and processes."""

from pathlib import Path

import pytest

from gua_sample.policy import STATES
from tests.lab import (
    ALICE,
    BOB,
    HIDDEN,
    MINUTE_MS,
    MONDAY_MS,
    Gpu,
    Job,
    Report,
    free,
    held,
    hours,
    hours_by,
    lost,
    report_minutes,
    tick,
    write,
    written,
)

HALF_MS = MINUTE_MS // 2


def at_half_minutes(*gpus: Gpu) -> list[float]:
    """Half minutes by state, of a card that is so at ticks 30 s apart: active, idle-held, truly-idle, unknown."""
    return [round(value * 120, 6) for value in hours(report_on(*gpus)).values()]


def report_on(*gpus: Gpu) -> Report:
    ticks = [tick(MONDAY_MS + place * HALF_MS, gpu, interval_ms=HALF_MS) for place, gpu in enumerate(gpus)]
    with written(ticks) as folder:
        return report_minutes(folder, 0, (len(gpus) + 1) // 2)


def at(percent: float | None, *jobs: Job) -> Gpu:
    return Gpu(utilization=percent, jobs=jobs)


MINE = Job()


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        (at(0, MINE), at(20, MINE), "active"),  # the mean of both is 10 %
        (at(0, MINE), at(19, MINE), "idle-held"),
        (at(20, MINE), at(0, MINE), "active"),
        (at(10, MINE), free(), "active"),  # it has gone: one of both
        (at(0, MINE), at(10), "active"),
        (at(9, MINE), free(), "idle-held"),
        (free(), at(90, MINE), "truly-idle"),  # it came later
        (at(90), at(90, MINE), "truly-idle"),
        (at(90), at(90), "active"),  # work that nobody shows
        (at(90), free(), "truly-idle"),  # somebody has gone before the first tick
        (free(), at(90), "truly-idle"),
        (at(None, MINE), at(90, MINE), "active"),
        (at(None, MINE), at(0, MINE), "unknown"),
        (at(0, MINE), at(None, MINE), "idle-held"),
        (at(0, MINE), lost(), "idle-held"),  # judged by itself
        (at(90, MINE), lost(), "active"),
        (lost(), at(0, MINE), "unknown"),
        (HIDDEN, at(40), "active"),
        (HIDDEN, HIDDEN, "idle-held"),
    ],
)
def test_the_time_between_two_ticks_is_judged_by_both(first: Gpu, second: Gpu, expected: str) -> None:
    # There is a tick before, so that nobody is met by a single one.
    before, newest = at_half_minutes(first), at_half_minutes(second)
    between = [float(state == expected) for state in STATES]
    assert at_half_minutes(first, first, second) == [sum(parts) for parts in zip(before, between, newest, strict=True)]


def test_the_newest_tick_and_one_before_a_hole_are_judged_by_themselves(tmp_path: Path) -> None:
    write(tmp_path, [tick(MONDAY_MS, held(), interval_ms=HALF_MS)])
    assert hours(report_minutes(tmp_path, 0, 1))["idle-held"] == pytest.approx(1 / 120)
    write(tmp_path, [tick(MONDAY_MS + 10 * MINUTE_MS, at(90, MINE), interval_ms=HALF_MS)])
    assert hours(report_minutes(tmp_path, 0, 1))["idle-held"] == pytest.approx(1 / 120)


def test_work_that_had_faded_at_the_first_tick_and_is_gone_at_the_second_was_over() -> None:
    working, fading, idle = at(90, MINE), at(60, MINE), at(0, MINE)
    assert at_half_minutes(working, fading, idle) == [1, 2, 0, 0]
    assert at_half_minutes(working, working, idle, working) == [4, 0, 0, 0]  # a pause
    assert at_half_minutes(fading, fading, idle, fading) == [4, 0, 0, 0]
    assert at_half_minutes(working, fading, at(5, MINE)) == [2, 1, 0, 0]
    beside = [at(90, ALICE._replace(sm_percent=percent), BOB) for percent in (90, 60, 0)]
    assert people(*beside) == {("alice", "active"): 1, ("alice", "idle-held"): 2, ("bob", "active"): 3}


def test_ticks_that_tell_all_of_the_time_need_no_third_one(tmp_path: Path) -> None:
    gpus = [at(90, MINE), at(60, MINE), at(0, MINE)]
    write(tmp_path, [tick(MONDAY_MS + 15_000 * place, gpu, interval_ms=15_000) for place, gpu in enumerate(gpus)])
    assert hours(report_minutes(tmp_path, 0, 1))["active"] == pytest.approx(2 / 240)


def test_a_process_that_is_met_by_a_single_tick_holds_nothing_but_may_work() -> None:
    assert at_half_minutes(free(), held(), free()) == [0, 0, 3, 0]
    assert at_half_minutes(free(), at(60, MINE), free()) == [1, 0, 2, 0]
    assert at_half_minutes(free(), held(), held()) == [0, 2, 1, 0]


def test_a_process_whose_start_is_told_otherwise_at_a_tick_does_not_pass() -> None:
    other = held(MINE._replace(start_time_ms=5001))
    assert at_half_minutes(held(), other, held()) == [0, 3, 0, 0]


def test_memory_that_nobody_shows_is_held_though_a_process_passes() -> None:
    passing = Gpu(jobs=(MINE,), used_mib=22_000)
    assert at_half_minutes(HIDDEN, passing, HIDDEN) == [0, 3, 0, 0]


def people(*gpus: Gpu) -> dict[tuple[str, str], float]:
    """Half minutes by person and state."""
    found = hours_by(report_on(*gpus).identities, "identity")
    return {key: round(value * 120, 6) for key, value in found.items()}


def test_one_who_is_alone_among_the_holders_is_judged_with_the_card() -> None:
    several = at(40, Job(1, sm_percent=0), Job(2, sm_percent=35), Job(3, "gdm", 45, 3, type="graphics"))
    assert people(several, several) == {("alice", "active"): 2}


def test_a_desktop_beside_a_holder_does_not_share_the_card() -> None:
    desktop = Job(3, "gdm", 45, None, type="graphics")
    assert people(at(60, MINE, desktop), at(60, MINE, desktop)) == {("alice", "active"): 2}
    assert people(held(MINE, desktop), held(MINE, desktop)) == {("alice", "idle-held"): 2}


def test_beside_others_the_own_utilization_of_both_ticks_counts() -> None:
    resting, working = ALICE._replace(sm_percent=0), ALICE._replace(sm_percent=20)
    shared = [at(90, one, BOB) for one in (resting, working, resting)]
    assert people(*shared) == {("alice", "active"): 2, ("alice", "idle-held"): 1, ("bob", "active"): 3}
    little = [at(90, ALICE._replace(sm_percent=9), BOB)] * 2
    assert people(*little) == {("alice", "idle-held"): 2, ("bob", "active"): 2}


def test_who_does_a_little_is_at_work_if_nobody_else_accounts_for_it() -> None:
    both = at(12, ALICE._replace(sm_percent=7), BOB._replace(sm_percent=5))
    assert people(both, both) == {("alice", "active"): 2, ("bob", "active"): 2}
    one = at(12, ALICE._replace(sm_percent=7), BOB._replace(sm_percent=0))
    assert people(one, one) == {("alice", "active"): 2, ("bob", "idle-held"): 2}


def test_nobody_on_a_shared_card_is_at_work_by_guess() -> None:
    both = at(90, ALICE._replace(sm_percent=None), BOB._replace(sm_percent=None))
    assert people(both, both) == {("alice", "unknown"): 2, ("bob", "unknown"): 2}
    idle = held(ALICE._replace(sm_percent=None), BOB._replace(sm_percent=None))
    assert people(idle, idle) == {("alice", "idle-held"): 2, ("bob", "idle-held"): 2}


@pytest.mark.parametrize("type_", ["compute", "mps", "compute+graphics"])
def test_an_idler_is_found_beside_a_worker_though_no_memory_is_told(type_: str) -> None:
    idler, worker = ALICE._replace(memory_mib=None, type=type_), BOB._replace(memory_mib=None)
    card = Gpu(utilization=90.0, jobs=(idler, worker), used_mib=9000)
    assert people(card, card) == {("alice", "idle-held"): 2, ("bob", "active"): 2}


def test_graphics_without_memory_told_holds_nothing() -> None:
    desktop = Job(3, "gdm", None, 0, type="graphics")
    card = Gpu(utilization=90.0, jobs=(desktop, BOB), used_mib=9000)
    assert people(card, card) == {("bob", "active"): 2}


def test_who_comes_to_a_card_shares_it_from_the_tick_before_on() -> None:
    """Until then the card idled: the newcomer's work is not counted to who was there."""
    alone, together = held(ALICE), at(90, ALICE, BOB)
    assert people(alone, alone, together) == {("alice", "idle-held"): 3, ("bob", "active"): 1}
