import math
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gua_sample import policy as rule
from gua_sample.errors import UsageError
from gua_sample.records import Card, CardFacts, Usage

numbers = st.one_of(st.just(rule.NAN), st.floats(0, 200_000), st.sampled_from([0.0, 9.99, 10.0, 100.0, 100.01, 1024.0]))
percents = st.one_of(st.just(rule.NAN), st.floats(0, 100), st.sampled_from([0.0, 9.99, 10.0]))


def alone(
    utilization: Any, failed: Any, process_memory: Any, memory_used: Any, policy: rule.Policy = rule.DEFAULT
) -> dict[str, Any]:
    """The states of a tick that is judged by itself."""
    end = rule.see_end(utilization, failed, process_memory, memory_used, policy)
    return rule.card_states(end, end, True, policy=policy)


def state_of(utilization: float, failed: bool, process_memory: float, memory_used: float) -> str:
    (state,) = [name for name, holds in alone(utilization, failed, process_memory, memory_used).items() if holds]
    return state


@pytest.mark.parametrize(
    ("utilization", "failed", "process_memory", "memory_used", "state"),
    [
        (10.0, False, 0, 0, rule.ACTIVE),
        (9.99, False, 0, 0, rule.TRULY_IDLE),
        (50.0, True, rule.NAN, rule.NAN, rule.ACTIVE),  # a measured utilization outweighs a failed process list
        (0.0, True, 0, 0, rule.UNKNOWN),
        (0.0, False, 100, 100, rule.TRULY_IDLE),
        (0.0, False, 101, 101, rule.IDLE_HELD),
        (0.0, False, 45, 45, rule.TRULY_IDLE),  # a desktop
        (0.0, False, 0, 1024, rule.TRULY_IDLE),
        (0.0, False, 0, 1025, rule.IDLE_HELD),  # memory that no process shows
        (0.0, False, 8000, rule.NAN, rule.IDLE_HELD),  # unified memory: the card can't tell, its processes can
        (0.0, False, 0, rule.NAN, rule.TRULY_IDLE),  # ... and nothing is inferred
        (0.0, False, rule.NAN, rule.NAN, rule.UNKNOWN),
        (0.0, False, rule.NAN, 101, rule.IDLE_HELD),  # WSL: memory in use stands in for the processes'
        (0.0, False, rule.NAN, 100, rule.TRULY_IDLE),
        (rule.NAN, False, 101, 101, rule.UNKNOWN),  # held, and whether it works can't be told (MIG before Hopper)
        (rule.NAN, False, 0, 0, rule.TRULY_IDLE),
        (rule.NAN, False, rule.NAN, 101, rule.UNKNOWN),
    ],
)
def test_edges_of_the_rule(
    utilization: float, failed: bool, process_memory: float, memory_used: float, state: str
) -> None:
    assert state_of(utilization, failed, process_memory, memory_used) == state


@given(percents, st.booleans(), numbers, numbers)
def test_the_unknown_is_never_idle(utilization: float, failed: bool, process_memory: float, memory_used: float) -> None:
    state = state_of(utilization, failed, process_memory, memory_used)
    if state == rule.IDLE_HELD:
        assert not math.isnan(utilization)
    if state in (rule.IDLE_HELD, rule.TRULY_IDLE):
        assert not failed
        assert not (math.isnan(process_memory) and math.isnan(memory_used))


ends = st.builds(rule.End, percents, st.booleans(), st.booleans())


@given(ends, ends, st.booleans())
def test_exactly_one_state_holds_between_any_two_ticks(begin: rule.End, end: rule.End, holds_on: bool) -> None:
    states = rule.card_states(begin, end, holds_on)
    assert sum(states.values()) == 1
    if states[rule.IDLE_HELD]:
        assert begin.is_held
        assert holds_on
        assert not math.isnan(begin.utilization_percent)
        assert not begin.is_dark


cards = st.sampled_from(rule.STATES).map(lambda state: {one: one == state for one in rule.STATES})


facts = st.tuples(
    st.booleans(), st.booleans(), st.booleans(), st.tuples(percents, percents), st.booleans(), st.booleans()
)


@given(cards, facts)
def test_exactly_one_state_holds_of_a_process(on: dict[str, bool], known: tuple[Any, ...]) -> None:
    states = rule.process_states(on, *known)
    _, _, holds_on, *_ = known
    assert sum(states.values()) == 1
    if states[rule.IDLE_HELD]:
        assert holds_on
        assert not on[rule.TRULY_IDLE]


rows = st.lists(st.tuples(percents, st.booleans(), numbers, numbers), min_size=1, max_size=20)


@given(rows)
def test_columns_are_classified_as_their_rows_are(table: list[tuple[float, bool, float, float]]) -> None:
    expected = [state_of(*row) for row in table]
    frame = pd.DataFrame(table, columns=["utilization", "failed", "process_memory", "memory_used"])
    for columns in ([frame[name] for name in frame], [frame[name].to_numpy() for name in frame]):
        states = alone(*columns)
        found = np.select([np.asarray(states[name], dtype=bool) for name in rule.STATES], rule.STATES, "none")
        assert list(found) == expected


def test_thresholds_are_the_policys() -> None:
    assert alone(5.0, False, 50.0, 50.0, rule.Policy(5.0))[rule.ACTIVE]
    assert alone(0.0, False, 50.0, 50.0, rule.Policy(process_memory_mib=49))[rule.IDLE_HELD]
    assert alone(0.0, False, 0.0, 50.0, rule.Policy(unattributed_memory_mib=49))[rule.IDLE_HELD]
    assert rule.Policy(10, 100, 1024) == rule.DEFAULT


def make_card(memories: list[int | None], status: str = "ok", utilization: float | None = 0.0) -> Card:
    facts = CardFacts("GPU-0", 0, None, None, None, 81920, 500, 1, status, None)
    usages = [Usage(number, "compute", memory, 0) for number, memory in enumerate(memories, 1)]
    return Card(facts, utilization, "rate", 90, None, None, None, usages)


def test_a_record_is_classified_by_the_same_rule() -> None:
    assert rule.card_state(make_card([])) == rule.TRULY_IDLE
    assert rule.card_state(make_card([60, 60])) == rule.IDLE_HELD
    assert rule.card_state(make_card([60, None])) == rule.TRULY_IDLE  # 90 MiB in use stand in
    assert rule.card_state(make_card([], "gpu_is_lost", None)) == rule.UNKNOWN
    assert rule.card_state(make_card([60, 60], "ok", 10.0)) == rule.ACTIVE


def test_thresholds_are_given_in_the_order_of_the_configuration_and_others_refused() -> None:
    assert rule.parse_policy("20,50.5,512") == rule.Policy(20, 50.5, 512)
    assert rule.parse_policy(",".join(map(repr, rule.DEFAULT))) == rule.DEFAULT
    for text in ("", "10", "10,100", "10,100,1024,1", "101,1,1", "-1,1,1", "10,nan,1", "10,1,inf", "a,b,c"):
        with pytest.raises(UsageError, match="expected a percentage and two numbers of MiB"):
            rule.parse_policy(text)
