"""Types of numpy arrays, and two operations on them that would be riddles without a name.

The cells of a table of 3 ticks by 2 cards, numbered row by row, are tick and card as one number:

    pack((tick, card), [2])         tick 0  0 0  1  1  2  2
                                    card 0  0 1  0  1  0  1
                                    cell    0 1  2  3  4  5
    unpack(cell, [2])               gives tick and card back

If the first tick lies in two hours, the second in none and the third in one, they make three pieces:

    spread(count of hours: 2 0 1)   tick    0 0 2
                                    nth     0 1 0
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Booleans = npt.NDArray[np.bool_]


def pack(columns: Sequence[Integers], sizes: Sequence[int]) -> Integers:
    """One number for each row, in the rows' order. `sizes`: the numbers of values of all columns but the first."""
    packed = columns[0]
    for column, size in zip(columns[1:], sizes, strict=True):
        packed = packed * size + column
    return packed


def unpack(packed: Integers, sizes: Sequence[int]) -> list[Integers]:
    columns: list[Integers] = []
    for size in reversed(sizes):
        packed, column = np.divmod(packed, size)
        columns.insert(0, column)
    return [packed, *columns]


def spread(count: Integers) -> tuple[Integers, Integers]:
    """Repeat the position of each item as often as its count says, and number the repetitions of each from 0."""
    item = np.repeat(np.arange(len(count)), count)
    return item, np.arange(len(item)) - (np.cumsum(count) - count)[item]
