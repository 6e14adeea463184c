"""The administrator's configuration: /etc/gua/gua.toml, or the file given with --config."""

import sys
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from gua_report.config.rules import check_document
from gua_report.console.whole_file import read_bounded
from gua_sample.errors import UsageError
from gua_sample.policy import DEFAULT, Policy
from gua_sample.settings import NOTES_SPOOL

SYSTEM_CONFIG = "/etc/gua/gua.toml"
# Idle times after which a rule would reclaim the memory; a report evaluates these by default.
RECLAIM_AFTER = ("30m", "1h", "2h")
DEFAULT_CURRENCY = "USD"
MOST_BYTES = 1 << 20
PIPE_SECONDS = 5.0  # timeout for --config <(command) and --config /dev/stdin


class Retention(NamedTuple):
    raw_days: int | None = None
    csv_days: int | None = None
    rollup_days: int | None = None


class Reservations(NamedTuple):
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
    after: str = "2h"  # what is held for less is nobody's business
    days: tuple[str, ...] = ("mon", "tue", "wed", "thu", "fri")
    hours: str = "7-19"  # by this machine's clock; the second hour is not included
    holidays: tuple[str, ...] = ()
    templates: tuple[str, ...] = ()  # paths, one for each language; empty: the built-in text
    ask: str | None = None  # whom to ask; None: the administrator


class Hook(NamedTuple):
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


class Config(NamedTuple):
    policy: Policy
    price_per_gpu_hour: float | None
    price_per_kwh: float | None
    currency: str
    people: dict[str, str]  # identity -> person
    retention: Retention = Retention()
    reservations: Reservations = Reservations()
    groups: Mapping[str, tuple[str, ...]] = MappingProxyType({})  # name -> people, and @unixgroups
    exempt: Mapping[str, str] = MappingProxyType({})  # identity or person -> why it may hold without work
    containers: Containers = Containers()
    notes: Notes = Notes()
    mail: Mail = Mail()
    fleet: Fleet = Fleet()
    limits: Limits = Limits()
    remind: Remind = Remind()
    hook: Hook = Hook()
    hosts: Mapping[str, tuple[str, ...]] = MappingProxyType({})  # group of hosts -> their names, or patterns


def load_config(path: str | None) -> Config:
    document = _read(path)
    check_document(document, path or SYSTEM_CONFIG)
    price, mail, limits = (document.pop(table, {}) for table in ("price", "mail", "limits"))
    everyone = Limit(**limits.pop("everyone", {}))
    of_some = {key: {name: Limit(**hours) for name, hours in found.items()} for key, found in limits.items()}
    return Config(
        DEFAULT._replace(**{key: float(value) for key, value in document.pop("policy", {}).items()}),
        float(price["per_gpu_hour"]) if "per_gpu_hour" in price else None,
        float(price["per_kwh"]) if "per_kwh" in price else None,
        price.get("currency", DEFAULT_CURRENCY),
        document.pop("people", {}),
        mail=Mail(sender=mail.pop("from", None), **mail),
        limits=Limits(everyone, **of_some),
        **{table: _read_table(table, content) for table, content in document.items()},
    )


def _read_table(table: str, content: dict[str, Any]) -> Any:
    frozen = {key: tuple(value) if isinstance(value, list) else value for key, value in content.items()}
    kind = type(Config._field_defaults[table])
    return frozen if kind is MappingProxyType else kind(**frozen)


def _read(path: str | None) -> dict[str, Any]:
    name = SYSTEM_CONFIG if path is None else path
    try:
        content = read_bounded(name, MOST_BYTES, PIPE_SECONDS)
    except FileNotFoundError as error:
        if path is None:
            return {}
        raise UsageError(f"no config file {path!r}: create it, or leave --config out for {SYSTEM_CONFIG}") from error
    except TimeoutError as error:
        raise UsageError(
            f"{name}: the config did not come to an end within {PIPE_SECONDS:g} s: write it to a file and give that"
        ) from error
    except OSError as error:
        raise UsageError(f"{name}: the config can't be read: {error.strerror}") from error
    if not content.is_whole:
        raise UsageError(
            f"{name}: expected a TOML file of at most {MOST_BYTES >> 20} MiB, and it is larger: is it the config?"
        )

    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        return tomllib.loads(content.data.decode())
    except (ValueError, RecursionError) as error:  # ValueError: invalid TOML or UTF-8
        raise UsageError(f"{name}: expected a TOML file: {error}") from error
