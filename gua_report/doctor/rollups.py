"""Check whether closed days are rolled up. Nothing is changed."""

from __future__ import annotations

import os

from gua_report.doctor.findings import COMMENT, Finding, as_root, named, ok, plural, shell, size, warning
from gua_report.rollups.index import closes_by_ms, path_of, read_index
from gua_report.ticks.newest import Files
from gua_report.window import is_day
from gua_sample.errors import EmptyPartition, NewerPartition, PartitionBusy, StoreError
from gua_sample.partition_names import DAY_MS, SUFFIX

ROLLUPS = "rollups"
TIMER_MS = DAY_MS  # between two runs of gua rollup
DEEP = "deep check"


def check_rollups(history: Files, now_ms: int, start: str) -> list[Finding]:
    """Findings about rollups; none if there is nothing to roll up yet. `start`: the command that rolls up by hand."""
    path = path_of(history.data_dir)
    days = [os.path.basename(partition)[: -len(SUFFIX)] for partition in history.partitions]
    closed = [day for day in days if is_day(day) and closes_by_ms(day) + TIMER_MS <= now_ms]
    if history.hidden or not (closed or os.path.exists(path)):
        return []
    try:
        index = read_index(path, check=True)
    except EmptyPartition:
        index = {}
    except NewerPartition as trouble:
        return [warning(ROLLUPS, str(trouble), f"gua version{COMMENT}a newer one is needed")]
    except PartitionBusy as trouble:
        return [warning(ROLLUPS, str(trouble), f"sudo {shell('fuser', '-v', path)}")]
    except StoreError as trouble:
        if not os.access(path, os.R_OK):
            return [warning(ROLLUPS, f"{path} is not for this user to read", as_root(history.data_dir))]
        return [warning(ROLLUPS, f"{trouble}: reports do without it", start)]
    findings, stored = [], list(index)
    if stored:
        span = stored[0] + (f" to {stored[-1]}" if len(stored) > 1 else "")
        findings.append(ok(ROLLUPS, f"{plural(len(stored), 'day')}, {span}, {size(os.stat(path).st_size)}"))
    missing = [day for day in closed if day not in stored]
    if missing:
        text = f"{plural(len(missing), 'closed day')} not rolled up, {missing[0]} for one: long reports take longer"
        findings.append(warning(ROLLUPS, text, start))
    failed = [day for day in stored if index[day].failed_check]
    if failed:
        text = f"{plural(len(failed), 'day')} failed the check for bit rot, {failed[0]} for one"
        findings.append(warning(ROLLUPS, text, f"gua doctor --deep{COMMENT}names all of them"))
    return findings


def report_deep_check(days: int, troubles: list[str]) -> list[Finding]:
    """The findings of gua doctor --deep, from what upkeep/deep_check.py found in so many days."""
    if not troubles:
        return [ok(DEEP, f"{plural(days, 'day')} read back, and found as they were written")]
    return named([warning(DEEP, text) for text in troubles], "like these")
