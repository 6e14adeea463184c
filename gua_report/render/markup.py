"""HTML and SVG elements. Everything that is not markup already is escaped here, and nowhere else."""

from __future__ import annotations

from html import escape


class Markup(str):
    """Text that is markup already."""

    __slots__ = ()


def element(name: str, /, *children: str, **attributes: object) -> Markup:
    """An element with its children. Attributes are spelled `class_` and `aria_label`, and left out if they are None."""
    return Markup(f"{start(name, **attributes)}{join(*children)}</{name}>")


def start(name: str, /, **attributes: object) -> Markup:
    """The start of an element; all of it if it is one that has no end, such as `meta`."""
    given = [
        f' {key.rstrip("_").replace("_", "-")}="{escape(str(value))}"'
        for key, value in attributes.items()
        if value is not None
    ]
    return Markup(f"<{name}{''.join(given)}>")


def join(*parts: str) -> Markup:
    return Markup("".join(part if isinstance(part, Markup) else escape(part) for part in parts))


def lines(parts: list[Markup]) -> Markup:
    return Markup("\n".join(parts))
