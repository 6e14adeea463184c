"""Map identities to people. Without pandas, for all commands; the rule of identities is in `gua_sample.identity`."""

from __future__ import annotations

from collections.abc import Mapping

from gua_sample.identity import UNATTRIBUTED as UNATTRIBUTED
from gua_sample.identity import UNKNOWN as UNKNOWN
from gua_sample.identity import resolve as resolve


def apply_mapping(identity: str, people: Mapping[str, str]) -> str:
    """The person whom the configuration names for the identity, else the identity itself."""
    return people.get(identity, identity)
