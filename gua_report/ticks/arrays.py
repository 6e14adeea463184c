"""Types of numpy arrays, and an operation on them that would be a riddle without a name.

If the first tick lies in two hours, the second in none and the third in one, they make three pieces:

    spread(count of hours: 2 0 1)   tick    0 0 2
                                    nth     0 1 0
"""

import numpy as np
import numpy.typing as npt

Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Booleans = npt.NDArray[np.bool_]


def spread(count: Integers) -> tuple[Integers, Integers]:
    """Repeat the position of each item as often as its count says, and number the repetitions of each from 0."""
    item = np.repeat(np.arange(len(count)), count)
    return item, np.arange(len(item)) - (np.cumsum(count) - count)[item]
