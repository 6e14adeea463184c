"""Finding the notes that are about some people, with no more rights than reading them takes. Without pandas."""

import os
import stat
from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple

from gua_report.config import Config
from gua_report.machine.child import Silent, answer_of, understanding
from gua_report.people.identities import UID, find_uids
from gua_sample.console import plural
from gua_sample.errors import StoreError
from gua_sample.notes import Entry, Note, list_uids, open_spool, read_entries, read_own
from gua_sample.rights import NO_GROUP

NOBODY = (NO_GROUP, NO_GROUP, ())  # the uid of nobody is that of its group
LONGEST_SECONDS = 60.0  # thousands of files are read in a second


class MeantNow(NamedTuple):
    until_ms: int | None  # None: it has no end
    reason: str
    by: str  # who says so: an identity, root, or the configuration


class KnownNotes(NamedTuple):
    notes: list[Note]
    uids: Mapping[str, Collection[int]]  # of each identity
    problems: list[str]  # why some may be missing

    def about(self, identity: str) -> list[Note]:
        uids = self.uids.get(identity, ())
        return [
            note
            for note in self.notes
            if (note.identity in (None, identity) if note.is_about_anybody else note.uid in uids)
        ]

    def find(self, identity: str, gpu_uuid: str, pid: int, start_time_ms: int | None, ts_ms: int) -> MeantNow | None:
        in_force = (note for note in self.about(identity) if note.is_in_force(ts_ms))
        found = [note for note in in_force if note.is_about(gpu_uuid, pid, start_time_ms)]
        if not found:
            return None
        note = max(found, key=lambda one: one.end_ms)
        by = {None: "config", 0: "root"}.get(note.uid, f"{UID}{note.uid}")
        return MeantNow(note.until_ms, note.reason, by if note.is_about_anybody else identity)


def find_notes(config: Config, identities: Iterable[str]) -> KnownNotes:
    notes = [Note(0, None, reason, None, True, identity) for identity, reason in config.exempt.items()]
    problems, path = list[str](), config.notes.spool
    if count := len(find_clashes(config.exempt, config.people)):
        # It names nobody: it is in reports of one person too, and on pages without names.
        what = f"{plural(count, 'name')} in [exempt] without effect, as [people] gives another"
        problems.append(f"{what}: exempt that person instead (gua doctor names them)")
    uids: dict[str, set[int]] = {}
    try:
        os.stat(path)
        uids, unanswered = find_uids(identities, config.people)
        if unanswered:
            who = "one person" if unanswered == 1 else f"{unanswered:,} people"
            problems.append(f"the directory of users does not answer: notes of {who} are not known")
        entries = read_spool(path, {uid for some in uids.values() for uid in some})
        notes += [entry.note for entry in entries if entry.note is not None]
    except FileNotFoundError:
        pass
    except StoreError as error:
        problems.append(str(error))
    except OSError as error:
        problems.append(f"{path} can't be looked at ({error.strerror}): notes are not used")
    return KnownNotes(notes, uids, problems)


def find_clashes(exempt: Iterable[str], people: Mapping[str, str]) -> list[str]:
    """Exemptions that never apply, since [people] gives the identity another name."""
    return [who for who in exempt if people.get(who, who) != who]


def list_notes(path: str) -> list[Entry]:
    with open_spool(path) as spool:
        try:
            uids = list_uids(spool)
        except PermissionError:
            return read_own(spool, os.geteuid())
    return read_spool(path, uids)


def read_spool(path: str, uids: Iterable[int]) -> list[Entry]:
    """What is in the spool of these users, and of its owner. Root opens no file of others: it asks a child."""
    wanted = sorted(uids)
    if os.geteuid() or not os.stat(path).st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return read_entries(path, wanted)
    try:
        found = answer_of(lambda: read_entries(path, wanted), NOBODY, LONGEST_SECONDS)
    except Silent as error:
        raise StoreError(f"{path} can't be read within {LONGEST_SECONDS:g} s: notes are not used") from error
    with understanding():
        return [_restore(*entry) for entry in found]


def _restore(name: str, note: list[Any] | None, problem: str | None) -> Entry:
    if note is None:
        return Entry(name, None, problem)
    found = Note(*note)
    processes = tuple((pid, start_ms) for pid, start_ms in found.processes)
    return Entry(name, found._replace(gpu_uuids=tuple(found.gpu_uuids), processes=processes), None)
