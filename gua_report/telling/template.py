"""The text of a reminder: the built-in one, or files of the administrator's, one for each language.

A template is text with $names, as Python's string.Template has them. It may begin with two lines of its own:
`Subject:`, and `Each:`, the line for each process, without which these are told in English.
"""

from __future__ import annotations

import re
from string import Template
from typing import NamedTuple

from gua_report.console.bounded_file import read_bounded
from gua_sample.errors import UsageError

MOST_BYTES = 64 << 10
FIELDS = frozenset(
    ("host", "person", "summary", "held", "commands", "hours", "idle_held_hours", "after", "rule", "ask", "more")
)
EACH_FIELDS = frozenset(("host", "gpu", "gib", "since", "pid", "command", "job"))
NEEDED = "held"
SUBJECT, EACH = "Subject:", "Each:"

BUILT_IN = """\
Subject: $host: $summary

Hello $person,

just a reminder, in case it was forgotten. On $host:

$held

As long as that memory is held, nobody else can use it.

Done? End the process. A notebook: shut its kernel down, as closing the
tab leaves it running. Anything else, on $host:

$commands

Still needed? Then say so, and you get no mail about it:

    gua note --until friday "what it is for"

$hours

$more

$rule

Questions? Ask $ask.
"""


class Words(NamedTuple):
    """A template, taken apart."""

    subject: Template
    each: Template | None  # None: in the words of the line at login
    text: Template


def parse_template(content: str, path: str) -> Words:
    """The template in a text. Raises UsageError that says what is wrong with it."""
    lines = content.replace("\r\n", "\n").split("\n")
    heads: dict[str, str] = {}
    while lines and lines[0].startswith((SUBJECT, EACH)):
        name, _, value = lines.pop(0).partition(":")
        heads[f"{name}:"] = value.strip()
    subject, text = Template(heads.get(SUBJECT, "$host: $summary")), Template("\n".join(lines).strip() + "\n")
    each = Template(heads[EACH]) if EACH in heads else None
    _check(subject, FIELDS, path)
    _check(text, FIELDS, path)
    if each:
        _check(each, EACH_FIELDS, f"{path}, in the line {EACH}")
    if NEEDED not in _names(text):
        raise UsageError(f"{path}: the text has no ${NEEDED}, so it would not say what it is about: add it")
    return Words(subject, each, text)


def _names(template: Template) -> set[str]:
    return {found["named"] or found["braced"] for found in template.pattern.finditer(template.template)} - {None}


def _check(template: Template, known: frozenset[str], path: str) -> None:
    try:
        template.substitute(dict.fromkeys(known, ""))
    except KeyError as error:
        names = ", ".join(f"${name}" for name in sorted(known))
        raise UsageError(f"{path}: ${error.args[0]} has no meaning: expected one of {names}") from error
    except ValueError as error:
        raise UsageError(f"{path}: {str(error).lower()}: write $$ for a dollar sign") from error


def load_templates(paths: tuple[str, ...]) -> list[Words]:
    """The templates of these files, or the built-in one. Raises UsageError for the first one that is bad."""
    return [_load(path) for path in paths] or [parse_template(BUILT_IN, "the built-in text")]


def _load(path: str) -> Words:
    try:
        content = read_bounded(path, MOST_BYTES)
        if not content.is_whole:
            raise UsageError(f"{path}: a template has at most {MOST_BYTES >> 10} kB: is it the right file?")
        return parse_template(content.data.decode(), path)
    except OSError as error:
        raise UsageError(f"{path}: the template can't be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: a template is a text in UTF-8: save it as such") from error


def tidy(text: str) -> str:
    """The text without the blank lines that empty values leave."""
    return re.sub(r"\n(?:[ \t]*\n){2,}", "\n\n", text).strip() + "\n"
