"""Whom a mail may be about: people, by fact. Containers, jobs, services and accounts of the system get none."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from gua_report.people.accounts import FIRST_UID, is_of_person
from gua_report.people.identities import NOBODY, UID, is_person
from gua_report.telling.watch import Held
from gua_sample.processes import read_file, user_ids

LOGIN_DEFS = "/etc/login.defs"


class Persons(NamedTuple):
    names: set[str]  # of people
    uids: dict[str, int | None]  # of all names that were asked for; None: there is no such account
    unanswered: set[str]  # of whom the directory of users does not tell
    mapped: frozenset[str] = frozenset()  # identities for which the administrator names a person

    def has(self, held: Held) -> bool:
        """Whether it is a person who holds that: by the name, and by the uid that the kernel tells of the process.

        Names alone may come from files of the sampler's user. So the administrator's word counts for the very identity
        that [people] names, and not for all that the folder calls by that person's name.
        """
        is_mapped = held.unmapped in self.mapped
        name = held.unmapped if is_mapped else held.who
        uid = self.uids.get(name)
        is_theirs = is_mapped if uid is None else uid == held.person_uid
        return held.who in self.names and is_theirs and name not in self.unanswered


def find_persons(identities: Iterable[str], mapped: Mapping[str, str], login_defs: str = LOGIN_DEFS) -> Persons:
    """Tell people from others. `mapped` is the administrator's [people]: who is named there needs no account.

    A name without an account is no person otherwise; one of the system's accounts never is, whoever names it.
    """
    names = {who for who in set(identities) if is_person(who) and not who.startswith(UID) and who not in NOBODY}
    told = user_ids(names) if names else {}
    named, first_uid = set(mapped.values()), _first_uid(login_defs)
    people = {who for who, uid in told.items() if (who in named if uid is None else is_of_person(uid, first_uid))}
    return Persons(people, told, names - told.keys(), frozenset(mapped))


def _first_uid(path: str) -> int:
    """The first uid of people on this machine; never root's, whatever the file says."""
    found = re.findall(rb"^\s*UID_MIN\s+([0-9]{1,9})\s*$", read_file(path) or b"", re.MULTILINE)
    return max(1, int(found[-1])) if found else FIRST_UID
