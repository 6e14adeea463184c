"""Check the history: the newest tick, the clock, partitions, rollups and the published copy. Nothing is changed."""

import os
import time
from collections.abc import Iterator

from gua_report.console.spelling import all_units, duration
from gua_report.console.terminal import Progress, tracked
from gua_report.doctor.driver import COMMANDS, OTHER_COMMAND
from gua_report.doctor.findings import (
    COMMENT,
    Finding,
    as_root,
    error,
    moment,
    named,
    ok,
    plural,
    shell,
    size,
    sudo,
    warning,
)
from gua_report.rollups.index import is_closed, path_of, published_path, read_index, read_meta
from gua_report.ticks.newest import AHEAD_MS, Files, Newest, modified
from gua_report.ticks.open_partition import open_partition
from gua_report.window import is_day
from gua_sample.errors import EmptyPartition, NewerPartition, PartitionBusy, StoreError
from gua_sample.partition_names import (
    DAY_MS,
    EARLIEST_MS,
    JOURNAL_SUFFIX,
    PENDING_SUFFIX,
    SUFFIX,
    day_of,
    is_partition,
    partition_path,
)
from gua_sample.records import TIMEOUT

NEWEST = "newest tick"
CLOCK = "clock"
PARTITIONS = "partitions"
LIVE_SECONDS = 10  # a younger journal belongs to a run in progress
ROLLUPS = "rollups"
TIMER_MS = DAY_MS  # between two runs of gua rollup
DEEP = "deep check"
PUBLISHED = "published"
STALE_MS = 2 * TIMER_MS  # one run was left out


def check_newest(history: Files, newest: Newest | None, now_ms: int, start: str, journal: str) -> Finding:
    if history.hidden:
        return warning(NEWEST, f"{history.folder} can't be looked into ({history.hidden})", as_root(history.data_dir))
    if now_ms < EARLIEST_MS:
        return warning(NEWEST, "can't be told while the clock is wrong")
    if newest is None:
        if not all(os.access(path, os.R_OK) for path in history.partitions):
            return warning(NEWEST, "the partitions are not for this user to read", as_root(history.data_dir))
        return error(NEWEST, "nothing has been recorded yet", start)
    age_ms = max(0, now_ms - newest.ts_ms)
    text = f"{moment(newest.ts_ms)}, {duration(age_ms / 1000)} ago"
    if newest.waits:
        text += " (it waits beside the partition, which somebody holds)"
    if newest.is_stale(now_ms):
        text += f": stale, as one is due at least every {all_units(newest.stale_ms // 1000)}"
        return error(NEWEST, text + (f"; and it failed ({newest.error})" if newest.error else ""), journal)
    if newest.error:
        return error(NEWEST, f"{text}: {explain(newest.error)}", COMMANDS.get(newest.error, OTHER_COMMAND))
    if newest.due_ms is not None and age_ms > newest.stale_ms:
        text += f"; the timer's next run is in {duration((newest.due_ms - now_ms) / 1000)}"
    return ok(NEWEST, text)


def explain(name: str) -> str:
    if name == TIMEOUT:
        return "the run was killed (timeout): the driver took too long"
    try:
        from gua_sample.nvml import driver_error
    except (ImportError, AttributeError):
        return f"the run failed ({name})"
    return str(driver_error(name))


def check_clock(history: Files, now_ms: int) -> list[Finding]:
    if now_ms < EARLIEST_MS:
        text = f"it says {moment(now_ms)}: nothing is recorded until it is set"
        return [error(CLOCK, text, "timedatectl")]
    today, latest = (partition_path(history.folder, day_of(ms)) for ms in (now_ms, now_ms + AHEAD_MS))
    future = [
        warning(
            CLOCK,
            f"{path} is of a day to come: was the clock set back, or wrong?",
            f"timedatectl; {sudo('mv', '-T', path, path + '.future')}",
        )
        for path in history.partitions
        if path > latest
    ]
    findings = named(future, "partitions of days to come")
    if today in history.partitions and (ahead := _count_ahead(today, now_ms)):
        text = f"{plural(ahead, 'tick')} of today in the future: was the clock set back?"
        findings.append(warning(CLOCK, text, "timedatectl"))
    return findings or [ok(CLOCK, moment(now_ms))]


def _count_ahead(path: str, now_ms: int) -> int:
    sql = "SELECT count(*) FROM tick WHERE ts_ms > ?"
    try:
        with open_partition(path) as connection:
            count: int = connection.execute(sql, (now_ms + AHEAD_MS,)).fetchone()[0]
    except StoreError:  # reported by check_partitions
        return 0
    return count


