"""Remove what has expired, in an order that can be interrupted anywhere."""

from __future__ import annotations

from gua_report.rollups.writer import RollupWriter
from gua_report.upkeep import neighbours
from gua_report.upkeep.daily_csv import list_csvs
from gua_report.upkeep.edge_files import remove_edges, write_edge
from gua_report.upkeep.night import Night
from gua_report.upkeep.retention import find_expired, remove
from gua_sample.partition_names import day_of


def expire(night: Night, rolled_up: set[str]) -> tuple[list[str], list[str]]:
    """Remove what has expired; return it, and the old days that were kept. `rolled_up`: days done by this run."""
    night.refresh()
    history = night.history
    current = night.find_current() | (rolled_up if night.dry_run else set())
    # Neighbours of a day that is not rolled up yet are kept: their ticks determine the weights at its edges.
    due = {day for day in history.days if day not in current and is_to_come(night, day)}
    awaited = neighbours.find_awaited(history, night.index, due)
    expired = find_expired(
        [day for day in history.days if day in current or len(history.ticks_of(day)) or day in history.unreadable],
        list_csvs(night.data_dir),
        night.index.keys() - night.left.keys() - night.ignored,
        current,
        night.config.retention,
        night.now_ms,
    )
    days = [day for day in expired.days if day not in awaited]
    wanted = neighbours.find_wanted_edges(history, night.index, set(days))
    rollups = [day for day in expired.rollups if day not in wanted]
    leftovers = list(night.left.values())
    partitions = [history.paths[day] for day in days]
    if not night.dry_run:
        remove(leftovers + expired.csvs)  # first: frees room on a full disk
        night.left = {}
        for day in set(days) & wanted:
            write_edge(night.data_dir, day, history.paths[day])
        if days or rollups:
            with RollupWriter(night.path) as writer:
                writer.mark(days, is_expired=1)  # before the removal: never rebuild them from a remainder
                writer.delete(rollups)
        remove(partitions)
        remove_edges(night.data_dir, wanted)
        history.forget(days)
    removed = [*leftovers, *partitions, *expired.csvs, *(f"rollup of {day}" for day in rollups)]
    return removed, [day for day in expired.kept if not night.checks.is_rotten(day)]


def is_to_come(night: Night, day: str) -> bool:
    """Whether the day is over and has readable ticks, so that it can still be rolled up."""
    is_over = day < day_of(night.now_ms)
    return is_over and len(night.history.ticks_of(day)) > 0 and day not in night.history.unreadable
