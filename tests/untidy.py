"""Ticks as real machines have them: late, missing, at drifting intervals, from a clock that somebody sets."""

import random
from collections.abc import Iterable, Iterator

from gua_sample.records import Tick

LATEST_MS = 1000
MISSING = 0.01  # of the ticks
SLOW = 0.005  # of the runs take long, and so store a tick of the time at which they began
STEPPED = 0.002  # of the ticks come with a clock that was set
LARGEST_STEP_MS = 7000


def untidy(ticks: Iterable[Tick], seed: int) -> Iterator[Tick]:
    """The ticks of another machine with the same history. Their order stays, except where a clock is set back."""
    chance = random.Random(seed)
    clock_ms = chance.randrange(LARGEST_STEP_MS)  # a host starts at any second
    drift_ms = chance.choice([-2, 0, 0, 3])  # with each tick
    for tick in ticks:
        clock_ms += drift_ms
        if chance.random() < STEPPED:
            clock_ms = chance.randrange(-LARGEST_STEP_MS, LARGEST_STEP_MS)
        if chance.random() < MISSING:
            continue
        took_ms = chance.randrange(5_000, 25_000) if chance.random() < SLOW else chance.randrange(4, 60)
        late_ms = chance.randrange(LATEST_MS)
        yield tick._replace(ts_ms=tick.ts_ms + clock_ms + late_ms, nvml_ms=took_ms)
