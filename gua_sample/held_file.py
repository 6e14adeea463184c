"""A small file that tells who holds a card without work now: contrib/profile.d/gua.sh reads it at login.

The first line tells when it was written, as the shell can compare it without starting a program: the uptime in seconds,
and the boot that it is of. Then a line for each process: uid, card, since when in seconds, GiB, pid, command, and
the sentence to show. Whatever is in a line, it is one line, and no shell or terminal can act on it.
"""

import os
from contextlib import suppress
from datetime import datetime, tzinfo

from gua_sample.errors import StoreError
from gua_sample.identity import find_person
from gua_sample.idleness import Carried, runs_now
from gua_sample.notes import Note, read_entries
from gua_sample.policy import IDLE_HELD
from gua_sample.processes import uptime_ms
from gua_sample.records import Card, Process, Tick, Usage
from gua_sample.settings import NOTES_SPOOL

FIRST_LINE = "gua held 1"
LEAST_MS = 600_000  # who holds a card for less may be about to go on
MOST_LINES = 200  # those who hold their cards for longest are told
MOST_OF_ONE = 6  # a shell shows five, and that there are more; so nobody's processes crowd out others' lines
# Not from strftime, which follows the locale.
MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
ADVICE = "Done? End the process."
# People choose the names of their processes. Nothing is left of them that a shell or a terminal could act on.
SAFE = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._+-")
LONGEST_COMMAND = 40


def describe(tick: Tick, carried: Carried, spool: str = NOTES_SPOOL) -> str:
    """The content of the file. What is meant, by a note in the spool, is left out."""
    runs = runs_now(carried) if carried.last else {}
    told = []
    for card in tick.cards:
        for usage in card.usages:
            one = tick.processes[usage.pid]
            run = runs.get((card.facts.uuid, usage.pid, one.start_time_ms))
            uid = find_person(one.uid, one.login_uid, one.cgroup) if run and run.state == IDLE_HELD else None
            if run and uid is not None and tick.ts_ms - run.since_ms >= LEAST_MS:
                is_exact = run.is_exact and run.since_ms != carried.unbroken_ms
                told.append((run.since_ms, uid, card, usage, one, is_exact))
    notes = _read_notes({uid for _, uid, *_ in told}, spool)
    found = [
        (since_ms, spell_line(uid, card, usage, one, since_ms, tick.ts_ms, is_exact), uid)
        for since_ms, uid, card, usage, one, is_exact in told
        if not _is_meant(notes, uid, card, one, tick.ts_ms)
    ]
    lines, counts = [f"{FIRST_LINE} {uptime_ms() // 1000} {tick.boot.id}"], dict[int, int]()
    for _, line, uid in sorted(found, key=lambda one: one[:2]):
        counts[uid] = counts.get(uid, 0) + 1
        lines += [line] if counts[uid] <= MOST_OF_ONE else []
    return "\n".join([*lines[: MOST_LINES + 1], ""])


def _read_notes(uids: set[int], spool: str) -> list[Note]:
    """The notes of these people and of root; none if the spool is not to be used, or for root."""
    if uids and os.geteuid():
        with suppress(OSError, StoreError):
            return [entry.note for entry in read_entries(spool, uids) if entry.note is not None]
    return []


def _is_meant(notes: list[Note], uid: int, card: Card, process: Process, now_ms: int) -> bool:
    return any(
        note.is_in_force(now_ms)
        and note.is_about(card.facts.uuid, process.pid, process.start_time_ms)
        and (note.identity is None if note.is_about_anybody else note.uid == uid)
        for note in notes
    )


def spell_line(
    uid: int, card: Card, usage: Usage, process: Process, since_ms: int, now_ms: int, is_exact: bool = True
) -> str:
    gpu, memory_mib, command = card.facts.number, usage.memory_mib, process.command
    sentence = spell_held(gpu, memory_mib, spell_since(since_ms, now_ms, is_exact=is_exact), usage.pid, command)
    gib = "-" if memory_mib is None else f"{memory_mib / 1024:.1f}"
    return f"{uid} {gpu} {since_ms // 1000} {gib} {usage.pid} {plain(command)} {sentence} {ADVICE}"


def spell_held(
    gpu: str, memory_mib: float | None, since: str | None, pid: int, command: str | None, who: str | None = None
) -> str:
    memory = "memory" if memory_mib is None else f"{memory_mib / 1024:.1f} GiB"
    begin = f"you hold {memory}" if who is None else f"{who} holds {memory}"
    how_long = f" since {since}" if since else ""
    return f"{begin} on GPU {gpu} without work{how_long} (pid {pid}, {plain(command)})."


def spell_since(since_ms: float, now_ms: float, zone: tzinfo | None = None, is_exact: bool = True) -> str:
    """The time: 09:45, 13 Nov 09:45, `at least 09:45` if its beginning was not seen."""
    since, now = (datetime.fromtimestamp(ms / 1000, zone) for ms in (since_ms, now_ms))
    day = "" if since.date() == now.date() else f"{since.day:02} {MONTHS[since.month - 1]} "
    return f"{'' if is_exact else 'at least '}{day}{since.hour:02}:{since.minute:02}"


def plain(command: str | None) -> str:
    return "".join(c if c in SAFE else "_" for c in (command or "")[:LONGEST_COMMAND]) or "unknown"
