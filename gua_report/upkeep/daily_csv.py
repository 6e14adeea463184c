"""The daily CSV, `csv/2026-11-16.csv`: a day's ticks in the format of gpu_stats_service, with more columns."""

from __future__ import annotations

import os

from gua_report.config import Config, load_config
from gua_report.console.whole_file import whole_file
from gua_report.exporting.portions import read_portions
from gua_report.exporting.rows import TABLES, Rules, find_rules
from gua_report.exporting.text import csv_text
from gua_report.ticks.open_partition import PARTITION
from gua_report.upkeep.night import Night
from gua_report.upkeep.retention import is_old
from gua_report.window import is_day
from gua_sample.errors import CorruptPartition, EmptyPartition, NewerPartition, PartitionBusy
from gua_sample.partition_names import partition_path, samples_dir
from gua_sample.whole_file import remove_unfinished

SUFFIX = ".csv"


def csv_dir(data_dir: str) -> str:
    return os.path.join(data_dir, "csv")


def csv_path(data_dir: str, day: str) -> str:
    return os.path.join(csv_dir(data_dir), day + SUFFIX)


def list_csvs(data_dir: str) -> dict[str, str]:
    """The daily CSV files by day; other files in the folder are not ours to remove."""
    try:
        names = os.listdir(csv_dir(data_dir))
    except FileNotFoundError:
        return {}
    days = [name.removesuffix(SUFFIX) for name in names if name.endswith(SUFFIX)]
    return {day: csv_path(data_dir, day) for day in days if is_day(day)}


def lacks_csv(night: Night, day: str) -> bool:
    """Whether the day's CSV file is missing or older than the ticks, and has not expired."""
    if is_old(day, night.config.retention.csv_days, night.now_ms):
        return False
    path = csv_path(night.data_dir, day)
    return not os.path.exists(path) or os.stat(path).st_mtime_ns < os.stat(night.history.paths[day]).st_mtime_ns


def write_csv(night: Night, day: str) -> bool:
    if night.dry_run:
        return len(night.history.ticks_of(day)) > 0 and day not in night.history.unreadable
    if not night.checks.are_ticks_right(night.index, day):
        return False
    try:
        return write_daily_csv(night.data_dir, day, night.config, night.rules) is not None
    except (CorruptPartition, NewerPartition, PartitionBusy) as error:
        if day not in night.history.unreadable:  # else the failed rollup was reported already
            night.history.warnings.append(f"no CSV file of {day}: {error}")
        return False


def write_daily_csv(data_dir: str, day: str, config: Config | None = None, rules: Rules | None = None) -> str | None:
    """Write the CSV file of a UTC day atomically; the same ticks, and containers known, give the same bytes.

    Returns its path, or None if nothing was recorded that day. Raises StoreError if the partition can't be read or the
    file can't be written: an earlier file then stays. Root should become the folder's owner before the call.
    """
    partition = partition_path(samples_dir(data_dir), day)
    if not os.path.exists(partition):
        return None
    table = TABLES["csv"]
    try:
        rules = rules or find_rules(data_dir, load_config(None) if config is None else config)
        blocks = read_portions(
            partition, PARTITION, table, (0, 2**63 - 1), rules, lambda rows: csv_text(table.columns, rows)
        )
        first = next(blocks, b"")
    except EmptyPartition:
        return None
    path = csv_path(data_dir, day)
    with whole_file(path, follow=False, make_folders=True) as file:
        file.write(csv_text((), [table.columns]) + first)
        file.writelines(blocks)
    return path


def remove_left_csvs(data_dir: str) -> None:
    """Remove half-written files of killed runs, however recent: only the run that holds the lock may call this."""
    remove_unfinished(csv_dir(data_dir), seconds=0)
