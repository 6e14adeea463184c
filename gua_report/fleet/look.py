"""A first look at a host's file: whose it is, which days it has and under which thresholds. Without pandas.

The file was written by that host's root: nothing in it is trusted more than that. So it is looked at in a child.
"""

from __future__ import annotations

import os
from collections import Counter
from contextlib import suppress
from typing import Any, NamedTuple

from gua_report.fleet.host_files import HostFile
from gua_report.fleet.typed import Kinds, typed
from gua_report.rollups.index import open_rollups, read_index
from gua_report.rollups.published import META, Meta, read_meta
from gua_report.window import number_of
from gua_sample.errors import CorruptPartition, EmptyPartition
from gua_sample.partition_names import DAY_MS
from gua_sample.policy import RULE, Policy
from gua_sample.safe_file import check_regular

MOST_FILE_BYTES = 1 << 30  # a year of 128 cards takes 0.1 GB
MOST_CARDS = 10_000
# Physical cards with MIG on are in no state, and in a table of their own.
CARDS = "SELECT uuid FROM card UNION SELECT gpu_uuid FROM unpartitioned_hour"
ASKED = ".before"  # left by contrib/fleet/gua-collect beside the file


class Look(NamedTuple):
    """What a file tells of itself."""

    name: str  # of the HostFile
    machine: str | None  # 32 hex digits; None: not known
    version: str | None
    published_ms: int | None
    newest_tick_ms: int | None
    changed_ms: int  # when the file was last changed
    days: int
    first_ms: int  # the beginning of the oldest day's time
    first_day: str
    newest_day: str
    thresholds: list[tuple[Policy, int]]  # with the number of days by today's rule under each, most of them first
    other_rule_days: int
    uuids: list[str]
    has_meta: bool
    warnings: list[str]
    asked_ms: int | None  # when, by the collector's clock, the host's newest file was not there yet


LOOK_KINDS: list[Kinds] = [
    *((str,), (str, None), (str, None), (int, None), (int, None), (int,), (int,), (int,), (str,), (str,)),
    *((list,), (int,), (list,), (bool,), (list,), (int, None)),
]


def look_at(file: HostFile, check: bool = False) -> Look | int:
    """Look at a file, with `check` at every page; without any day, returns when it was published. Raises StoreError."""
    found = check_regular(file.path, MOST_FILE_BYTES)
    warnings: list[str] = []
    try:
        index = read_index(file.path, check, warnings)
    except EmptyPartition as error:
        raise CorruptPartition("its file is empty, probably a copy that failed: collect it again") from error
    if not index and warnings:
        raise CorruptPartition(warnings[0])
    meta = _find_meta(file)
    if not index:
        return meta.published_ms if meta else found.st_mtime_ns // 1_000_000
    first, newest = min(index), max(index)
    with open_rollups(file.path) as connection:
        query = "SELECT min(start_ms) FROM span WHERE day_id = ?"
        start_ms = connection.execute(query, (number_of(first),)).fetchone()[0] or 0
        cards = connection.execute(f"{CARDS} LIMIT ?", (MOST_CARDS + 1,)).fetchall()
        if len(cards) > MOST_CARDS or not 0 <= start_ms <= DAY_MS:
            raise CorruptPartition(f"{file.path} holds what no gua writes")
    asked_ms = None
    with suppress(OSError, CorruptPartition):
        asked_ms = check_regular(os.path.join(os.path.dirname(file.path), ASKED), 0).st_mtime_ns // 1_000_000
    policies = Counter(stored.origin.policy for stored in index.values() if stored.rule == RULE)
    return Look(
        file.name,
        meta.machine if meta else None,
        meta.gua_version if meta else None,
        meta.published_ms if meta else None,
        meta.newest_tick_ms if meta else None,
        found.st_mtime_ns // 1_000_000,
        len(index),
        number_of(first) * DAY_MS + start_ms,
        first,
        newest,
        policies.most_common(),
        sum(stored.rule != RULE for stored in index.values()),
        [str(card[0]) for card in cards],
        meta is not None,
        warnings[:3],
        asked_ms,
    )


def _find_meta(file: HostFile) -> Meta | None:
    """What the file says of itself; None if it is a plain copy, which does not say. Raises StoreError for nonsense."""
    with open_rollups(file.path) as connection:
        is_published = connection.execute("SELECT 1 FROM sqlite_schema WHERE name = ?", (META,)).fetchone()
    return read_meta(file.path) if is_published else None


def restore_look(name: str, value: Any) -> Look:
    """A Look from the plain lists of its JSON form. Raises ValueError or TypeError if it makes no sense."""
    look = Look(*typed(value, LOOK_KINDS))
    typed([*look.uuids, *look.warnings], [(str,)] * (len(look.uuids) + len(look.warnings)))
    if look.name != name:
        raise ValueError("another file")
    number_of(look.first_day), number_of(look.newest_day)
    thresholds = []
    for policy, days in look.thresholds:
        typed([*policy, days], [*[(int, float)] * len(Policy._fields), (int,)])
        thresholds.append((Policy(*policy), days))
    return look._replace(thresholds=thresholds)
