"""What each key of the configuration may be: each error names the file, what was found and what is expected."""

import re
import sys
from collections.abc import Callable
from datetime import date
from typing import Any, NamedTuple

from gua_report.console import spelling
from gua_report.console.addresses import is_address, is_domain, parse_server
from gua_sample.errors import UsageError
from gua_sample.settings import duration_ms

WEEKDAYS = tuple(day.lower() for day in spelling.WEEKDAYS)
LIMIT_KEYS = ("idle_held_hours", "gpu_hours")  # fields of config.Limit


class Rule(NamedTuple):
    expected: str
    accepts: Callable[[Any], bool]


def _is_number(value: Any) -> bool:
    # `type` excludes bool, an int to Python; nan compares as false; an int may be too large for a float.
    return type(value) in (int, float) and 0 <= value <= sys.float_info.max


def is_name(value: Any) -> bool:
    return isinstance(value, str) and value.isprintable() and bool(value.strip())


def _is_text(check: Callable[[str], Any]) -> Callable[[Any], bool]:
    def accepts(value: Any) -> bool:
        try:
            return is_name(value) and bool(check(value))
        except (UsageError, ValueError):
            return False

    return accepts


def parse_hours(text: str) -> tuple[int, int] | None:
    found = re.fullmatch(r"([0-9]{1,2})-([0-9]{1,2})", text, re.ASCII)
    first, end = (int(found[1]), int(found[2])) if found else (0, 0)
    return (first, end) if first < end <= 24 else None


def _is_list_of(accepts: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, list) and all(map(accepts, value))


MEMORY = Rule("a number of MiB, 0 or more", _is_number)
PRICE = Rule("a number, 0 or more", _is_number)
DAYS = Rule("a whole number of days, 1 or more", lambda value: type(value) is int and value >= 1)
FOLDER = Rule("the absolute path of a folder, in quotes", _is_text(lambda value: value.startswith("/")))
PATH = FOLDER._replace(expected="the absolute path of a file, in quotes")
PERSON = Rule("a name in quotes, without control characters", is_name)
MEMBERS = Rule('a list of people and of Unix groups, such as ["ada", "@vision"]', _is_list_of(is_name))
HOSTS = Rule('a list of hosts, or of patterns, such as ["gpu01", "gpu1*"]', _is_list_of(is_name))
REASON = Rule("a reason in quotes, without control characters", is_name)
ADDRESS = Rule('one address such as "root@localhost"', _is_text(is_address))
LIMIT = Rule(
    "a table with idle_held_hours, gpu_hours or both, each a number of GPU-hours a week above 0",
    lambda value: (
        isinstance(value, dict)
        and bool(value)
        and all(key in LIMIT_KEYS and _is_number(hours) and hours > 0 for key, hours in value.items())
    ),
)
DURATION = Rule('a duration such as "2h" or "30m"', _is_text(duration_ms))

