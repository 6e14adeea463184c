"""Check a configuration against its rules: each error names the file, what was found and what is expected."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from gua_report.config.rules import NAMES, NEEDED_IN_MAIL, OF_GROUPS, PERSON, TABLES, Rule, is_name
from gua_sample.errors import UsageError

LONGEST_SHOWN_VALUE = 60
# A URL may hold a password, which must not appear in a message, nor what stands under the name of one.
SECRET = re.compile(r"(?<=://).*(?=@)|(?<=password=)[^&'\"]*", re.IGNORECASE)
SECRET_NAME = re.compile(r"pass|secret|token|smtp", re.IGNORECASE)
SECRET_TABLES = ("reservations", "mail")  # a misplaced value may be a password


def check_document(document: dict[str, Any], path: str) -> None:
    """Raise UsageError for the first key or value in the document of the file that is not as expected."""
    for table, content in document.items():
        if table not in (*TABLES, *NAMES) or "." in table:
            raise _unknown(path, "table" if isinstance(content, dict) else "key", table, content, [*TABLES, *NAMES])
        (_check_names if table in NAMES else _check_table)(table, content, path)
    _check_mail(document.get("mail", {}), path)
    for table in OF_GROUPS:
        _check_groups(table, document, path)


def _check_table(table: str, content: Any, path: str) -> None:
    for key, value in _items(table, content, path):
        shown = "..." if table in SECRET_TABLES else value
        if f"{table}.{key}" in NAMES:
            _check_names(f"{table}.{key}", value, path)
        elif key not in TABLES[table]:
            within = [name.partition(".")[2] for name in NAMES if name.startswith(f"{table}.")]
            raise _unknown(path, f"key in [{table}]", key, shown, [*TABLES[table], *within])
        else:
            _check_value(TABLES[table][key], value, f"{key!r} = {_shown(key, shown)} in [{table}]", path)


def _check_names(table: str, content: Any, path: str) -> None:
    for key, value in _items(table, content, path):
        if not is_name(key):
            raise UsageError(f"{path}: bad key {_shown('', key)} in [{table}]: expected {PERSON.expected}")
        _check_value(NAMES[table], value, f"{key!r} = {_shown(key, value)} in [{table}]", path)


def _items(table: str, content: Any, path: str) -> Iterable[tuple[str, Any]]:
    if not isinstance(content, dict):
        shown = "..." if table in SECRET_TABLES else content
        raise UsageError(f"{path}: bad value {table} = {_shown(table, shown)}: expected a table, [{table}]")
    return content.items()


def _check_value(rule: Rule, value: Any, found: str, path: str) -> None:
    if not rule.accepts(value):
        raise UsageError(f"{path}: bad value {found}: expected {rule.expected}")


def _check_mail(mail: dict[str, Any], path: str) -> None:
    """Raise UsageError if a key lacks another one, without which it has no meaning."""
    for key, other in NEEDED_IN_MAIL:
        if key in mail and other not in mail:
            raise UsageError(f"{path}: [mail] has {key!r} but no {other!r}: add it")


def _check_groups(table: str, document: dict[str, Any], path: str) -> None:
    """Raise UsageError for a group that something is set for, and that nobody is said to be in."""
    for group in document.get(table, {}).get("groups", {}):
        if group not in document.get("groups", {}):
            raise UsageError(
                f"{path}: {_shown('', group)} in [{table}.groups] is no group: add it to [groups], or correct its name"
            )


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
