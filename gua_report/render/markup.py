"""HTML and SVG elements. Everything that is not markup already is escaped here, and nowhere else."""

from __future__ import annotations

import re
from html import escape

SPECIAL = re.compile("[&<>\"']")


class Markup(str):
    """Text that is markup already."""

    __slots__ = ()


def element(name: str, /, *children: str, **attributes: object) -> Markup:
    """An element with its children. Attributes are spelled `class_` and `aria_label`, and left out if they are None."""
    return Markup(f"{start(name, **attributes)}{join(*children)}</{name}>")


def start(name: str, /, **attributes: object) -> Markup:
    """The start of an element; all of it if it is one that has no end, such as `meta`."""
    if not attributes:
        return Markup(f"<{name}>")
    given = [
        f' {key.rstrip("_").replace("_", "-")}="{_escape(str(value))}"'
        for key, value in attributes.items()
        if value is not None
    ]
    return Markup(f"<{name}{''.join(given)}>")


def join(*parts: str) -> Markup:
    return Markup("".join(part if isinstance(part, Markup) else _escape(part) for part in parts))


def _escape(text: str) -> str:
    # A page has tens of thousands of texts, nearly all without anything to escape.
    return escape(text) if SPECIAL.search(text) else text


def lines(parts: list[Markup]) -> Markup:
    return Markup("\n".join(parts))
