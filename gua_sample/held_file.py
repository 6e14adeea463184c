"""A small file that tells who holds a card without work now: contrib/profile.d/gua.sh reads it at login.

The first line tells when it was written, as the shell can compare it without starting a program: the uptime in seconds,
and the boot that it is of. Then a line for each process: uid, card, since when in seconds, GiB, pid, command, and
the sentence to show. Whatever is in a line, it is one line, and no shell or terminal can act on it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING

from gua_sample.errors import StoreError
from gua_sample.held_words import plain, spell_since, tell_held
from gua_sample.identity import find_person
from gua_sample.idleness import Carried, runs_now
from gua_sample.policy import IDLE_HELD
from gua_sample.processes import uptime_ms
from gua_sample.records import Card, Process, Tick, Usage
from gua_sample.settings import NOTE_SLOTS, NOTES_SPOOL

if TYPE_CHECKING:
    from gua_sample.notes import Note

FIRST_LINE = "gua held 1"
LEAST_MS = 600_000  # who holds a card for less may be about to go on
MOST_LINES = 200  # those who hold their cards for longest are told
MOST_OF_ONE = 6  # a shell shows five, and that there are more; so nobody's processes crowd out others' lines


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
                told.append((run.since_ms, uid, card, usage, one))
    notes = _read_notes({uid for _, uid, *_ in told}, spool)
    found = [
        (since_ms, spell_line(uid, card, usage, one, since_ms, tick.ts_ms), uid)
        for since_ms, uid, card, usage, one in told
        if not _is_meant(notes, uid, card, one, tick.ts_ms)
    ]
    first = f"{FIRST_LINE} {uptime_ms() // 1000} {tick.boot.id}"
    return "\n".join([first, *_choose_lines(found), ""])


def _read_notes(uids: Iterable[int], spool: str) -> list[Note]:
    """The notes of these people and of root; none if the spool is missing or can't be trusted.

    Nor for root, who opens no file of others. The names are looked for first: what reads notes takes longer to import.
    """
    names = (f"{spool}/{uid}.{slot}" for uid in (*uids, 0) for slot in range(NOTE_SLOTS)) if uids else ()
    if os.geteuid() == 0 or not any(map(os.path.lexists, names)):
        return []
    from gua_sample.note_spool import read_entries

    with suppress(OSError, StoreError):
        return [entry.note for entry in read_entries(spool, uids) if entry.note is not None]
    return []


def _is_meant(notes: list[Note], uid: int, card: Card, process: Process, now_ms: int) -> bool:
    """Whether a note in force is about this process: one's own, or one of root's about a card or a process."""
    return any(
        note.is_in_force(now_ms)
        and note.is_about(card.facts.uuid, process.pid, process.start_time_ms)
        and (note.identity is None if note.is_about_anybody else note.uid == uid)
        for note in notes
    )


def _choose_lines(found: list[tuple[int, str, int]]) -> list[str]:
    """The lines of those who hold their cards for longest, and of nobody too many."""
    lines, counts = [], dict[int, int]()
    for _, line, uid in sorted(found, key=lambda one: one[:2]):
        counts[uid] = counts.get(uid, 0) + 1
        if counts[uid] <= MOST_OF_ONE:
            lines.append(line)
    return lines[:MOST_LINES]


def spell_line(uid: int, card: Card, usage: Usage, process: Process, since_ms: int, now_ms: int) -> str:
    gpu, memory_mib, command = card.facts.number, usage.memory_mib, process.command
    sentence = tell_held(gpu, memory_mib, spell_since(since_ms, now_ms), usage.pid, command)
    gib = "-" if memory_mib is None else f"{memory_mib / 1024:.1f}"
    return f"{uid} {gpu} {since_ms // 1000} {gib} {usage.pid} {plain(command)} {sentence}"
