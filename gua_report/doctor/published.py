"""Check the published copy of the rollups: whether it is there and recent, if the configuration asks for it."""

from __future__ import annotations

import os

from gua_report.doctor.findings import Finding, as_root, duration, ok, shell, size, warning
from gua_report.doctor.rollups import TIMER_MS
from gua_report.rollups.published import published_path, read_meta
from gua_sample.errors import StoreError

PUBLISHED = "published"
STALE_MS = 2 * TIMER_MS  # one run was left out


def check_published(data_dir: str, is_wanted: bool, now_ms: int, start: str) -> list[Finding]:
    """Findings about the published copy; none where there is none, and none is asked for. `start`: the command that
    publishes by hand."""
    path = published_path(data_dir)
    try:
        is_there = os.path.lexists(path)
        if not is_there:
            os.listdir(os.path.dirname(path))  # else it is hidden from us
    except FileNotFoundError:
        is_there = False
    except OSError:
        return [warning(PUBLISHED, f"{path} is not for this user to see", as_root(data_dir))] if is_wanted else []
    if not is_there:
        return [warning(PUBLISHED, f"[fleet] publish is on, and there is no {path} yet", start)] if is_wanted else []
    if not is_wanted:
        text = f"{path} names people, and [fleet] publish is off: the next gua rollup removes it"
        return [warning(PUBLISHED, text, start)]
    try:
        meta, length = read_meta(path), os.stat(path).st_size
    except (StoreError, OSError) as trouble:
        if not os.access(path, os.R_OK):
            return [warning(PUBLISHED, f"{path} is not for this user to read", as_root(data_dir))]
        return [warning(PUBLISHED, f"{trouble}: the next gua rollup writes it anew", start)]
    age_ms = now_ms - meta.published_ms
    text = f"as {meta.host}, {duration(max(0, age_ms))} ago, {size(length)}"
    if age_ms > STALE_MS:
        return [warning(PUBLISHED, f"{text}: gua rollup should do so daily", f"{start}; {shell('ls', '-l', path)}")]
    return [ok(PUBLISHED, text)]