def check_partitions(history: Files, now_ms: int, start: str, progress: Progress | None = None) -> list[Finding]:
    if history.hidden:
        return []  # reported by check_newest
    today = partition_path(history.folder, day_of(now_ms))
    checked = (_check_one(path, path == today, history.data_dir) for path in tracked(history.partitions, progress))
    troubles = sorted(filter(None, checked), key=lambda trouble: trouble.status)  # errors first
    strange = [_check_strange(os.path.join(history.folder, name), today) for name in history.strange]
    days = _days(history)
    return [
        ok(PARTITIONS, _spell_days(days, sum(map(_size, history.partitions))) if days else "none"),
        *named(troubles, "that can't be read"),
        *named(strange, "that are no regular files"),
        *_check_others(history, start),
    ]


def _days(history: Files) -> list[str]:
    return [os.path.basename(path).removesuffix(SUFFIX) for path in history.partitions]


def _spell_days(days: list[str], size_bytes: int) -> str:
    span = days[0] + (f" to {days[-1]}" if len(days) > 1 else "")
    return f"{plural(len(days), 'day')}, {span}, {size(size_bytes)}"


def _why_unread(check: str, path: str, trouble: StoreError, data_dir: str, is_today: bool = False) -> Finding | None:
    if isinstance(trouble, NewerPartition):
        return (error if is_today else warning)(check, str(trouble), f"gua version{COMMENT}a newer one is needed")
    if isinstance(trouble, PartitionBusy):
        return warning(check, str(trouble), sudo("fuser", "-v", path))
    if not os.access(path, os.R_OK):
        return warning(check, f"{path} is not for this user to read", as_root(data_dir))
    return None


def _check_one(path: str, is_today: bool, data_dir: str) -> Finding | None:
    try:
        with open_partition(path) as connection:
            result = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
            if result == "ok":
                for table in ("session", "card", "process"):  # only reading finds invalid texts
                    connection.execute(f"SELECT * FROM {table}").fetchall()  # noqa: S608 - the names are those above
                return None
    except EmptyPartition:
        return None  # a run has just created it
    except StoreError as trouble:
        if why := _why_unread(PARTITIONS, path, trouble, data_dir, is_today):
            return why
        if type(trouble) is StoreError:  # the trouble is not in the file itself
            return (error if is_today else warning)(PARTITIONS, str(trouble), shell("ls", "-ld", path))
        result = str(trouble)
    else:
        result = f"{path} is damaged ({result})"
    return warning(PARTITIONS, result, _rescue(path))


def _check_strange(path: str, today: str) -> Finding:
    """In place of today's partition or its journal, what is no file keeps the sampler from writing; a link may not."""
    problem = error if path.startswith(today) and not os.path.islink(path) else warning
    text = f"{os.path.basename(path)} is no regular file, and was not looked into"
    return problem(PARTITIONS, text, sudo("mv", "-T", path, path + ".strange"))


def _check_others(history: Files, start: str) -> Iterator[Finding]:
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


def check_rollups(history: Files, now_ms: int, start: str) -> list[Finding]:
    path = path_of(history.data_dir)
    closed = [day for day in _days(history) if is_day(day) and is_closed(day, now_ms - TIMER_MS)]
    if history.hidden or not (closed or os.path.exists(path)):
        return []
    try:
        index = read_index(path, check=True)
    except EmptyPartition:
        index = {}
    except StoreError as trouble:
        why = _why_unread(ROLLUPS, path, trouble, history.data_dir)
        return [why or warning(ROLLUPS, f"{trouble}: reports do without it", start)]
    findings, stored = [], list(index)
    if stored:
        findings.append(ok(ROLLUPS, _spell_days(stored, os.stat(path).st_size)))
    missing = [day for day in closed if day not in stored]
    if missing:
        text = f"{plural(len(missing), 'closed day')} not rolled up, {missing[0]} for one: long reports take longer"
        findings.append(warning(ROLLUPS, text, start))
    return findings


def report_deep_check(days: int, troubles: list[str]) -> list[Finding]:
    if not troubles:
        return [ok(DEEP, f"{plural(days, 'day')} read back, and found as they were written")]
    return named([warning(DEEP, text) for text in troubles], "like these")


def check_published(data_dir: str, is_wanted: bool, now_ms: int, start: str) -> list[Finding]:
    path = published_path(data_dir)
    try:
        os.lstat(path)
    except FileNotFoundError:
        return [warning(PUBLISHED, f"[fleet] publish is on, and there is no {path} yet", start)] if is_wanted else []
    except OSError:
        return [warning(PUBLISHED, f"{path} is not for this user to see", as_root(data_dir))] if is_wanted else []
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
    text = f"as {meta.host}, {duration(max(0, age_ms) / 1000)} ago, {size(length)}"
    if age_ms > STALE_MS:
        return [warning(PUBLISHED, f"{text}: gua rollup should do so daily", f"{start}; {shell('ls', '-l', path)}")]
    return [ok(PUBLISHED, text)]
