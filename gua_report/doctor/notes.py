"""Check the spool of people's notes, and name files in it that are no notes. Nothing is changed."""

from __future__ import annotations

import os

from gua_report.config import Config
from gua_report.doctor.findings import Finding, named, ok, plural, shell, sudo, warning
from gua_report.machine.notes import read_slots
from gua_sample.errors import StoreError
from gua_sample.note_spool import Entry, list_uids, open_spool
from gua_sample.processes import user_names

NOTES = "notes"


def check_notes(now_ms: int, config: Config) -> list[Finding]:
    """Findings about notes; none without a spool: nobody needs one, and gua note says how to get it."""
    path = config.notes.spool
    try:
        entries = _read(path)
    except FileNotFoundError:
        return []
    except (OSError, StoreError) as problem:
        return [warning(NOTES, str(problem), shell("ls", "-ld", path))]
    in_force = sum(entry.note is not None and entry.note.is_in_force(now_ms) for entry in entries)
    good = [ok(NOTES, f"{plural(in_force, 'note')} in force, in {path}")]
    return good + named(_complain(path, [entry for entry in entries if entry.note is None]), "files that are no notes")


def _read(path: str) -> list[Entry]:
    """All entries for the spool's owner; else this user's."""
    with open_spool(path) as spool:
        try:
            uids = list_uids(spool)
        except PermissionError:
            uids = [os.geteuid()]
    return [entry for entry in read_slots(path, uids) if entry.uid in uids]


def _complain(path: str, entries: list[Entry]) -> list[Finding]:
    names = user_names({entry.uid for entry in entries}) if entries else {}
    return [
        warning(
            NOTES,
            f"{path}/{entry.name}, where a note of {names.get(entry.uid) or f'uid {entry.uid}'} would be, does not"
            f" count: {entry.problem}",
            sudo("rm", "-r", f"{path}/{entry.name}"),
        )
        for entry in entries
    ]
