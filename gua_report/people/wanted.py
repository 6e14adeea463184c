"""Whose report is asked for: a group's, or that of one person."""

# No `from __future__ import annotations` here: it would make NamedTuple compile the text of every field.
import os
from collections.abc import Mapping
from typing import NamedTuple

from gua_report.people.identities import UID, apply_mapping
from gua_sample.errors import GuaError
from gua_sample.processes import user_names

ME = "me"


class Wanted(NamedTuple):
    name: str
    people: tuple[str, ...] | None = None  # the names of one person; None: it is a group
    is_reader: bool = False  # whether the person is the one who asks


def find_person(name: str, people: Mapping[str, str]) -> Wanted:
    """The person of that name, or the user who runs this if it is `me`: under sudo, that is root.

    `people` is the mapping of the configuration. Raises GuaError if the directory of users does not answer, since
    reports may have a name then that is not known here.
    """
    if name != ME:
        person = apply_mapping(name, people)
        return Wanted(person, (person,))
    uid = os.getuid()
    told = user_names([uid])
    if uid not in told:
        raise GuaError("the directory of users does not answer: give your name, as in --who ada")
    # There may be two: a tick that could not find out the name has the number alone.
    identities = [told[uid], f"{UID}{uid}"]
    names = dict.fromkeys(apply_mapping(identity, people) for identity in identities if identity)
    return Wanted(next(iter(names)), tuple(names), True)
