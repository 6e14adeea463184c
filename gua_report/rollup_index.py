"""Which days rollups.sqlite holds, and what became of their ticks. Without pandas: importers ask it too."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from typing import NamedTuple

from gua_report import rollup_schema as schema
from gua_report.partitions import open_database
from gua_sample.errors import CorruptPartition
from gua_sample.policy import Policy


class Origin(NamedTuple):
    """What a day was made from: if the partition has changed since, the day is to be made anew."""

    policy: Policy
    partition_bytes: int
    partition_changed_ns: int


class Stored(NamedTuple):
    origin: Origin
    is_verified: bool = False  # it was read back, and found right
    is_expired: bool = False  # its ticks were removed: what is stored is all there is, and never made anew
    is_compact: bool = False  # its partition holds no empty space


def path_of(data_dir: str) -> str:
    return os.path.join(data_dir, schema.FILE_NAME)


def origin_of(partition: str, policy: Policy) -> Origin:
    found = os.stat(partition)
    return Origin(policy, found.st_size, found.st_mtime_ns)


def find_current(index: Mapping[str, Stored], partitions: Mapping[str, str], policy: Policy) -> set[str]:
    """The days of partitions that are stored as they are now, under these thresholds."""
    current = set()
    for day in index.keys() & partitions.keys():
        with suppress(FileNotFoundError):  # it has just expired
            if index[day].origin == origin_of(partitions[day], policy):
                current.add(day)
    return current


def read_index(path: str, check: bool = False) -> dict[str, Stored]:
    """The days that are stored; none at all if there is no such file. Raises CorruptPartition if it is damaged.

    `check` looks at all of it, not at the days alone.
    """
    if not os.path.exists(path):
        return {}
    names = ("day", *Policy._fields, "partition_bytes", "partition_changed_ns", *Stored._fields[1:])
    width = len(Policy._fields) + 1
    with open_database(path, schema.APPLICATION_ID, schema.VERSION) as connection:
        found = connection.execute("PRAGMA quick_check(1)").fetchone()[0] if check else "ok"
        if found != "ok":
            raise CorruptPartition(f"{path} is damaged ({' '.join(found.split())})")
        rows = connection.execute(f"SELECT {', '.join(names)} FROM day ORDER BY id").fetchall()
    return {
        row[0]: Stored(Origin(Policy(*row[1:width]), *row[width : width + 2]), *map(bool, row[width + 2 :]))
        for row in rows
    }
