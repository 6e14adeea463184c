"""Who is in which group of the configuration: people listed by name, and the members of Unix groups. Without pandas."""

import grp
import pwd
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from gua_report.people.identities import UID, apply_mapping
from gua_sample.processes import ask_directory

NO_GROUP = "(no group)"
UNIX = "@"  # what a Unix group begins with in the configuration
USER = "="  # what a user begins with in questions to the directory of users
ANSWER_SECONDS = 5.0


class Memberships(NamedTuple):
    of: dict[str, tuple[str, ...]]  # the groups of each person in the configuration's order; who is in none is absent
    unknown: tuple[str, ...]  # groups of which not everybody is known
    problems: list[str]  # why, in a line each

    def first_group(self, person: str) -> str:
        return self.of.get(person, (NO_GROUP,))[0]

    def find_members(self, group: str) -> list[str]:
        return [person for person, groups in self.of.items() if group in groups]


def find_memberships(
    groups: Mapping[str, tuple[str, ...]],
    seen: Iterable[str],
    people: Mapping[str, str],
    seconds: float = ANSWER_SECONDS,
) -> Memberships:
    """The groups of the people that were seen. `people` is the mapping of the configuration, from identity to person.

    A Unix group has those whose own group it is, too. One that can't be had is a problem, and never empty.
    """
    identities = {person: [] if person in people else [person] for person in seen}
    for identity, person in people.items():
        if person in identities:
            identities[person].append(identity)
    names = list(dict.fromkeys(one for listed in groups.values() for one in listed if one.startswith(UNIX)))
    users = {USER + one for some in identities.values() for one in some} if names else set()
    told = ask_directory({*names, *users}, _look_up, seconds)
    is_late = len(told) < len(names) + len(users)

    def find_members(listed: tuple[str, ...]) -> set[str]:
        named = {apply_mapping(one, people) for one in listed if not one.startswith(UNIX)}
        entries = [] if is_late else [entry for one in listed if one.startswith(UNIX) and (entry := told[one])]

        def is_in(own: list[str]) -> bool:
            mine = [(one, told[USER + one]) for one in own] if entries else []
            return any(who in some or (entry and entry[0] == number) for number, some in entries for who, entry in mine)

        return named | {person for person, own in identities.items() if is_in(own)}

    members = {group: find_members(listed) for group, listed in groups.items()}
    of = {person: tuple(group for group in groups if person in members[group]) for person in identities}
    missing = [name for name in names if is_late or told[name] is None]
    return Memberships(
        {person: found for person, found in of.items() if found},
        tuple(group for group, listed in groups.items() if not set(missing).isdisjoint(listed)),
        _explain(missing, groups, seconds if is_late else None),
    )


def _look_up(key: str) -> tuple[int, list[str]] | None:
    """The number and the members of a Unix group, or of a user's own group, whose members nobody asks for.

    Not by os.getgrouplist, which would hold the interpreter's lock for as long as the directory hangs.
    """
    if key.startswith(UNIX):
        entry = find_group(key[1:])
        return entry and (entry.gr_gid, entry.gr_mem)
    number = _find_primary(key[1:])
    return None if number is None else (number, [])


def find_group(name: str) -> grp.struct_group | None:
    try:
        return grp.getgrnam(name)
    except (KeyError, ValueError):  # ValueError: no name that a C library takes
        return None


def _find_primary(identity: str) -> int | None:
    number = identity.removeprefix(UID)
    try:
        if identity.startswith(UID):
            return pwd.getpwuid(int(number)).pw_gid
        return None if ":" in identity else pwd.getpwnam(identity).pw_gid
    except (KeyError, OverflowError, ValueError):
        return None


def _explain(missing: list[str], groups: Mapping[str, tuple[str, ...]], waited_seconds: float | None) -> list[str]:
    lines = []
    for name in missing:
        why = f"there is no Unix group {name[1:]!r} here (correct it in [groups])"
        if waited_seconds is not None:
            why = (
                f"the directory of users did not tell within {waited_seconds:g} s who is in the Unix group {name[1:]!r}"
            )
        ours = ", ".join(group for group, listed in groups.items() if name in listed)
        lines.append(f"{why}: the hours of {ours} are not known, and who is in no other group counts as {NO_GROUP}")
    return lines
