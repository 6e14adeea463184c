"""Check whether closed days are rolled up. Nothing is changed."""

from __future__ import annotations

import os

from gua_report.doctor.findings import COMMENT, Finding, as_root, ok, plural, shell, size, warning
from gua_report.rollups.index import path_of, read_index
from gua_report.ticks.newest import Files
from gua_sample.errors import EmptyPartition, NewerPartition, PartitionBusy, StoreError
from gua_sample.partition_names import DAY_MS, SUFFIX, day_of

ROLLUPS = "rollups"
DAYS_TO_WAIT = 2  # for the ticks after a day, and for the timer


def check_rollups(history: Files, now_ms: int, start: str) -> list[Finding]:
    """Findings about rollups; none if there is nothing to roll up yet. `start`: the command that rolls up by hand."""
    path = path_of(history.data_dir)
    days = [os.path.basename(partition)[: -len(SUFFIX)] for partition in history.partitions]
    closed = [day for day in days if day < day_of(now_ms - DAYS_TO_WAIT * DAY_MS)]
    if history.hidden or not (closed or os.path.exists(path)):
        return []
    try:
        stored = list(read_index(path, check=True))
    except EmptyPartition:
        stored = []
    except NewerPartition as trouble:
        return [warning(ROLLUPS, str(trouble), f"gua version{COMMENT}a newer one is needed")]
    except PartitionBusy as trouble:
        return [warning(ROLLUPS, str(trouble), f"sudo {shell('fuser', '-v', path)}")]
    except StoreError as trouble:
        if not os.access(path, os.R_OK):
            return [warning(ROLLUPS, f"{path} is not for this user to read", as_root(history.data_dir))]
        return [warning(ROLLUPS, f"{trouble}: reports do without it", start)]
    findings = []
    if stored:
        span = stored[0] + (f" to {stored[-1]}" if len(stored) > 1 else "")
        findings.append(ok(ROLLUPS, f"{plural(len(stored), 'day')}, {span}, {size(os.stat(path).st_size)}"))
    missing = [day for day in closed if day not in stored]
    if missing:
        text = f"{plural(len(missing), 'closed day')} not rolled up, {missing[0]} for one: long reports take longer"
        findings.append(warning(ROLLUPS, text, start))
    return findings
