"""What each key of the configuration may be."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from datetime import date
from typing import Any, NamedTuple

from gua_report.config.tables import Limit
from gua_report.console.addresses import is_address, is_domain, parse_server
from gua_sample.errors import UsageError
from gua_sample.settings import duration_ms

WEEKDAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")


class Rule(NamedTuple):
    expected: str
    accepts: Callable[[Any], bool]


def _is_number(value: Any) -> bool:
    # `type` excludes bool, an int to Python; nan compares as false; an int may be too large for a float.
    return type(value) in (int, float) and 0 <= value <= sys.float_info.max


def is_name(value: Any) -> bool:
    return isinstance(value, str) and value.isprintable() and bool(value.strip())


def _is_duration(value: Any) -> bool:
    try:
        return isinstance(value, str) and duration_ms(value) > 0
    except UsageError:
        return False


def parse_hours(text: str) -> tuple[int, int] | None:
    """The first hour of the day and the one after the last, of a text such as 7-19; None if it is none."""
    found = re.fullmatch(r"([0-9]{1,2})-([0-9]{1,2})", text, re.ASCII)
    first, end = (int(found[1]), int(found[2])) if found else (0, 0)
    return (first, end) if first < end <= 24 else None


def _is_date(value: Any) -> bool:
    try:
        return isinstance(value, str) and date.fromisoformat(value).isoformat() == value
    except ValueError:
        return False


def _is_list_of(accepts: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, list) and all(map(accepts, value))


PERCENT = Rule("a number from 0 to 100", lambda value: _is_number(value) and value <= 100)
MEMORY = Rule("a number of MiB, 0 or more", _is_number)
PRICE = Rule("a number, 0 or more", _is_number)
CURRENCY = Rule(
    'a text of 1 to 12 printable characters, such as "EUR"', lambda value: is_name(value) and len(value) <= 12
)
DAYS = Rule("a whole number of days, 1 or more", lambda value: type(value) is int and value >= 1)
DAYS_OR_NONE = Rule("a whole number of days, 0 or more", lambda value: type(value) is int and value >= 0)
FILE = Rule("the path of a CSV file, in quotes", is_name)
REDIS = Rule(
    'a URL such as "redis://localhost:6379/0"',
    lambda value: is_name(value) and value.startswith(("redis://", "rediss://", "unix://")),
)
FOLDER = Rule("the absolute path of a folder, in quotes", lambda value: is_name(value) and value.startswith("/"))
PATH = FOLDER._replace(expected="the absolute path of a file, in quotes")
LABEL = Rule('the name of a label in quotes, such as "gua.owner"', is_name)
PERSON = Rule("a name in quotes, without control characters", is_name)
MEMBERS = Rule(
    'a list of people and of Unix groups, such as ["ada", "@vision"]',
    lambda value: isinstance(value, list) and all(map(is_name, value)),
)
HOSTS = Rule(
    'a list of hosts, or of patterns, such as ["gpu01", "gpu1*"]',
    lambda value: isinstance(value, list) and all(map(is_name, value)),
)
REASON = Rule("a reason in quotes, without control characters", is_name)
DOMAIN = Rule('a domain such as "lab.example"', lambda value: is_name(value) and is_domain(value))
ADDRESS = Rule('one address such as "root@localhost"', lambda value: is_name(value) and is_address(value))
SMTP = Rule(
    'a URL such as "smtp://mail.lab.example:587" or "smtps://mail.lab.example:465", without a login',
    lambda value: is_name(value) and parse_server(value) is not None,
)
FLAG = Rule("true or false", lambda value: type(value) is bool)
LIMIT = Rule(
    "a table with idle_held_hours, gpu_hours or both, each a number of GPU-hours a week above 0",
    lambda value: (
        isinstance(value, dict)
        and bool(value)
        and all(key in Limit._fields and _is_number(hours) and hours > 0 for key, hours in value.items())
    ),
)
DURATION = Rule('a duration such as "2h" or "30m"', _is_duration)
WEEKDAY_LIST = Rule(f"a list of some of {', '.join(WEEKDAYS)}", _is_list_of(lambda value: value in WEEKDAYS))
HOURS = Rule('hours of the day such as "7-19"', lambda value: isinstance(value, str) and parse_hours(value) is not None)
DATES = Rule('a list of dates such as ["2026-12-25"]', _is_list_of(_is_date))
PATHS = Rule("a list of absolute paths of files, in quotes", _is_list_of(PATH.accepts))
TEXT = Rule("a text in quotes, without control characters", is_name)
USER = Rule("a name in ASCII, in quotes", lambda value: is_name(value) and value.isascii())

TABLES = {
    "policy": {"utilization_percent": PERCENT, "process_memory_mib": MEMORY, "unattributed_memory_mib": MEMORY},
    "price": {"per_gpu_hour": PRICE, "per_kwh": PRICE, "currency": CURRENCY},
    "retention": {"raw_days": DAYS, "csv_days": DAYS_OR_NONE, "rollup_days": DAYS},
    "reservations": {"file": FILE, "folder": FOLDER, "redis": REDIS},
    "containers": {"owner_label": LABEL},
    "fleet": {"publish": FLAG},
    "notes": {"spool": FOLDER},
    "limits": {"everyone": LIMIT},
    "mail": {
        "domain": DOMAIN,
        "administrator": ADDRESS,
        "from": ADDRESS,
        "smtp": SMTP,
        "smtp_user": USER,
        "password_file": PATH,
        "ca_file": PATH,
    },
    "remind": {
        "after": DURATION,
        "days": WEEKDAY_LIST,
        "hours": HOURS,
        "holidays": DATES,
        "templates": PATHS,
        "ask": TEXT,
    },
    "hook": {"idle_after": DURATION, "run": PATH, "timeout": DURATION},
}
# Tables whose keys are names, so that any key is valid: of identities, of groups, of identities or people, ...
NAMES = {
    "people": PERSON,
    "groups": MEMBERS,
    "exempt": REASON,
    "mail.addresses": ADDRESS,
    "mail.groups": ADDRESS,
    "hosts": HOSTS,
    "limits.people": LIMIT,
    "limits.groups": LIMIT,
}
OF_GROUPS = ("mail", "limits")  # tables that have one by name of group
NEEDED_IN_MAIL = (
    *(("smtp", "from"), ("smtp_user", "smtp"), ("ca_file", "smtp")),
    *(("smtp_user", "password_file"), ("password_file", "smtp_user")),
)
