"""Check each partition, and the files beside them. Nothing is changed."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator

from gua_report.doctor.findings import COMMENT, Finding, as_root, error, named, ok, plural, shell, size, sudo, warning
from gua_report.ticks.newest import Files, modified
from gua_report.ticks.open_partition import open_partition
from gua_sample.errors import EmptyPartition, NewerPartition, PartitionBusy, StoreError
from gua_sample.partition_names import JOURNAL_SUFFIX, PENDING_SUFFIX, SUFFIX, day_of, is_partition, partition_path

PARTITIONS = "partitions"
LIVE_SECONDS = 10  # a younger journal belongs to a run in progress

Progress = Callable[[int, int], None]


def check_partitions(history: Files, now_ms: int, start: str, progress: Progress | None = None) -> list[Finding]:
    """Open and check each partition. `start`: the command that takes a tick by hand."""
    if history.hidden:
        return []  # reported by check_newest
    today = partition_path(history.folder, day_of(now_ms))
    troubles = []
    for number, path in enumerate(history.partitions):
        if progress:
            progress(number, len(history.partitions))
        if trouble := _check_one(path, path == today, history.data_dir):
            troubles.append(trouble)
    if progress:
        progress(1, 1)
    troubles.sort(key=lambda trouble: trouble.status)  # errors first
    strange = [_check_strange(os.path.join(history.folder, name), today) for name in history.strange]
    return [
        _summary(history),
        *named(troubles, "that can't be read"),
        *named(strange, "that are no regular files"),
        *_check_others(history, start),
    ]


def _summary(history: Files) -> Finding:
    days = [os.path.basename(path)[: -len(SUFFIX)] for path in history.partitions]
    if not days:
        return ok(PARTITIONS, "none")
    text = f"{plural(len(days), 'day')}, {days[0]}" + (f" to {days[-1]}" if len(days) > 1 else "")
    return ok(PARTITIONS, f"{text}, {size(sum(map(_size, history.partitions)))}")


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
        return warning(PARTITIONS, str(trouble), sudo("fuser", "-v", path))
    except StoreError as trouble:
        if not os.access(path, os.R_OK):
            return warning(PARTITIONS, f"{path} is not for this user to read", as_root(data_dir))
        if type(trouble) is StoreError:  # the trouble is not in the file itself
            return problem(PARTITIONS, str(trouble), shell("ls", "-ld", path))
        result = str(trouble)
    else:
        result = f"{path} is damaged ({result})"
    return warning(PARTITIONS, result, _rescue(path))


def _check_strange(path: str, today: str) -> Finding:
    """A finding about an entry that is no regular file.

    In place of today's partition or its journal, such an entry keeps the sampler from writing; a link may not.
    """
    problem = error if path.startswith(today) and not os.path.islink(path) else warning
    text = f"{os.path.basename(path)} is no regular file, and was not looked into"
    return problem(PARTITIONS, text, sudo("mv", "-T", path, path + ".strange"))


def _check_others(history: Files, start: str) -> Iterator[Finding]:
    """Findings about files beside the partitions that should not stay there."""
    aside = [name for name in history.others if ".corrupt" in name and not name.endswith(JOURNAL_SUFFIX)]
    if aside:
        path = os.path.join(history.folder, aside[0])
        text = f"{plural(len(aside), 'file')} set aside as corrupt: {', '.join(aside[:3])}"
        remedy = sudo("rm", path) if PENDING_SUFFIX in aside[0] else f"{_rescue(path)}; {sudo('rm', path)}"
        yield warning(PARTITIONS, text + (" ..." if len(aside) > 3 else ""), remedy)
    waiting = [name for name in history.others if name.endswith(PENDING_SUFFIX)]
    if waiting:
        path = partition_path(history.folder, waiting[-1].partition(".")[0])
        text = f"{plural(len(waiting), 'tick')} waiting, as somebody holds {os.path.basename(path)}"
        yield warning(PARTITIONS, text, sudo("fuser", "-v", path))
    for name in history.others:
        is_journal = name.endswith(JOURNAL_SUFFIX) and is_partition(name.removesuffix(JOURNAL_SUFFIX))
        if is_journal and time.time() - modified(os.path.join(history.folder, name)) > LIVE_SECONDS:
            text = f"{name} was left by a run that was killed; the next one rolls it back"
            yield warning(PARTITIONS, text, start)


def _rescue(path: str) -> str:
    """The command that recovers a file without trusting it: a journal beside it may name any file to be deleted."""
    return f"{shell('sqlite3', '-readonly', path, '.recover')} | sqlite3 -safe recovered.sqlite"


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0
