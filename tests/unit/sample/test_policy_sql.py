"""The rules of the policy as SQL: they say the same as in Python."""

from __future__ import annotations

import sqlite3

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gua_sample.policy import DEFAULT, NAN, STATES, card_states
from gua_sample.policy_sql import Expression

VALUES = st.none() | st.sampled_from([0.0, 5.0, 9.99, 10.0, 99.0, 100.0, 101.0, 1024.0, 1124.0, 1125.0, 5000.0])


@given(VALUES, st.booleans(), VALUES, VALUES)
def test_the_rules_say_the_same_in_sql(
    utilization: float | None, failed: bool, process_memory: float | None, used: float | None
) -> None:
    columns = {"utilization": utilization, "failed": failed, "process_memory": process_memory, "used": used}
    names = ", ".join(f":{name} AS {name}" for name in columns)
    one, two, three, four = map(Expression, columns)
    expressions = card_states(one, two, three, four, DEFAULT)
    numbers = [NAN if value is None else value for value in columns.values()]
    values = card_states(numbers[0], failed, numbers[2], numbers[3], DEFAULT)
    connection = sqlite3.connect(":memory:")
    row = connection.execute(
        f"SELECT {', '.join(str(expressions[state]) for state in STATES)} FROM (SELECT {names})", columns
    ).fetchone()
    connection.close()
    assert [bool(value) for value in row] == [bool(values[state]) for state in STATES]


def test_an_expression_is_not_to_be_decided_in_python() -> None:
    with pytest.raises(TypeError):
        bool(Expression("x") > 1)
    with pytest.raises(TypeError):
        Expression("x") ^ False
