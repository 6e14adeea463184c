"""The administrator's configuration: /etc/gua/gua.toml, or the file given with --config."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

from gua_report.console.bounded_file import read_bounded
from gua_sample.errors import UsageError
from gua_sample.policy import DEFAULT, Policy

SYSTEM_CONFIG = "/etc/gua/gua.toml"
# Idle times after which a rule would reclaim the memory; a report evaluates these by default.
RECLAIM_AFTER = ("30m", "1h", "2h")
DEFAULT_CURRENCY = "USD"
LONGEST_SHOWN_VALUE = 60
MOST_BYTES = 1 << 20
PIPE_SECONDS = 5.0  # timeout for --config <(command) and --config /dev/stdin
# A URL may hold a password, which must not appear in a message.
SECRET = re.compile(r"(?<=://).*(?=@)|(?<=password=)[^&'\"]*", re.IGNORECASE)


class Retention(NamedTuple):
    """Days for which each kind of data is kept; None: for ever."""

    raw_days: int | None = None
    csv_days: int | None = None
    rollup_days: int | None = None


class Reservations(NamedTuple):
    """Sources of reservations; None: not configured."""

    file: str | None = None
    redis: str | None = None


class Config(NamedTuple):
    policy: Policy
    price_per_gpu_hour: float | None
    price_per_kwh: float | None
    currency: str
    people: dict[str, str]  # identity -> person
    retention: Retention = Retention()
    reservations: Reservations = Reservations()


class Rule(NamedTuple):
    expected: str
    accepts: Callable[[Any], bool]


def _is_number(value: Any) -> bool:
    # `type` excludes bool, an int to Python; nan compares as false; an int may be too large for a float.
    return type(value) in (int, float) and 0 <= value <= sys.float_info.max


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and value.isprintable() and bool(value.strip())


PERCENT = Rule("a number from 0 to 100", lambda value: _is_number(value) and value <= 100)
MEMORY = Rule("a number of MiB, 0 or more", _is_number)
PRICE = Rule("a number, 0 or more", _is_number)
CURRENCY = Rule(
    'a text of 1 to 12 printable characters, such as "EUR"', lambda value: _is_name(value) and len(value) <= 12
)
DAYS = Rule("a whole number of days, 1 or more", lambda value: type(value) is int and value >= 1)
DAYS_OR_NONE = Rule("a whole number of days, 0 or more", lambda value: type(value) is int and value >= 0)
FILE = Rule("the path of a CSV file, in quotes", _is_name)
REDIS = Rule(
    'a URL such as "redis://localhost:6379/0"',
    lambda value: _is_name(value) and value.startswith(("redis://", "rediss://", "unix://")),
)
PERSON = Rule("a name in quotes, without control characters", _is_name)

TABLES = {
    "policy": {"utilization_percent": PERCENT, "process_memory_mib": MEMORY, "unattributed_memory_mib": MEMORY},
    "price": {"per_gpu_hour": PRICE, "per_kwh": PRICE, "currency": CURRENCY},
    "retention": {"raw_days": DAYS, "csv_days": DAYS_OR_NONE, "rollup_days": DAYS},
    "reservations": {"file": FILE, "redis": REDIS},
}
PEOPLE = "people"  # its keys are identities, so any key is valid


def load_config(path: str | None) -> Config:
    """The configuration in the file, with defaults for missing keys. Without a path: the system's file, if any."""
    document = _read(path)
    _check(document, path or SYSTEM_CONFIG)
    price = document.get("price", {})
    return Config(
        DEFAULT._replace(**{key: float(value) for key, value in document.get("policy", {}).items()}),
        float(price["per_gpu_hour"]) if "per_gpu_hour" in price else None,
        float(price["per_kwh"]) if "per_kwh" in price else None,
        price.get("currency", DEFAULT_CURRENCY),
        document.get(PEOPLE, {}),
        Retention(**document.get("retention", {})),
        Reservations(**document.get("reservations", {})),
    )


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


def _check(document: dict[str, Any], path: str) -> None:
    for table, content in document.items():
        if table not in (*TABLES, PEOPLE):
            raise _unknown(path, "table" if isinstance(content, dict) else "key", table, content, [*TABLES, PEOPLE])
        if not isinstance(content, dict):
            raise UsageError(f"{path}: bad value {table} = {_shown(content)}: expected a table, [{table}]")
        for key, value in content.items():
            rule = PERSON if table == PEOPLE else TABLES[table].get(key)
            shown = "..." if table == "reservations" else value  # a misplaced value may be a password
            if rule is None:
                raise _unknown(path, f"key in [{table}]", key, shown, list(TABLES[table]))
            if not rule.accepts(value):
                raise UsageError(f"{path}: bad value {key!r} = {_shown(shown)} in [{table}]: expected {rule.expected}")


def _unknown(path: str, kind: str, key: str, value: object, known: list[str]) -> UsageError:
    import difflib

    tables = [table for table, keys in TABLES.items() if key in keys]
    nearest = difflib.get_close_matches(key.lower(), known, n=1, cutoff=0.3)
    hint = f"; it belongs in [{tables[0]}]" if tables else f"; did you mean {nearest[0]}?" if nearest else ""
    return UsageError(f"{path}: unknown {kind}, {key!r} = {_shown(value)}: expected one of {', '.join(known)}{hint}")


def _shown(value: object) -> str:
    text = SECRET.sub("...", repr(value))
    return text if len(text) <= LONGEST_SHOWN_VALUE else text[: LONGEST_SHOWN_VALUE - 3] + "..."
