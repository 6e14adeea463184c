"""The current state of a card and its users, to be checked against reservations."""

from typing import NamedTuple

from gua_sample.policy import UNKNOWN

AVAILABLE = "available"
CONFIRMED = "confirmed"
UNRESERVED = "unreserved"
UNUSED = "unused"
SEVERAL_USERS = "several-users"
KINDS = (AVAILABLE, CONFIRMED, UNRESERVED, UNUSED, SEVERAL_USERS, UNKNOWN)


class Holder(NamedTuple):
    """A process on a card."""

    user: str  # an identity
    pid: int
    command: str
    memory_mib: float | None
    who: str | None = None  # the name that people are shown; None: the identity


class CardNow(NamedTuple):
    index: int  # type: ignore[assignment]  # a tuple has a method of that name
    uuid: str
    holders: list[Holder]
    state: str  # active, idle-held, truly-idle, unknown, or unpartitioned
    since_ms: int | None  # beginning of this state, if the history tells
    since_is_exact: bool = True  # False: the state may have begun earlier
    parent_uuid: str | None = None  # of a MIG instance


class Validation(NamedTuple):
    kind: str
    text: str  # clean, for a terminal
    reserved_by: list[str]  # clean, for a terminal
    details: dict[str, object]  # plain values, for JSON
