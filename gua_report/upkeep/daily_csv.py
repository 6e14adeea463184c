"""The daily CSV, `csv/2026-11-16.csv`: a day's ticks in the format of gpu_stats_service, with more columns."""

from __future__ import annotations

import os

from gua_report.config import Config, load_config
from gua_report.console.whole_file import whole_file
from gua_report.exporting.portions import read_portions
from gua_report.exporting.rows import TABLES
from gua_report.exporting.text import csv_text
from gua_report.ticks.open_partition import PARTITION
from gua_sample.errors import EmptyPartition
from gua_sample.partition_names import partition_path, samples_dir
from gua_sample.whole_file import remove_unfinished

SUFFIX = ".csv"


def csv_dir(data_dir: str) -> str:
    return os.path.join(data_dir, "csv")


def csv_path(data_dir: str, day: str) -> str:
    return os.path.join(csv_dir(data_dir), day + SUFFIX)


def write_daily_csv(data_dir: str, day: str, config: Config | None = None) -> str | None:
    """Write the CSV file of a UTC day atomically; the same ticks give the same bytes.

    Returns its path, or None if nothing was recorded that day. Raises StoreError if the partition can't be read or the
    file can't be written: an earlier file then stays. Root should become the folder's owner before the call.
    """
    partition = partition_path(samples_dir(data_dir), day)
    if not os.path.exists(partition):
        return None
    table = TABLES["csv"]
    try:
        config = load_config(None) if config is None else config
        blocks = read_portions(
            partition, PARTITION, table, (0, 2**63 - 1), config, lambda rows: csv_text(table.columns, rows)
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
