"""Read the newest tick with cards: the place of each card, and the processes on them."""

import sqlite3
from typing import Any, NamedTuple

from gua_report.ticks.newest import AHEAD_MS
from gua_report.ticks.open_partition import open_partition
from gua_sample.errors import StoreError
from gua_sample.partition_file import check_types
from gua_sample.records import Boot, Cursor, Previous, Process, Tick


class Recent(NamedTuple):
    ts_ms: int
    previous: Previous
    processes: dict[int, Process]


def read_recent(partitions: list[str], now_ms: int) -> Recent | None:
    """The newest tick with cards, from the last two partitions. Unreadable ones are skipped, as the walk back through
    the history reports them."""
    for path in reversed(partitions[-2:]):
        try:
            with open_partition(path) as connection:
                recent = _read(connection, now_ms)
        except StoreError:
            continue
        if recent:
            return recent
    return None


def _read(connection: sqlite3.Connection, now_ms: int) -> Recent | None:
    found = connection.execute(
        "SELECT t.id, t.ts_ms, n.boot_id, n.boot_time_ms, n.driver_version"
        " FROM tick t JOIN session n ON n.id = t.session_id"
        " WHERE t.ts_ms <= ? AND EXISTS (SELECT 1 FROM card_sample s WHERE s.tick_id = t.id)"
        " ORDER BY t.ts_ms DESC LIMIT 1",
        (now_ms + AHEAD_MS,),
    ).fetchone()
    if found is None:
        return None
    tick_id, ts_ms, boot_id, boot_time_ms, driver_version = check_types(found, int, int, str, int, (str, None))
    cards = connection.execute(
        "SELECT c.uuid, c.gpu_index, c.mig_index, c.parent_uuid"
        " FROM card_sample s JOIN card c ON c.id = s.card_id WHERE s.tick_id = ?",
        (tick_id,),
    )
    # The cursors have no read position: the whole content of the driver's buffers counts as now, as without a history.
    places = [check_types(card, str, int, (int, None), (str, None)) for card in cards]
    cursors = [Cursor(uuid, index, mig, parent, None, None, 0) for uuid, index, mig, parent in places]
    processes = connection.execute(
        "SELECT DISTINCT p.pid, p.start_time_ms, p.uid, p.login_uid, p.user, p.login_user, p.command, p.cgroup"
        " FROM process_sample s JOIN process p ON p.id = s.process_id WHERE s.tick_id = ?",
        (tick_id,),
    )
    types = int, *((int, None),) * 3, *((str, None),) * 4
    known = {process.pid: process for process in (Process(*check_types(row, *types)) for row in processes)}
    return Recent(ts_ms, Previous(Boot(boot_id, boot_time_ms), driver_version, cursors), known)


def restore_recent(ts_ms: int, previous: list[Any], processes: dict[Any, list[Any]]) -> Recent:
    """A Recent from the plain lists of its JSON form, in which all keys are texts."""
    boot, driver_version, cursors = previous
    return Recent(
        ts_ms,
        Previous(Boot(*boot), driver_version, [Cursor(*cursor) for cursor in cursors]),
        {int(pid): Process(*process) for pid, process in processes.items()},
    )


def fill_in(tick: Tick, recent: Recent | None, longest_ms: float) -> Tick:
    """Fill in facts of processes that are hidden from this user (hidepid, a user directory that does not answer).

    They are the sampler's, if its tick is of the same boot and at most `longest_ms` old."""
    if recent is None or tick.boot.id != recent.previous.boot.id or tick.ts_ms - recent.ts_ms > longest_ms:
        return tick
    processes = {pid: _fill_in(process, recent.processes.get(pid)) for pid, process in tick.processes.items()}
    return tick._replace(processes=processes)


def _fill_in(process: Process, known: Process | None) -> Process:
    if known is None or _differ(process.start_time_ms, known.start_time_ms) or _differ(process.uid, known.uid):
        return process
    if process.start_time_ms is not None:
        # Not hidden: what it lacks, such as a login, it has not got, and who writes the history must not add it.
        is_same_login = process.login_uid is not None and process.login_uid == known.login_uid
        login_user = known.login_user if is_same_login else None
        return process._replace(user=process.user or known.user, login_user=process.login_user or login_user)
    theirs = known._asdict()
    return process._replace(**{name: theirs[name] for name, mine in process._asdict().items() if mine is None})


def _differ(one: int | None, other: int | None) -> bool:
    return one is not None and other is not None and one != other
