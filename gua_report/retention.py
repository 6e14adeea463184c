"""What is old enough to go. Ticks go only if their day is stored as a rollup that was read back and found right."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import NamedTuple

from gua_report.config import Retention
from gua_sample.partition import DAY_MS, JOURNAL_SUFFIX, SUFFIX, day_of, is_partition
from gua_sample.writer import storage_error


class Expired(NamedTuple):
    partitions: list[str]
    csvs: list[str]
    rollups: list[str]  # days
    kept: list[str]  # old enough, but their rollup is missing or does not match


def find_expired(
    partitions: dict[str, str],
    csvs: dict[str, str],
    stored: set[str],
    current: set[str],
    retention: Retention,
    now_ms: int,
) -> Expired:
    """`stored` are all days with a rollup, `current` those whose rollup fits the partition that is there."""

    def old(days: int | None, names: set[str]) -> list[str]:
        return sorted(day for day in names if is_old(day, days, now_ms))

    raw = old(retention.raw_days, set(partitions))
    return Expired(
        [partitions[day] for day in raw if day in current],
        [csvs[day] for day in old(retention.csv_days, set(csvs))],
        old(retention.rollup_days, stored - set(partitions)),
        [day for day in raw if day not in current],
    )


def is_old(day: str, days: int | None, now_ms: int) -> bool:
    return days is not None and day < day_of(now_ms - days * DAY_MS)


def list_csvs(folder: str) -> dict[str, str]:
    """The daily files by their days; what else lies there is not ours to remove."""
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return {}
    days = {name: name[:-4] for name in names if name.endswith(".csv") and is_partition(name[:-4] + SUFFIX)}
    return {day: os.path.join(folder, name) for name, day in days.items()}


def remove(paths: list[str]) -> None:
    for path in paths:
        try:
            os.unlink(path)
        except FileNotFoundError:
            pass
        except OSError as error:
            raise storage_error(error, path) from error
        with suppress(FileNotFoundError):
            os.unlink(path + JOURNAL_SUFFIX)
