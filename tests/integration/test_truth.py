"""A smaller world than that of benchmarks/truth.py, through the real sampler and report, held to its bounds.

In so few hours an edge more or less weighs more than in a week, so totals may be off by more. Everything else holds.
"""

from pathlib import Path
from typing import NamedTuple

import pytest

from benchmarks.truth import Result, percent_off, run, totals
from benchmarks.worlds import compare, laboratory
from benchmarks.worlds.driver import Behaviour
from benchmarks.worlds.ground_truth import ACTIVE, HELD
from benchmarks.worlds.world import Span, World

SEED, SECONDS = 1, 4 * 3600
HELD_PERCENT, ACTIVE_PERCENT = 2.5, 2.0
FINE_PERCENT = 0.6  # with ticks every 15 s


class Trial(NamedTuple):
    interval: float = 30
    behaviour: Behaviour = Behaviour()
    pauses: Span = (2, 20)


TRIALS = {
    "30 s": Trial(),
    "no zeros, no memory of processes": Trial(behaviour=Behaviour(writes_zeros=False, tells_memory=False)),
    "15 s, long pauses": Trial(15, pauses=(2, 90)),
}


class Recorded(NamedTuple):
    trial: Trial
    world: World
    result: Result


@pytest.fixture(scope="module", params=TRIALS)
def recorded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    trial = TRIALS[request.param]
    folder: Path = tmp_path_factory.mktemp("truth")
    world = laboratory.make(SEED, SECONDS, trial.pauses)
    return Recorded(trial, world, run(world, trial.behaviour, trial.interval, SEED, folder, with_peer=False))


def test_the_observed_time_is_that_of_the_world(recorded: Recorded) -> None:
    truth, hours = recorded.result.truth, recorded.result.hours
    assert percent_off(hours.observed, truth.observed_hours) == pytest.approx(0, abs=0.01)


def test_rollups_tell_what_ticks_tell(recorded: Recorded) -> None:
    assert compare.largest_difference(recorded.result.hours, recorded.result.from_rollups) * 3600 < 1


def test_idle_held_and_active_hours_are_true(recorded: Recorded) -> None:
    true, told = totals(recorded.result.truth.cards), recorded.result.hours.states
    is_fine = recorded.trial.interval < 30
    assert percent_off(told[HELD], true[HELD]) == pytest.approx(0, abs=FINE_PERCENT if is_fine else HELD_PERCENT)
    assert percent_off(told[ACTIVE], true[ACTIVE]) == pytest.approx(0, abs=FINE_PERCENT if is_fine else ACTIVE_PERCENT)


def test_everybodys_held_hours_are_true_to_within_3_percent_or_some_minutes(recorded: Recorded) -> None:
    true, told = compare.held_of(recorded.result.truth.people), compare.held_of(recorded.result.hours.people)
    off = {user: told.get(user, 0.0) - true.get(user, 0.0) for user in {*true, *told}}
    assert {user: hours for user, hours in off.items() if abs(hours) > max(0.03 * true.get(user, 0.0), 0.15)} == {}


def test_an_idler_beside_a_worker_is_found(recorded: Recorded) -> None:
    true, told = (
        compare.held_by_workload(recorded.world, compare.held_of(people))[laboratory.IDLER]
        for people in (recorded.result.truth.people, recorded.result.hours.people)
    )
    assert true > 2
    assert percent_off(told, true) == pytest.approx(0, abs=0.5)


@pytest.mark.parametrize("is_start", [True, False])
def test_sharp_edges_of_clear_episodes_are_where_they_are(recorded: Recorded, is_start: bool) -> None:
    found = compare.find_edges(recorded.result.truth.episodes, recorded.result.hours, is_start, only_sharp=True)
    assert found.total >= 5
    assert found.right == found.total
