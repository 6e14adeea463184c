"""The interface between every kind of source and the intake."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from gua_sample.records import Tick

# Prefix of card ids that were made up because the source lacks the real ones.
MADE_UP_UUID = "stats-csv:gpu-"


class Source(NamedTuple):
    kind: str  # for display, such as "gpu-usage-audit database"
    parts: list[str]  # mostly days, in time order
    read: Callable[[str], list[Tick]]  # the ticks of a part, in time order; skipped ones are counted in the tally
    check: Callable[[], None]  # raises if the source has changed, so that what was read is invalid