TABLES = {
    "policy": {
        "utilization_percent": Rule("a number from 0 to 100", lambda value: _is_number(value) and value <= 100),
        "process_memory_mib": MEMORY,
        "unattributed_memory_mib": MEMORY,
    },
    "price": {
        "per_gpu_hour": PRICE,
        "per_kwh": PRICE,
        "currency": Rule(
            'a text of 1 to 12 printable characters, such as "EUR"', _is_text(lambda value: len(value) <= 12)
        ),
    },
    "retention": {
        "raw_days": DAYS,
        "csv_days": Rule("a whole number of days, 0 or more", lambda value: type(value) is int and value >= 0),
        "rollup_days": DAYS,
    },
    "reservations": {
        "file": Rule("the path of a CSV file, in quotes", is_name),
        "folder": FOLDER,
        "redis": Rule(
            'a URL such as "redis://localhost:6379/0"',
            _is_text(lambda value: value.startswith(("redis://", "rediss://", "unix://"))),
        ),
    },
    "containers": {"owner_label": Rule('the name of a label in quotes, such as "gua.owner"', is_name)},
    "fleet": {"publish": Rule("true or false", lambda value: type(value) is bool)},
    "notes": {"spool": FOLDER},
    "limits": {"everyone": LIMIT},
    "mail": {
        "domain": Rule('a domain such as "lab.example"', _is_text(is_domain)),
        "administrator": ADDRESS,
        "from": ADDRESS,
        "smtp": Rule(
            'a URL such as "smtp://mail.lab.example:587" or "smtps://mail.lab.example:465", without a login',
            _is_text(parse_server),
        ),
        "smtp_user": Rule("a name in ASCII, in quotes", _is_text(str.isascii)),
        "password_file": PATH,
        "ca_file": PATH,
    },
    "remind": {
        "after": DURATION,
        "days": Rule(f"a list of some of {', '.join(WEEKDAYS)}", _is_list_of(lambda value: value in WEEKDAYS)),
        "hours": Rule('hours of the day such as "7-19"', _is_text(parse_hours)),
        "holidays": Rule(
            'a list of dates such as ["2026-12-25"]',
            _is_list_of(_is_text(lambda value: date.fromisoformat(value).isoformat() == value)),
        ),
        "templates": Rule("a list of absolute paths of files, in quotes", _is_list_of(PATH.accepts)),
        "ask": Rule("a text in quotes, without control characters", is_name),
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
LONGEST_SHOWN_VALUE = 60
# A URL may hold a password, which must not appear in a message, nor what stands under the name of one.
SECRET = re.compile(r"(?<=://).*(?=@)|(?<=password=)[^&'\"]*", re.IGNORECASE)
SECRET_NAME = re.compile(r"pass|secret|token|smtp", re.IGNORECASE)
SECRET_TABLES = ("reservations", "mail")  # a misplaced value may be a password


def check_document(document: dict[str, Any], path: str) -> None:
    for table, content in document.items():
        if table not in (*TABLES, *NAMES) or "." in table:
            raise _unknown(path, "table" if isinstance(content, dict) else "key", table, content, [*TABLES, *NAMES])
        _check_table(table, content, path)
    mail = document.get("mail", {})
    for key, other in NEEDED_IN_MAIL:
        if key in mail and other not in mail:
            raise UsageError(f"{path}: [mail] has {key!r} but no {other!r}: add it")
    for table in OF_GROUPS:
        for group in document.get(table, {}).get("groups", {}):
            if group not in document.get("groups", {}):
                found = f"{_shown('', group)} in [{table}.groups]"
                raise UsageError(f"{path}: {found} is no group: add it to [groups], or correct its name")


def _check_table(table: str, content: Any, path: str) -> None:
    hides = table in SECRET_TABLES
    if not isinstance(content, dict):
        shown = _shown(table, "..." if hides else content)
        raise UsageError(f"{path}: bad value {table} = {shown}: expected a table, [{table}]")
    for key, value in content.items():
        shown = _shown(key, "..." if hides else value)
        rule = NAMES.get(table) or TABLES[table].get(key)
        if f"{table}.{key}" in NAMES:
            _check_table(f"{table}.{key}", value, path)
        elif table in NAMES and not is_name(key):
            raise UsageError(f"{path}: bad key {_shown('', key)} in [{table}]: expected {PERSON.expected}")
        elif rule is None:
            within = [name.partition(".")[2] for name in NAMES if name.startswith(f"{table}.")]
            raise _unknown(path, f"key in [{table}]", key, "..." if hides else value, [*TABLES[table], *within])
        elif not rule.accepts(value):
            raise UsageError(f"{path}: bad value {key!r} = {shown} in [{table}]: expected {rule.expected}")


def _unknown(path: str, kind: str, key: str, value: object, known: list[str]) -> UsageError:
    import difflib

    tables = [table for table, keys in TABLES.items() if key in keys]
    nearest = difflib.get_close_matches(key.lower(), known, n=1, cutoff=0.3)
    hint = f"; it belongs in [{tables[0]}]" if tables else f"; did you mean {nearest[0]}?" if nearest else ""
    return UsageError(
        f"{path}: unknown {kind}, {key!r} = {_shown(key, value)}: expected one of {', '.join(known)}{hint}"
    )


def _shown(key: str, value: object) -> str:
    text = SECRET.sub("...", repr(value))
    if SECRET_NAME.search(f"{key} {text}"):
        return "..."
    return text if len(text) <= LONGEST_SHOWN_VALUE else text[: LONGEST_SHOWN_VALUE - 3] + "..."
