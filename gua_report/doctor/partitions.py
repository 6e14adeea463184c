"""Check each partition, and the files beside them. Nothing is changed."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from gua_report.doctor.findings import COMMENT, Finding, as_root, error, ok, plural, shell, size, warning
from gua_report.doctor.freshness import NAMED
from gua_report.ticks.newest import History, modified
from gua_report.ticks.open_partition import open_partition
from gua_sample.errors import EmptyPartition, NewerPartition, PartitionBusy, StoreError
from gua_sample.partition_names import JOURNAL_SUFFIX, PENDING_SUFFIX, SUFFIX, day_of, is_partition, partition_path

PARTITIONS = "partitions"
LIVE_SECONDS = 10  # a younger journal belongs to a run in progress

Progress = Callable[[int, int], None]


def check_partitions(history: History, now_ms: int, start: str, progress: Progress | None = None) -> list[Finding]:
    """Open and check each partition. `start`: the command that takes a tick by hand."""
    if history.hidden:
        return []  # reported by check_newest
    today = partition_path(history.folder, day_of(now_ms))
    troubles = []
    total = 0
    for number, path in enumerate(history.partitions):
        if progress:
            progress(number, len(history.partitions))
        total += _size(path)
        if trouble := _check_one(path, path == today, history.data_dir):
            troubles.append(trouble)
    if progress:
        progress(1, 1)
    if len(troubles) > NAMED:
        more = warning(PARTITIONS, f"and {len(troubles) - NAMED} more that can't be read")
        troubles = [*sorted(troubles, key=lambda one: one.status)[:NAMED], more]
    return [_summary(history, total), *troubles, *_check_strange(history, today), *_check_others(history, start)]


def _summary(history: History, total: int) -> Finding:
    days = [os.path.basename(path)[: -len(SUFFIX)] for path in history.partitions]
    if not days:
        return ok(PARTITIONS, "none")
    text = f"{plural(len(days), 'day')}, {days[0]}" + (f" to {days[-1]}" if len(days) > 1 else "")
    return ok(PARTITIONS, f"{text}, {size(total)}")


def _check_one(path: str, is_today: bool, data_dir: str) -> Finding | None:
    """The trouble with a partition, if any: with today's, an error, unless the sampler will set the file aside."""
    problem = error if is_today else warning
    try:
        with open_partition(path) as connection:
            result = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
            if result == "ok":
                for table in ("session", "card", "process"):  # only reading finds invalid texts
                    connection.execute(f"SELECT * FROM {table}").fetchall()  # noqa: S608 - the names are those above
                return None
    except EmptyPartition:
        return None  # a run has just created it
    except NewerPartition as trouble:
        return problem(PARTITIONS, str(trouble), f"gua version{COMMENT}a newer one is needed")
    except PartitionBusy as trouble:
        return warning(PARTITIONS, str(trouble), f"sudo {shell('fuser', '-v', path)}")
    except StoreError as trouble:
        if not os.access(path, os.R_OK):
            return warning(PARTITIONS, f"{path} is not for this user to read", as_root(data_dir))
        if type(trouble) is StoreError:  # the trouble is not in the file itself
            return problem(PARTITIONS, str(trouble), shell("ls", "-ld", path))
        result = str(trouble)
    else:
        result = f"{path} is damaged ({result})"
    return warning(PARTITIONS, result, _rescue(path))


def _check_strange(history: History, today: str) -> list[Finding]:
    """Findings about entries that are no regular files.

    In place of today's partition or its journal, such an entry keeps the sampler from writing; a link may not.
    """
    findings = []
    for name in history.strange[:NAMED]:
        path = os.path.join(history.folder, name)
        problem = error if path.startswith(today) and not os.path.islink(path) else warning
        text = f"{name} is no regular file, and was not looked into"
        findings.append(problem(PARTITIONS, text, f"sudo {shell('mv', '-T', path, path + '.strange')}"))
    if len(history.strange) > NAMED:
        findings.append(warning(PARTITIONS, f"and {len(history.strange) - NAMED} more that are no regular files"))
    return findings


def _check_others(history: History, start: str) -> list[Finding]:
    """Findings about files beside the partitions that should not stay there."""
    findings = []
    aside = [name for name in history.others if ".corrupt" in name and not name.endswith(JOURNAL_SUFFIX)]
    if aside:
        path = os.path.join(history.folder, aside[0])
        text = f"{plural(len(aside), 'file')} set aside as corrupt: {', '.join(aside[:3])}"
        remove = f"sudo {shell('rm', path)}"
        remedy = remove if PENDING_SUFFIX in aside[0] else f"{_rescue(path)}; {remove}"
        findings.append(warning(PARTITIONS, text + (" ..." if len(aside) > 3 else ""), remedy))
    waiting = [name for name in history.others if name.endswith(PENDING_SUFFIX)]
    if waiting:
        path = partition_path(history.folder, waiting[-1].partition(".")[0])
        text = f"{plural(len(waiting), 'tick')} waiting, as somebody holds {os.path.basename(path)}"
        findings.append(warning(PARTITIONS, text, f"sudo {shell('fuser', '-v', path)}"))
    for name in history.others:
        path = os.path.join(history.folder, name)
        if is_partition(name[: -len(JOURNAL_SUFFIX)]) and name.endswith(JOURNAL_SUFFIX) and _is_left(path):
            text = f"{name} was left by a run that was killed; the next one rolls it back"
            findings.append(warning(PARTITIONS, text, start))
    return findings


def _rescue(path: str) -> str:
    """The command that recovers a file without trusting it: a journal beside it may name any file to be deleted."""
    return f"{shell('sqlite3', '-readonly', path, '.recover')} | sqlite3 -safe recovered.sqlite"


def _is_left(journal: str) -> bool:
    return time.time() - modified(journal) > LIVE_SECONDS


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0
