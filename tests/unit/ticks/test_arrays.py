"""Tables addressed by one number, and items repeated by their counts."""

from __future__ import annotations

import numpy as np
import pytest

from gua_report.ticks.arrays import pack, spread, unpack

# Three ticks by two cards.
TICK = np.array([0, 0, 1, 1, 2, 2])
CARD = np.array([0, 1, 0, 1, 0, 1])


def test_the_cells_of_a_table_are_numbered_row_by_row() -> None:
    assert pack((TICK, CARD), [2]).tolist() == [0, 1, 2, 3, 4, 5]


def test_what_was_packed_can_be_unpacked() -> None:
    state = np.array([3, 0, 1, 2, 3, 0])
    packed = pack((TICK, CARD, state), [2, 4])
    assert [column.tolist() for column in unpack(packed, [2, 4])] == [TICK.tolist(), CARD.tolist(), state.tolist()]


def test_packed_rows_sort_like_the_rows() -> None:
    order = np.argsort(pack((TICK[::-1], CARD), [2]))
    assert order.tolist() == np.lexsort((CARD, TICK[::-1])).tolist()


def test_sizes_are_those_of_all_columns_but_the_first() -> None:
    with pytest.raises(ValueError, match="zip"):
        pack((TICK, CARD), [3, 2])


def test_items_are_repeated_by_their_counts_and_the_repetitions_numbered() -> None:
    item, nth = spread(np.array([2, 0, 1]))
    assert item.tolist() == [0, 0, 2]
    assert nth.tolist() == [0, 1, 0]


def test_nothing_is_repeated_without_items() -> None:
    assert [column.tolist() for column in spread(np.array([], np.int64))] == [[], []]
