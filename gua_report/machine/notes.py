"""Finding the notes that are about some people, with no more rights than reading them takes. Without pandas."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable

from gua_report.config import Config
from gua_report.machine.child import answer_of, understanding
from gua_sample.console import plural
from gua_sample.errors import StoreError
from gua_sample.note_spool import Entry, read_entries, restore_entry
from gua_sample.notes import KnownNotes, exempt_notes, find_clashes, find_uids, sort_notes
from gua_sample.rights import NO_GROUP

NOBODY = (NO_GROUP, NO_GROUP, ())  # the uid of nobody is that of its group


def find_notes(config: Config, identities: Iterable[str]) -> KnownNotes:
    """The notes and exemptions that are about these identities, or may be. Without a spool: the exemptions."""
    notes, problems, path = exempt_notes(config.exempt), _tell_clashes(config), config.notes.spool
    uids: dict[str, set[int]] = {}
    try:
        is_shared = bool(os.stat(path).st_mode & (stat.S_IWGRP | stat.S_IWOTH))
        uids, unanswered = find_uids(identities, config.people)
        if unanswered:
            who = "one person" if unanswered == 1 else f"{unanswered:,} people"
            problems.append(f"the directory of users does not answer: notes of {who} are not known")
        entries = read_slots(path, {uid for some in uids.values() for uid in some}, is_shared)
        notes += [entry.note for entry in entries if entry.note is not None]
    except FileNotFoundError:
        pass
    except StoreError as error:
        problems.append(str(error))
    except OSError as error:
        problems.append(f"{path} can't be looked at ({error.strerror}): notes are not used")
    return sort_notes(notes, uids, problems)


def _tell_clashes(config: Config) -> list[str]:
    """A line that names nobody: it is in reports of one person too, and on pages without names."""
    count = len(find_clashes(config.exempt, config.people))
    what = f"{plural(count, 'name')} in [exempt] without effect, as [people] gives another"
    return [f"{what}: exempt that person instead (gua doctor names them)"] if count else []


def read_slots(path: str, uids: Iterable[int], is_shared: bool = True) -> list[Entry]:
    """What is in the slots of these users, and of the spool's owner. Raises FileNotFoundError or StoreError.

    If others may write there (`is_shared`), root reads it in a child that has given up root for good.
    """
    wanted = sorted(uids)
    if os.geteuid() or not is_shared:
        return read_entries(path, wanted)
    found = answer_of(lambda: read_entries(path, wanted), NOBODY)
    with understanding():
        return [restore_entry(*entry) for entry in found]
