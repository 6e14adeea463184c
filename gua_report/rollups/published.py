"""The published copy, `publish/rollups.sqlite`: the rollups of a host, and in the table `meta` whose they are.

It is the seam between a host and its fleet: `gua rollup` writes it (upkeep/publishing.py), the administrator's own
transport moves it, and whoever reads it trusts nothing in it. Without pandas.
"""

from __future__ import annotations

import os
import re
from typing import Any, NamedTuple

from gua_report.rollups import schema
from gua_report.rollups.index import open_rollups
from gua_sample.safe_file import check_tables

FOLDER_NAME = "publish"
FILE_NAME = schema.FILE_NAME
META = "meta"
CREATE_META = f"CREATE TABLE {META} (key TEXT PRIMARY KEY, value ANY) STRICT, WITHOUT ROWID"
LONGEST_TEXT = 255
MACHINE = re.compile(r"[0-9a-f]{32}", re.ASCII)


class Meta(NamedTuple):
    """The rows of the table `meta`: each field is a key. A newer gua may add keys, which are passed over."""

    host: str
    machine: str | None  # see machine/machine_key.py; None where the machine has no id
    gua_version: str
    published_ms: int
    newest_tick_ms: int | None  # of the whole history, the day that is not over included; None without any


def published_dir(data_dir: str) -> str:
    return os.path.join(data_dir, FOLDER_NAME)


def published_path(data_dir: str) -> str:
    return os.path.join(published_dir(data_dir), FILE_NAME)


def read_meta(path: str) -> Meta:
    """What a published copy says of itself. Raises StoreError if it is none, or says what can't be."""
    with open_rollups(path) as connection:
        check_tables(connection, path, {META})
        rows = connection.execute(f"SELECT key, value FROM {META} WHERE length(value) <= ?", (LONGEST_TEXT,))
        found: dict[str, Any] = {key: value for key, value in rows if key in Meta._fields}
        meta = Meta(**{key: found.get(key) for key in Meta._fields})  # type: ignore[arg-type] # checked below
        _check(meta)
    return meta


def _check(meta: Meta) -> None:
    """Raise ValueError if a value is not what a gua publishes."""
    is_right = {
        "host": isinstance(meta.host, str) and meta.host.isprintable() and bool(meta.host.strip()),
        "machine": meta.machine is None or (isinstance(meta.machine, str) and bool(MACHINE.fullmatch(meta.machine))),
        "gua_version": isinstance(meta.gua_version, str) and meta.gua_version.isprintable(),
        "published_ms": isinstance(meta.published_ms, int) and meta.published_ms >= 0,
        "newest_tick_ms": meta.newest_tick_ms is None
        or (isinstance(meta.newest_tick_ms, int) and meta.newest_tick_ms >= 0),
    }
    wrong = [key for key, holds in is_right.items() if not holds]
    if wrong:
        raise ValueError(f"no {wrong[0]} in the table {META}")
