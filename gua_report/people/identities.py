"""Map identities to people, and to what the directory of users tells: whose uid it is, and whose a container may be.

Without pandas, for all commands; the rule of identities is in `gua_sample.identity`.
"""

import os
import pwd
from collections.abc import Iterable, Mapping
from functools import cache
from typing import NamedTuple

from gua_sample.containers import LABEL, MOUNT
from gua_sample.errors import GuaError
from gua_sample.identity import UNATTRIBUTED as UNATTRIBUTED
from gua_sample.identity import UNKNOWN as UNKNOWN
from gua_sample.identity import resolve as resolve
from gua_sample.processes import user_ids, user_names

NOBODY = (UNATTRIBUTED, UNKNOWN)  # names of none
ROOT = "root"
UID = "uid:"  # what the identity of a user without a name begins with
ME = "me"


class Wanted(NamedTuple):
    """Whose report is asked for: a group's, or that of one person."""

    name: str
    people: tuple[str, ...] | None = None  # the names of one person; None: it is a group
    is_reader: bool = False  # whether the person is the one who asks


def apply_mapping(identity: str, people: Mapping[str, str]) -> str:
    """The person whom the configuration names for the identity, else the identity itself."""
    return people.get(identity, identity)


def is_person(identity: str) -> bool:
    """Whether the identity is a person: not a container, a job, a unit (`unit:ollama.service`), or nobody known."""
    return identity not in NOBODY and (identity.startswith(UID) or ":" not in identity)


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


FIRST_UID = 1000  # of people, where the system does not say
NOBODYS_UIDS = (65534, 65535)
DYNAMIC_UIDS = range(61184, 65520)  # systemd gives them to services with DynamicUser=, under the service's name
DEEPEST_HOME = 6  # folders on the way to a home directory


def is_of_person(uid: int, first_uid: int = FIRST_UID) -> bool:
    """Whether the uid is one of those that people have, rather than root, services and nobody."""
    return uid >= first_uid and uid not in NOBODYS_UIDS and uid not in DYNAMIC_UIDS


def find_uids(identities: Iterable[str], people: Mapping[str, str]) -> tuple[dict[str, set[int]], int]:
    """The uids that each identity stands for, and the number of names for which the directory did not answer.

    Whom the configuration names a person stands for the accounts of that person. Containers, jobs and units stand for
    no uid.
    """
    accounts = {who: {who} for who in identities}
    for account, person in people.items():
        if person in accounts:
            accounts[person].add(account)
    names = {name for some in accounts.values() for name in some}
    known = {name: int(name[len(UID) :]) for name in names if _is_numbered(name)}
    asked = {name for name in names if ":" not in name and name not in NOBODY}
    answered = user_ids(asked) if asked else {}
    known |= {name: uid for name, uid in answered.items() if uid is not None}
    uids = {who: {known[name] for name in some if name in known} for who, some in accounts.items()}
    return uids, len(asked - answered.keys())


def _is_numbered(identity: str) -> bool:
    digits = identity[len(UID) :]
    return identity.startswith(UID) and digits.isascii() and digits.isdigit() and len(digits) <= 10


class Traces(NamedTuple):
    """What may tell the owner of a container. Whoever started it chose these: so a path is never looked at."""

    label: str | None
    sources: list[str]  # absolute paths of the host that are mounted


def find_owners(traces: Mapping[str, Traces]) -> dict[str, tuple[str, str]]:
    return {key: owner for key, one in traces.items() if (owner := find_owner(one))}


def find_owner(traces: Traces) -> tuple[str, str] | None:
    """The owner, who has an account, and how it was found; None if nothing tells.

    It may hang as long as the directory of users does.
    """
    labelled = _person(traces.label) if traces.label else None
    if labelled:
        return labelled.pw_name, LABEL
    homes = set(filter(None, map(_owner_of_home, traces.sources)))
    return (homes.pop(), MOUNT) if len(homes) == 1 else None  # of several people, nobody knows who it is


def _owner_of_home(path: str) -> str | None:
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
