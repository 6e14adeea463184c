"""The truth of small worlds whose hours can be told by hand."""

import numpy as np
import pytest

from benchmarks.worlds.ground_truth import ACTIVE, FREE, HELD, UNKNOWN, Edge, find_truth, means_around
from benchmarks.worlds.world import HZ, Card, Process, World

HOUR = 3600


def process(
    user: str, start: int, *load: tuple[int, int], memory_mib: int = 5000, pid: int = 1, card: int = 0
) -> Process:
    """A process whose load is given as pairs of seconds and percent."""
    percents = np.concatenate([np.full(seconds * HZ, percent, np.uint8) for seconds, percent in load])
    return Process(card, pid, user, "any", start * HZ, percents, memory_mib)


def world(*processes: Process, cards: int = 1, **trouble: list[tuple[float, ...]]) -> World:
    return World(HOUR, [Card(gpu) for gpu in range(cards)], list(processes), **trouble)  # type: ignore[arg-type]


def seconds_of(hours: list[float]) -> list[int]:
    return [round(value * 3600) for value in hours]


def test_means_are_those_of_the_half_minute_around_a_second() -> None:
    load = np.random.default_rng(1).integers(0, 101, 90 * HZ).astype(np.uint8)
    for second, mean in enumerate(means_around(load).tolist()):
        around = [int(value) for sample, value in enumerate(load) if abs((sample + 0.5) / HZ - (second + 0.5)) < 15]
        assert mean == pytest.approx(sum(around) / len(around))


def test_a_card_is_free_held_or_at_work() -> None:
    # 100 % for 600 s: the mean of 30 s is 10 % or more from 12 s before that time to 12 s after it.
    one = process("ada", 600, (600, 0), (600, 100), (600, 0))
    truth = find_truth(world(one), [(0, HOUR)])
    assert seconds_of(truth.cards[0]) == [624, 1176, 1800, 0]
    assert seconds_of(truth.cards_by_second[0]) == [600, 1200, 1800, 0]
    assert seconds_of(truth.people["ada"]) == [624, 1176, 0, 0]


def test_a_small_process_holds_nothing_whatever_it_does() -> None:
    truth = find_truth(world(process("desk", 0, (HOUR, 50), memory_mib=100)), [(0, HOUR)])
    assert seconds_of(truth.cards[0]) == [0, 0, HOUR, 0]
    assert truth.people == {}


def test_only_observed_time_counts() -> None:
    truth = find_truth(world(process("ada", 0, (HOUR, 0))), [(0, 600), (1200, 1800)])
    assert seconds_of(truth.cards[0]) == [0, 1200, 0, 0]
    assert truth.observed_hours == pytest.approx(1200 / 3600)


def test_a_lost_card_is_unknown() -> None:
    truth = find_truth(world(process("ada", 0, (600, 0)), losses=[(0, 600.0, 1800.0)]), [(0, HOUR)])
    assert seconds_of(truth.cards[0]) == [0, 600, 1800, 1200]
    assert seconds_of(truth.people["ada"])[UNKNOWN] == 0


def test_beside_others_each_is_judged_by_what_they_do_themselves() -> None:
    idler, worker = process("dan", 0, (HOUR, 0), pid=1), process("eva", 600, (1200, 100), pid=2)
    truth = find_truth(world(idler, worker), [(0, HOUR)])
    assert seconds_of(truth.people["dan"]) == [0, HOUR, 0, 0]
    assert seconds_of(truth.people["eva"]) == [1200, 0, 0, 0]
    # The card itself is at work from 12 s before the worker comes until 12 s after they leave.
    assert seconds_of(truth.cards[0])[ACTIVE] == 1224


def test_a_person_counts_once_a_card_and_works_if_one_of_their_processes_does() -> None:
    both = [process("ada", 0, (HOUR, 0), pid=1), process("ada", 0, (HOUR, 90), pid=2)]
    beside = process("dan", 0, (HOUR, 0), pid=3)
    truth = find_truth(world(*both, beside), [(0, HOUR)])
    assert seconds_of(truth.people["ada"]) == [HOUR, 0, 0, 0]
    on_two = [process("ada", 0, (HOUR, 0), card=card) for card in (0, 1)]
    assert seconds_of(find_truth(world(*on_two, cards=2), [(0, HOUR)]).people["ada"]) == [0, 2 * HOUR, 0, 0]


def test_a_mig_instance_weighs_its_slices() -> None:
    instances = World(HOUR, [Card(0, 3, 30_000), Card(0, 2, 20_000)], [process("ada", 0, (HOUR, 0))])
    truth = find_truth(instances, [(0, HOUR)])
    assert truth.cards[0][HELD] == pytest.approx(3 / 7)
    assert truth.cards[1][FREE] == pytest.approx(2 / 7)
    assert truth.people["ada"][HELD] == pytest.approx(3 / 7)


def test_clear_episodes_have_edges_that_are_sharp_where_somebody_comes_goes_or_works_on() -> None:
    one = process("ada", 100, (700, 0), (20, 100), (800, 0), (100, 100), (700, 0))
    episodes = find_truth(world(one), [(0, HOUR)]).episodes
    assert [(episode.start, episode.end) for episode in episodes] == [
        (Edge(100, True), Edge(788, False)),
        (Edge(832, False), Edge(1608, True)),
        (Edge(1732, True), Edge(2420, True)),
    ]


def test_an_edge_that_was_not_observed_is_none() -> None:
    one = process("ada", 100, (3000, 0))
    (episode,) = find_truth(world(one), [(0, 2000)]).episodes
    assert (episode.start, episode.end) == (Edge(100, True), None)


@pytest.mark.parametrize("percent", [7, 12])
def test_what_is_near_the_threshold_is_not_clear(percent: int) -> None:
    hovering = process("ada", 0, (800, 0), (60, percent), (800, 0), (100, 90))
    episodes = find_truth(world(hovering), [(0, HOUR)]).episodes
    assert [episode.end for episode in episodes if episode.end and episode.end.second < 900] == []


def test_nobody_is_at_work_because_of_who_came_before_or_after() -> None:
    idler = process("dan", 0, (HOUR, 0), pid=1)
    jobs = [process("eva", start, (20, 100), pid=2 + start) for start in range(0, HOUR, 60)]
    (episode,) = find_truth(world(idler, *jobs), [(0, HOUR)]).episodes
    assert episode.pid == 1
    assert (episode.start, episode.end) == (Edge(0, True), Edge(HOUR, True))
