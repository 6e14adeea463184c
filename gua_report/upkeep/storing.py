"""Make the rollups of days, store them, and read them back."""

from __future__ import annotations

from typing import Any

from gua_report.rollups.closed_day import Made, roll_up_day
from gua_report.rollups.digests import digest_partition, digest_stored
from gua_report.rollups.index import Edges, Origin, Stored
from gua_report.rollups.writer import RollupWriter
from gua_report.upkeep import neighbours
from gua_report.upkeep.night import Night
from gua_report.upkeep.read_back import verify
from gua_sample.policy import RULE

# A rebuilt day may change the edges of its neighbours, and these the edges of theirs.
PASSES = 3


def store_stale(night: Night, closed: list[str]) -> list[str]:
    """Rebuild the days that became stale when their neighbours were rebuilt; return those that were stored."""
    done: list[str] = []
    for _ in range(PASSES):
        night.refresh()
        stale = [day for day in closed if day in night.index and night.index[day].is_stale]
        if night.dry_run or not stale:
            break
        done += [day for day in stale if store_day(night, day)]
    return done


def store_day(night: Night, day: str) -> bool:
    """Roll up and store a day in its own transaction, so that a killed run keeps the days stored before."""
    for near in neighbours.beside(day):
        night.checks.are_ticks_right(night.index, near)  # else they are treated as missing
    if not night.checks.are_ticks_right(night.index, day):
        return False
    made = make(night, day)
    if made is None or night.dry_run:
        return made is not None
    # Asked after the rollup was made, as reading the rows may show that a neighbour is unreadable.
    lacks = neighbours.missing_edges(night.history, night.index, day)
    origin, stored = night.origins[day], night.index.get(day)
    is_safe = stored is not None and stored.is_verified and day not in night.checks.failed
    is_same = stored is not None and stored.origin == origin and stored.rule == RULE
    if stored and any(lacks) and is_safe and stored.is_exact and is_same:
        adopt(night, day, stored)  # it is exact, the new one is not
        return False
    edges = Edges(*(None if is_missing else key for key, is_missing in zip(made.edges, lacks, strict=True)))
    is_compact = stored is not None and stored.is_compact and stored.origin[1:] == origin[1:]
    with RollupWriter(night.path) as writer:
        seen = [near for near in made.beside if neighbours.are_neighbours(night.history, night.index, day, near.day)]
        writer.write(day, made.sums, Stored(origin, is_compact=is_compact), edges, seen)
        verify(night.path, day, made.sums)
        writer.mark([day], is_verified=1, **take_digest(night, day, origin, is_compact))
    night.checks.failed.pop(day, None)
    return True


def adopt(night: Night, day: str, stored: Stored) -> None:
    """Take the digests of a day as it is now, if an older gua stored it, which takes none."""
    if stored.rows_digest is None or stored.ticks_digest is None:
        rows_digest = stored.rows_digest or digest_stored(night.path, day) or None
        with RollupWriter(night.path) as writer:
            writer.mark([day], rows_digest=rows_digest, **take_digest(night, day, stored.origin, stored.is_compact))


def take_digest(night: Night, day: str, origin: Origin, is_compact: bool) -> dict[str, Any]:
    """The digest of a day's partition, if it can be had, and the time of the check, as columns of the table `day`."""
    column = "compact_digest" if is_compact else "partition_digest"
    return {column: digest_partition(night.history.paths[day], origin) or None, "checked_ms": night.now_ms}


def make(night: Night, day: str) -> Made | None:
    """The rollup of a day; None on failure. A damaged file may raise any error, which must not stop other days."""
    try:
        before = neighbours.episodes_before(night.history, night.index, day, night.path)
        return roll_up_day(night.history, day, night.config.policy, before)
    except Exception as error:  # of any kind: see above
        night.fail(day, error)
        return None
