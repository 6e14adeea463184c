"""The rule for a day's edges: a stored day is good only if its own ticks and those beside it are what it was made from.

The last tick of a day is weighed by the first one of the next day, and both days are told by ticks on either side of
midnight (docs/architecture.md, "One closed day"). Without pandas, like the index.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from itertools import pairwise

from gua_report.rollups.index import Stored, find_current, origin_of
from gua_sample.policy import Policy


def find_usable(
    index: Mapping[str, Stored],
    partitions: Mapping[str, str],
    policy: Policy,
    first_ms: Callable[[str], int | None],
) -> set[str]:
    """The stored days that a rollup of the present partitions, under these thresholds, would not change.

    Beside a day that has changed or come back, a rollup is not usable until `gua rollup` has made both anew.
    `first_ms` gives the time of the first tick of a day.
    """
    days = sorted(partitions)
    current = find_current(index, partitions, policy)
    changed = {day for day in days[:-1] if day not in current}
    # The newest day grows, but its first ticks stay, unless one comes late.
    if len(days) > 1 and days[-2] in current and days[-1] not in current:
        next_ms = first_ms(days[-1])
        if next_ms is not None and not index[days[-2]].fits(next_ms):
            changed.add(days[-1])
    return {day for day in current - with_neighbours(changed, days) if not index[day].is_stale}


def with_neighbours(some: Collection[str], days: Iterable[str]) -> set[str]:
    """Those of the days, which are in order, that are among `some` or next to one of them."""
    wanted = set(some)
    return {day for pair in pairwise(days) for day in pair if wanted.intersection(pair)}


def has_changed(stored: Stored, partition: str) -> bool:
    """Whether the partition is another than the day was made from; not if it has just been removed."""
    with suppress(FileNotFoundError):
        return stored.origin != origin_of(partition, stored.origin.policy)
    return False
