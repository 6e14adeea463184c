"""Take one fresh reading of the driver, as the sampler does, but with a timeout and without storing it.

What it needs of the newest tick with cards: the place of each card, and the processes on them.
"""

import os
import sqlite3
import time
from collections.abc import Callable
from typing import Any

from gua_report.machine.child import NO_ANSWER, ask
from gua_report.ticks.newest import AHEAD_MS
from gua_report.ticks.open_partition import open_partition
from gua_sample import pending, processes
from gua_sample.errors import DriverError, EmptyPartition, StoreError
from gua_sample.partition_file import check_types
from gua_sample.partition_names import SUFFIX, day_of
from gua_sample.records import Boot, Card, CardFacts, Cursor, Previous, Process, Source, Tick

SAY = "'gua doctor' says more"


def read_recent(partitions: list[str], now_ms: int, complain: Callable[[str], None]) -> Tick | None:
    """The newest tick with cards, but not what these did, from the last two partitions. Unreadable ones are said."""
    latest = day_of(now_ms + AHEAD_MS) + SUFFIX  # the clock may once have been ahead
    for path in reversed([path for path in partitions if os.path.basename(path) <= latest][-2:]):
        try:
            with open_partition(path) as connection:
                recent = _read_recent(connection, now_ms)
        except EmptyPartition:
            continue
        except StoreError as error:
            complain(f"skipped: {error}")
            continue
        if recent:
            return recent
    return None


def _read_recent(connection: sqlite3.Connection, now_ms: int) -> Tick | None:
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
    rows = connection.execute(
        "SELECT c.uuid, c.gpu_index, c.mig_index, c.name, c.parent_uuid"
        " FROM card_sample s JOIN card c ON c.id = s.card_id WHERE s.tick_id = ?",
        (tick_id,),
    )
    types: tuple[Any, ...] = str, int, (int, None), (str, None), (str, None)
    cards = [Card(CardFacts(*check_types(row, *types))) for row in rows]
    rows = connection.execute(
        "SELECT DISTINCT p.pid, p.start_time_ms, p.uid, p.login_uid, p.user, p.login_user, p.command, p.cgroup"
        " FROM process_sample s JOIN process p ON p.id = s.process_id WHERE s.tick_id = ?",
        (tick_id,),
    )
    types = int, *((int, None),) * 3, *((str, None),) * 4
    known = {process.pid: process for process in (Process(*check_types(row, *types)) for row in rows)}
    return Tick(ts_ms, None, Boot(boot_id, boot_time_ms), driver_version, None, None, cards, known, [])


def left_by(tick: Tick) -> Previous:
    """What the tick left for the next one, but for read positions: all in the driver's buffers counts as now."""
    places = [card.facts for card in tick.cards]
    cursors = [Cursor(one.uuid, one.gpu_index, one.mig_index, one.parent_uuid) for one in places]
    return Previous(tick.boot, tick.driver_version, cursors)


def fill_in(tick: Tick, recent: Tick | None, longest_ms: float) -> Tick:
    """Fill in facts of processes that are hidden from this user (hidepid, a user directory that does not answer).

    They are the sampler's, if its tick is of the same boot and at most `longest_ms` old."""
    if recent is None or tick.boot.id != recent.boot.id or tick.ts_ms - recent.ts_ms > longest_ms:
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


def machine() -> Source:
    """This machine as a source. Modules are imported here, once, and not again in each child that asks."""
    try:
        from gua_sample import nvml
    except ImportError as error:
        raise DriverError("nvidia_ml_py_missing", f"NVML can't be asked ({error}); {SAY}") from error
    return Source(processes.read_boot, nvml.read, processes.describe, processes.user_names)


def take(source: Source, previous: Previous | None, ts_ms: int, seconds: float) -> Tick:
    """The cards and who is on them, as a tick. `previous`: what the last tick left.

    A child asks, as a thread that hangs in the kernel could not even be abandoned.
    """
    answer = ask(lambda: _look_or_fail(source, previous, ts_ms), seconds)
    if answer.problem == NO_ANSWER:
        text = f"NVML does not answer within {seconds:g} s: give it longer with --timeout; {SAY}"
        raise DriverError("no_answer", text)
    if answer.problem:
        raise DriverError("crashed", f"NVML crashed; {SAY}")
    if "error" in answer.value:
        raise DriverError(answer.value["error"], f"{answer.value['text']}; {SAY}")
    return pending.restore(answer.value["tick"])


def _look_or_fail(source: Source, previous: Previous | None, ts_ms: int) -> dict[str, Any]:
    try:
        return {"tick": look(source, previous, ts_ms)}
    except DriverError as error:
        return {"error": error.name, "text": str(error)}


def look(source: Source, previous: Previous | None, ts_ms: int) -> Tick:
    boot = source.boot()
    if previous and previous.boot.id == boot.id:
        boot = previous.boot  # with its stored time, so that start times of processes match the stored ones
    else:
        previous = None
    began = time.monotonic()
    reading = source.read(previous)
    nvml_ms = round((time.monotonic() - began) * 1000)
    described = processes.describe_all(reading.cards, boot, source)
    return Tick(ts_ms, None, boot, reading.driver_version, nvml_ms, None, reading.cards, described, [])


def simulate(seed: int, ts_ms: int) -> Tick:
    from gua_sample.simulate import Laboratory

    return look(Laboratory(seed).source(ts_ms), None, ts_ms)
