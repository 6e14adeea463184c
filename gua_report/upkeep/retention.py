"""Find and remove what has expired. Ticks expire only if the rollup of their day was read back and verified."""

from __future__ import annotations

import os
from collections.abc import Collection
from typing import NamedTuple

from gua_report.config import Retention
from gua_report.window import number_of
from gua_sample.partition_file import storage_error
from gua_sample.partition_names import DAY_MS, JOURNAL_SUFFIX


class Expired(NamedTuple):
    days: list[str]  # of expired partitions
    csvs: list[str]  # paths
    rollups: list[str]  # days
    kept: list[str]  # days old enough to expire, whose rollup is missing or does not match


def find_expired(
    days: Collection[str],
    csvs: dict[str, str],
    stored: set[str],
    current: set[str],
    retention: Retention,
    now_ms: int,
) -> Expired:
    """What has expired. `days` have ticks, `stored` have a rollup, `current` have one that matches the ticks."""

    def old(after: int | None, names: set[str]) -> list[str]:
        return sorted(day for day in names if is_old(day, after, now_ms))

    raw = old(retention.raw_days, set(days))
    return Expired(
        [day for day in raw if day in current],
        [csvs[day] for day in old(retention.csv_days, set(csvs))],
        old(retention.rollup_days, stored - set(days)),
        [day for day in raw if day not in current],
    )


def is_old(day: str, days: int | None, now_ms: int) -> bool:
    return days is not None and number_of(day) < now_ms // DAY_MS - days


def remove(paths: list[str]) -> None:
    """Remove files, each after its journal: a journal left alone would be replayed into a later file of that name."""
    for path in paths:
        for name in (path + JOURNAL_SUFFIX, path):
            try:
                os.unlink(name)
            except FileNotFoundError:
                pass
            except OSError as error:
                raise storage_error(error, name) from error
