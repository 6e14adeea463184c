"""What every kind of source offers to the intake."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from gua_sample.records import Tick

# Card ids that were made up because the source does not tell the real ones.
MADE_UP_UUID = "stats-csv:gpu-"


class Source(NamedTuple):
    kind: str  # for people: "gpu-usage-audit database"
    parts: list[str]  # days, mostly, in time order
    read: Callable[[str], list[Tick]]  # the ticks of a part, in time order; the tally learns what is left out
    check: Callable[[], None]  # raises if the source has changed so that what was read is not to be believed
