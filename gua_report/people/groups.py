"""Who is in which group of the configuration: people listed by name, and the members of Unix groups. Without pandas."""

# No `from __future__ import annotations` here: it would make NamedTuple compile the text of every field.
import grp
import pwd
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from gua_report.people.identities import UID, apply_mapping
from gua_sample.processes import ends_within

NO_GROUP = "(no group)"
UNIX = "@"  # what a Unix group begins with in the configuration
ANSWER_SECONDS = 5.0


class Memberships(NamedTuple):
    of: dict[str, tuple[str, ...]]  # the groups of each person in the configuration's order; who is in none is absent
    unknown: tuple[str, ...]  # groups of which not everybody is known
    problems: list[str]  # why, in a line each

    def first_group(self, person: str) -> str:
        return self.of.get(person, (NO_GROUP,))[0]

    def find_members(self, group: str) -> list[str]:
        return [person for person, groups in self.of.items() if group in groups]


class UnixGroups(NamedTuple):
    """What the directory of users tells."""

    groups: dict[str, tuple[int, set[str]]]  # the number and the listed members by name; absent: no such group
    primary: dict[str, int]  # the number of each user's own group


def find_memberships(
    groups: Mapping[str, tuple[str, ...]],
    seen: Iterable[str],
    people: Mapping[str, str],
    seconds: float = ANSWER_SECONDS,
) -> Memberships:
    """The groups of the people that were seen. `people` is the mapping of the configuration, from identity to person.

    A Unix group has those whose own group it is, too. One that can't be had is a problem, and never empty.
    """
    identities = _find_identities(seen, people)
    names = list(dict.fromkeys(one[1:] for listed in groups.values() for one in listed if one.startswith(UNIX)))
    told = _ask(names, {one for some in identities.values() for one in some}, seconds) if names else UnixGroups({}, {})
    members = {group: _find_listed(listed, people) for group, listed in groups.items()}
    for group, listed in groups.items():
        for name in (one[1:] for one in listed if one.startswith(UNIX)):
            members[group] |= {person for person, own in identities.items() if told and _is_in(name, own, told)}
    of = {person: tuple(group for group in groups if person in members[group]) for person in identities}
    missing = [name for name in names if told is None or name not in told.groups]
    unknown = [group for group, listed in groups.items() if any(UNIX + name in listed for name in missing)]
    return Memberships(
        {person: found for person, found in of.items() if found},
        tuple(unknown),
        _explain(missing, groups, seconds if told is None else None),
    )


def _find_identities(seen: Iterable[str], people: Mapping[str, str]) -> dict[str, list[str]]:
    """The identities of each person: their own name, and those that the configuration says are theirs."""
    found = {person: [] if person in people else [person] for person in seen}
    for identity, person in people.items():
        if person in found:
            found[person].append(identity)
    return found


def _find_listed(listed: tuple[str, ...], people: Mapping[str, str]) -> set[str]:
    return {apply_mapping(one, people) for one in listed if not one.startswith(UNIX)}


def _is_in(name: str, identities: list[str], told: UnixGroups) -> bool:
    number, listed = told.groups.get(name, (None, set()))
    return number is not None and any(one in listed or told.primary.get(one) == number for one in identities)


def _ask(names: list[str], identities: set[str], seconds: float) -> UnixGroups | None:
    """What the directory tells of these groups and users; None if it does not tell all of it in time.

    Not by os.getgrouplist, which would hold the interpreter's lock for as long as the directory hangs.
    """
    found = UnixGroups({}, {})
    over: list[bool] = []

    def ask() -> None:
        for name in names:
            entry = _find_group(name)
            if entry is not None:
                found.groups[name] = entry.gr_gid, set(entry.gr_mem)
        for identity in sorted(identities):
            if over:
                return
            number = _find_primary(identity)
            if number is not None:
                found.primary[identity] = number

    if ends_within(seconds, ask):
        return found
    over.append(True)
    return None


def _find_group(name: str) -> grp.struct_group | None:
    try:
        return grp.getgrnam(name)
    except (KeyError, ValueError):  # ValueError: no name that a C library takes
        return None


def _find_primary(identity: str) -> int | None:
    """The number of the own group of a user; None if the identity is no user's: a container's, or unknown here."""
    number = identity.removeprefix(UID)
    try:
        if identity.startswith(UID):
            return pwd.getpwuid(int(number)).pw_gid
        return None if ":" in identity else pwd.getpwnam(identity).pw_gid
    except (KeyError, OverflowError, ValueError):
        return None


def _explain(missing: list[str], groups: Mapping[str, tuple[str, ...]], waited_seconds: float | None) -> list[str]:
    """A line for each Unix group that is not known."""
    lines = []
    for name in missing:
        why = f"there is no Unix group {name!r} here (correct it in [groups])"
        if waited_seconds is not None:
            why = f"the directory of users did not tell within {waited_seconds:g} s who is in the Unix group {name!r}"
        ours = ", ".join(group for group, listed in groups.items() if UNIX + name in listed)
        lines.append(f"{why}: the hours of {ours} are not known, and who is in no other group counts as {NO_GROUP}")
    return lines
