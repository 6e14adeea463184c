"""Map identities to people. Without pandas, for all commands; the rule of identities is in `gua_sample.identity`."""

from __future__ import annotations

from collections.abc import Mapping

from gua_sample.identity import UNATTRIBUTED as UNATTRIBUTED
from gua_sample.identity import UNKNOWN as UNKNOWN
from gua_sample.identity import resolve as resolve

NOBODY = (UNATTRIBUTED, UNKNOWN)  # names of none
ROOT = "root"
UID = "uid:"  # what the identity of a user without a name begins with


def apply_mapping(identity: str, people: Mapping[str, str]) -> str:
    """The person whom the configuration names for the identity, else the identity itself."""
    return people.get(identity, identity)


def is_person(identity: str) -> bool:
    """Whether the identity is a person: not a container, a job, a unit (`unit:ollama.service`), or nobody known."""
    return identity not in NOBODY and (identity.startswith(UID) or ":" not in identity)
