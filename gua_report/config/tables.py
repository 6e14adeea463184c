"""The tables of the configuration that are more than a value or two, with their defaults."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from gua_sample.settings import NOTES_SPOOL


class Retention(NamedTuple):
    """Days for which each kind of data is kept; None: for ever."""

    raw_days: int | None = None
    csv_days: int | None = None
    rollup_days: int | None = None


class Reservations(NamedTuple):
    """Sources of reservations; None: not configured."""

    file: str | None = None
    folder: str | None = None  # of such files, one for each Slurm job
    redis: str | None = None


class Containers(NamedTuple):
    owner_label: str = "gua.owner"  # a container's label that names its owner


class Fleet(NamedTuple):
    publish: bool = False  # whether gua rollup writes a copy of the rollups for others to collect


class Notes(NamedTuple):
    spool: str = NOTES_SPOOL


class Limit(NamedTuple):
    """GPU-hours a week that should not be exceeded; None: no limit."""

    idle_held_hours: float | None = None
    gpu_hours: float | None = None  # of all states


class Limits(NamedTuple):
    """Who should not exceed which hours. Nothing is enforced."""

    everyone: Limit = Limit()  # of each person, as far as they have none of their own
    people: Mapping[str, Limit] = MappingProxyType({})
    groups: Mapping[str, Limit] = MappingProxyType({})  # of all people of a group together

    @property
    def are_set(self) -> bool:
        return self != Limits()


class Remind(NamedTuple):
    """When people are told by mail what they hold without work, and in which words."""

    after: str = "2h"  # what is held for less is nobody's business
    days: tuple[str, ...] = ("mon", "tue", "wed", "thu", "fri")
    hours: str = "7-19"  # by this machine's clock; the second hour is not included
    holidays: tuple[str, ...] = ()
    templates: tuple[str, ...] = ()  # paths, one for each language; empty: the built-in text
    ask: str | None = None  # whom to ask; None: the administrator


class Hook(NamedTuple):
    """A program of the administrator's that is run once for each long episode."""

    idle_after: str = "4h"
    run: str | None = None  # None: no hook
    timeout: str = "1m"


class Mail(NamedTuple):
    """How mail leaves this machine, and who has which address; what is None or missing is not guessed."""

    domain: str | None = None  # ada has the address ada@domain
    administrator: str | None = None
    sender: str | None = None  # None: as the machine's sendmail makes it
    smtp: str | None = None  # None: by the machine's sendmail
    smtp_user: str | None = None
    password_file: str | None = None
    ca_file: str | None = None
    addresses: Mapping[str, str] = MappingProxyType({})  # by person; they go before the domain
    groups: Mapping[str, str] = MappingProxyType({})  # of the heads, by name of the group
