"""Whose a container is: a fact if it runs in a user's slice, a hint by its label or a home directory mounted into it.

Whoever started a container chose its label and its mounts. So they count only for people who have an account, and a
path in them is never looked at.
"""

# No `from __future__ import annotations` here: it would make NamedTuple compile the text of every field.
import pwd
from collections.abc import Iterable
from functools import cache
from typing import NamedTuple

from gua_report.people.accounts import is_of_person
from gua_sample.containers import LABEL, MOUNT, SOCKET
from gua_sample.processes import printable

DEEPEST_HOME = 6  # folders on the way to a home directory


class Traces(NamedTuple):
    """What may tell the owner of a container."""

    slice_uid: int | None
    label: str | None
    sources: list[str]  # absolute paths of the host that are mounted


def find_owner(traces: Traces) -> tuple[str, str] | None:
    """The owner and how it was found; None if nothing tells. It may hang as long as the directory of users does."""
    if traces.slice_uid is not None:
        name = _name_of(traces.slice_uid)
        return (name, SOCKET) if name else None
    labelled = _person(traces.label) if traces.label else None
    if labelled:
        return labelled.pw_name, LABEL
    homes = set(filter(None, map(_owner_of_home, traces.sources)))
    return (homes.pop(), MOUNT) if len(homes) == 1 else None  # of several people, nobody knows who it is


def _owner_of_home(path: str) -> str | None:
    """The person in whose home directory a path lies, by the path alone."""
    names = path.split("/")[1:]
    if ".." in names:
        return None
    for count in range(min(len(names), DEEPEST_HOME), 0, -1):
        person = _person(names[count - 1])
        if person and person.pw_dir.rstrip("/") == "/" + "/".join(names[:count]):
            return person.pw_name
    return None


@cache
def _person(name: str) -> pwd.struct_passwd | None:
    try:
        found = pwd.getpwnam(name)
    except (KeyError, ValueError):  # ValueError: an impossible name
        return None
    return found if is_of_person(found.pw_uid) and found.pw_name.isprintable() else None


def _name_of(uid: int) -> str | None:
    try:
        return printable(pwd.getpwuid(uid).pw_name)
    except (KeyError, OverflowError):  # OverflowError: out of range for this C library
        return None


def find_owners(traces: Iterable[tuple[str, Traces]]) -> dict[str, tuple[str, str]]:
    """The owners by key, as `find_owner` finds them."""
    return {key: owner for key, one in traces if (owner := find_owner(one))}
