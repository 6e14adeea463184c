"""What a fleet calls those who are on a host: a person is one person on all hosts, all else is of one host."""

from __future__ import annotations

import pandas as pd

from gua_report.people.identities import NOBODY, UID, is_person

MOST_OF_HOST = 10  # containers, jobs, units and users without a name: the first in the report's order
OTHERS = ":others"  # docker:others@gpu07 are all other containers of that host


def find_named(identities: pd.DataFrame) -> set[str]:
    """The containers, jobs and units that keep their names: a host has thousands of them in a year."""
    own = [str(who) for who in identities["identity"].tolist() if not is_of_fleet(str(who))]
    return set(own[:MOST_OF_HOST])


def rename(frame: pd.DataFrame, host: str, first: set[str] | None = None) -> pd.DataFrame:
    """The frame with identities as the fleet calls them; those that are not among `first` are others of their kind."""
    names = {who: name_at(str(who), host, first) for who in frame["identity"].unique().tolist()}
    return frame.assign(identity=[names[who] for who in frame["identity"].tolist()])


def name_at(identity: str, host: str, first: set[str] | None = None) -> str:
    """The name of an identity in the fleet: docker:3f2a9c81d0b7@gpu07, or ada wherever she is."""
    if is_of_fleet(identity):
        return identity
    is_named = first is None or identity in first
    return f"{identity if is_named else identity.partition(':')[0] + OTHERS}@{host}"


def is_of_fleet(identity: str) -> bool:
    """Whether this is the same one on all hosts: a user with a name, or nobody."""
    return identity in NOBODY or (is_person(identity) and not identity.startswith(UID))
