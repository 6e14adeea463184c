"""The administrator's configuration: /etc/gua/gua.toml, or the file given with --config."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from gua_report.config.checks import check_document
from gua_report.config.tables import Containers as Containers
from gua_report.config.tables import Fleet as Fleet
from gua_report.config.tables import Hook as Hook
from gua_report.config.tables import Limit as Limit
from gua_report.config.tables import Limits as Limits
from gua_report.config.tables import Mail as Mail
from gua_report.config.tables import Notes as Notes
from gua_report.config.tables import Remind as Remind
from gua_report.config.tables import Reservations as Reservations
from gua_report.config.tables import Retention as Retention
from gua_report.console.bounded_file import read_bounded
from gua_sample.errors import UsageError
from gua_sample.policy import DEFAULT, Policy

SYSTEM_CONFIG = "/etc/gua/gua.toml"
# Idle times after which a rule would reclaim the memory; a report evaluates these by default.
RECLAIM_AFTER = ("30m", "1h", "2h")
DEFAULT_CURRENCY = "USD"
MOST_BYTES = 1 << 20
PIPE_SECONDS = 5.0  # timeout for --config <(command) and --config /dev/stdin


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
    """The configuration in the file, with defaults for missing keys. Without a path: the system's file, if any."""
    document = _read(path)
    check_document(document, path or SYSTEM_CONFIG)
    price = document.get("price", {})
    return Config(
        DEFAULT._replace(**{key: float(value) for key, value in document.get("policy", {}).items()}),
        float(price["per_gpu_hour"]) if "per_gpu_hour" in price else None,
        float(price["per_kwh"]) if "per_kwh" in price else None,
        price.get("currency", DEFAULT_CURRENCY),
        document.get("people", {}),
        Retention(**document.get("retention", {})),
        Reservations(**document.get("reservations", {})),
        {name: tuple(members) for name, members in document.get("groups", {}).items()},
        document.get("exempt", {}),
        Containers(**document.get("containers", {})),
        Notes(**document.get("notes", {})),
        Mail(**{"sender" if key == "from" else key: value for key, value in document.get("mail", {}).items()}),
        Fleet(**document.get("fleet", {})),
        _read_limits(document.get("limits", {})),
        Remind(**{key: _frozen(value) for key, value in document.get("remind", {}).items()}),
        Hook(**document.get("hook", {})),
        {name: tuple(listed) for name, listed in document.get("hosts", {}).items()},
    )


def _read_limits(table: dict[str, Any]) -> Limits:
    by_name = ({name: Limit(**hours) for name, hours in table.get(key, {}).items()} for key in ("people", "groups"))
    return Limits(Limit(**table.get("everyone", {})), *by_name)


def _frozen(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


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
